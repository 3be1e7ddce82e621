"""The rows behind the scaling figures, computed from traces: what depth, breadth and halting buy.

Every accuracy comes from `metrics` and `statistics` with their intervals; here they are only asked for at
many budgets at once.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from eqr.measure.diagnostics import MODE_RULES, Basins, Mode, ModeRules, name_basins
from eqr.measure.metrics import Outcomes, by_rating, outcomes, over_starts
from eqr.measure.results import BreadthRow, CostRow, DifficultyRow, ModeRow, ScalingRow
from eqr.measure.statistics import (
    Estimate,
    expected_of_lowest,
    expected_of_vote,
    pass_at,
    powers_of_two,
    share,
)
from eqr.measure.traces import Traces, race, replay
from eqr.solve.candidates import Candidates
from eqr.solve.halting import SETTLED, HaltingRule
from eqr.solve.selection import FirstToHalt

FIXED, HALTED = "fixed depth", "halting"
TOP, VOTE, ORACLE = "Top-1 converged", "majority vote", "any correct (oracle)"


def scaling_rows(traces: Traces) -> list[ScalingRow]:
    """Score Top-1 converged at depths and breadths in powers of two."""
    rows = []
    for depth in powers_of_two(traces.depth):
        scored = _outcomes(traces, traces.at(depth))
        for breadth in powers_of_two(traces.breadth):
            exact = share(expected_of_lowest(scored.costs, scored.right, breadth))
            rows.append(
                ScalingRow(
                    depth=depth,
                    breadth=breadth,
                    nfe=depth * breadth,
                    exact=exact.value,
                    low=exact.low,
                    high=exact.high,
                    residual=float(expected_of_lowest(scored.costs, scored.costs, breadth).mean()),
                    any_correct_oracle=float(pass_at(breadth, scored.right).mean()),
                )
            )
    return rows


def cost_rows(traces: Traces, rule: HaltingRule | None = None) -> list[CostRow]:
    """Score fixed depth, halting and racing, and Top-1 converged of all starts, with what each costs."""
    rule, breadth = rule or SETTLED, traces.breadth
    rows = []
    for depth in powers_of_two(traces.depth):
        whole = _outcomes(traces, traces.at(depth))
        rows.append(_cost(FIXED, depth, 1, depth, over_starts(whole.right)))
        halted = _outcomes(traces, replay(traces, rule, depth))
        rows.append(_cost(HALTED, depth, 1, float(halted.nfe.mean()), over_starts(halted.right)))
        if breadth == 1:
            continue
        top = share(expected_of_lowest(whole.costs, whole.right, breadth))
        rows.append(_cost(f"{TOP}, {breadth} starts", depth, breadth, depth * breadth, top))
        raced = race(traces, rule, depth, breadth)
        first = FirstToHalt().choose(raced)
        right = _outcomes(traces, raced).right[np.arange(len(first)), first]
        spent = float(raced.nfe.sum(axis=1).mean())
        rows.append(_cost(f"racing, {breadth} starts", depth, breadth, spent, share(right)))
    return rows


def breadth_rows(traces: Traces, depth: int | None = None) -> list[BreadthRow]:
    """Score selection rules on random subsets of the starts, by their expected accuracy."""
    depth = depth or traces.depth
    scored = _outcomes(traces, traces.at(depth))
    rows = []
    for breadth in powers_of_two(traces.breadth):
        rules = {
            TOP: share(expected_of_lowest(scored.costs, scored.right, breadth)),
            VOTE: share(expected_of_vote(scored.ids, scored.right, breadth)),
            ORACLE: share(pass_at(breadth, scored.right)),
        }
        rows += [
            BreadthRow(rule=rule, depth=depth, breadth=breadth, exact=e.value, low=e.low, high=e.high)
            for rule, e in rules.items()
        ]
    return rows


def difficulty_rows(traces: Traces, rule: HaltingRule | None = None) -> list[DifficultyRow]:
    """Score ranges of the difficulty rating: accuracy at full depth, depth used under a halting rule."""
    used = replay(traces, rule or SETTLED).depth
    _, ratings = difficulty(traces)
    rows = []
    for part in by_rating(ratings, traces.right[:, :, -1]):
        inside = (ratings >= part.low) & (ratings <= part.high)
        low, middle, high = np.quantile(used[inside], (0.25, 0.5, 0.75))
        rows.append(
            DifficultyRow(
                rating_from=part.low,
                rating_to=part.high,
                puzzles=int(inside.sum()),
                exact=part.exact.value,
                low=part.exact.low,
                high=part.exact.high,
                depth_median=float(middle),
                depth_quarter=float(low),
                depth_three_quarters=float(high),
            )
        )
    return rows


def difficulty(traces: Traces) -> tuple[str, NDArray[np.int32]]:
    """Return the name and values of what tells hard puzzles from easy ones: the rating, or else the clues."""
    task, puzzles = traces.task, traces.puzzles
    rated = len(by_rating(puzzles.ratings, traces.right[:, :, -1])) > 1
    if rated or task.clues_name is None:
        return task.rating_name, puzzles.ratings
    return task.clues_name, task.clues(puzzles.inputs).astype(np.int32)


def all_basins(traces: Traces, rules: ModeRules = MODE_RULES) -> list[Basins]:
    """Name the landscape mode of every puzzle from the starts there are."""
    tokens, residuals, labels = traces.candidates.tokens, traces.residuals, traces.puzzles.labels
    return [name_basins(*parts, rules) for parts in zip(tokens, residuals, labels, strict=True)]


def mode_rows(basins: Sequence[Basins]) -> list[ModeRow]:
    """Count the puzzles of each mode."""
    rows = []
    for mode in Mode:
        here = np.array([part.mode is mode for part in basins], np.bool_)
        few = [part for part in basins if part.mode is mode]
        of_all = share(here)
        rows.append(
            ModeRow(
                mode=f"({mode.letter}) {mode}",
                puzzles=len(few),
                of_all=of_all.value,
                low=of_all.low,
                high=of_all.high,
                starts_right=_mean(part.right for part in few),
                starts_spurious=_mean(part.spurious for part in few),
                starts_cycling=_mean(part.cycling for part in few),
                period=_mean(part.period for part in few),
                answers=_mean(part.answers for part in few),
            )
        )
    return rows


def _mean(values: Iterable[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return float(np.mean(there)) if there else None


def _outcomes(traces: Traces, candidates: Candidates) -> Outcomes:
    return outcomes(candidates, traces.puzzles, traces.task, [])


def _cost(method: str, depth: int, breadth: int, nfe: float, exact: Estimate) -> CostRow:
    return CostRow(
        method=method,
        depth=depth,
        breadth=breadth,
        nfe=float(nfe),
        exact=exact.value,
        low=exact.low,
        high=exact.high,
    )
