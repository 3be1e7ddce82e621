"""The mixer that is told the rules of a puzzle: every row of them hears its candidates and answers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import PositiveInt
from torch import Tensor, nn
from torch.nn import functional as F

from eqr.errors import UserError
from eqr.model.layers import matrix, normalise
from eqr.model.structured import GroupMlp, Structured, holds, softly
from eqr.tasks import task_named
from eqr.tasks.rows import RowKind, Rows

if TYPE_CHECKING:
    from eqr.model.config import ReasonerConfig

FACTS = 6
"""Numbers that a row of a count or a sum is told."""
PLAIN = (RowKind.ONCE, RowKind.MOST)


class Rules(Structured):
    """Message passing along the task's rules (`Task.constraints`): one gated MLP for each kind of row.

    Weights know kinds of rules and no task, so a model runs on any puzzle whose rules are of kinds it knows.
    """

    kind: Literal["rules"] = "rules"
    hidden: PositiveInt | None = None
    """Hidden size of each kind's gated MLP; None is four times the model's width."""
    knows: tuple[RowKind, ...] = (RowKind.ONCE, RowKind.MOST)
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

    def check_live(self, config: "ReasonerConfig") -> None:
        """The rules say what rules out what."""

    def rows(self, config: "ReasonerConfig") -> Rows:
        """Return the rules of the config's task."""
        rows = task_named(config.task or "").constraints()
        if rows is None:
            raise UserError(f"the task {config.task} does not say all of its rules (Task.constraints)")
        return rows

    def families(self, config: "ReasonerConfig") -> dict[str, NDArray[np.intp]]:
        """Return the sites of the rows by kind, the candidates of each cell first."""
        rows = self.rows(config)
        own = np.arange(config.tokens).reshape(-1, config.symbols)
        return {"cell": own, **{kind.value: rows.members(kind) for kind in self.knows}}

    def fits(self, config: "ReasonerConfig", task: str) -> bool:
        """Another task has other rules."""
        return config.task == task

    def distinct(self, config: "ReasonerConfig") -> tuple[str, ...]:
        """Of a cell, and of rows of which at most one candidate is right."""
        return ("cell", *(kind.value for kind in self.knows if kind in (RowKind.ONCE, RowKind.MOST)))

    def barred(self, config: "ReasonerConfig") -> NDArray[np.intp]:
        """Values that a cell cannot hold."""
        sites = self.rows(config).members(RowKind.BARRED)
        return np.unique(sites[sites >= 0])

    def layer(self, config: "ReasonerConfig", generator: torch.Generator) -> nn.Module:
        """Build a `GroupMlp` where "one of these" is all there is to say, else a `RuleMlp`."""
        if set(self.knows) <= {RowKind.ONCE, RowKind.MOST}:
            return GroupMlp(config, self.families(config), self._hidden(config), generator)
        return RuleMlp(config, self.knows, self._hidden(config), generator)

    def multiply_adds(self, config: "ReasonerConfig") -> int:
        """Gate, value and output at every row and cell."""
        return 3 * (len(self.rows(config)) + config.cells) * config.width * self._hidden(config)

    def widest(self, config: "ReasonerConfig") -> int:
        """Gate and value of all rows and cells, or the messages."""
        places = len(self.rows(config)) + config.cells
        return max(2 * self._hidden(config) * places, config.width * config.tokens)

    def _hidden(self, config: "ReasonerConfig") -> int:
        return self.hidden or 4 * config.width


class Members(nn.Module):
    """The rows of one kind as entries (place, site, weight)."""

    places: Tensor
    """(entries): which row an entry belongs to."""
    sites: Tensor
    """(entries)."""
    weights: Tensor
    """(entries, 1, 1)."""
    low: Tensor
    """(rows, 1, 1)."""
    high: Tensor
    """(rows, 1, 1)."""

    def __init__(self, rows: Rows, kind: RowKind) -> None:
        super().__init__()
        chosen = np.flatnonzero(rows.kinds == kind)
        entries = np.isin(rows.row_of, chosen)
        self.size, self.kind = len(chosen), kind
        self._keep("places", np.searchsorted(chosen, rows.row_of[entries]))
        self._keep("sites", rows.sites[entries])
        self._keep("weights", rows.weights[entries][:, None, None], np.float32)
        self._keep("low", rows.low[chosen][:, None, None], np.float32)
        self._keep("high", rows.high[chosen][:, None, None], np.float32)

    def _keep(self, name: str, table: NDArray[np.generic], dtype: type = np.int64) -> None:
        self.register_buffer(name, torch.from_numpy(table.astype(dtype)), persistent=False)

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
        self, config: "ReasonerConfig", knows: Sequence[RowKind], hidden: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        assert isinstance(config.mixer, Rules)
        rows, width = config.mixer.rows(config), config.width
        self.live, self.symbols = config.live, config.symbols
        self.members = nn.ModuleDict({kind.value: Members(rows, kind) for kind in knows})
        said = {"cell": width, **{kind.value: width * (1 + (kind is RowKind.SUM)) for kind in knows}}
        told = {name: 0 if name in ("cell", *PLAIN) else FACTS for name in said}
        self.up = nn.ParameterDict(
            [(name, matrix(2 * hidden, said[name] + told[name], generator)) for name in said]
        )
        self.down = nn.ParameterDict([(name, softly(said[name], hidden, generator)) for name in said])

    def forward(self, h: Tensor) -> Tensor:
        """Let the candidates of every cell and row exchange what they hold; h is (sites, rows, width)."""
        own = h.view(-1, self.symbols, *h.shape[1:])
        there = holds(h) if self.live else torch.ones_like(h[:, :, :1], dtype=torch.bool)
        left = there.view(*own.shape[:3], 1)
        known = (left & (left.sum(dim=1, keepdim=True) == 1)).view_as(there)
        new = (own + self._answer("cell", own.sum(dim=1) * self.symbols**-0.5)[:, None]).view_as(h)
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
        said = self._answer(members.kind, heard).index_select(0, members.places)
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
        message = self._answer(members.kind, torch.cat([*heard, *facts], dim=2))
        least, most = members.total(weights.clamp(max=0) * open_), members.total(weights.clamp(min=0) * open_)
        message = torch.where((low > least) | (high < most), message, 0.0)
        said = message.index_select(0, members.places)
        if members.kind is RowKind.SUM:
            plain, in_proportion = said.chunk(2, dim=2)
            said = plain + in_proportion * by_weight
        return new.index_add(0, members.sites, said)

    def _answer(self, kind: str, heard: Tensor) -> Tensor:
        g, u = F.linear(heard, self.up[kind]).chunk(2, dim=2)
        return F.linear(F.silu(g) * u, self.down[kind])
