"""What depth, breadth and halting buy, computed from traces: accuracy, residual and cost at many budgets.

Every accuracy comes from `metrics` and `statistics` with its interval; here they are only asked for at many
budgets at once.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eqr.diagnostics.landscape import Basins, Mode, name_basins
from eqr.diagnostics.traces import Traces, race, replay
from eqr.dynamics.halting import SETTLED, HaltingRule
from eqr.result import Estimate, Result
from eqr.results.metrics import (
    MEAN,
    ORACLE,
    Outcomes,
    by_rating,
    expected,
    expected_of_lowest,
    outcomes,
    over_starts,
    pass_at,
    powers_of_two,
    range_name,
    share,
)
from eqr.solve.candidates import Candidates
from eqr.solve.selection import FirstToHalt

FIXED, HALTED = "fixed depth", "halting"
TOP, VOTE = "Top-1 converged", "majority vote"
SAID = {"residual": TOP, "majority": VOTE}
"""The paper's words for selection rules."""
DEPTH_USED = "segments until halting"


def scaling_rows(traces: Traces) -> list[Result]:
    """Score Top-1 converged and the oracle at powers of two of depth and breadth, with residual and cost."""
    rows = []
    for depth in powers_of_two(traces.depth):
        scored = _outcomes(traces, traces.at(depth))
        for breadth in powers_of_two(traces.breadth):
            top = share(expected_of_lowest(scored.costs, scored.right, breadth))
            residual = float(expected_of_lowest(scored.costs, scored.costs, breadth).mean())
            exact, nfe = _cost(TOP, depth, breadth, depth * breadth, top)
            rows += [
                exact,
                replace(nfe, metric="residual", value=residual),
                nfe,
                Result.of(ORACLE, share(pass_at(breadth, scored.right)), depth=depth, breadth=breadth),
            ]
    return rows


def cost_rows(traces: Traces, rule: HaltingRule = SETTLED) -> list[Result]:
    """Score fixed depth, halting and racing, and Top-1 converged of all starts, with what each costs."""
    breadth, rows = traces.breadth, list[Result]()
    for depth in powers_of_two(traces.depth):
        whole = _outcomes(traces, traces.at(depth))
        rows += _cost(FIXED, depth, 1, depth, over_starts(whole.right))
        halted = _outcomes(traces, replay(traces, rule, depth))
        rows += _cost(HALTED, depth, 1, float(halted.nfe.mean()), over_starts(halted.right))
        if breadth == 1:
            continue
        top = share(expected_of_lowest(whole.costs, whole.right, breadth))
        rows += _cost(f"{TOP}, {breadth} starts", depth, breadth, depth * breadth, top)
        raced = race(traces, rule, depth, breadth)
        first = FirstToHalt().choose(raced)
        right = _outcomes(traces, raced).right[np.arange(len(first)), first]
        spent = float(raced.nfe.sum(axis=1).mean())
        rows += _cost(f"racing, {breadth} starts", depth, breadth, spent, share(right))
    return rows


def breadth_rows(traces: Traces) -> list[Result]:
    """Score selection rules on random subsets of the starts, by their expected accuracy at full depth."""
    scored = _outcomes(traces, traces.at(traces.depth))
    return [
        Result.of("exact", share(found), rule=SAID.get(rule, rule), depth=traces.depth, breadth=breadth)
        for breadth in powers_of_two(traces.breadth)
        for rule, found in expected(scored, breadth).items()
    ]


def difficulty_rows(traces: Traces, rule: HaltingRule = SETTLED) -> list[Result]:
    """Score ranges of the difficulty rating: accuracy at full depth, depth used under a halting rule.

    The depth is a median over puzzles and starts, with the middle half as its interval.
    """
    used = replay(traces, rule).depth
    _, ratings = difficulty(traces)
    rows = []
    for (low, high), exact in by_rating(ratings, traces.right[:, :, -1]):
        inside = (ratings >= low) & (ratings <= high)
        quarter, middle, three_quarters = map(float, np.quantile(used[inside], (0.25, 0.5, 0.75)))
        where: dict[str, Any] = {"part": range_name(low, high), "depth": traces.depth}
        spent = Estimate(middle, quarter, three_quarters, exact.n)
        rows += [
            Result.of("exact", exact, rule=MEAN, **where),
            Result.of(DEPTH_USED, spent, rule=HALTED, **where),
        ]
    return rows


def difficulty(traces: Traces) -> tuple[str, NDArray[np.int32]]:
    """Return the name and values of what tells hard puzzles from easy ones: the rating, or else the clues."""
    task, puzzles = traces.task, traces.puzzles
    rated = len(by_rating(puzzles.ratings, traces.right[:, :, -1])) > 1
    if rated or task.clues_name is None:
        return task.rating_name, puzzles.ratings
    return task.clues_name, task.clues(puzzles.inputs).astype(np.int32)


def all_basins(traces: Traces) -> list[Basins]:
    """Name the landscape mode of every puzzle from the starts there are."""
    tokens, residuals, labels = traces.candidates.tokens, traces.residuals, traces.puzzles.labels
    return [name_basins(*parts) for parts in zip(tokens, residuals, labels, strict=True)]


def mode_rows(basins: Sequence[Basins], step: int | None = None) -> list[Result]:
    """Count the puzzles of each mode, and say what their starts come to."""
    rows = []
    for mode in Mode:
        few = [part for part in basins if part.mode is mode]
        where: dict[str, Any] = {"part": f"({mode.letter}) {mode}", "step": step}
        rows.append(Result.of("share", share(np.array([part.mode is mode for part in basins])), **where))
        numbers: dict[str, list[float | None]] = {
            "starts right": [part.right for part in few],
            "starts spurious": [part.spurious for part in few],
            "starts cycling": [part.cycling for part in few],
            "period": [part.period for part in few],
            "answers": [part.answers for part in few],
        }
        for metric, values in numbers.items():
            there = [value for value in values if value is not None]
            if there:
                rows.append(Result(metric=metric, value=float(np.mean(there)), n=len(there), **where))
    return rows


def _outcomes(traces: Traces, candidates: Candidates) -> Outcomes:
    return outcomes(candidates, traces.puzzles, traces.task, [])


def _cost(rule: str, depth: int, breadth: int, nfe: float, exact: Estimate) -> list[Result]:
    where: dict[str, Any] = {"rule": rule, "depth": depth, "breadth": breadth}
    return [Result.of("exact", exact, **where), Result(metric="nfe", value=nfe, n=exact.n, **where)]
