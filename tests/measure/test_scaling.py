"""The rows behind the figures equal brute force over all subsets of starts, and price what they claim."""

from itertools import combinations

import numpy as np
import pytest

from eqr.measure import scaling
from eqr.measure.diagnostics import Mode
from eqr.measure.traces import Traces, replay, run_traces
from eqr.solve.budget import Budget
from eqr.solve.halting import HaltHead
from eqr.solve.selection import LowestResidual
from settling import Settling, puzzles_4x4

PUZZLES = puzzles_4x4(14)


@pytest.fixture(scope="module")
def traces() -> Traces:
    return run_traces(Settling(PUZZLES, stuck=0.2), PUZZLES, Budget(depth=8, breadth=4), quiet=True)


def test_scaling_rows_are_means_over_all_subsets(traces):
    rows = {(row.depth, row.breadth): row for row in scaling.scaling_rows(traces)}
    assert sorted(rows) == [(d, b) for d in (1, 2, 4, 8) for b in (1, 2, 4)]
    for (depth, breadth), row in rows.items():
        costs, right = LowestResidual().costs(traces.at(depth)), traces.right[:, :, depth - 1]
        hits = [
            right[np.arange(len(right)), np.array(some)[costs[:, some].argmin(axis=1)]].mean()
            for some in combinations(range(4), breadth)
        ]
        assert row.exact == pytest.approx(np.mean(hits))
        lowest = [costs[:, some].min(axis=1).mean() for some in combinations(range(4), breadth)]
        assert row.residual == pytest.approx(np.mean(lowest))
        assert row.low <= row.exact <= row.high
        assert row.nfe == depth * breadth
    assert rows[8, 4].any_correct_oracle == pytest.approx(traces.right[:, :, -1].any(axis=1).mean())


def test_breadth_never_raises_the_residual_of_the_choice(traces):
    rows = scaling.scaling_rows(traces)
    for depth in (1, 2, 4, 8):
        residuals = [row.residual for row in rows if row.depth == depth]
        assert residuals == sorted(residuals, reverse=True)


def test_costs_are_segments_spent(traces):
    rows = {(row.method, row.depth): row for row in scaling.cost_rows(traces)}
    assert rows[scaling.FIXED, 8].nfe == 8
    assert rows[scaling.HALTED, 8].nfe == pytest.approx(replay(traces, HaltHead()).depth.mean())
    assert rows["Top-1 converged, 4 starts", 8].nfe == 32
    assert 4 <= rows["racing, 4 starts", 8].nfe < 32
    assert rows[scaling.FIXED, 8].exact == pytest.approx(traces.right[:, :, -1].mean())


def test_a_single_start_has_neither_race_nor_choice():
    alone = run_traces(Settling(PUZZLES), PUZZLES, Budget(depth=2), quiet=True)
    assert {row.method for row in scaling.cost_rows(alone)} == {scaling.FIXED, scaling.HALTED}


def test_at_breadth_one_all_rules_agree(traces):
    one = [row.exact for row in scaling.breadth_rows(traces) if row.breadth == 1]
    assert one == pytest.approx([one[0]] * 3, abs=1e-12)
    assert {row.depth for row in scaling.breadth_rows(traces)} == {8}


def test_difficulty_bins_hold_every_puzzle_once(traces):
    rows = scaling.difficulty_rows(traces)
    assert sum(row.puzzles for row in rows) == len(PUZZLES)
    assert scaling.difficulty(traces)[0] == "backtracks"
    assert all(row.depth_quarter <= row.depth_median <= row.depth_three_quarters <= 8 for row in rows)


def test_where_ratings_say_nothing_clues_take_their_place(traces):
    plain = Traces(
        puzzles=PUZZLES.of(PUZZLES.task, PUZZLES.inputs, PUZZLES.labels),
        budget=traces.budget,
        candidates=traces.candidates,
    )
    name, values = scaling.difficulty(plain)
    assert name == "clues"
    np.testing.assert_array_equal(values, (PUZZLES.inputs > 1).sum(axis=1))


def test_every_puzzle_has_one_mode(traces):
    rows = scaling.mode_rows(scaling.all_basins(traces))
    assert len(rows) == len(Mode)
    assert sum(row.puzzles for row in rows) == len(PUZZLES)
    assert sum(row.of_all for row in rows) == pytest.approx(1)
    assert all((row.starts_right is None) == (row.puzzles == 0) for row in rows)
