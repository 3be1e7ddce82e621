"""From candidates to rows: accuracy, residual and cost at every depth and breadth of a budget.

`exact` averages over starts; `top`, `vote` and `any` are expectations over subsets of so many starts (Top-1
converged, majority, oracle); `variants` is by vote of a puzzle's variants. Estimators are those of
`eqr.results`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eqr.data import PuzzleSet
from eqr.diagnostics.landscape import MODE_RULES, Basins, Mode, name_basins
from eqr.diagnostics.scaling import all_basins
from eqr.diagnostics.traces import Traces
from eqr.paper.measurement import RATINGS, named, rated
from eqr.result import Result, one, select
from eqr.results.metrics import (
    TRIES,
    Outcomes,
    auroc,
    expected,
    expected_of_lowest,
    has_variants,
    outcomes,
    powers_of_two,
    rank_correlation,
    variant_votes,
)
from eqr.solve.candidates import Candidates
from eqr.tasks import task_named

TARGETS = (50, 60, 70, 80, 85, 90, 95)
"""Accuracies whose cost is told, in percent."""


def rows_of(
    candidates: Candidates, depths: Sequence[int], puzzles: PuzzleSet, *, own: Candidates | None = None
) -> list[Result]:
    """Score candidates (puzzles, starts, depths); `own` are those of the model's own start, if others ran."""
    task, rows = task_named(puzzles.task), list[Result]()
    for column, depth in enumerate(depths):
        scored = outcomes(candidates[:, :, column], puzzles, task, [])
        starts = scored.right.shape[1]
        residual = float(np.nanmean(candidates.residuals[:, :, column, -1]))
        numbers = {(metric, 1): value for metric, value in _at_depth(scored, residual, depth).items()}
        if starts > 1:
            first = scored if own is None else outcomes(own[:, :, column], puzzles, task, [])
            numbers |= _at_breadths(scored, first.right[:, 0])
        if has_variants(puzzles):
            votes = variant_votes(candidates[:, :, column], puzzles)
            numbers |= {
                (name, 1): votes[rule].value
                for name, rule in zip(("variants", "two tries"), TRIES, strict=True)
            }
        rows += [
            Result(metric=metric, depth=depth, breadth=breadth, value=float(value))
            for (metric, breadth), value in numbers.items()
        ]
    return [*rows, *_tracking(rows), *_reaching(rows, depths)]


def _at_depth(scored: Outcomes, residual: float, depth: int) -> dict[str, float | np.floating[Any]]:
    """Return what does not depend on how many starts there are."""
    right, starts = scored.right, scored.right.shape[1]
    spent = scored.nfe.sum(axis=1).mean()
    numbers: dict[str, float | np.floating[Any] | None] = {
        "spurious": _calm_but_wrong(scored).mean(),
        "exact": right.mean(),
        "error": 1 - right.mean(),
        "valid": scored.valid.mean(),
        "token": scored.share_right.mean(),
        "nfe": spent,
        "residual": residual,
        "saving": depth * starts / spent,
        "auroc": auroc(-scored.costs.ravel(), right.ravel()),
        "rating auroc": auroc(-np.repeat(scored.ratings, starts).astype(np.float64), right.ravel()),
    }
    for low, high in RATINGS:
        inside = within(scored.ratings, low, high)
        if inside.any():
            numbers[rated("exact", low, high)] = right[inside].mean()
            numbers[rated("nfe", low, high)] = scored.nfe[inside].mean()
    return {metric: value for metric, value in numbers.items() if value is not None}


def _calm_but_wrong(scored: Outcomes) -> NDArray[np.bool_]:
    """Return which starts are wrong yet as settled as right ones, by the bar of `ModeRules`."""
    bar = MODE_RULES.tolerance
    if scored.right.any():
        bar = max(bar, MODE_RULES.calm * float(np.median(scored.costs[scored.right])))
    return np.asarray(~scored.right & (scored.costs <= bar))


def _at_breadths(scored: Outcomes, first: NDArray[np.bool_]) -> dict[tuple[str, int], float]:
    """Return what choices among starts reach; `first` is which puzzles the model's own start solves."""
    numbers, starts = dict[tuple[str, int], float](), scored.right.shape[1]
    for breadth in powers_of_two(starts):
        top, vote, any_right = (float(found.mean()) for found in expected(scored, breadth).values())
        # the least of a random subset, so that accuracy and residual are of the same starts
        calmest = expected_of_lowest(scored.costs, scored.costs, breadth).mean()
        numbers |= {
            ("top", breadth): top,
            ("top error", breadth): 1 - top,
            ("vote", breadth): vote,
            ("any", breadth): any_right,
            ("top - vote", breadth): top - vote,
            ("chosen residual", breadth): float(calmest),
            ("spent", breadth): float(scored.nfe.mean() * breadth),
        }
    # both readings of the paper's measure: per puzzle, and of the two accuracies
    mean = scored.right.mean(axis=1)
    numbers["path per puzzle", starts] = float(np.abs(mean - first).mean())
    numbers["path of means", starts] = abs(float(mean.mean()) - float(first.mean()))
    return numbers


def _tracking(rows: Sequence[Result]) -> list[Result]:
    """Rank correlation of residual and error over budgets, where there are several."""
    chosen = bool(select(rows, metric="chosen residual"))
    residual, error = ("chosen residual", "top error") if chosen else ("residual", "error")
    pairs = [
        (row.value, one(rows, metric=error, depth=row.depth, breadth=row.breadth).value)
        for row in select(rows, metric=residual)
    ]
    found = rank_correlation(*np.array(pairs).T) if len(pairs) > 2 else None
    last = max(select(rows, metric=("top", "exact")), key=lambda row: (row.depth, row.breadth))
    if found is None:
        return []
    return [Result(metric="tracking", depth=last.depth, breadth=last.breadth, value=found)]


def _reaching(rows: Sequence[Result], depths: Sequence[int]) -> list[Result]:
    """Return log2 of the NFE at which one start reaches each accuracy, linear between the depths run."""
    costs = [float(np.log2(row.value)) for row in select(rows, metric="nfe")]
    shares = [row.value for row in select(rows, metric="exact")]
    found = []
    for percent in TARGETS:
        last = next((number for number, share in enumerate(shares) if share >= percent / 100), None)
        if last is None:
            continue
        cost = costs[last]
        if last:
            low, high = shares[last - 1], shares[last]
            cost -= (costs[last] - costs[last - 1]) * (high - percent / 100) / (high - low)
        name = f"log2 nfe for {percent}%"
        found.append(Result(metric=name, depth=depths[-1], breadth=1, value=cost))
    return found


def by_puzzle(
    candidates: Candidates, depths: Sequence[int], puzzles: PuzzleSet, *, own: Candidates | None = None
) -> dict[str, list[float]]:
    """Return what `rows_of` averages over puzzles, puzzle by puzzle, by the names of its rows."""
    task, values = task_named(puzzles.task), dict[str, NDArray[Any]]()
    for column, depth in enumerate(depths):
        scored = outcomes(candidates[:, :, column], puzzles, task, [])
        right, starts = scored.right, scored.right.shape[1]
        values |= {
            named("exact", depth): right.mean(axis=1),
            named("nfe", depth): scored.nfe.sum(axis=1),
            named("residual", depth): scored.costs.mean(axis=1),
        }
        for breadth in powers_of_two(starts) if starts > 1 else ():
            top, vote, _ = expected(scored, breadth).values()
            values |= {named("top", depth, breadth): top, named("vote", depth, breadth): vote}
        if starts > 1:
            first = right if own is None else outcomes(own[:, :, column], puzzles, task, []).right
            values[named("path per puzzle", depth, starts)] = np.abs(right.mean(axis=1) - first[:, 0])
    values["rating"] = puzzles.ratings
    return {name: [float(f"{value:.4g}") for value in column] for name, column in values.items()}


def within(ratings: NDArray[np.int32], low: int, high: int | None) -> NDArray[np.bool_]:
    """Return which ratings lie in a range, both ends inside; no high end is no bound."""
    return np.asarray((ratings >= low) & (ratings <= high if high is not None else True))


def mode_numbers(traces: Traces) -> tuple[dict[str, float], list[str]]:
    """Return the share of puzzles in each landscape mode and what depth and breadth buy there."""
    early, late = (_outcomes(traces, depth) for depth in (max(traces.depth // 4, 1), traces.depth))
    before, deeper = early.right.mean(axis=1), late.right.mean(axis=1)
    broader = expected_of_lowest(late.costs, late.right, traces.breadth) - deeper
    return _by_mode(all_basins(traces), deeper, deeper - before, broader)


def half_numbers(traces: Traces, shallow: int) -> dict[str, float]:
    """Return, by the mode that half of the starts have when shallow, what the other half gains.

    Depth goes on to the end; breadth takes as many starts as cost the same, the best settled of them.
    """
    half, wider = traces.breadth // 2, max(traces.depth // shallow, 1)
    tokens, residuals = traces.candidates.tokens[:, :half, :shallow], traces.residuals[:, :half, :shallow]
    basins = [name_basins(*parts) for parts in zip(tokens, residuals, traces.puzzles.labels, strict=True)]
    early, late = (_outcomes(traces, depth, half) for depth in (shallow, traces.depth))
    before = early.right.mean(axis=1)
    broader = expected_of_lowest(early.costs, early.right, min(wider, half)) - before
    return _by_mode(basins, before, late.right.mean(axis=1) - before, broader)[0]


def _outcomes(traces: Traces, depth: int, first: int = 0) -> Outcomes:
    return outcomes(traces.at(depth)[:, first:], traces.puzzles, traces.task, [])


def _by_mode(
    basins: Sequence[Basins],
    right: NDArray[np.float64],
    deeper: NDArray[np.float64],
    broader: NDArray[np.float64],
) -> tuple[dict[str, float], list[str]]:
    kinds = [part.mode.letter for part in basins]
    numbers = {"right": float(right.mean())}
    gains = {"depth gain": deeper, "breadth gain": broader, "breadth over depth": broader - deeper}
    for mode in Mode:
        inside = np.array(kinds) == mode.letter
        numbers[f"share {mode.letter}"] = float(inside.mean())
        if inside.any():
            numbers |= {f"{name} {mode.letter}": float(gain[inside].mean()) for name, gain in gains.items()}
    return numbers, kinds
