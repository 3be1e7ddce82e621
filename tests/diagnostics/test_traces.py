"""Traces hold every smaller budget: slices equal runs of their own, replayed rules equal the engine's."""

import numpy as np
import pytest

from eqr.diagnostics.traces import Traces, race, replay, run_traces
from eqr.dynamics.halting import AnswerStable, HaltHead, HaltingRule, ResidualBelow
from eqr.errors import UserError
from eqr.solve.budget import Budget
from eqr.solve.candidates import Candidates, Gather
from eqr.solve.engine import Engine, Puzzle
from settling import Settling, puzzles_4x4

PUZZLES = puzzles_4x4(12)
MODEL = Settling(PUZZLES, stuck=0.3)
DEPTH, BREADTH = 12, 6


@pytest.fixture(scope="module")
def traces() -> Traces:
    return run_traces(MODEL, PUZZLES, Budget(depth=DEPTH, breadth=BREADTH), quiet=True)


def by_engine(budget: Budget) -> Candidates:
    """Run a budget for itself."""
    engine = Engine(MODEL, budget, slots=7)
    gather = Gather(budget, cells=PUZZLES.cells, size=len(PUZZLES))
    queue = (Puzzle(number, np.array(grid)) for number, grid in enumerate(PUZZLES.inputs))
    blocks = [block for finished in engine.run(queue) for block in gather.add(finished)]
    return blocks[0].candidates[:, :, -1]


def assert_same(one: Candidates, other: Candidates) -> None:
    for name in ("status", "depth"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    ran = one.depth > 0
    np.testing.assert_array_equal(one.tokens[ran], other.tokens[ran])
    np.testing.assert_allclose(one.halt[ran], other.halt[ran], rtol=1e-5)
    np.testing.assert_allclose(one.residuals[ran][:, -1], other.residuals[ran][:, -1], rtol=1e-5)


@pytest.mark.parametrize(("depth", "breadth"), [(1, 1), (5, 3), (DEPTH, BREADTH)])
def test_a_slice_is_the_run_of_a_smaller_budget(traces, depth, breadth):
    assert_same(traces.at(depth, breadth), by_engine(Budget(depth=depth, breadth=breadth)))


@pytest.mark.parametrize(
    "rule", [HaltHead(), HaltHead(patience=2), ResidualBelow(tolerance=0.1), AnswerStable()]
)
@pytest.mark.parametrize("depth", [4, DEPTH])
def test_a_replayed_rule_stops_where_the_engine_does(traces, rule: HaltingRule, depth: int):
    replayed = replay(traces, rule, depth)
    assert_same(replayed, by_engine(Budget(depth=depth, breadth=BREADTH, halting=rule)))
    assert len(np.unique(replayed.depth)) > 1


@pytest.mark.parametrize(("breadth", "abreast"), [(1, 8), (6, 8), (6, 2), (5, 2)])
@pytest.mark.parametrize("depth", [3, DEPTH])
def test_a_replayed_race_is_won_and_paid_for_as_in_the_engine(traces, breadth, abreast, depth):
    budget = Budget(depth=depth, breadth=breadth, halting=HaltHead(), race=True, abreast=abreast)
    assert_same(race(traces, HaltHead(), depth, breadth, abreast=abreast), by_engine(budget))


def test_a_table_that_was_kept_is_not_run_again(tmp_path, monkeypatch):
    budget = Budget(depth=3, breadth=2)
    first = run_traces(MODEL, PUZZLES, budget, tmp_path, quiet=True)
    monkeypatch.setattr(Settling, "segment", None)
    again = run_traces(MODEL, PUZZLES, budget, tmp_path, quiet=True)
    np.testing.assert_array_equal(first.candidates.tokens, again.candidates.tokens)
    assert again.seconds == first.seconds > 0


def test_mistakes_are_named(traces):
    with pytest.raises(UserError, match="depths 1 to 12"):
        traces.at(13)
    with pytest.raises(UserError, match="replayed"):
        run_traces(MODEL, PUZZLES, Budget(halting=HaltHead()), quiet=True)
