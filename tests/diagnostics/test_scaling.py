"""The rows behind the figures equal brute force over all subsets of starts, and price what they claim."""

from itertools import combinations

import numpy as np
import pytest

from eqr.diagnostics import scaling
from eqr.diagnostics.landscape import Mode
from eqr.diagnostics.traces import Traces, replay, run_traces
from eqr.dynamics.halting import HaltHead
from eqr.result import pivot, select
from eqr.results.metrics import ORACLE
from eqr.solve.budget import Budget
from eqr.solve.selection import LowestResidual
from settling import Settling, puzzles_4x4

PUZZLES = puzzles_4x4(14)


@pytest.fixture(scope="module")
def traces() -> Traces:
    return run_traces(Settling(PUZZLES, stuck=0.2), PUZZLES, Budget(depth=8, breadth=4), quiet=True)


def test_scaling_rows_are_means_over_all_subsets(traces):
    rows = pivot(scaling.scaling_rows(traces), "depth", "breadth")
    assert sorted(rows) == [(d, b) for d in (1, 2, 4, 8) for b in (1, 2, 4)]
    for (depth, breadth), row in rows.items():
        costs, right = LowestResidual().costs(traces.at(depth)), traces.right[:, :, depth - 1]
        hits = [
            right[np.arange(len(right)), np.array(some)[costs[:, some].argmin(axis=1)]].mean()
            for some in combinations(range(4), breadth)
        ]
        exact = row["exact"]
        assert exact.value == pytest.approx(np.mean(hits))
        lowest = [costs[:, some].min(axis=1).mean() for some in combinations(range(4), breadth)]
        assert row["residual"].value == pytest.approx(np.mean(lowest))
        assert exact.low <= exact.value <= exact.high
        assert row["nfe"].value == depth * breadth
    assert rows[8, 4][ORACLE].value == pytest.approx(traces.right[:, :, -1].any(axis=1).mean())


def test_breadth_never_raises_the_residual_of_the_choice(traces):
    rows = scaling.scaling_rows(traces)
    for depth in (1, 2, 4, 8):
        residuals = [row.value for row in select(rows, metric="residual", depth=depth)]
        assert residuals == sorted(residuals, reverse=True)


def test_costs_are_segments_spent(traces):
    rows = pivot(scaling.cost_rows(traces), "rule", "depth")
    assert rows[scaling.FIXED, 8]["nfe"].value == 8
    assert rows[scaling.HALTED, 8]["nfe"].value == pytest.approx(replay(traces, HaltHead()).depth.mean())
    assert rows["Top-1 converged, 4 starts", 8]["nfe"].value == 32
    assert 4 <= rows["racing, 4 starts", 8]["nfe"].value < 32
    assert rows[scaling.FIXED, 8]["exact"].value == pytest.approx(traces.right[:, :, -1].mean())


def test_a_single_start_has_neither_race_nor_choice():
    alone = run_traces(Settling(PUZZLES), PUZZLES, Budget(depth=2), quiet=True)
    assert {row.rule for row in scaling.cost_rows(alone)} == {scaling.FIXED, scaling.HALTED}


def test_at_breadth_one_all_rules_agree(traces):
    one = [row.value for row in scaling.breadth_rows(traces) if row.breadth == 1]
    assert one == pytest.approx([one[0]] * 3, abs=1e-12)
    assert {row.depth for row in scaling.breadth_rows(traces)} == {8}


def test_difficulty_bins_hold_every_puzzle_once(traces):
    rows = scaling.difficulty_rows(traces)
    assert sum(row.n for row in select(rows, metric="exact")) == len(PUZZLES)
    assert scaling.difficulty(traces)[0] == "backtracks"
    depths = select(rows, metric=scaling.DEPTH_USED)
    assert all(row.low <= row.value <= row.high <= 8 for row in depths)


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
    rows = pivot(scaling.mode_rows(scaling.all_basins(traces)), "part")
    assert len(rows) == len(Mode)
    assert sum(row["share"].value for row in rows.values()) == pytest.approx(1)
    assert all(("starts right" in row) == (row["share"].value > 0) for row in rows.values())
