"""What is kept by puzzle averages to the numbers shown; modes are named by other starts than are scored."""

import numpy as np
import pytest

from eqr.diagnostics.traces import Traces
from eqr.paper.experiment import Output, named
from eqr.paper.measure import by_puzzle, half_numbers, rows_of
from eqr.result import one
from eqr.solve import Budget, Candidates, Status
from settling import puzzles_4x4

DEPTHS = [1, 2]


def drawn(puzzles: int, starts: int, depths: int, seed: int = 0) -> Candidates:
    """Draw candidates that are right or wrong in one cell, with residuals that know a little about it."""
    rng = np.random.default_rng(seed)
    labels = puzzles_4x4(puzzles).labels
    shape = (puzzles, starts, depths)
    made = Candidates.empty(*shape, cells=labels.shape[1], window=3)
    made.tokens[:] = labels[:, None, None]
    wrong = rng.random(shape) < 0.4
    made.tokens[wrong, 3] = 1 + labels.max() - made.tokens[wrong, 3]
    made.status[:] = Status.RAN_OUT
    made.depth[:] = np.arange(1, depths + 1)
    made.residuals[:] = (rng.random(shape) + 0.3 * wrong)[..., None]
    return made


def test_values_by_puzzle_average_to_the_numbers():
    puzzles, candidates, own = puzzles_4x4(8), drawn(8, 4, 2), drawn(8, 1, 2, seed=1)
    rows = rows_of(candidates, DEPTHS, puzzles, own=own)
    numbers = {named(row.metric, row.depth, row.breadth): row.value for row in rows}
    kept = by_puzzle(candidates, DEPTHS, puzzles, own=own)
    shared = set(numbers) & set(kept)
    assert {"exact@2x1", "top@2x4", "vote@1x2", "nfe@2x1", "path per puzzle@2x4"} <= shared
    for name in shared - {"residual@1x1", "residual@2x1"}:  # these are of the last segment, not of three
        assert np.mean(kept[name]) == pytest.approx(numbers[name], abs=1e-3), name


def test_an_error_by_puzzle_is_what_is_not_right():
    kept = {"exact@1x1": [1.0, 0.25], "rating": [3.0, 9.0]}
    output = Output(numbers={}, data={"by puzzle": kept})
    assert output.of_puzzles("error@1x1") == [0.0, 0.75]
    assert output.of_puzzles("rating@8x1") == [3.0, 9.0]
    assert output.of_puzzles("auroc@1x1") is None


def test_spurious_starts_are_wrong_and_as_settled_as_right_ones():
    puzzles, candidates = puzzles_4x4(2), drawn(2, 2, 1)
    candidates.tokens[:] = puzzles.labels[:, None, None]
    candidates.tokens[0, 1, 0, 3] = 1 + puzzles.labels.max() - candidates.tokens[0, 1, 0, 3]
    candidates.residuals[:] = 0.01
    assert one(rows_of(candidates, [1], puzzles), metric="spurious").value == 0.25
    candidates.residuals[0, 1] = 0.9
    assert one(rows_of(candidates, [1], puzzles), metric="spurious").value == 0.0


def test_the_mode_comes_from_one_half_of_the_starts_and_the_gains_from_the_other():
    puzzles, candidates, budget = puzzles_4x4(6), drawn(6, 8, 8), Budget(depth=8, breadth=8)
    whole = half_numbers(Traces(puzzles=puzzles, budget=budget, candidates=candidates), 2)
    shares = [value for name, value in whole.items() if name.startswith("share")]
    assert sum(shares) == pytest.approx(1.0)
    candidates.tokens[:, 4:] = puzzles.labels[:, None, None]  # the scored half is right throughout
    scored = half_numbers(
        Traces(puzzles=puzzles, budget=Budget(depth=8, breadth=8), candidates=candidates), 2
    )
    assert {n: v for n, v in scored.items() if n.startswith("share")} == {
        n: v for n, v in whole.items() if n.startswith("share")
    }
    assert all(value == 0.0 for name, value in scored.items() if "gain" in name)
