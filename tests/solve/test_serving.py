"""An engine that never stops: puzzles join while rows are live, leave when taken back, and can be watched."""

import time
from queue import Queue
from threading import Event, Thread

import numpy as np
import pytest

from eqr.dynamics.halting import parse_halting
from eqr.errors import UserError
from eqr.model import systems
from eqr.model.reasoner import Reasoner
from eqr.solve import (
    Answer,
    Budget,
    Engine,
    Finished,
    HaltHead,
    MajorityVote,
    Puzzle,
    Refused,
    Session,
    Snapshot,
    Solver,
)
from eqr.solve.candidates import Status
from eqr.tasks import task_named
from settling import Settling, assert_equal_up_to_rounding, puzzles_4x4

PUZZLES = puzzles_4x4(12)
TASK = task_named("sudoku-4x4")
SECONDS = 20.0
"""Far more than anything here takes; a test that needs it has failed."""


def puzzle(index: int, **options) -> Puzzle:
    return Puzzle(index, PUZZLES.inputs[index], **options)


def serving(session):
    """Drive a session on a thread of its own; return its events as a queue that ends with None."""
    events = Queue()

    def work():
        for event in session.serve():
            events.put(event)
        events.put(None)

    Thread(target=work, daemon=True).start()
    return events


def test_puzzles_join_while_others_run():
    engine = Engine(Settling(PUZZLES), Budget(depth=8), slots=4)
    engine.add(puzzle(0))
    assert engine.turn() == []
    engine.add(puzzle(1))
    ended = {}
    for turn in range(2, 10):
        for event in engine.turn():
            ended[int(event.puzzles[0])] = turn
    assert ended == {0: 8, 1: 9}
    assert engine.live == engine.waiting == 0


def test_a_server_sleeps_until_there_is_work_and_ends_when_closed():
    session = Session(Settling(PUZZLES), TASK, Budget(depth=8))
    events = serving(session)
    cpu = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - cpu < 0.15, "it spun"
    for index in range(3):
        assert session.submit(PUZZLES.inputs[index]) == index
        answer = events.get(timeout=SECONDS)
        assert (answer.index, answer.depth) == (index, 8)
    session.close()
    assert events.get(timeout=SECONDS) is None
    with pytest.raises(RuntimeError, match="closed"):
        session.submit(PUZZLES.inputs[0])
    assert session.open == 0


def test_closing_still_answers_what_was_handed_in():
    session = Session(Settling(PUZZLES), TASK, Budget(depth=8, breadth=3), slots=2)
    for grid in PUZZLES.inputs:
        session.submit(grid)
    session.close()
    assert sorted(answer.index for answer in session.serve()) == list(range(12))


@pytest.mark.parametrize("model", ["sudoku-6x6", "sudoku-9x9", "maze"])
def test_everything_said_about_a_puzzle_is_the_same_bits_whatever_runs_beside_it(model):
    solver = Solver(model)
    drawn = solver.task.generate(np.random.default_rng(0))
    puzzles = [next(drawn).puzzle for _ in range(12)]

    def said(*puzzles):
        session = solver.session()
        numbers = [
            session.submit(one, budget=solver.budget.replace(breadth=2), watch=True) for one in puzzles
        ]
        found = {number: [] for number in numbers}
        while session.open:
            for event in session.turn():
                if isinstance(event, Answer):
                    bits = (event.grid.tobytes(), event.start, event.depth, event.nfe)
                    found[event.index].append((*bits, event.residual, event.halt))
                else:
                    place = (event.start, event.segment, event.grid.tobytes(), event.confidence.tobytes())
                    found[event.puzzle].append((*place, event.residual, event.halt))
        return [found[number] for number in numbers]

    together = said(*puzzles)
    assert [said(one)[0] for one in puzzles] == together


def test_a_cancelled_puzzle_leaves_its_slots_and_the_line():
    engine = Engine(Settling(PUZZLES), Budget(depth=8, breadth=4), slots=4)
    for index in range(3):
        engine.add(puzzle(index))
    engine.turn()
    assert (engine.live, engine.waiting) == (4, 8)
    engine.cancel(0)
    engine.cancel(2)
    engine.turn()
    assert (engine.live, engine.waiting) == (4, 0)
    engine.close()
    finished = [event for event in engine.serve() if isinstance(event, Finished)]
    assert {index for event in finished for index in event.puzzles.tolist()} == {1}


@pytest.mark.parametrize("turns", [0, 1, 9])
def test_a_cancelled_race_does_not_go_on(turns):
    budget = Budget(depth=8, breadth=6, abreast=2, race=True, halting=HaltHead(threshold=1e9))
    engine = Engine(Settling(PUZZLES), budget, slots=4)
    engine.add(puzzle(0))
    for _ in range(turns):
        engine.turn()
    engine.cancel(0)
    assert engine.turn() == []
    assert engine.live == engine.waiting == 0


def test_a_cancelled_session_reports_nothing_more():
    session = Session(Settling(PUZZLES), TASK, Budget(depth=8, breadth=2), slots=8)
    gone, kept = session.submit(PUZZLES.inputs[0], watch=True), session.submit(PUZZLES.inputs[1])
    assert len(list(session.turn())) == 2
    session.cancel(gone)
    session.close()
    assert [event.index for event in session.serve()] == [kept]


def test_each_start_says_in_a_word_how_it_ended():
    budget = Budget(depth=12, breadth=4, halting=parse_halting("stable:1"), race=True)
    session = Session(Settling(PUZZLES), TASK, budget, select="first-to-halt")
    session.submit(PUZZLES.inputs[0], watch=True)
    session.close()
    *snapshots, answer = session.serve()
    ends = [snapshot for snapshot in snapshots if snapshot.status is not None]
    assert answer.status is Status.SETTLED
    assert {snapshot.start for snapshot in ends} == {0, 1, 2, 3}
    words = {snapshot.start: snapshot.to_json(TASK, 0)["status"] for snapshot in ends}
    assert words[answer.start] == "settled"
    assert set(words.values()) == {"settled", "cancelled"}


def test_a_watched_row_reports_every_segment():
    reasoner, budget = Settling(PUZZLES), Budget(depth=12, breadth=2, halting=HaltHead())
    session = Session(reasoner, TASK, budget, select="majority")
    session.submit(PUZZLES.inputs[0], watch=True)
    session.submit(PUZZLES.inputs[1])
    session.close()
    events = list(session.serve())
    snapshots = [event for event in events if isinstance(event, Snapshot)]
    assert {snapshot.puzzle for snapshot in snapshots} == {0}
    solver = Solver(reasoner, budget=budget)
    for start in (0, 1):
        mine, frames = (
            [g for g in snapshots if g.start == start],
            list(solver.trace(PUZZLES.inputs[0], start=start)),
        )
        assert [snapshot.segment for snapshot in mine] == [frame.segment for frame in frames]
        assert [snapshot.status for snapshot in mine] == [frame.status for frame in frames]
        for snapshot, frame in zip(mine, frames, strict=True):
            np.testing.assert_array_equal(snapshot.grid, frame.grid)
            assert snapshot.residual == pytest.approx(frame.residual, abs=1e-5)
            assert snapshot.logit_residual == pytest.approx(frame.logit_residual, abs=1e-5)
            assert snapshot.halt == pytest.approx(frame.halt, abs=1e-3)
            assert snapshot.confidence.shape == (16,)
            assert ((snapshot.confidence > 1 / 6) & (snapshot.confidence <= 1)).all()


def test_answers_do_not_depend_on_what_runs_beside():
    """Different budgets share the slots, and each puzzle gets what it would get alone."""
    config = systems.eqr(TASK, width=16, round_hidden_to=16, cycles=1, scratch=2, blocks=1)
    budgets = [
        Budget(depth=3, seed=1),
        Budget(depth=5, breadth=3, seed=2),
        Budget(depth=4, breadth=4, noise=0.3, damping=0.2, probe=True),
        Budget(depth=6, breadth=4, abreast=2, race=True, halting=HaltHead(threshold=-9.0, patience=2)),
    ]
    for reasoner in (Reasoner(config, seed=1), Settling(PUZZLES)):
        session, events = Session(reasoner, TASK, Budget(depth=7), slots=5), []
        for index, grid in enumerate(PUZZLES.inputs):
            session.submit(grid, budget=budgets[index % 4], select=MajorityVote(), watch=index % 3 == 0)
            events += session.turn()
        session.close()
        events += session.serve()
        answers = [event for event in events if isinstance(event, Answer)]
        assert sorted(answer.index for answer in answers) == list(range(12))
        for answer in answers:
            solver = Solver(reasoner, budget=budgets[answer.index % 4], select=MajorityVote())
            alone = solver.solve(answer.puzzle)
            np.testing.assert_array_equal(answer.grid, alone.grid)
            assert (answer.start, answer.depth, answer.nfe) == (alone.start, alone.depth, alone.nfe)
            assert_equal_up_to_rounding(np.array(answer.residual), np.array(alone.residual))


def test_no_answer_waits_for_the_next_puzzle():
    answered = Event()

    def pausing():
        yield PUZZLES.inputs[0]
        assert answered.wait(SECONDS), "the first puzzle got no answer while the second was awaited"
        yield "12"
        yield PUZZLES.inputs[1]

    answers = Solver(Settling(PUZZLES), budget=Budget(depth=8)).solve_many(pausing(), live=True)
    assert next(answers).index == 0
    answered.set()
    refused, last = answers
    assert isinstance(refused, Refused)
    assert last.index == 2


def test_what_goes_wrong_while_reading_is_raised_where_it_is_awaited():
    def broken():
        yield PUZZLES.inputs[0]
        raise UserError("the pipe broke")

    answers = Solver(Settling(PUZZLES), budget=Budget(depth=8)).solve_many(broken(), live=True)
    with pytest.raises(UserError, match="the pipe broke"):
        list(answers)
