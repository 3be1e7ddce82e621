"""The inference benchmark measures what it says, on dynamics that are known."""

import pytest
import speed_inference as bench

from eqr.dynamics.halting import SETTLED
from eqr.model import systems
from eqr.model.reasoner import Reasoner
from eqr.solve import Budget, rollout
from eqr.tasks import task_named
from settling import Settling, puzzles_4x4

PUZZLES = puzzles_4x4(20)


def test_speed_figures_are_there_and_slots_stay_full():
    config = systems.eqr(
        task_named("sudoku-4x4"), width=16, round_hidden_to=16, cycles=1, scratch=2, blocks=1
    )
    figures = bench.speed(Reasoner(config), slots=8, depth=4, rounds=3)
    assert figures[0].value == pytest.approx(1.0)
    assert figures[0].holds
    assert len(figures) == 5
    assert all(figure.name in bench.table(figures) for figure in figures)


def test_savings_compare_halting_and_racing_with_the_whole_budget():
    reasoner = Settling(PUZZLES, stuck=0.0)
    share, lost, kept, gained = bench.savings(reasoner, PUZZLES, depth=64, breadth=4)
    assert 0 < share.value < 1
    assert share.holds == (share.value <= 0.25)
    right = [
        (rollout(reasoner, PUZZLES.inputs, budget).tokens == PUZZLES.labels).all(axis=1).mean()
        for budget in (Budget(depth=64), Budget(depth=64, halting=SETTLED))
    ]
    assert lost.value == pytest.approx(100 * (right[0] - right[1]))
    assert 0 < kept.value < share.value
    assert gained.holds == (gained.value >= 0)
