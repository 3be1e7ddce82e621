"""The solver answers what it can, says why it refuses the rest, and shows how an answer came about."""

import tracemalloc

import numpy as np
import pytest

from eqr.errors import UserError
from eqr.model import systems
from eqr.model.reasoner import Reasoner
from eqr.model.state import RandomStart
from eqr.solve import (
    Answer,
    Budget,
    Engine,
    HaltHead,
    MajorityVote,
    Puzzle,
    Refused,
    Session,
    Solver,
    rollout,
)
from eqr.solve.candidates import Status, changes
from eqr.tasks import task_named
from settling import Settling, puzzles_4x4

PUZZLES = puzzles_4x4(12)
TASK = task_named("sudoku-4x4")
BUDGET = Budget(depth=40, breadth=4, halting=HaltHead(threshold=2.0))


@pytest.fixture(scope="module")
def solver() -> Solver:
    return Solver(Settling(PUZZLES, wrong=0.3), budget=BUDGET, slots=8)


def text_of(row: int) -> str:
    return "".join(TASK.symbols[token - 1] for token in PUZZLES.inputs[row])


def test_solves_text_and_tokens_alike(solver):
    answer = solver.solve(text_of(0))
    np.testing.assert_array_equal(answer.grid, PUZZLES.labels[0])
    assert answer.valid
    assert answer.reason == ""
    assert 0 < answer.depth <= answer.nfe
    again = solver.solve(PUZZLES.inputs[0])
    assert (again.depth, again.nfe, again.start) == (answer.depth, answer.nfe, answer.start)


def test_bad_puzzles_are_refused_and_the_others_answered(solver):
    given = [text_of(0), "12", "11" + "." * 14, text_of(1), "x" * 16, np.zeros(9, np.uint8), text_of(2)]
    answers = list(solver.solve_many(given))
    assert [answer.index for answer in answers] == list(range(7))
    assert [isinstance(answer, Refused) for answer in answers] == [
        False,
        True,
        True,
        False,
        True,
        True,
        False,
    ]
    assert "16 cells" in answers[1].reason
    assert "twice" in answers[2].reason
    for answer in (answers[0], answers[3], answers[6]):
        assert isinstance(answer, Answer)
        assert answer.valid


@pytest.mark.parametrize(
    ("tokens", "complaint"),
    [
        (np.full(16, -1), "no token -1"),
        (np.full(16, 257), "tokens 0..5, this grid has 257"),
        (np.ones((4, 4), np.uint8), r"vector of 16 tokens, not an array of uint8 of shape \(4, 4\)"),
        (np.ones(16), "not an array of float64"),
        (np.uint8(1), r"of shape \(\)"),
    ],
)
def test_arrays_that_are_no_puzzle_are_refused(solver, tokens, complaint):
    with pytest.raises(UserError, match=complaint):
        solver.solve(tokens)


def test_only_bad_puzzles_is_no_special_case(solver):
    assert [answer.index for answer in solver.solve_many(["1", "2"])] == [0, 1]
    with pytest.raises(UserError, match="16 cells"):
        solver.solve("1")


def test_answers_can_come_as_they_finish(solver):
    answers = list(solver.solve_many(PUZZLES.inputs, in_order=False))
    assert sorted(answer.index for answer in answers) == list(range(12))


def test_racing_answers_every_puzzle_for_less():
    reasoner = Settling(PUZZLES, wrong=0.0, stuck=0.3)
    whole = list(Solver(reasoner, budget=BUDGET, select="residual").solve_many(PUZZLES.inputs))
    raced = list(
        Solver(reasoner, budget=BUDGET.replace(race=True), select="residual").solve_many(PUZZLES.inputs)
    )
    assert all(answer.valid for answer in raced)
    assert sum(answer.nfe for answer in raced) < sum(answer.nfe for answer in whole)


def test_a_verified_start_ends_the_search():
    """Whatever the slots: the round in which the first verified start ends is the last one."""
    reasoner, budget = Settling(PUZZLES, wrong=0.5), BUDGET.replace(breadth=32, abreast=4)
    everything = list(Solver(reasoner, budget=budget, select="residual").solve_many(PUZZLES.inputs))
    for slots in (3, 16, 64):
        found = list(Solver(reasoner, budget=budget, slots=slots).solve_many(PUZZLES.inputs))
        if slots == 3:
            first = found
        assert [(a.start, a.depth, a.nfe) for a in found] == [(a.start, a.depth, a.nfe) for a in first]
    assert all(answer.valid for answer in first)
    assert any(answer.start >= 4 for answer in first)
    assert all(a.nfe < b.nfe for a, b in zip(first, everything, strict=True))


def test_an_endless_breadth_takes_the_room_of_what_runs():
    reasoner = Settling(PUZZLES, wrong=0.5)
    for race in (False, True):
        budget = Budget(depth=40, breadth=10**9, halting="head:2", race=race)
        tracemalloc.start()
        answer = Solver(reasoner, budget=budget).solve(PUZZLES.inputs[0])
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert race or answer.valid
        assert most < 20e6, "memory is that of the slots"
    engine = Engine(reasoner, Budget(depth=4, breadth=10**9), slots=4)
    engine.add(Puzzle(0, PUZZLES.inputs[0]))
    for _ in range(9):
        engine.turn()
    assert (engine.live, engine.waiting) == (4, 10**9 - 12)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"depth": 10**29}, "depth"),
        ({"depth": (1 << 20) + 1}, "less than or equal to 1048576"),
        ({"breadth": 10**12}, "breadth"),
        ({"abreast": 10**6}, "abreast"),
        ({"start": "randon"}, "--start randon: give model, random"),
        ({"start": "random:-1"}, "answer"),
        ({"start": "random:1e308"}, "answer"),
        ({"noise": 1e308}, "noise"),
    ],
)
def test_budgets_beyond_reason_are_refused(given, complaint):
    with pytest.raises(UserError, match=complaint):
        Budget.from_json(given)


def test_valid_answers_halt_by_the_rules_of_the_task():
    reasoner = Settling(PUZZLES, wrong=0.0, stuck=0.0)
    solver = Solver(reasoner, budget=Budget(depth=40, halting="valid"))
    for answer in solver.solve_many(PUZZLES.inputs[:4]):
        frames = list(Solver(reasoner, budget=Budget(depth=40)).trace(answer.puzzle))
        ended = [TASK.check(answer.puzzle, frame.grid).valid for frame in frames].index(True) + 1
        assert (answer.valid, answer.status, answer.depth) == (True, Status.HALTED, ended)


def test_a_budget_knows_whether_it_uses_the_rules():
    assert Budget(until_verified=True).uses_verifier
    assert Budget(halting="valid").uses_verifier
    assert not Budget(halting="head").uses_verifier


def test_any_model_can_begin_at_random():
    fixed = systems.trm(TASK, width=16, round_hidden_to=16, cycles=1, scratch=2, blocks=1)
    model = Reasoner(fixed, seed=1)
    puzzle = np.repeat(PUZZLES.inputs[:1], 3, axis=0)

    def residuals(start):
        return rollout(model, puzzle, Budget(depth=1, start=start), restarts=np.arange(3)).residuals[:, 0]

    assert len(set(residuals(None).tolist())) == len(set(residuals("model").tolist())) == 1
    assert len(set(residuals("random").tolist())) == 3
    assert residuals("random:0.5:2").tolist() == residuals(RandomStart(answer=0.5, scratch=2.0)).tolist()
    assert residuals("random:0").tolist() == residuals(RandomStart(answer=0.0, scratch=0.0)).tolist()
    with pytest.raises(UserError, match="feedforward"):
        Solver(Reasoner(systems.feedforward(TASK, width=16)), budget=Budget(depth=1, start="random"))


def test_a_session_says_at_once_what_does_not_fit():
    with pytest.raises(UserError, match="depth 3"):
        Session(Reasoner(systems.feedforward(TASK, width=16)), TASK, Budget(depth=3))


def test_an_answer_shows_its_grid(solver):
    answer = solver.solve(PUZZLES.inputs[0])
    assert TASK.render(answer.grid, puzzle=answer.puzzle) in str(answer)
    assert "valid; depth" in str(answer)
    assert f"depth {answer.depth} (halted)" in str(answer)
    short = Solver(solver.reasoner, budget=Budget(depth=2)).solve(PUZZLES.inputs[0])
    assert "depth 2 (out of segments)" in str(short)
    html = answer._repr_html_()
    assert html.count("<tr>") == 4
    assert html.count("<td>") == 16
    assert html.count("<b>") == (PUZZLES.inputs[0] == PUZZLES.labels[0]).sum()


@pytest.mark.parametrize(
    ("halting", "status"),
    [
        ("head", Status.HALTED),
        ("head+stable:1", Status.SETTLED),
        ("residual:0.05/stable:2", Status.SETTLED),
        ("head/stable:2", Status.HALTED),
        ("depth:3", Status.HALTED),
        (None, Status.RAN_OUT),
    ],
)
def test_an_answer_says_in_a_word_how_it_ended(halting, status):
    reasoner = Settling(PUZZLES, wrong=0.0, stuck=0.0)
    answer = Solver(reasoner, budget=Budget(depth=40, halting=halting)).solve(PUZZLES.inputs[0])
    assert answer.status is status
    assert answer.to_json(0)["status"] == status.word
    assert f"({status.word})" in str(answer)


def test_an_invalid_answer_says_why():
    answers = list(Solver(Settling(PUZZLES, wrong=1.0), select=MajorityVote()).solve_many(PUZZLES.inputs))
    assert not any(answer.valid for answer in answers)
    assert all(answer.reason for answer in answers)


def test_the_trace_ends_where_the_answer_does():
    solver = Solver(Settling(PUZZLES), budget=BUDGET.replace(breadth=1))
    answer, frames = solver.solve(PUZZLES.inputs[3]), list(solver.trace(PUZZLES.inputs[3]))
    assert [frame.segment for frame in frames] == list(range(1, answer.depth + 1))
    np.testing.assert_array_equal(frames[-1].grid, answer.grid)
    assert [frame.status for frame in frames] == [None] * (answer.depth - 1) + [answer.status]
    assert frames[-1].residual == pytest.approx(answer.residual)
    grids = [PUZZLES.inputs[3], *(frame.grid for frame in frames)]
    for cells, before, after in zip(changes(grids[0], frames), grids, grids[1:], strict=False):
        assert cells == np.flatnonzero(before != after).tolist()


def test_the_wrong_task_is_named():
    with pytest.raises(UserError, match=r"4x4.*sudoku-6x6"):
        Solver(Settling(PUZZLES), task=task_named("sudoku-6x6"))
    config = systems.eqr(TASK, width=16, round_hidden_to=16).replace(task=None)
    with pytest.raises(UserError, match="which task"):
        Solver(Reasoner(config))
