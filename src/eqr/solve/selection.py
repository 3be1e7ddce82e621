"""How to choose among starts: rules that choose among the candidates of each puzzle, blind to labels.

All work on candidates of shape (puzzles, starts) and choose the earliest start among equals. Only
`VerifiedFirst` looks at the puzzle, through the task's own `check`, and says so (`uses_verifier`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveInt

from eqr.errors import UserError, nearest
from eqr.registry import Kind, kinds_of, register
from eqr.solve.budget import round_size
from eqr.solve.candidates import WINDOW, Candidates, Status
from eqr.tasks.base import Task, Tokens

Verifier = Callable[[Candidates], NDArray[np.bool_]]
"""Says which candidates (puzzles, starts) obey the rules of their puzzle."""


def verifier(task: Task, puzzles: Tokens) -> Verifier:
    """Return a check of candidates against their puzzles (puzzles, cells)."""

    def check(candidates: Candidates) -> NDArray[np.bool_]:
        count, starts, cells = candidates.tokens.shape
        repeated = np.repeat(puzzles, starts, axis=0)
        return task.check_many(repeated, candidates.tokens.reshape(-1, cells)).reshape(count, starts)

    return check


class SelectionRule(Kind, ABC):
    """Chooses one start for each puzzle."""

    uses_verifier: ClassVar[bool] = False

    @property
    def needs_probe(self) -> bool:
        """Whether candidates must end with a probe (`Budget.probe`)."""
        return False

    @abstractmethod
    def choose(self, candidates: Candidates, verify: Verifier | None = None) -> NDArray[np.intp]:
        """Return the chosen start of each puzzle, shape (puzzles,)."""


SELECTION = kinds_of(SelectionRule, "selection")


class _Lowest(SelectionRule, ABC):
    """Chooses the start with the lowest cost."""

    @abstractmethod
    def costs(self, candidates: Candidates) -> NDArray[np.float64]:
        """Return what the rule minimises, (puzzles, starts); infinite where it must not choose."""

    def choose(self, candidates: Candidates, verify: Verifier | None = None) -> NDArray[np.intp]:
        """Take the minimum."""
        chosen: NDArray[np.intp] = np.argmin(self.costs(candidates), axis=1)
        return chosen


def _only_complete(costs: NDArray[Any], candidates: Candidates) -> NDArray[np.float64]:
    # a candidate without a number comes after all that have one, a cancelled one after those
    costs = np.where(np.isnan(costs), np.finfo(np.float64).max, costs)
    return np.where(candidates.complete, costs, np.inf)


class First(_Lowest):
    """The first start, as if there were no breadth."""

    kind: Literal["first"] = "first"

    def costs(self, candidates: Candidates) -> NDArray[np.float64]:
        """Nothing to prefer."""
        return _only_complete(np.zeros(candidates.status.shape), candidates)


class LowestResidual(_Lowest):
    """The start with the smallest mean residual (Top-1 converged).

    `latent`: how far the last `window` segments moved the states. `logits`: the same on logits, as the
    published code computes it. `states`: the paper's sum, how far a segment moves each of the last `window`
    states, the final one included, which takes one further segment, the probe. `probe`: that segment alone.
    """

    kind: Literal["residual"] = "residual"
    window: PositiveInt = 3
    of: Literal["latent", "logits", "states", "probe"] = "latent"

    @property
    def needs_probe(self) -> bool:
        """The last state's residual is not known before a further segment."""
        return self.of in ("states", "probe")

    def costs(self, candidates: Candidates) -> NDArray[np.float64]:
        """Average the last residuals there are."""
        if self.needs_probe and not np.isfinite(candidates.probe[candidates.complete]).all():
            raise UserError(f"selection by {self.of} needs candidates that were probed; add --probe")
        if self.of == "probe":
            return _only_complete(candidates.probe.astype(np.float64), candidates)
        traces = candidates.logit_residuals if self.of == "logits" else candidates.residuals
        if self.of == "states":
            traces = np.concatenate((traces, candidates.probe[..., None]), axis=-1)
        held = traces.shape[-1]
        if self.window > held and (candidates.depth > held).any():
            raise UserError(f"selection window {self.window}: only the last {held} residuals were kept")
        last = traces[..., -self.window :].astype(np.float64)
        there = np.isfinite(last)
        counts = there.sum(axis=-1)
        sums = np.where(there, last, 0.0).sum(axis=-1)
        return _only_complete(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan), candidates)


class HighestHalt(_Lowest):
    """The start most sure of being done."""

    kind: Literal["halt"] = "halt"

    def costs(self, candidates: Candidates) -> NDArray[np.float64]:
        """Negate the halt score."""
        return _only_complete(-candidates.halt.astype(np.float64), candidates)


class FirstToHalt(_Lowest):
    """The start that wins the race (see `Budget.race`); if none halts, the smallest residual decides."""

    kind: Literal["first-to-halt"] = "first-to-halt"
    abreast: PositiveInt = 8
    """Starts that race at once; those behind them only count if none of these halts."""

    def costs(self, candidates: Candidates) -> NDArray[np.float64]:
        """Order by finish; every halted start comes before every other."""
        order = finish(candidates.depth, self.abreast)
        return np.where(candidates.status == Status.HALTED, order, LowestResidual().costs(candidates))


class MajorityVote(SelectionRule):
    """The answer most starts agree on; among equals the one seen first."""

    kind: Literal["majority"] = "majority"

    def choose(self, candidates: Candidates, verify: Verifier | None = None) -> NDArray[np.intp]:
        """Count equal answers."""
        return vote(answer_ids(candidates.tokens), candidates.complete)


class VerifiedFirst(SelectionRule):
    """The first start whose answer the task's `check` accepts; if none, the smallest residual decides.

    This uses a verifier: it knows the rules of the puzzle, which the model was never told.
    """

    kind: Literal["verified"] = "verified"
    uses_verifier: ClassVar[bool] = True

    def choose(self, candidates: Candidates, verify: Verifier | None = None) -> NDArray[np.intp]:
        """Check every candidate."""
        if verify is None:
            raise UserError("selection `verified` needs the task's check; give a verifier")
        valid = verify(candidates) & candidates.complete
        return np.where(valid.any(axis=1), valid.argmax(axis=1), LowestResidual().choose(candidates))


for _rule in (First, LowestResidual, HighestHalt, FirstToHalt, MajorityVote, VerifiedFirst):
    register(_rule)
SELECTION.close()
_SHORT = {
    "logits": LowestResidual(of="logits"),
    "converged": LowestResidual(of="states"),
    "probe": LowestResidual(of="probe"),
}
"""Words that stand for a rule with some fields set."""


def parse_selection(text: str) -> SelectionRule:
    """Read a rule as typed: `majority`, `residual`, `residual:5` (window), `verified`."""
    word, *numbers = text.strip().split(":")
    cls = SELECTION.find(word)
    if cls is None and word not in _SHORT:
        raise UserError(f"--select {text}: unknown rule {word!r}{nearest(word, [*SELECTION, *_SHORT])}")
    rule: SelectionRule = _SHORT[word] if cls is None else cls()
    if not numbers:
        return rule
    if not isinstance(rule, LowestResidual) or rule.of == "probe" or len(numbers) > 1:
        raise UserError(f"--select {text}: {word} takes no such number")
    chosen = LowestResidual.from_json({"of": rule.of, "window": numbers[0]}, where=f"--select {text}")
    if chosen.window > WINDOW:
        raise UserError(f"--select {text}: only the last {WINDOW} residuals are kept")
    return chosen


def answer_ids(tokens: Tokens) -> NDArray[np.int64]:
    """Number the distinct grids (..., cells): equal numbers for equal grids."""
    flat = np.ascontiguousarray(tokens).reshape(-1, tokens.shape[-1])
    whole = flat.view(np.dtype((np.void, flat.shape[1]))).ravel()
    return np.unique(whole, return_inverse=True)[1].reshape(tokens.shape[:-1]).astype(np.int64)


def vote(ids: NDArray[np.int64], may_vote: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return, per row of answer numbers (puzzles, starts), the first start of the most frequent answer."""
    rows = np.broadcast_to(np.arange(len(ids))[:, None], ids.shape)
    same = np.unique(np.stack((rows.ravel(), ids.ravel())), axis=1, return_inverse=True)[1].ravel()
    votes = np.bincount(same, weights=may_vote.ravel())[same].reshape(ids.shape)
    chosen: NDArray[np.intp] = np.where(may_vote, votes, -1).argmax(axis=1)
    return chosen


def finish(depths: NDArray[np.int32], abreast: int) -> NDArray[np.float64]:
    """Return when each start (puzzles, starts) of a race ends: by round, then by depth; all below zero."""
    rounds = np.arange(depths.shape[1]) // round_size(depths.shape[1], abreast)
    longest = float(depths.max(initial=0)) + 1.0
    order: NDArray[np.float64] = rounds * longest + depths - longest * (rounds[-1] + 1)
    return order


def replay_race(
    halts: NDArray[np.int64], depth: int, abreast: int
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return where each start (puzzles, starts) ends in a race, and its status.

    `halts` says at which depth each start would halt by itself; above `depth` it never does.
    """
    ends = np.minimum(halts, depth)
    status = np.full(ends.shape, Status.RAN_OUT, np.uint8)
    together = round_size(ends.shape[1], abreast)
    won = np.zeros(len(ends), bool)
    for first in range(0, ends.shape[1], together):
        part = slice(first, first + together)
        ends[won, part], status[won, part] = 0, Status.NOT_RUN
        halted = (halts[:, part] <= depth) & ~won[:, None]
        winner = np.asarray(halted.any(axis=1))
        line = np.where(halted, ends[:, part], depth + 1).min(axis=1)[:, None]
        here = halted & (ends[:, part] == line)
        status[:, part] = np.where(here, Status.HALTED, status[:, part])
        status[:, part] = np.where((line < depth) & ~here, Status.CANCELLED, status[:, part])
        ends[:, part] = np.where(winner[:, None], line, ends[:, part])
        won |= winner
    return ends, status
