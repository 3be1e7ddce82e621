"""Exchange between sites along tables: R(h + D(MLP(C(h)))) with linear C and D.

Small models on cpu run whole segments of it by kernels that follow the same tables (`eqr.model.fast`).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from eqr.model.layers import normalise

ABSENT = -1
"""In a table: nothing here, which counts as zeros."""


class Exchange(nn.Module, ABC):
    """What an MLP hears of the sites (collect) and who hears the MLP (deliver)."""

    sizes: tuple[int, ...]
    """Places at which each of the MLPs acts."""

    def _keep(self, name: str, table: Tensor) -> None:
        # follows the model to its device, is never saved: the config says it all
        self.register_buffer(name, table, persistent=False)

    @abstractmethod
    def tables(self) -> dict[str, int]:
        """Return the addresses and sizes by which `eqr.cpu.segment.Plan` knows the tables."""

    def parts(self, places: Tensor) -> tuple[Tensor, ...]:
        """View the places of each MLP."""
        return torch.split(places, list(self.sizes))

    @abstractmethod
    def collect(self, h: Tensor) -> Tensor:
        """C(h): (sites, rows, width) to (places, rows, inputs)."""

    @abstractmethod
    def deliver(self, messages: Tensor) -> Tensor:
        """D(messages): (places, rows, width) to (sites, rows, width)."""


def exchange(h: Tensor, along: Exchange, ups: Sequence[Tensor], downs: Sequence[Tensor]) -> Tensor:
    """Mix h (sites, rows, width); the MLP of part i of the places has weights ups[i] and downs[i]."""
    messages = []
    for part, up, down in zip(along.parts(along.collect(h)), ups, downs, strict=True):
        g, u = F.linear(part, up).chunk(2, dim=2)
        messages.append(F.linear(F.silu(g) * u, down))
    return normalise(h + along.deliver(torch.cat(messages)), dim=2)


class Factors(Exchange):
    """Groups of sites: a group hears the sum of its members over the root of their number, and answers."""

    members: Tensor
    """(groups, members)."""
    factors: Tensor
    """One over the root of each group's number of members."""
    memberships: Tensor
    """(sites, groups of a site)."""

    def __init__(self, families: tuple[NDArray[np.intp], ...], sites: int) -> None:
        super().__init__()
        self.sizes = tuple(len(members) for members in families)
        most = max(members.shape[1] for members in families)
        tables = [np.pad(m, ((0, 0), (0, most - m.shape[1])), constant_values=ABSENT) for m in families]
        members = torch.from_numpy(np.concatenate(tables).astype(np.int64))
        counts = (members != ABSENT).sum(dim=1)
        self._keep("members", members)
        self._keep("factors", counts.clamp(min=1).float().rsqrt())
        self._keep("memberships", torch.from_numpy(_memberships(members.numpy(), sites)))

    def tables(self) -> dict[str, int]:
        """Only groups."""
        return {
            "arms": 1,
            "table": 0,
            "groups": len(self.members),
            "members": self.members.data_ptr(),
            "most_members": self.members.shape[1],
            "factors": self.factors.data_ptr(),
            "memberships": self.memberships.data_ptr(),
            "most_memberships": self.memberships.shape[1],
        }

    def collect(self, h: Tensor) -> Tensor:
        """Sum members; the factor keeps the size of the sum independent of their number."""
        return _gathered(h, self.members).sum(dim=1) * self.factors.to(h)[:, None, None]

    def count(self, marks: Tensor, *, at_least: float = 1.0) -> Tensor:
        """Count the groups of each site in which so many members are marked; marks are (sites, rows, 1)."""
        enough = _gathered(marks, self.members).sum(dim=1) >= at_least
        return self.deliver(enough.to(marks))

    def deliver(self, messages: Tensor) -> Tensor:
        """Sum what the groups of each site say."""
        return _gathered(messages, self.memberships).sum(dim=1)


class Cross(Exchange):
    """A cell and its four neighbours side by side: itself, above, below, left, right."""

    ARMS: ClassVar[int] = 5
    arms: Tensor
    """(cells, 5)."""

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        cells = np.pad(np.arange(rows * columns).reshape(rows, columns), 1, constant_values=ABSENT)
        middle, before, after = slice(1, -1), slice(0, -2), slice(2, None)
        arms = ((middle, middle), (before, middle), (after, middle), (middle, before), (middle, after))
        table = np.stack([cells[arm].reshape(-1) for arm in arms], axis=1)
        self._keep("arms", torch.from_numpy(table.astype(np.int64)))
        self.sizes = (rows * columns,)

    def tables(self) -> dict[str, int]:
        """Only arms."""
        names = "groups", "members", "most_members", "factors", "memberships", "most_memberships"
        return {"arms": self.ARMS, "table": self.arms.data_ptr(), **dict.fromkeys(names, 0)}

    def collect(self, h: Tensor) -> Tensor:
        """Put the five side by side."""
        return _gathered(h, self.arms).transpose(1, 2).flatten(2)

    def deliver(self, messages: Tensor) -> Tensor:
        """Each cell hears its own."""
        return messages


def _memberships(members: NDArray[np.int64], sites: int) -> NDArray[np.int64]:
    """Return the groups of each site, (sites, most groups a site has), padded."""
    groups, columns = np.nonzero(members != ABSENT)
    owners = members[groups, columns]
    order = np.lexsort((groups, owners))
    owners, groups = owners[order], groups[order]
    starts = np.searchsorted(owners, np.arange(sites))
    ranks = np.arange(len(owners)) - starts[owners]
    table = np.full((sites, int(ranks.max(initial=0)) + 1), ABSENT, np.int64)
    table[owners, ranks] = groups
    return table


def _gathered(h: Tensor, table: Tensor) -> Tensor:
    """h[table], zeros where absent: (places, entries, rows, width)."""
    found = h.index_select(0, table.clamp(min=0).flatten()).view(*table.shape, *h.shape[1:])
    return found.masked_fill((table == ABSENT)[:, :, None, None], 0.0)
