"""Exchange between sites along tables: R(h + D(MLP(C(h)))) with linear C and D, and its gradient.

As in `eqr.model.gated`, memory is swept as seldom as possible: on cpu in float32 by compiled kernels that
follow the tables, elsewhere (float64, accelerators, compilers, transforms) by PyTorch's indexing.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from eqr.model.packed import product
from eqr.model.passes import (
    EPSILON,
    gate,
    gate_,
    gate_gradient,
    is_plain,
    normalise,
    normalise_gradient,
    swept,
)

ABSENT = -1
"""In a table: nothing here, which counts as zeros."""


class Exchange(nn.Module, ABC):
    """What an MLP hears of the sites (collect) and who hears the MLP (deliver)."""

    sizes: tuple[int, ...]
    """Places at which each of the MLPs acts."""

    def _keep(self, name: str, table: Tensor) -> None:
        # follows the model to its device, is never saved: the config says it all
        self.register_buffer(name, table, persistent=False)

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
    def add_and_normalise(self, h: Tensor, messages: Tensor) -> tuple[Tensor, Tensor]:
        """R(h + D(messages)) for plain tensors, and the factors that its gradient needs."""

    @abstractmethod
    def to_messages(self, towards: Tensor) -> Tensor:
        """D transposed, for plain tensors."""

    @abstractmethod
    def add_to_sites(self, towards: Tensor, to_collected: Tensor) -> Tensor:
        """`towards` + C transposed (to_collected), for plain tensors; `towards` may be overwritten."""


def exchange(h: Tensor, along: Exchange, ups: Sequence[Tensor], downs: Sequence[Tensor]) -> Tensor:
    """Mix h (sites, rows, width); the MLP of part i of the places has weights ups[i] and downs[i]."""
    plain = swept(h, graph=True) and all(is_plain(w, torch.float32, graph=True) for w in (*ups, *downs))
    if not plain or torch.is_autocast_enabled("cpu"):
        return _composed(h, along, *ups, *downs)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (h, *ups, *downs)):
        mixed: Tensor = _Exchange.apply(h, along, *ups, *downs)  # type: ignore[no-untyped-call]  # PyTorch's own
        return mixed
    return _forward(h, along, ups, downs, keep=False)[0]


def _composed(h: Tensor, along: Exchange, *weights: Tensor) -> Tensor:
    ups, downs = weights[: len(weights) // 2], weights[len(weights) // 2 :]
    said = []
    for part, up, down in zip(along.parts(along.collect(h)), ups, downs, strict=True):
        said.append(gate((part @ up.t()).flatten(0, 1), 1).view(*part.shape[:2], -1) @ down.t())
    return normalise(h + along.deliver(torch.cat(said)), dim=2)


def _forward(
    h: Tensor, along: Exchange, ups: Sequence[Tensor], downs: Sequence[Tensor], *, keep: bool
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    collected = along.collect(h)
    messages = h.new_empty(len(collected), *h.shape[1:])
    projections = []
    places = along.parts(collected), along.parts(messages)
    for part, said, up, down in zip(*places, ups, downs, strict=True):
        both = product(part.flatten(0, 1), up)
        torch.mm(gate(both, 1) if keep else gate_(both, 1), down.t(), out=said.flatten(0, 1))
        projections.append(both)
    out, scale = along.add_and_normalise(h, messages)
    return out, scale, collected, projections


class _Exchange(torch.autograd.Function):
    """The same with its gradient, which stores what was collected, the projections and the result."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, along: Exchange, *weights: Tensor) -> Tensor:
        ups, downs = weights[: len(weights) // 2], weights[len(weights) // 2 :]
        out, scale, collected, projections = _forward(h, along, ups, downs, keep=True)
        ctx.along, ctx.count = along, len(ups)
        ctx.save_for_backward(h, out, scale, collected, *weights, *projections)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        h, out, scale, collected, *others = ctx.saved_tensors
        along, count = ctx.along, ctx.count
        ups, downs, projections = others[:count], others[count : 2 * count], others[2 * count :]
        if torch.is_grad_enabled():  # the gradient is to be differentiated again
            wanted = (h, *ups, *downs)
            mixed = _composed(h, along, *ups, *downs)
            found = torch.autograd.grad(mixed, wanted, gradients, create_graph=True, allow_unused=True)
            return found[0], None, *found[1:]
        width = out.shape[2]
        inner = normalise_gradient(
            gradients[0].reshape(-1, width), out.view(-1, width), scale.view(-1, 1), dim=1
        ).view_as(out)
        to_messages = along.to_messages(inner)
        to_collected = torch.empty_like(collected)
        to_ups, to_downs = [], []
        places = along.parts(collected), along.parts(to_messages), along.parts(to_collected)
        for part, said, to_part, up, down, both in zip(*places, ups, downs, projections, strict=True):
            said = said.flatten(0, 1)
            to_both, gated = gate_gradient(both, said @ down, 1)
            to_downs.append(said.t() @ gated)
            to_ups.append(to_both.t() @ part.flatten(0, 1))
            torch.mm(to_both, up, out=to_part.flatten(0, 1))
        return along.add_to_sites(inner, to_collected), None, *to_ups, *to_downs


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

    def collect(self, h: Tensor) -> Tensor:
        """Sum members; the factor keeps the size of the sum independent of their number."""
        if swept(h):
            return _pool(h, self.members, self.factors)
        return _gathered(h, self.members).sum(dim=1) * self.factors.to(h)[:, None, None]

    def deliver(self, messages: Tensor) -> Tensor:
        """Sum what the groups of each site say."""
        return _gathered(messages, self.memberships).sum(dim=1)

    def add_and_normalise(self, h: Tensor, messages: Tensor) -> tuple[Tensor, Tensor]:
        """One sweep over the sites."""
        from eqr.model import kernels

        out, scale = torch.empty_like(h), h.new_empty(h.shape[:2])
        kernels.spread_and_normalise(
            h.data_ptr(), messages.data_ptr(), self.memberships.data_ptr(), out.data_ptr(), scale.data_ptr(),
            *self.memberships.shape, *h.shape[1:], kernels.F4(EPSILON),
        )  # fmt: skip
        return out, scale

    def to_messages(self, towards: Tensor) -> Tensor:
        """What a group says reaches its members alike, so their gradients add up."""
        return _pool(towards, self.members, None)

    def add_to_sites(self, towards: Tensor, to_collected: Tensor) -> Tensor:
        """A site gets the gradients of its groups, each times the group's factor."""
        from eqr.model import kernels

        kernels.spread_scaled(
            towards.data_ptr(), to_collected.data_ptr(), self.memberships.data_ptr(), self.factors.data_ptr(),
            *self.memberships.shape, towards[0].numel(),
        )  # fmt: skip
        return towards


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

    def collect(self, h: Tensor) -> Tensor:
        """Put the five side by side."""
        if swept(h):
            from eqr.model import kernels

            sites, rows, width = h.shape
            out = h.new_empty(sites, rows, self.ARMS * width)
            kernels.gather(h.data_ptr(), self.arms.data_ptr(), out.data_ptr(), sites, self.ARMS, rows, width)
            return out
        return _gathered(h, self.arms).transpose(1, 2).flatten(2)

    def deliver(self, messages: Tensor) -> Tensor:
        """Each cell hears its own."""
        return messages

    def add_and_normalise(self, h: Tensor, messages: Tensor) -> tuple[Tensor, Tensor]:
        """As in any gated MLP, in place of the messages."""
        from eqr.model.passes import add_and_normalise_

        width = h.shape[2]
        out, scale = add_and_normalise_(messages.view(-1, width), h.view(-1, width), 1)
        return out.view_as(h), scale

    def to_messages(self, towards: Tensor) -> Tensor:
        """Each cell its own."""
        return towards

    def add_to_sites(self, towards: Tensor, to_collected: Tensor) -> Tensor:
        """What the neighbour above heard of me is in its arm below, and so on."""
        from eqr.model import kernels

        sites, rows, width = towards.shape
        kernels.ungather(
            towards.data_ptr(), self.arms.data_ptr(), to_collected.data_ptr(), sites, self.ARMS, rows, width
        )
        return towards


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
    from eqr.model import kernels

    out = h.new_empty(len(members), *h.shape[1:])
    kernels.pool(
        h.data_ptr(), members.data_ptr(), 0 if factors is None else factors.data_ptr(), out.data_ptr(),
        *members.shape, h[0].numel(),
    )  # fmt: skip
    return out
