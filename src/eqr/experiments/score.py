"""Candidates to numbers by name: accuracy, residual and cost at every depth and breadth of a budget.

`exact@DxB` averages over starts; `top@DxB`, `vote@DxB` and `any@DxB` are expectations over subsets of B
starts (Top-1 converged, majority, oracle); `variants@Dx1` is by vote of a puzzle's variants. Estimators are
those of `eqr.measure`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eqr.data import PuzzleSet
from eqr.experiments.looks import RATINGS, at, rated
from eqr.measure.diagnostics import Mode
from eqr.measure.metrics import Outcomes, outcomes
from eqr.measure.scaling import all_basins
from eqr.measure.statistics import expected_of_lowest, expected_of_vote, pass_at, powers_of_two
from eqr.measure.traces import Traces
from eqr.measure.votes import has_variants, variant_votes
from eqr.solve.candidates import Candidates
from eqr.tasks import task_named

TARGETS = (50, 60, 70, 80, 90, 95)
"""Accuracies whose cost is told, in percent."""


def numbers_of(
    candidates: Candidates, depths: Sequence[int], puzzles: PuzzleSet, *, own: Candidates | None = None
) -> dict[str, float]:
    """Score candidates (puzzles, starts, depths); `own` are those of the model's own start, if others ran."""
    task, numbers = task_named(puzzles.task), dict[str, float]()
    for column, depth in enumerate(depths):
        scored = outcomes(candidates[:, :, column], puzzles, task, [])
        first = (
            scored.right[:, 0] if own is None else outcomes(own[:, :, column], puzzles, task, []).right[:, 0]
        )
        residual = candidates.residuals[:, :, column, -1]
        numbers |= _at_depth(scored, residual, depth)
        if scored.right.shape[1] > 1:
            numbers |= _at_breadths(scored, depth)
            numbers |= _path_dependence(scored.right, first, depth)
        if has_variants(puzzles):
            voted = variant_votes(candidates[:, :, column], puzzles)
            numbers[at("variants", depth)] = voted["top_1"].value
            numbers[at("two tries", depth)] = voted["top_2"].value
    return numbers | _tracking(numbers) | _reaching(numbers, depths)


def _at_depth(scored: Outcomes, residual: NDArray[np.float32], depth: int) -> dict[str, float]:
    right, starts = scored.right, scored.right.shape[1]
    numbers = {
        at("exact", depth): right.mean(),
        at("error", depth): 1 - right.mean(),
        at("valid", depth): scored.valid.mean(),
        at("token", depth): scored.share_right.mean(),
        at("nfe", depth): scored.nfe.sum(axis=1).mean(),
        at("residual", depth): np.nanmean(residual),
        at("saving", depth): depth * starts / scored.nfe.sum(axis=1).mean(),
    }
    found = auroc(-scored.costs.ravel(), right.ravel())
    if found is not None:
        numbers[at("auroc", depth)] = found
    easier = auroc(-np.repeat(scored.ratings, starts).astype(np.float64), right.ravel())
    if easier is not None:
        numbers[at("rating auroc", depth)] = easier
    for low, high in RATINGS:
        inside = within(scored.ratings, low, high)
        if inside.any():
            numbers[at(rated("exact", low, high), depth)] = right[inside].mean()
            numbers[at(rated("nfe", low, high), depth)] = scored.nfe[inside].mean()
    return {name: float(value) for name, value in numbers.items()}


def _at_breadths(scored: Outcomes, depth: int) -> dict[str, float]:
    numbers = {}
    for breadth in powers_of_two(scored.right.shape[1]):
        top = expected_of_lowest(scored.costs, scored.right, breadth).mean()
        numbers[at("top", depth, breadth)] = float(top)
        numbers[at("top error", depth, breadth)] = float(1 - top)
        numbers[at("vote", depth, breadth)] = float(
            expected_of_vote(scored.ids, scored.right, breadth).mean()
        )
        numbers[at("any", depth, breadth)] = float(pass_at(breadth, scored.right).mean())
        numbers[at("top - vote", depth, breadth)] = float(top) - numbers[at("vote", depth, breadth)]
        # the least of a random subset, so that accuracy and residual are of the same starts
        costs: Any = scored.costs
        numbers[at("chosen residual", depth, breadth)] = float(
            expected_of_lowest(costs, costs, breadth).mean()
        )
        numbers[at("spent", depth, breadth)] = float(scored.nfe.mean() * breadth)
    return numbers


def _path_dependence(right: NDArray[np.bool_], first: NDArray[np.bool_], depth: int) -> dict[str, float]:
    """Both readings of the paper's measure: per puzzle, and of the two accuracies."""
    breadth = right.shape[1]
    return {
        at("path per puzzle", depth, breadth): float(np.abs(right.mean(axis=1) - first).mean()),
        at("path of means", depth, breadth): abs(float(right.mean()) - float(first.mean())),
    }


def _tracking(numbers: dict[str, float]) -> dict[str, float]:
    """Rank correlation of residual and error over budgets, where there are several."""
    pairs = [
        (value, numbers[name.replace("chosen residual", "top error")])
        for name, value in numbers.items()
        if name.startswith("chosen residual@")
    ] or [
        (value, numbers[name.replace("residual", "error")])
        for name, value in numbers.items()
        if name.startswith("residual@")
    ]
    found = rank_correlation(*map(np.array, zip(*pairs, strict=True))) if len(pairs) > 2 else None
    deepest = max(
        (name.partition("@")[2] for name in numbers if name.startswith(("top@", "exact@"))), key=_size
    )
    return {} if found is None else {f"tracking@{deepest}": found}


def _reaching(numbers: dict[str, float], depths: Sequence[int]) -> dict[str, float]:
    """Return log2 of the NFE at which one start reaches each accuracy, linear between the depths run."""
    costs = [np.log2(numbers[at("nfe", depth)]) for depth in depths]
    shares = [numbers[at("exact", depth)] for depth in depths]
    found = {}
    for percent in TARGETS:
        above = [number for number, share in enumerate(shares) if share >= percent / 100]
        if not above:
            continue
        last = above[0]
        cost = costs[last]
        if last:
            low, high = shares[last - 1], shares[last]
            cost -= (costs[last] - costs[last - 1]) * (high - percent / 100) / (high - low)
        found[at(f"log2 nfe for {percent}%", depths[-1])] = float(cost)
    return found


def _size(budget: str) -> int:
    depth, breadth = budget.split("x")
    return int(depth) * 1_000_000 + int(breadth)


def within(ratings: NDArray[np.int32], low: int, high: int | None) -> NDArray[np.bool_]:
    """Return which ratings lie in a range, both ends inside; no high end is no bound."""
    return np.asarray((ratings >= low) & (ratings <= high if high is not None else True))


def auroc(scores: NDArray[np.float64], hits: NDArray[np.bool_]) -> float | None:
    """Return how often a hit scores above a miss, ties half; None without both."""
    count = int(hits.sum())
    if count in (0, len(hits)):
        return None
    ranks = ranked(scores)
    return float((ranks[hits].sum() - count * (count + 1) / 2) / (count * (len(hits) - count)))


def rank_correlation(one: NDArray[np.float64], two: NDArray[np.float64]) -> float | None:
    """Return Spearman's correlation; None where one of the two does not vary."""
    a, b = ranked(one), ranked(two)
    if a.std() == 0 or b.std() == 0:
        return None
    return float(np.corrcoef(a, b)[0, 1])


def ranked(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ranks from 1, the mean rank for equals."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    middle = ends - (counts - 1) / 2
    return np.asarray(middle[inverse], np.float64)


def mode_numbers(traces: Traces) -> tuple[dict[str, float], list[str]]:
    """Return the share of puzzles in each landscape mode and what depth and breadth buy there."""
    basins = all_basins(traces)
    kinds = np.array([part.mode.letter for part in basins])
    shallow = max(traces.depth // 4, 1)
    early, late = (outcomes(traces.at(d), traces.puzzles, traces.task, []) for d in (shallow, traces.depth))
    deeper = late.right.mean(axis=1) - early.right.mean(axis=1)
    broader = expected_of_lowest(late.costs, late.right, traces.breadth) - late.right.mean(axis=1)
    numbers = {"right": float(late.right.mean())}
    for mode in Mode:
        inside = kinds == mode.letter
        numbers[f"share {mode.letter}"] = float(inside.mean())
        if inside.any():
            numbers[f"depth gain {mode.letter}"] = float(deeper[inside].mean())
            numbers[f"breadth gain {mode.letter}"] = float(broader[inside].mean())
            numbers[f"breadth over depth {mode.letter}"] = float((broader - deeper)[inside].mean())
    return numbers, kinds.tolist()
