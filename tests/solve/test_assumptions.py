"""Breadth by assuming: every start is told another guess, and exactly one of them is told right."""

import numpy as np
import pytest
from typer.testing import CliRunner

from eqr.cli import app
from eqr.errors import UserError
from eqr.measure.evaluate import BudgetSweep
from eqr.solve import Budget, Engine, Solver, load_reasoner
from eqr.solve.assumptions import FIRST_SYMBOL, MOST_LEAVES, assumptions
from eqr.solve.line import Puzzle
from eqr.solve.rollout import rollout
from eqr.tasks import sudoku_hard, task_named

HARD = sudoku_hard.library()[0][1]
"""One of our own that single assumptions leave open."""


def puzzles(name: str, count: int):
    stream = task_named(name).generate(np.random.default_rng(3))
    return [next(stream) for _ in range(count)]


@pytest.mark.parametrize("name", ["sudoku-4x4", "sudoku-6x6", "sudoku-9x9"])
@pytest.mark.parametrize("breadth", [1, 2, 5, 32])
def test_the_answer_agrees_with_exactly_one_guess(name, breadth):
    task = task_named(name)
    for instance in puzzles(name, 6):
        told = assumptions(task, instance.puzzle, breadth)
        assert 1 <= len(told) <= breadth
        given = instance.puzzle >= FIRST_SYMBOL
        assert (told[:, given] == instance.puzzle[given]).all()
        right = ((told == instance.answer) | (told < FIRST_SYMBOL)).all(axis=1)
        assert right.sum() == 1
        assert len({grid.tobytes() for grid in told}) == len(told)


def test_more_starts_are_told_more():
    task = task_named("sudoku-9x9")
    blanks = [float((assumptions(task, HARD, b) < FIRST_SYMBOL).sum(axis=1).mean()) for b in (1, 4, 16, 64)]
    assert blanks[0] == (HARD < FIRST_SYMBOL).sum()
    assert blanks == sorted(blanks, reverse=True)
    assert blanks[3] < blanks[0] - 3  # at 64 starts each has guessed several cells
    assert len(assumptions(task, HARD, 1 << 30)) <= MOST_LEAVES


def test_nothing_is_guessed_where_nothing_is_open_or_nothing_fits():
    task = task_named("sudoku-4x4")
    answer = puzzles("sudoku-4x4", 1)[0].answer
    assert (assumptions(task, answer, 8) == answer).all()
    stuck = task.parse("123. ...4 .... ....")  # no digit fits the last cell of the first row
    told = assumptions(task, stuck, 8)
    assert (told == stuck).all()
    assert len(told) == 1


def test_the_engine_tells_each_start_its_own_guess():
    task = task_named("sudoku-6x6")
    reasoner = load_reasoner("sudoku-9x9").for_task(task)  # its sites are what the givens leave
    puzzle = puzzles("sudoku-6x6", 1)[0].puzzle
    budget = Budget(depth=3, breadth=6, assume=True)
    told = assumptions(task, puzzle, 6)
    engine = Engine(reasoner, budget, slots=4)
    ended = {}
    for finished in engine.run([Puzzle(0, puzzle)]):
        for place, start in enumerate(finished.restarts.tolist()):
            ended[start] = finished.candidates[place]
    assert sorted(ended) == list(range(6))
    for start, candidate in ended.items():
        guess = told[start % len(told)]
        held = guess >= FIRST_SYMBOL
        assert (candidate.tokens[held] == guess[held]).all()  # what is told is kept, right or wrong
        alone = rollout(reasoner, puzzle[None], budget, restarts=start)
        assert (alone.tokens[0] == candidate.tokens).all()
        assert alone.residuals[0] == pytest.approx(candidate.residuals, rel=1e-3)
    plain = rollout(reasoner, puzzle[None], budget.replace(assume=False), restarts=1)
    assert plain.residuals[0, -1] != ended[1].residuals[-1]


def test_a_hard_puzzle_is_solved_by_assuming():
    solver = Solver("sudoku-9x9", budget=Budget(depth=16, breadth=32, assume=True))
    answer = solver.solve(HARD)
    assert answer.valid, answer.reason
    frames = list(solver.trace(HARD, start=answer.start))
    assert (frames[-1].grid == answer.grid).all()


def test_tasks_that_say_nothing_about_symbols_are_refused():
    with pytest.raises(UserError, match=r"assume: maze-11x11 .*Task.distinct"):
        Solver("maze", task=task_named("maze-11x11"), budget=Budget(assume=True))


def test_the_command_line_assumes():
    text = "".join(task_named("sudoku-9x9").symbols[token - 1] for token in HARD)
    done = CliRunner().invoke(app, ["solve", text, "--breadth", "32", "--assume"])
    assert done.exit_code == 0
    assert "solved" in done.stdout


def test_each_breadth_is_a_run_of_its_own():
    """The first four guesses of eight are not the guesses of four."""
    runs = BudgetSweep.asked([4, 16], [1, 8, 4], assume=True).runs()
    assert [(budget.breadth, depths, breadths) for budget, depths, breadths in runs] == [
        (1, (4, 16), (1,)),
        (4, (4, 16), (4,)),
        (8, (4, 16), (8,)),
    ]
    assert all(budget.depth == 16 for budget, _, _ in runs)
