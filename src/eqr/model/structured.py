"""Mixers that are told the structure of a puzzle (neighbours, groups, rules), and candidates as sites.

Sites exchange along tables, R(h + D(MLP(C(h)))) with linear C and D. `Neighbours` knows that a cell has four
of them, `Groups` which cells constrain each other, `Rules` what exactly is asked of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import PositiveInt
from torch import Tensor, nn
from torch.nn import functional as F

from eqr.errors import UserError
from eqr.model.definitions import matrix, normalise
from eqr.model.mixers import Mixer
from eqr.model.operator import Application, Applications, Move, run_segment
from eqr.model.state import State
from eqr.tasks import task_named
from eqr.tasks.rows import RowKind, Rows

if TYPE_CHECKING:
    from eqr.model.config import ReasonerConfig

Families = dict[str, NDArray[np.intp]]
"""Groups of sites by family, each (groups, members)."""
ABSENT = -1
"""In a table: nothing here, which counts as zeros."""
IMPOSSIBLE = -1e4
"""Logit of tokens that are no candidates: no weight in any softmax, yet a number to calculate with."""
FACTS = 6
"""Numbers that a row of a count or a sum is told."""
PLAIN = (RowKind.ONCE, RowKind.MOST)


def holds(h: Tensor) -> Tensor:
    """Whether a site (sites, rows, width) holds anything, (sites, rows, 1)."""
    size: Tensor = torch.linalg.vector_norm(h.detach(), dim=2, keepdim=True)  # one pass; any() takes several
    return size > 0


def _keep(module: nn.Module, **tables: Tensor) -> None:
    """Hold tables that follow a module to its device and are never saved, since the config implies them."""
    for name, table in tables.items():
        module.register_buffer(name, table, persistent=False)


class Exchange(nn.Module, ABC):
    """What an MLP hears of the sites (collect) and who hears the MLP (deliver)."""

    sizes: tuple[int, ...]
    """Places at which each of the MLPs acts."""

    @abstractmethod
    def collect(self, h: Tensor) -> Tensor:
        """C(h): (sites, rows, width) to (places, rows, inputs)."""

    @abstractmethod
    def deliver(self, messages: Tensor) -> Tensor:
        """D(messages): (places, rows, width) to (sites, rows, width)."""


def exchange(h: Tensor, along: Exchange, ups: Sequence[Tensor], downs: Sequence[Tensor]) -> Tensor:
    """Mix h (sites, rows, width); the MLP of part i of the places has weights ups[i] and downs[i]."""
    parts = torch.split(along.collect(h), list(along.sizes))
    messages = [_answer(*part) for part in zip(parts, ups, downs, strict=True)]
    return normalise(h + along.deliver(torch.cat(messages)), dim=2)


def _answer(heard: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """W_down(silu(g) * u) at every place."""
    g, u = F.linear(heard, up).chunk(2, dim=2)
    return F.linear(F.silu(g) * u, down)


class Factors(Exchange):
    """Groups of sites: a group hears the sum of its members over the root of their number, and answers."""

    members: Tensor
    """(groups, members)."""
    factors: Tensor
    """One over the root of each group's number of members."""
    memberships: Tensor
    """(sites, groups of a site)."""

    def __init__(self, families: Sequence[NDArray[np.intp]], sites: int) -> None:
        super().__init__()
        self.sizes = tuple(len(members) for members in families)
        most = max(members.shape[1] for members in families)
        tables = [np.pad(m, ((0, 0), (0, most - m.shape[1])), constant_values=ABSENT) for m in families]
        members = torch.from_numpy(np.concatenate(tables).astype(np.int64))
        counts = (members != ABSENT).sum(dim=1)
        memberships = torch.from_numpy(_memberships(members.numpy(), sites))
        factors = counts.clamp(min=1).float().rsqrt()
        _keep(self, members=members, factors=factors, memberships=memberships)

    def collect(self, h: Tensor) -> Tensor:
        """Sum members; the factor keeps the size of the sum independent of their number."""
        return _gathered(h, self.members).sum(dim=1) * self.factors.to(h)[:, None, None]

    def deliver(self, messages: Tensor) -> Tensor:
        """Sum what the groups of each site say."""
        return _gathered(messages, self.memberships).sum(dim=1)

    def count(self, marks: Tensor, *, at_least: float = 1.0) -> Tensor:
        """Count the groups of each site in which so many members are marked; marks are (sites, rows, 1)."""
        enough = _gathered(marks, self.members).sum(dim=1) >= at_least
        return self.deliver(enough.to(marks))


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
        _keep(self, arms=torch.from_numpy(table.astype(np.int64)))
        self.sizes = (rows * columns,)

    def collect(self, h: Tensor) -> Tensor:
        """Put the five side by side."""
        return _gathered(h, self.arms).transpose(1, 2).flatten(2)

    def deliver(self, messages: Tensor) -> Tensor:
        """Each cell hears its own."""
        return messages


class Structured(Mixer):
    """A mixer that is told which sites belong together; its weights know no grid size."""

    sized: ClassVar[bool] = False
    reads_mean: ClassVar[bool] = True
    hidden: PositiveInt | None = None
    """Hidden size of each gated MLP; None is four times the model's width, for neighbours the width."""

    def check(self, config: "ReasonerConfig") -> None:
        if config.identity_tokens:
            raise ValueError(
                f"the {self.kind} mixer has no place for identity tokens; set identity_tokens to 0"
            )
        if config.positions != "none":
            raise ValueError(f"the {self.kind} mixer knows places by their structure; set positions to none")

    def places(self, config: "ReasonerConfig") -> int:
        """Return how many gated MLPs speak at once."""
        return sum(map(len, self.families(config).values()))

    def multiply_adds(self, config: "ReasonerConfig") -> int:
        return 3 * self.places(config) * config.width * self._hidden(config)

    def widest(self, config: "ReasonerConfig") -> int:
        return max(2 * self._hidden(config) * self.places(config), config.width * config.tokens)

    def _hidden(self, config: "ReasonerConfig") -> int:
        return self.hidden or 4 * config.width

    def families(self, config: "ReasonerConfig") -> Families:
        """Return the groups of sites that the task declares, -1 for none.

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
        families = {"cell": _candidates_of_cells(config)}
        for name, members in cells.items():
            copied = members[:, None, :] * config.symbols + symbols[:, None]
            absent = np.broadcast_to(members[:, None, :] < 0, copied.shape)
            families[name] = np.where(absent, ABSENT, copied).reshape(-1, members.shape[1])
        return families

    def distinct(self, config: "ReasonerConfig") -> tuple[str, ...]:
        """Return the families in which only one candidate can be right."""
        return ("cell", *task_named(config.task or "").distinct())

    def barred(self, config: "ReasonerConfig") -> NDArray[np.intp]:
        """Return the sites that no answer has, whatever is given."""
        return np.zeros(0, np.intp)


def _candidates_of_cells(config: "ReasonerConfig") -> NDArray[np.intp]:
    return np.arange(config.tokens).reshape(-1, config.symbols)


class Neighbours(Structured):
    """A cell and its four neighbours, told apart, through a gated MLP; zeros stand outside the grid."""

    kind: Literal["neighbours"] = "neighbours"

    def check(self, config: "ReasonerConfig") -> None:
        super().check(config)
        if config.sites is not None:
            raise ValueError("the neighbours mixer knows cells; leave sites at null")

    def layer(self, config: "ReasonerConfig", generator: torch.Generator) -> nn.Module:
        return NeighbourMlp(config, self.hidden or config.width, generator)

    def multiply_adds(self, config: "ReasonerConfig") -> int:
        return 11 * config.width * (self.hidden or config.width) * config.tokens

    def widest(self, config: "ReasonerConfig") -> int:
        return max(5 * config.width, 2 * (self.hidden or config.width)) * config.tokens


class NeighbourMlp(nn.Module):
    """h <- R(h + W_down(silu(g) * u)), gate and value seeing a cell and its four neighbours."""

    def __init__(self, config: "ReasonerConfig", hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        self.up = matrix(2 * hidden, Cross.ARMS * config.width, generator)
        self.down = matrix(config.width, hidden, generator)
        self.along = Cross(config.rows, config.columns)

    def forward(self, h: Tensor) -> Tensor:
        return exchange(h, self.along, [self.up], [self.down])


class Groups(Structured):
    """Message passing on the task's factor graph: members pool into their group, a gated MLP answers them.

    The families are those of `Task.groups`, weights are one set for each family. With candidates as sites the
    groups are copied for every symbol, and the candidates of a cell are a family of their own.
    """

    kind: Literal["groups"] = "groups"

    def check(self, config: "ReasonerConfig") -> None:
        super().check(config)
        try:
            self.families(config)
        except UserError as error:
            raise ValueError(str(error)) from None
        if config.live and not task_named(config.task or "").distinct():
            raise ValueError(
                f"sites.live: {config.task} says of no groups that symbols differ (Task.distinct)"
            )

    def layer(self, config: "ReasonerConfig", generator: torch.Generator) -> nn.Module:
        return GroupMlp(config, self.families(config), self._hidden(config), generator)


class GroupMlp(nn.Module):
    """h <- R(h + sum over the groups of a site of what each group's gated MLP says)."""

    def __init__(
        self, config: "ReasonerConfig", families: Families, hidden: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.live = config.live
        self.along = Factors(tuple(families.values()), config.tokens)
        width = config.width
        # pairs, because a dictionary would be sorted, and weights come in the order of the families
        self.up = nn.ParameterDict([(name, matrix(2 * hidden, width, generator)) for name in families])
        # half the usual size: each site hears several groups
        self.down = nn.ParameterDict(
            [(name, matrix(width, hidden, generator, scale=0.5)) for name in families]
        )

    def forward(self, h: Tensor) -> Tensor:
        mixed = exchange(h, self.along, list(self.up.values()), list(self.down.values()))
        return torch.where(holds(h), mixed, 0.0) if self.live else mixed  # masked sites receive no messages


class Rules(Structured):
    """Message passing along the task's rules (`Task.constraints`): one gated MLP for each kind of row.

    Weights know kinds of rules and no task, so a model runs on any puzzle whose rules are of kinds it knows.
    """

    kind: Literal["rules"] = "rules"
    knows: tuple[RowKind, ...] = PLAIN
    """Kinds of rows there are weights for, beside "exactly one value" of each cell."""

    def check(self, config: "ReasonerConfig") -> None:
        """The task must say all of its rules, in kinds that are known, over candidates."""
        super().check(config)
        try:
            rows = self.rows(config)
        except UserError as error:
            raise ValueError(str(error)) from None
        if config.sites is None or config.sites.first != 2:
            raise ValueError('the rules mixer acts on candidates; set sites to {"first": 2}')
        if config.symbols != rows.values:
            raise ValueError(
                f"{config.task} has {rows.values} values, this model {config.symbols} candidates"
            )
        unknown = sorted(set(rows.kinds.tolist()) - {*self.knows, RowKind.BARRED})
        if unknown:
            raise ValueError(
                f"{config.task} has rules of the kind {', '.join(unknown)}; "
                f"this model knows {', '.join(self.knows)}; train one that knows them (model.mixer.knows)"
            )
        if len(self.barred(config)) and not config.live:
            raise ValueError(f"{config.task} has cells with fewer values than others; set sites.live to true")

    def rows(self, config: "ReasonerConfig") -> Rows:
        """Return the rules of the config's task."""
        rows = task_named(config.task or "").constraints()
        if rows is None:
            raise UserError(f"the task {config.task} does not say all of its rules (Task.constraints)")
        return rows

    def families(self, config: "ReasonerConfig") -> Families:
        """Return the sites of the rows by kind, the candidates of each cell first."""
        rows = self.rows(config)
        members = {kind.value: rows.members(kind) for kind in self.knows}
        return {"cell": _candidates_of_cells(config), **members}

    def fits(self, config: "ReasonerConfig", task: str) -> bool:
        return config.task == task  # another task has other rules

    def distinct(self, config: "ReasonerConfig") -> tuple[str, ...]:
        return ("cell", *(kind.value for kind in self.knows if kind in PLAIN))

    def barred(self, config: "ReasonerConfig") -> NDArray[np.intp]:
        sites = self.rows(config).members(RowKind.BARRED)
        return np.unique(sites[sites >= 0])

    def layer(self, config: "ReasonerConfig", generator: torch.Generator) -> nn.Module:
        """Build a `GroupMlp` where "one of these" is all there is to say, else a `RuleMlp`."""
        if set(self.knows) <= set(PLAIN):
            return GroupMlp(config, self.families(config), self._hidden(config), generator)
        return RuleMlp(config, self, self._hidden(config), generator)

    def places(self, config: "ReasonerConfig") -> int:
        return len(self.rows(config)) + config.cells


class Members(nn.Module):
    """The rows of one kind as entries (place among the rows, site, weight), and the bounds of each row."""

    places: Tensor
    sites: Tensor
    weights: Tensor
    """(entries, 1, 1)."""
    low: Tensor
    """(rows, 1, 1)."""
    high: Tensor

    def __init__(self, rows: Rows, kind: RowKind) -> None:
        super().__init__()
        chosen = np.flatnonzero(rows.kinds == kind)
        entries = np.isin(rows.row_of, chosen)
        self.size, self.kind = len(chosen), kind
        places = np.searchsorted(chosen, rows.row_of[entries])
        indices = {"places": places, "sites": rows.sites[entries]}
        numbers = {"weights": rows.weights[entries], "low": rows.low[chosen], "high": rows.high[chosen]}
        _keep(self, **{name: torch.from_numpy(table.astype(np.int64)) for name, table in indices.items()})
        for name, values in numbers.items():
            _keep(self, **{name: torch.from_numpy(values.astype(np.float32)).view(-1, 1, 1)})

    def total(self, entries: Tensor) -> Tensor:
        """Sum entries (entries, rows, width) over each row of the kind."""
        return entries.new_zeros(self.size, *entries.shape[1:]).index_add(0, self.places, entries)


class RuleMlp(nn.Module):
    """h <- R(h + sum over the rows of a site of what the MLP of each row's kind says).

    A row is `low <= sum of weights of the chosen candidates <= high` (`eqr.tasks.rows`). Rows of one kind
    share a gated MLP, which hears the sum of the members; rows that count or sum are told their bounds and
    size, and for sums members are heard and answered in proportion to their weight as well.

    With live candidates a row is what the puzzle leaves of it: what is ruled out is no member, what is the
    last candidate of its cell is known, and counts towards the bounds instead; a row that nothing can break
    is silent. So rules that vary from puzzle to puzzle are rules about cells that are given.
    """

    def __init__(
        self, config: "ReasonerConfig", mixer: Rules, hidden: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        rows, knows = mixer.rows(config), mixer.knows
        self.live, self.symbols = config.live, config.symbols
        self.members = nn.ModuleDict({kind.value: Members(rows, kind) for kind in knows})
        said = {"cell": config.width}
        said |= {kind.value: config.width * (1 + (kind is RowKind.SUM)) for kind in knows}
        told = {name: 0 if name in ("cell", *PLAIN) else FACTS for name in said}
        self.up = nn.ParameterDict(
            [(name, matrix(2 * hidden, size + told[name], generator)) for name, size in said.items()]
        )
        self.down = nn.ParameterDict(
            [(name, matrix(size, hidden, generator, scale=0.5)) for name, size in said.items()]
        )

    def forward(self, h: Tensor) -> Tensor:
        own = h.view(-1, self.symbols, *h.shape[1:])
        there = holds(h) if self.live else torch.ones_like(h[:, :, :1], dtype=torch.bool)
        left = there.view(*own.shape[:3], 1)
        known = (left & (left.sum(dim=1, keepdim=True) == 1)).view_as(there)
        new = (own + self._said("cell", own.sum(dim=1) * self.symbols**-0.5)[:, None]).view_as(h)
        for members in self.members.values():
            assert isinstance(members, Members)
            if members.size and members.kind in PLAIN:
                new = self._one_of(members, h, new)
            elif members.size:
                new = self._bounded(members, h, new, (there & ~known).to(h), known.to(h))
        mixed = normalise(new, dim=2)
        return torch.where(there, mixed, 0.0) if self.live else mixed

    def _one_of(self, members: Members, h: Tensor, new: Tensor) -> Tensor:
        """Add what rows say of which at most one member is right."""
        sizes = members.total(torch.ones_like(members.weights).to(h))
        heard = members.total(h.index_select(0, members.sites)) * sizes.rsqrt()
        said = self._said(members.kind, heard).index_select(0, members.places)
        return new.index_add(0, members.sites, said)

    def _bounded(self, members: Members, h: Tensor, new: Tensor, open_: Tensor, known: Tensor) -> Tensor:
        """Add what rows say that count or sum; `open_` and `known` (sites, rows, 1) are 0 or 1."""
        weights = members.weights.to(h)
        open_ = open_.index_select(0, members.sites)
        fixed = members.total(weights * known.index_select(0, members.sites))
        low, high = members.low.to(h) - fixed, members.high.to(h) - fixed
        count = members.total(open_)
        squares = members.total(weights.square() * open_).clamp(min=1.0)
        entries = h.index_select(0, members.sites) * open_
        by_weight = weights * squares.rsqrt().index_select(0, members.places)
        heard = [members.total(entries) * count.clamp(min=1.0).rsqrt()]
        if members.kind is RowKind.SUM:
            heard.append(members.total(entries * by_weight))
        norm = squares.sqrt()
        facts = [low / norm, high / norm, low / 4, high / 4, count.sqrt() / 2, (low == high).to(h)]
        message = self._said(members.kind, torch.cat([*heard, *facts], dim=2))
        least, most = members.total(weights.clamp(max=0) * open_), members.total(weights.clamp(min=0) * open_)
        message = torch.where((low > least) | (high < most), message, 0.0)
        said = message.index_select(0, members.places)
        if members.kind is RowKind.SUM:
            plain, in_proportion = said.chunk(2, dim=2)
            said = plain + in_proportion * by_weight
        return new.index_add(0, members.sites, said)

    def _said(self, kind: str, heard: Tensor) -> Tensor:
        return _answer(heard, self.up[kind], self.down[kind])


class Candidates(nn.Module):
    """A site for each candidate of a cell: how tokens become sites, and logits of sites those of tokens."""

    def __init__(self, config: "ReasonerConfig", first: int) -> None:
        """`first` is the first token that is a symbol."""
        super().__init__()
        self.first, self.cells, self.symbols = first, config.cells, config.symbols

    def embed(self, tokens: Tensor, table: Tensor) -> Tensor:
        """Embed tokens (cells, rows) as (sites, rows, width)."""
        return table[self._kinds(tokens)]

    def _kinds(self, tokens: Tensor) -> Tensor:
        """Return each site's row of the table: the cell's token if that is no symbol, else given or not."""
        own = torch.arange(self.first, self.first + self.symbols, device=tokens.device).view(1, -1, 1)
        held = tokens.unsqueeze(1)
        given = torch.where(held == own, self.first, self.first + 1)
        return torch.where(held < self.first, held, given).flatten(0, 1)

    def begin(self, state: State, x: Tensor) -> State:
        """Return a start as it is for this input."""
        return state

    def run(
        self, state: State, x: Tensor, moves: Sequence[Move], apply: Applications, *, tracked: int | None
    ) -> State:
        """Run a segment."""
        return run_segment(state, x, moves, apply, tracked=tracked)

    def decode(self, logits: Tensor, answer: Tensor) -> Tensor:
        """Return the logits (rows, cells, vocabulary), given those of sites (sites, rows, 1)."""
        scores = logits.view(self.cells, self.symbols, -1).permute(2, 0, 1)
        return F.pad(scores, (self.first, 0), value=IMPOSSIBLE)


class LiveCandidates(Candidates):
    """Candidates without those that the givens rule out, which are left out of state, sums and answer.

    A symbol that is given rules out the others of its cell, and itself elsewhere in each group where no
    symbol stands twice (`Task.distinct`). What is ruled out holds zeros, in the input and in every state, by
    which it is known. A candidate that is not ruled out but alone in all its groups is settled, as givens
    are: nothing it holds matters to another, so it stays what its input is. The rest is open, and is what a
    segment changes.
    """

    barred: Tensor
    """(sites, 1, 1): what no answer has."""

    def __init__(self, config: "ReasonerConfig", first: int) -> None:
        super().__init__(config, first)
        mixer = config.mixer
        assert isinstance(mixer, Structured)
        families, distinct = mixer.families(config), mixer.distinct(config)
        barred = torch.zeros(config.tokens, 1, 1, dtype=torch.bool)
        barred[torch.from_numpy(mixer.barred(config))] = True
        _keep(self, barred=barred)
        self.groups = Factors(tuple(families.values()), config.tokens)
        self.distinct = Factors(tuple(families[name] for name in distinct), config.tokens)

    def embed(self, tokens: Tensor, table: Tensor) -> Tensor:
        kinds = self._kinds(tokens)
        return torch.where(self.possible((kinds == self.first).unsqueeze(2)), table[kinds], 0.0)

    def possible(self, given: Tensor) -> Tensor:
        """Return what the given candidates (sites, rows, 1) leave, the same shape, bool."""
        return (given | (self.distinct.count(given.float()) == 0)) & ~self.barred

    def open(self, x: Tensor) -> Tensor:
        """Return the sites of an input that a segment changes, (sites, rows, 1), bool."""
        there = holds(x)
        company = self.groups.count(there.float(), at_least=2.0)
        return there & (company > 0)

    def begin(self, state: State, x: Tensor) -> State:
        there = holds(x)
        return State(*(torch.where(there, latent, 0.0) for latent in state.tensors()))

    def run(
        self, state: State, x: Tensor, moves: Sequence[Move], apply: Applications, *, tracked: int | None
    ) -> State:
        """Run a segment on the open sites; the others become their input."""
        sites = self.open(x)
        before = State(*(torch.where(sites, latent, 0.0) for latent in state.tensors()))
        inside = Applications(answer=_Open(apply.answer, sites), scratch=_Open(apply.scratch, sites))
        after = run_segment(before, torch.where(sites, x, 0.0), moves, inside, tracked=tracked)
        return State(*(torch.where(sites, latent, x) for latent in after.tensors()))

    def decode(self, logits: Tensor, answer: Tensor) -> Tensor:
        return super().decode(torch.where(holds(answer), logits, IMPOSSIBLE), answer)


@dataclass(frozen=True)
class _Open:
    """An application after which sites that are not open hold nothing."""

    application: Application
    sites: Tensor

    def __call__(self, z: Tensor, condition: Tensor | None, index: int) -> Tensor:
        return torch.where(self.sites, self.application(z, condition, index), 0.0)
