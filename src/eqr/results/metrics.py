"""Metrics from a candidates table alone: the model is not needed any more.

`Outcomes` compares candidates with labels, part by part, and drops the grids; `report` turns outcomes into
results. A metric that looks at labels to choose (any-correct) says `oracle`, a selection that uses the
task's check is named `verified`. Puzzles without labels (padding) never count.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eqr.data import PuzzleSet
from eqr.result import Estimate, Result
from eqr.results.statistics import (
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
from eqr.tasks.mini_arc_variants import Variant, symmetries, vote

RATING_BINS = 6
MEAN, ORACLE, EXPECTED = "mean over starts", "any correct (oracle)", "expected exact"
"""Rules that choose no start, and the metric of random subsets of the starts."""
TRIES = {"vote of variants": 1, "vote of variants, two tries": 2}
"""ARC allows two tries."""


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


def report(results: Outcomes, names: Sequence[str], *, widest: bool = True, **where: Any) -> list[Result]:
    """Return every metric at a place such as `depth=16, breadth=8`; `names` are those of the selection rules.

    Averages over starts and what smaller breadths would reach are for whole runs: a race cancels some starts.
    Smaller breadths are scored where this is the `widest` one.
    """
    right, n = results.right, len(results.right)
    rows = [
        Result.of("nfe", average(results.nfe.sum(axis=1)), **where),
        Result(metric="halted", value=float((results.status == Status.HALTED).mean()), n=n, **where),
    ]
    if results.complete:
        means = {
            "exact": over_starts(right),
            "token": average(results.share_right.mean(axis=1)),
            "valid": over_starts(results.valid),
            "depth used": average(results.depth.mean(axis=1)),
        }
        rows += [Result.of(metric, found, rule=MEAN, **where) for metric, found in means.items()]
    for column, name in enumerate(names):
        puzzles, starts = np.arange(n), results.chosen[:, column]
        rows.append(Result.of("exact", share(right[puzzles, starts]), rule=name, **where))
        rows.append(Result.of("valid", share(results.valid[puzzles, starts]), rule=name, **where))
    if not results.complete:
        return rows
    rows += [
        Result.of("exact", found, rule=MEAN, part=range_name(low, high), **where)
        for (low, high), found in by_rating(results.ratings, right)
    ]
    if right.shape[1] > 1:
        rows.append(Result.of("exact", share(np.asarray(right.any(axis=1))), rule=ORACLE, **where))
        rows += [Result.of(name, found, **where) for name, found in path_dependence(right).items()]
        if widest:
            rows += _smaller_breadths(results, where)
    return rows


def _smaller_breadths(results: Outcomes, where: dict[str, Any]) -> list[Result]:
    """Return what random subsets of the starts reach, by their number."""
    return [
        Result.of(EXPECTED, share(found), rule=rule, **{**where, "breadth": breadth})
        for breadth in powers_of_two(results.right.shape[1])
        for rule, found in expected(results, breadth).items()
    ]


def expected(results: Outcomes, breadth: int) -> dict[str, NDArray[np.float64]]:
    """Return how often each puzzle is solved by a rule from a random so many of the starts, (puzzles,)."""
    return {
        "residual": expected_of_lowest(results.costs, results.right, breadth),
        "majority": expected_of_vote(results.ids, results.right, breadth),
        ORACLE: pass_at(breadth, results.right),
    }


def over_starts(hits: NDArray[np.bool_]) -> Estimate:
    """Estimate a share averaged over starts (AccAvg), (puzzles, starts)."""
    return share(hits.mean(axis=1))


def path_dependence(right: NDArray[np.bool_]) -> dict[str, Estimate]:
    """Return how far the mean over starts is from the first start: per puzzle, and of the two accuracies.

    The paper defines the first (E|Acc_B - Acc_1|); the figures it prints are of the size of the second.
    """
    apart = right.mean(axis=1) - right[:, 0]
    return {
        "path dependence per puzzle": average(np.abs(apart)),
        "path dependence of means": average_distance(apart),
    }


def by_rating(ratings: NDArray[np.int32], right: NDArray[np.bool_]) -> list[tuple[tuple[int, int], Estimate]]:
    """Return exact accuracy in ranges of difficulty that hold about equally many puzzles, none only a few."""
    if not len(ratings) or ratings.min() == ratings.max():
        return []
    return [
        ((low, high), over_starts(right[(ratings >= low) & (ratings <= high)]))
        for low, high in _bins(ratings)
    ]


def range_name(low: int, high: int) -> str:
    """Return a range of ratings as text, both ends included."""
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


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


def has_variants(puzzles: PuzzleSet) -> bool:
    """Whether rows of this set are variants of one another (`eqr data import --variants`)."""
    return bool(puzzles.facts.get("variant", np.zeros(1)).any())


def variant_votes(candidates: Candidates, puzzles: PuzzleSet) -> dict[str, Estimate]:
    """Score what the answers to all turned and recoloured copies of a Mini-ARC puzzle agree on.

    Every start of every variant casts its answer, undone to the original; more votes win, then the higher
    mean halt score (`eqr.tasks.mini_arc_variants.vote`).
    """
    undone = [Variant.from_name(name)[1] for name in puzzles.identity_names]
    order = np.argsort(puzzles.groups, kind="stable")
    places = []
    for rows in np.split(order, np.flatnonzero(np.diff(puzzles.groups[order])) + 1):
        if not puzzles.labels[rows[0]].any():  # padding counts nowhere
            continue
        variants = [undone[identity] for identity in puzzles.identities[rows]]
        right = symmetries(variants[:1]).inverse().apply(puzzles.labels[rows[:1]])[0]
        ballots = candidates[rows]
        voters, starts = np.nonzero(ballots.complete)
        ranked = vote(
            ballots.tokens[voters, starts], [variants[row] for row in voters], ballots.halt[voters, starts]
        )
        agreed = (place for place, one in enumerate(ranked) if np.array_equal(one.answer, right))
        places.append(next(agreed, len(ranked) + max(TRIES.values())))
    return {rule: share(np.array(places) < tries) for rule, tries in TRIES.items()}
