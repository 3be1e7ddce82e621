"""Exchange between sites along tables: R(h + D(MLP(C(h)))) with linear C and D, and its gradient.

As in `eqr.cpu.gated`, memory is swept as seldom as possible: on cpu in float32 by compiled kernels that
follow the tables, elsewhere (float64, accelerators, compilers, transforms) by PyTorch's indexing.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from eqr.cpu.sweeps import EPSILON, normalise_gradient
from eqr.cpu.tiled import fits, mix, say, say_gradient, swept
from eqr.model.layers import gate, normalise

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

    @abstractmethod
    def mix(
        self, h: Tensor, ups: Sequence[Tensor], downs: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """R(h + D(MLP(C(h)))) for plain tensors, the factors its gradient needs, and C(h) if it was kept."""

    @abstractmethod
    def gradient(
        self,
        inner: Tensor,
        h: Tensor,
        collected: Tensor | None,
        ups: Sequence[Tensor],
        downs: Sequence[Tensor],
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Gradients of h, ups and downs, given that of h + D(MLP(C(h))), which may be overwritten."""


def exchange(h: Tensor, along: Exchange, ups: Sequence[Tensor], downs: Sequence[Tensor]) -> Tensor:
    """Mix h (sites, rows, width); the MLP of part i of the places has weights ups[i] and downs[i]."""
    if not fits(h, (*ups, *downs)):
        return _composed(h, along, *ups, *downs)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (h, *ups, *downs)):
        mixed: Tensor = _Exchange.apply(h, along, *ups, *downs)  # type: ignore[no-untyped-call]  # PyTorch's own
        return mixed
    return along.mix(h, ups, downs)[0]


def _composed(h: Tensor, along: Exchange, *weights: Tensor) -> Tensor:
    ups, downs = weights[: len(weights) // 2], weights[len(weights) // 2 :]
    said = []
    for part, up, down in zip(along.parts(along.collect(h)), ups, downs, strict=True):
        said.append(gate((part @ up.t()).flatten(0, 1), 1).view(*part.shape[:2], -1) @ down.t())
    return normalise(h + along.deliver(torch.cat(said)), dim=2)


class _Exchange(torch.autograd.Function):
    """The same with its gradient, which stores what was collected and the result."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, along: Exchange, *weights: Tensor) -> Tensor:
        ctx.along, ctx.count = along, len(weights) // 2
        out, scale, collected = along.mix(h, weights[: ctx.count], weights[ctx.count :])
        ctx.save_for_backward(h, out, scale, collected, *weights)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        h, out, scale, collected, *weights = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient is to be differentiated again
            mixed = _composed(h, ctx.along, *weights)
            found = torch.autograd.grad(mixed, (h, *weights), gradients, create_graph=True, allow_unused=True)
            return found[0], None, *found[1:]
        width = out.shape[2]
        inner = normalise_gradient(
            gradients[0].reshape(-1, width), out.view(-1, width), scale.view(-1, 1), dim=1
        ).view_as(out)
        ups, downs = weights[: ctx.count], weights[ctx.count :]
        to_h, to_ups, to_downs = ctx.along.gradient(inner, h, collected, ups, downs)
        return to_h, None, *to_ups, *to_downs


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
        if swept(h) and not (torch.is_grad_enabled() and h.requires_grad):
            return _pool(h, self.members, self.factors)
        return _gathered(h, self.members).sum(dim=1) * self.factors.to(h)[:, None, None]

    def count(self, marks: Tensor, *, at_least: float = 1.0) -> Tensor:
        """Count the groups of each site in which so many members are marked; marks are (sites, rows, 1)."""
        enough = _gathered(marks, self.members).sum(dim=1) >= at_least
        return self.deliver(enough.to(marks))

    def deliver(self, messages: Tensor) -> Tensor:
        """Sum what the groups of each site say."""
        return _gathered(messages, self.memberships).sum(dim=1)

    def mix(
        self, h: Tensor, ups: Sequence[Tensor], downs: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Pool, let every group speak, and sweep once over the sites."""
        from eqr.cpu import kernels

        collected = self.collect(h)
        messages = torch.empty_like(collected)
        for inputs, said, up, down in zip(
            self.parts(collected), self.parts(messages), ups, downs, strict=True
        ):
            say(inputs, up, down, said)
        out, scale = torch.empty_like(h), h.new_empty(h.shape[:2])
        kernels.spread_and_normalise(
            h.data_ptr(), messages.data_ptr(), self.memberships.data_ptr(), out.data_ptr(), scale.data_ptr(),
            *self.memberships.shape, *h.shape[1:], kernels.F4(EPSILON),
        )  # fmt: skip
        return out, scale, collected

    def gradient(
        self,
        inner: Tensor,
        h: Tensor,
        collected: Tensor | None,
        ups: Sequence[Tensor],
        downs: Sequence[Tensor],
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """What a group says reaches its members alike, so their gradients add up; then back to the sites."""
        from eqr.cpu import kernels

        assert collected is not None
        to_messages, to_collected = _pool(inner, self.members, None), torch.empty_like(collected)
        places = self.parts(to_messages), self.parts(collected), self.parts(to_collected)
        found = [
            say_gradient(towards, inputs, up, down, into=into)
            for towards, inputs, into, up, down in zip(*places, ups, downs, strict=True)
        ]
        kernels.spread_scaled(
            inner.data_ptr(), to_collected.data_ptr(), self.memberships.data_ptr(), self.factors.data_ptr(),
            *self.memberships.shape, inner[0].numel(),
        )  # fmt: skip
        return inner, [to_up for to_up, _ in found], [to_down for _, to_down in found]


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

    def mix(
        self, h: Tensor, ups: Sequence[Tensor], downs: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Gather tile by tile; nothing is kept."""
        return *mix(h, ups[0], downs[0], self.arms), None

    def gradient(
        self,
        inner: Tensor,
        h: Tensor,
        collected: Tensor | None,
        ups: Sequence[Tensor],
        downs: Sequence[Tensor],
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """What a cell hears of its neighbours goes back to them, added to what each gets anyway."""
        to_h = inner.clone()
        to_up, to_down = say_gradient(inner, h, ups[0], downs[0], into=to_h, table=self.arms)
        return to_h, [to_up], [to_down]


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


def _pool(h: Tensor, members: Tensor, factors: Tensor | None) -> Tensor:
    from eqr.cpu import kernels

    out = h.new_empty(len(members), *h.shape[1:])
    kernels.pool(
        h.data_ptr(), members.data_ptr(), 0 if factors is None else factors.data_ptr(), out.data_ptr(),
        *members.shape, h[0].numel(),
    )  # fmt: skip
    return out
