"""Mixers that are told the structure of a puzzle: neighbours and groups; and live candidates.

Sites exchange along tables, R(h + D(MLP(C(h)))) with linear C and D. `Neighbours` knows that a cell has four
of them, `Groups` which cells constrain each other.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import PositiveInt
from torch import Tensor, nn
from torch.nn import functional as F

from eqr.errors import UserError
from eqr.model.layers import matrix, normalise, scaled_normal
from eqr.model.mixers import Mixer
from eqr.tasks import task_named

if TYPE_CHECKING:
    from eqr.model.config import ReasonerConfig

ABSENT = -1
"""In a table: nothing here, which counts as zeros."""


def holds(h: Tensor) -> Tensor:
    """Whether a site (sites, rows, width) holds anything, (sites, rows, 1)."""
    size: Tensor = torch.linalg.vector_norm(h.detach(), dim=2, keepdim=True)  # one pass; any() takes several
    return size > 0


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


class Structured(Mixer):
    """A mixer that is told which sites belong together; its weights know no grid size."""

    sized: ClassVar[bool] = False
    reads_mean: ClassVar[bool] = True

    def check(self, config: "ReasonerConfig") -> None:
        """Sites are those of the grid, which need no other hint of where they are."""
        if config.identity_tokens:
            raise ValueError(
                f"the {self.kind} mixer has no place for identity tokens; set identity_tokens to 0"
            )
        if config.positions != "none":
            raise ValueError(f"the {self.kind} mixer knows places by their structure; set positions to none")

    def check_live(self, config: "ReasonerConfig") -> None:
        """The task must say where symbols differ."""
        if not task_named(config.task or "").distinct():
            raise ValueError(
                f"sites.live: {config.task} says of no groups that symbols differ (Task.distinct)"
            )

    def families(self, config: "ReasonerConfig") -> dict[str, NDArray[np.intp]]:
        """Return the groups of sites that the task declares, by family, each (groups, members), -1 for none.

        With candidates as sites, a group of cells becomes one for each symbol, and the candidates of a cell
        are a family of their own.
        """
        if config.task is None:
            raise UserError("groups come from a task; this model has none")
        cells = task_named(config.task).groups()
        if not cells:
            raise UserError(f"the task {config.task} declares no groups (Task.groups)")
        if config.sites is None:
            return cells
        symbols = np.arange(config.symbols)
        own = np.arange(config.cells)[:, None] * config.symbols + symbols
        copied = {
            name: np.where(members < 0, ABSENT, members * config.symbols)[:, None, :]
            + np.where(members[:, None, :] < 0, 0, symbols[:, None])
            for name, members in cells.items()
        }
        return {"cell": own, **{name: table.reshape(-1, table.shape[2]) for name, table in copied.items()}}

    def distinct(self, config: "ReasonerConfig") -> tuple[str, ...]:
        """Return the families in which only one candidate can be right."""
        return ("cell", *task_named(config.task or "").distinct())

    def barred(self, config: "ReasonerConfig") -> NDArray[np.intp]:
        """Return the sites that no answer has, whatever is given."""
        return np.zeros(0, np.intp)


class Neighbours(Structured):
    """A cell and its four neighbours, told apart, through a gated MLP; zeros stand outside the grid."""

    kind: Literal["neighbours"] = "neighbours"
    hidden: PositiveInt | None = None
    """Hidden size of the gated MLP; None is the model's width."""

    def check(self, config: "ReasonerConfig") -> None:
        """Neighbours are those of grid cells."""
        super().check(config)
        if config.sites is not None:
            raise ValueError("the neighbours mixer knows cells; leave sites at null")

    def layer(self, config: "ReasonerConfig", generator: torch.Generator) -> nn.Module:
        """Build a `NeighbourMlp`."""
        return NeighbourMlp(config, self.hidden or config.width, generator)

    def multiply_adds(self, config: "ReasonerConfig") -> int:
        """Gate and value from five cells, output to one."""
        return 11 * config.width * (self.hidden or config.width) * config.tokens

    def widest(self, config: "ReasonerConfig") -> int:
        """Five cells side by side, or gate and value."""
        return max(5 * config.width, 2 * (self.hidden or config.width)) * config.tokens


class NeighbourMlp(nn.Module):
    """h <- R(h + W_down(silu(g) * u)), gate and value seeing a cell and its four neighbours."""

    def __init__(self, config: "ReasonerConfig", hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        self.up = matrix(2 * hidden, Cross.ARMS * config.width, generator)
        self.down = matrix(config.width, hidden, generator)
        self.along = Cross(config.rows, config.columns)

    def forward(self, h: Tensor) -> Tensor:
        """Mix cells with their neighbours."""
        return exchange(h, self.along, [self.up], [self.down])


class Groups(Structured):
    """Message passing on the task's factor graph: members pool into their group, a gated MLP answers them.

    The families are those of `Task.groups`, weights are one set for each family. With candidates as sites the
    groups are copied for every symbol, and the candidates of a cell are a family of their own.
    """

    kind: Literal["groups"] = "groups"
    hidden: PositiveInt | None = None
    """Hidden size of each family's gated MLP; None is four times the model's width."""

    def check(self, config: "ReasonerConfig") -> None:
        """The task must have groups."""
        super().check(config)
        try:
            self.families(config)
        except UserError as error:
            raise ValueError(str(error)) from None

    def layer(self, config: "ReasonerConfig", generator: torch.Generator) -> nn.Module:
        """Build a `GroupMlp`."""
        return GroupMlp(config, self.families(config), self._hidden(config), generator)

    def multiply_adds(self, config: "ReasonerConfig") -> int:
        """Gate, value and output at every group."""
        groups = sum(len(members) for members in self.families(config).values())
        return 3 * groups * config.width * self._hidden(config)

    def widest(self, config: "ReasonerConfig") -> int:
        """Gate and value of all groups, or the messages."""
        groups = sum(len(members) for members in self.families(config).values())
        return max(2 * self._hidden(config) * groups, config.width * config.tokens)

    def _hidden(self, config: "ReasonerConfig") -> int:
        return self.hidden or 4 * config.width


class GroupMlp(nn.Module):
    """h <- R(h + sum over the groups of a site of what each group's gated MLP says)."""

    def __init__(
        self,
        config: "ReasonerConfig",
        families: dict[str, NDArray[np.intp]],
        hidden: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.live = config.live
        self.along = Factors(tuple(families.values()), config.tokens)
        # pairs, because a dictionary would be sorted, and weights come in the order of the families
        self.up = nn.ParameterDict([(name, matrix(2 * hidden, config.width, generator)) for name in families])
        # each site hears several groups, so each speaks more softly
        self.down = nn.ParameterDict([(name, softly(config.width, hidden, generator)) for name in families])

    def forward(self, h: Tensor) -> Tensor:
        """Let the members of every group exchange what they hold."""
        mixed = exchange(h, self.along, list(self.up.values()), list(self.down.values()))
        return torch.where(holds(h), mixed, 0.0) if self.live else mixed  # masked sites receive no messages


def softly(rows: int, columns: int, generator: torch.Generator) -> nn.Parameter:
    """Make a weight (out, in) of half the usual size."""
    return nn.Parameter(scaled_normal(rows, columns, std=0.5 * columns**-0.5, generator=generator))


class LiveCandidates(nn.Module):
    """Candidates without those that the givens rule out, which are left out of state, sums and answer.

    A symbol that is given rules out the others of its cell, and itself elsewhere in each group where no
    symbol stands twice (`Task.distinct`). What is ruled out holds zeros, in the input and in every state, by
    which it is known. A candidate that is not ruled out but alone in all its groups is settled, as givens
    are: nothing it holds matters to another, so it stays what its input is. The rest is open, and is what a
    segment changes.
    """

    barred: Tensor
    """(sites, 1, 1): what no answer has."""

    def __init__(self, config: "ReasonerConfig") -> None:
        super().__init__()
        mixer = config.mixer
        assert isinstance(mixer, Structured)
        families, distinct = mixer.families(config), mixer.distinct(config)
        barred = torch.zeros(config.tokens, 1, 1, dtype=torch.bool)
        barred[torch.from_numpy(mixer.barred(config))] = True
        self.register_buffer("barred", barred, persistent=False)
        self.groups = Factors(tuple(families.values()), config.tokens)
        self.distinct = Factors(tuple(families[name] for name in distinct), config.tokens)

    def possible(self, given: Tensor) -> Tensor:
        """Return what the given candidates (sites, rows, 1) leave, the same shape, bool."""
        return (given | (self.distinct.count(given.float()) == 0)) & ~self.barred

    def open(self, x: Tensor) -> Tensor:
        """Return the sites of an input that a segment changes, (sites, rows, 1), bool."""
        there = holds(x)
        company = self.groups.count(there.float(), at_least=2.0)
        return there & (company > 0)
