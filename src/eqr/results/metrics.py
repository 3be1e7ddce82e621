"""Metrics from a candidates table alone, and the estimators with 95% intervals that they are made of.

`Outcomes` compares candidates with labels, part by part, and drops the grids; `report` turns outcomes into
results. A metric that looks at labels to choose (any-correct) says `oracle`, a selection that uses the
task's check is named `verified`. Puzzles without labels (padding) never count.

Shares get Wilson's interval, averages of other per-puzzle numbers a bootstrap over puzzles (starts of one
puzzle are not independent, puzzles are).
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eqr.data import PuzzleSet
from eqr.result import Estimate, Result
from eqr.solve.candidates import Candidates, Status
from eqr.solve.selection import LowestResidual, SelectionRule, answer_ids, verifier, vote
from eqr.tasks.base import Task
from eqr.tasks.mini_arc import Variant, symmetries
from eqr.tasks.mini_arc import vote as vote_of_variants

RATING_BINS = 6
MEAN, ORACLE, EXPECTED = "mean over starts", "any correct (oracle)", "expected exact"
"""Rules that choose no start, and the metric of random subsets of the starts."""
TRIES = {"vote of variants": 1, "vote of variants, two tries": 2}
"""ARC allows two tries."""
Z = 1.959963984540054
"""Two-sided 95%."""
RESAMPLES = 1000
NOTHING = Estimate(float("nan"), float("nan"), float("nan"), 0)


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
    mean halt score (`eqr.tasks.mini_arc.vote`).
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
        ranked = vote_of_variants(
            ballots.tokens[voters, starts], [variants[row] for row in voters], ballots.halt[voters, starts]
        )
        agreed = (place for place, one in enumerate(ranked) if np.array_equal(one.answer, right))
        places.append(next(agreed, len(ranked) + max(TRIES.values())))
    return {rule: share(np.array(places) < tries) for rule, tries in TRIES.items()}


def share(values: NDArray[Any]) -> Estimate:
    """Estimate the mean of per-puzzle shares (puzzles,), or how often something is true: Wilson's interval.

    A share varies at most as much as a yes or no of the same mean, so the interval is never too narrow, and
    one number has one interval, whichever way it came about.
    """
    n = len(values)
    if n == 0:
        return NOTHING
    p = min(max(float(values.mean()), 0.0), 1.0)  # sums of shares can stray by rounding
    middle = (p + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
    return Estimate(p, min(max(middle - half, 0.0), p), max(min(middle + half, 1.0), p), n)


def average(values: NDArray[Any]) -> Estimate:
    """Estimate the mean of per-puzzle numbers (puzzles,), with a bootstrap interval over puzzles."""
    n = len(values)
    if n == 0:
        return NOTHING
    # resampling puzzles is drawing how often each distinct value occurs, and those are few
    distinct, counts = np.unique(np.asarray(values, np.float64), return_counts=True)
    means = np.random.default_rng(0).multinomial(n, counts / n, size=RESAMPLES) @ distinct / n
    low, high = np.quantile(means, (0.025, 0.975))
    mean = float(distinct @ counts / n)
    return Estimate(mean, min(float(low), mean), max(float(high), mean), n)


def average_distance(differences: NDArray[Any]) -> Estimate:
    """Estimate how far the mean of per-puzzle differences is from 0, in either direction."""
    mean = average(differences)
    ends = sorted((abs(mean.low), abs(mean.high)))
    return Estimate(abs(mean.value), 0.0 if mean.low <= 0.0 <= mean.high else ends[0], ends[1], mean.n)


def pass_at(k: int, right: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return per puzzle the chance that one of k starts drawn from (puzzles, starts) is right: unbiased."""
    starts = right.shape[1]
    wrong = starts - right.sum(axis=1)
    # C(wrong, k) / C(starts, k) as a product of small ratios
    steps = np.arange(k)
    ratios = (wrong[:, None] - steps) / (starts - steps)
    return np.asarray(1.0 - np.prod(np.clip(ratios, 0.0, 1.0), axis=1), np.float64)


def expected_of_lowest(costs: NDArray[np.float64], values: NDArray[Any], starts: int) -> NDArray[np.float64]:
    """Return per puzzle the mean value of the start with the lowest cost of a random `starts`: exact.

    Whether each start is right gives the chance of being right, the costs themselves the cost of the choice.
    Ties in cost go to the earlier start, as in `choose`.
    """
    held = costs.shape[1]
    order = np.argsort(costs, axis=1, kind="stable")
    ranked = np.take_along_axis(values, order, axis=1)
    # the i-th best is chosen if it is drawn and all others come from those behind it:
    # C(held - 1 - i, starts - 1) / C(held, starts)
    chance = np.zeros(held)
    chance[0] = starts / held
    for i in range(1, held - starts + 1):
        chance[i] = chance[i - 1] * (held - starts - i + 1) / (held - i)
    return np.asarray(ranked @ chance, np.float64)


def expected_of_vote(
    ids: NDArray[np.int64], right: NDArray[np.bool_], starts: int, *, draws: int = 64, seed: int = 0
) -> NDArray[np.float64]:
    """Return per puzzle how often the majority of a random `starts` is right, averaged over `draws`."""
    rng = np.random.default_rng(seed)
    held = ids.shape[1]
    if starts == 1:  # nobody to outvote: exact, and equal to every other rule
        return np.asarray(right.mean(axis=1), np.float64)
    if starts == held:
        draws = 1
    hits = np.zeros(len(ids))
    everyone = np.ones((len(ids), starts), np.bool_)
    for _ in range(draws):
        picked = np.sort(rng.permuted(np.tile(np.arange(held), (len(ids), 1)), axis=1)[:, :starts], axis=1)
        chosen = vote(np.take_along_axis(ids, picked, axis=1), everyone)
        start = np.take_along_axis(picked, chosen[:, None], axis=1)
        hits += np.take_along_axis(right, start, axis=1)[:, 0]
    return hits / draws


def powers_of_two(limit: int) -> list[int]:
    """Return 1, 2, 4, ... up to `limit`, and `limit` itself."""
    powers = [1 << exponent for exponent in range(limit.bit_length()) if 1 << exponent <= limit]
    return powers if powers[-1] == limit else [*powers, limit]


def auroc(scores: NDArray[np.float64], hits: NDArray[np.bool_]) -> float | None:
    """Return how often a hit scores above a miss, ties half; None without both."""
    from scipy.stats import rankdata

    count = int(hits.sum())
    if count in (0, len(hits)):
        return None
    above = rankdata(scores)[hits].sum() - count * (count + 1) / 2
    return float(above / (count * (len(hits) - count)))


def rank_correlation(one: NDArray[np.float64], two: NDArray[np.float64]) -> float | None:
    """Return Spearman's correlation; None where one of the two does not vary."""
    from scipy.stats import spearmanr

    if np.ptp(one) == 0 or np.ptp(two) == 0:
        return None
    return float(spearmanr(one, two).statistic)
