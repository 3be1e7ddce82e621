"""Metrics from a candidates table alone: the model is not needed any more.

`Outcomes` compares candidates with labels, part by part, and drops the grids; `report` turns outcomes into
estimates. A metric that looks at labels to choose (any-correct) says `oracle`, a selection that uses the
task's check is named `verified`. Puzzles without labels (padding) never count.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from eqr.data import PuzzleSet
from eqr.measure.scores import OverBreadths, OverStarts, PathIndependence, RatingBin, Scores, Selected
from eqr.measure.statistics import (
    Estimate,
    average,
    average_distance,
    expected_of_lowest,
    expected_of_vote,
    pass_at,
    powers_of_two,
    share,
)
from eqr.solve.candidates import Candidates, Status
from eqr.solve.selection import LowestResidual, SelectionRule, answer_ids, verifier
from eqr.tasks.base import Task

RATING_BINS = 6


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """How each candidate did, (puzzles, starts), and which start each selection rule chose."""

    right: NDArray[np.bool_]
    """Every counted cell equals its label."""
    share_right: NDArray[np.float32]
    """Share of counted cells that equal their label."""
    valid: NDArray[np.bool_]
    """Accepted by the task's `check`."""
    status: NDArray[np.uint8]
    depth: NDArray[np.int32]
    nfe: NDArray[np.int64]
    ids: NDArray[np.int64]
    """Equal numbers in a row of this array are equal answers."""
    costs: NDArray[np.float64]
    """What Top-1 converged minimises."""
    ratings: NDArray[np.int32]
    """(puzzles,)."""
    chosen: NDArray[np.intp]
    """(puzzles, selection rules)."""

    @property
    def complete(self) -> bool:
        """Whether all starts ran to their end; a race cancels some."""
        return bool(np.isin(self.status, (Status.HALTED, Status.RAN_OUT)).all())

    @classmethod
    def joined(cls, parts: Sequence["Outcomes"]) -> "Outcomes":
        """Put puzzles behind each other; answer numbers only mean something within a puzzle."""
        names = [field.name for field in fields(cls)]
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def outcomes(
    candidates: Candidates, puzzles: PuzzleSet, task: Task, select: Sequence[SelectionRule]
) -> Outcomes:
    """Compare candidates (puzzles, starts) with the labels of the same puzzles."""
    counted = puzzles.labels.any(axis=1)
    candidates, puzzles = candidates[counted], puzzles.take(np.flatnonzero(counted))
    cells = puzzles.labels[:, None] > 0
    hits = (candidates.tokens == puzzles.labels[:, None]) & cells
    verify = verifier(task, puzzles.inputs)
    chosen = [rule.choose(candidates, verify) for rule in select]
    return Outcomes(
        right=(hits | ~cells).all(axis=2),
        share_right=(hits.sum(axis=2) / cells.sum(axis=2)).astype(np.float32),
        valid=verify(candidates),
        status=candidates.status,
        depth=candidates.depth,
        nfe=candidates.nfe,
        ids=answer_ids(candidates.tokens),
        costs=LowestResidual().costs(candidates),
        ratings=puzzles.ratings,
        chosen=np.stack(chosen, axis=1) if chosen else np.zeros((len(candidates), 0), np.intp),
    )


def report(results: Outcomes, names: Sequence[str], *, alike: bool = True) -> Scores:
    """Return every metric; `names` are those of the selection rules, in order.

    Starts that are not `alike`, because each is told another guess, have no average and no subsets.
    """
    several, alike = results.right.shape[1] > 1, results.complete and alike
    return Scores(
        n=len(results.right),
        nfe=average(results.nfe.sum(axis=1)),
        halted=float((results.status == Status.HALTED).mean()),
        selected={name: _selected(results, column) for column, name in enumerate(names)},
        starts=_starts(results) if alike else None,
        breadths=_breadths(results) if alike and several else None,
    )


def _starts(results: Outcomes) -> OverStarts:
    return OverStarts(
        exact=over_starts(results.right),
        token=average(results.share_right.mean(axis=1)),
        valid=over_starts(results.valid),
        depth_used=average(results.depth.mean(axis=1)),
        by_rating=by_rating(results.ratings, results.right),
    )


def _breadths(results: Outcomes) -> OverBreadths:
    right, widths = results.right, powers_of_two(results.right.shape[1])
    return OverBreadths(
        pass_at={k: share(pass_at(k, right)) for k in widths},
        oracle_any_correct=share(np.asarray(right.any(axis=1))),
        path_independence=path_independence(right),
        expected={
            "residual": {b: share(expected_of_lowest(results.costs, right, b)) for b in widths},
            "majority": {b: share(expected_of_vote(results.ids, right, b)) for b in widths},
        },
    )


def _selected(results: Outcomes, column: int) -> Selected:
    rows, starts = np.arange(len(results.right)), results.chosen[:, column]
    return Selected(exact=share(results.right[rows, starts]), valid=share(results.valid[rows, starts]))


def over_starts(hits: NDArray[np.bool_]) -> Estimate:
    """Estimate a share averaged over starts (AccAvg), (puzzles, starts)."""
    return share(hits.mean(axis=1))


def path_independence(right: NDArray[np.bool_]) -> PathIndependence:
    """Return how far the mean over starts is from the first start: per puzzle, and of the two accuracies.

    The paper defines the first (E|Acc_B - Acc_1|); the figures it prints are of the size of the second.
    """
    apart = right.mean(axis=1) - right[:, 0]
    return PathIndependence(per_puzzle=average(np.abs(apart)), of_means=average_distance(apart))


def by_rating(ratings: NDArray[np.int32], right: NDArray[np.bool_]) -> list[RatingBin]:
    """Return exact accuracy in bins of difficulty that hold about equally many puzzles, none only a few."""
    if not len(ratings) or ratings.min() == ratings.max():
        return []
    return [
        RatingBin(low=low, high=high, exact=over_starts(right[(ratings >= low) & (ratings <= high)]))
        for low, high in _bins(ratings)
    ]


def _bins(ratings: NDArray[np.int32]) -> list[tuple[int, int]]:
    """Return bins of ratings, both ends included; each grows until it has its share of the puzzles."""
    values, counts = np.unique(ratings, return_counts=True)
    wanted = len(ratings) / RATING_BINS
    bins: list[tuple[int, int]] = []
    first, held = 0, 0
    for number, count in enumerate(counts.tolist()):
        held += count
        if held >= wanted:
            bins.append((int(values[first]), int(values[number])))
            first, held = number + 1, 0
    if held and bins and held < wanted / 2:  # too few for a bin of their own
        bins[-1] = (bins[-1][0], int(values[-1]))
    elif held:
        bins.append((int(values[first]), int(values[-1])))
    return bins
