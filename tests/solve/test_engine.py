"""The engine equals the rollout, loses nothing, and a race is decided by its puzzle alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqr.errors import UserError
from eqr.model import systems
from eqr.model.config import CandidateSites as Sites
from eqr.model.reasoner import Reasoner
from eqr.model.structured import Groups
from eqr.solve import Budget, Candidates, Engine, FirstToHalt, HaltHead, Puzzle, Status, rollout
from eqr.solve.candidates import Gather
from eqr.tasks import task_named
from settling import Settling, assert_equal_up_to_rounding, puzzles_4x4

PUZZLES = puzzles_4x4(24)


def queue(count: int = 24):
    return (Puzzle(index, PUZZLES.inputs[index]) for index in range(count))


def gathered(engine: Engine, count: int = 24, noted: tuple[int, ...] = ()) -> Candidates:
    gather = Gather(engine.budget, cells=16, noted=noted, size=count)
    blocks = [block for finished in engine.run(queue(count)) for block in gather.add(finished)]
    assert len(blocks) == 1
    return blocks[0].candidates


def assert_same(one: Candidates, other: Candidates) -> None:
    for name, array in one.columns().items():
        if name != "seconds":
            np.testing.assert_allclose(array, getattr(other, name), rtol=1e-3, err_msg=name)


def rolled(reasoner: Reasoner, budget: Budget, count: int = 24) -> Candidates:
    rows = np.repeat(PUZZLES.inputs[:count], budget.breadth, axis=0)
    restarts = np.tile(np.arange(budget.breadth), count)
    ended = rollout(reasoner, rows, budget, restarts=restarts)
    shape = (count, budget.breadth)
    return Candidates(**{n: a.reshape(*shape, *a.shape[1:]) for n, a in ended.columns().items()})


@pytest.mark.parametrize("slots", [1, 5, 64, 200])
def test_engine_equals_rollout_row_by_row(slots):
    budget = Budget(depth=12, breadth=3, halting=HaltHead())
    reasoner = Settling(PUZZLES)
    assert_same(gathered(Engine(reasoner, budget, slots=slots))[:, :, 0], rolled(reasoner, budget))


@pytest.mark.parametrize("sites", [None, Sites(), Sites(live=True)])
def test_engine_equals_rollout_on_a_real_model_with_noise(sites):
    told = {} if sites is None else {"mixer": Groups(hidden=16), "sites": sites}
    config = systems.eqr(
        task_named("sudoku-4x4"), width=16, round_hidden_to=16, cycles=1, scratch=2, blocks=1, **told
    )
    reasoner, budget = Reasoner(config, seed=1), Budget(depth=4, breadth=2, probe=True)
    assert_same(gathered(Engine(reasoner, budget, slots=7), 8)[:, :, 0], rolled(reasoner, budget, 8))


@given(
    slots=st.integers(1, 40),
    depth=st.integers(1, 20),
    breadth=st.integers(1, 5),
    stuck=st.floats(0, 1),
    race=st.booleans(),
    abreast=st.integers(1, 5),
    seed=st.integers(0, 99),
)
@settings(max_examples=40, deadline=None)
def test_refills_lose_nothing_and_repeat_nothing(slots, depth, breadth, stuck, race, abreast, seed):
    budget = Budget(depth=depth, breadth=breadth, halting=HaltHead(), race=race, abreast=abreast, seed=seed)
    engine = Engine(Settling(PUZZLES, stuck=stuck), budget, slots=slots)
    seen, won, segments = set(), set(), 0
    for finished in engine.run(queue()):
        candidates = finished.candidates
        rows = list(zip(finished.puzzles.tolist(), finished.restarts.tolist(), strict=True))
        assert seen.isdisjoint(rows)
        assert won.isdisjoint(finished.puzzles.tolist()), "a race went on after it was won"
        seen.update(rows)
        segments += int(candidates.depth.sum())
        if race:
            won.update(finished.puzzles[candidates.status == Status.HALTED].tolist())
    wanted = {(puzzle, start) for puzzle in range(24) for start in range(breadth)}
    assert seen <= wanted
    assert {row for row in wanted if row[0] not in won} <= seen
    assert segments == engine.usage.segments


def test_puzzles_enter_in_order_and_are_drawn_only_when_there_is_room():
    drawn = []

    def watched():
        for puzzle in queue():
            drawn.append(puzzle.index)
            yield puzzle

    engine = Engine(Settling(PUZZLES), Budget(depth=6), slots=4)
    run = engine.run(watched())
    next(run)
    assert drawn == [0, 1, 2, 3]
    next(run)
    assert drawn == [0, 1, 2, 3, 4, 5, 6, 7]
    assert [index for finished in run for index in finished.puzzles.tolist()] == list(range(8, 24))


@pytest.mark.parametrize("halting", [None, HaltHead()])
def test_noted_depths_equal_runs_of_that_depth(halting):
    reasoner, budget = Settling(PUZZLES), Budget(depth=16, breadth=2, halting=halting)
    table = gathered(Engine(reasoner, budget, slots=5, noted=(2, 7)), noted=(2, 7))
    for column, depth in enumerate((2, 7, 16)):
        alone = gathered(Engine(reasoner, budget.replace(depth=depth), slots=9))[:, :, 0]
        noted = table[:, :, column]
        for name in ("tokens", "depth", "status", "halt", "logit_residuals"):
            mine, theirs = getattr(noted, name), getattr(alone, name)
            assert_equal_up_to_rounding(mine[..., -2:], theirs[..., -2:], name)


@pytest.mark.parametrize(("breadth", "abreast"), [(4, 8), (6, 2), (5, 3)])
def test_a_race_is_won_by_the_start_that_halts_first(breadth, abreast):
    reasoner = Settling(PUZZLES, stuck=0.6)
    budget = Budget(depth=12, breadth=breadth, halting=HaltHead(), race=True, abreast=abreast)
    whole = rolled(reasoner, budget.replace(race=False))
    rule = FirstToHalt(abreast=abreast)
    expected = rule.choose(whole)
    for slots in (1, 16, 50):
        raced = gathered(Engine(reasoner, budget, slots=slots))[:, :, 0]
        chosen = rule.choose(raced)
        np.testing.assert_array_equal(chosen, expected)
        picked, wanted = raced[np.arange(24), chosen], whole[np.arange(24), expected]
        np.testing.assert_array_equal(picked.tokens, wanted.tokens)
        np.testing.assert_array_equal(picked.status, wanted.status)
        assert raced.nfe.sum() < whole.nfe.sum()
        halted = (raced.status == Status.HALTED).any(axis=1)
        np.testing.assert_array_equal(halted, (whole.status == Status.HALTED).any(axis=1))


def test_slots_stay_full_until_the_queue_drains_and_then_shrink():
    budget = Budget(depth=16, breadth=4, halting=HaltHead())
    engine = Engine(Settling(PUZZLES), budget, slots=8)
    for _ in engine.run(queue()):
        pass
    assert engine.usage.utilisation == 1.0
    whole = rolled(Settling(PUZZLES), budget)
    assert engine.usage.segments == whole.nfe.sum()


def test_a_run_that_is_given_up_leaves_nothing_to_the_next():
    engine = Engine(Settling(PUZZLES), Budget(depth=6), slots=4)
    run = engine.run(queue())
    next(run)
    run.close()
    assert sum(len(finished.puzzles) for finished in engine.run(queue(5))) == 5


def test_an_empty_queue_gives_nothing():
    assert list(Engine(Settling(PUZZLES)).run([])) == []


def test_a_race_needs_a_rule_and_an_engine_needs_slots():
    with pytest.raises(UserError, match="halting rule"):
        Budget.from_json({"race": True})
    with pytest.raises(UserError, match="depth = 0"):
        Budget.from_json({"depth": 0})
    with pytest.raises(UserError, match="slots"):
        Engine(Settling(PUZZLES), slots=0)
