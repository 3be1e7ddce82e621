"""Breadth by assuming: every start is told another guess, one of each level of a tree is right."""

import numpy as np
import pytest
from typer.testing import CliRunner

from eqr.cli import app
from eqr.data import PuzzleSet
from eqr.errors import UserError
from eqr.measure.evaluate import BudgetSweep, evaluate
from eqr.solve import Budget, Engine, Solver, load_reasoner
from eqr.solve.assumptions import FIRST_SYMBOL, MOST_GUESSES, assumptions, require_assumable
from eqr.solve.line import Puzzle
from eqr.solve.rollout import rollout
from eqr.tasks import sudoku_hard, task_named
from eqr.tasks.base import Appearance

HARD = sudoku_hard.library()[0][1]
"""One of our own that single assumptions leave open."""


def puzzles(name: str, count: int):
    stream = task_named(name).generate(np.random.default_rng(3))
    return [next(stream) for _ in range(count)]


@pytest.mark.parametrize("name", ["sudoku-4x4", "sudoku-6x6", "sudoku-9x9"])
def test_the_answer_agrees_with_one_guess_of_every_level(name):
    task = task_named(name)
    for instance in puzzles(name, 6):
        told = assumptions(task, instance.puzzle, 64)
        assert 1 <= len(told) <= 64
        assert (told[0] == instance.puzzle).all()
        given = instance.puzzle >= FIRST_SYMBOL
        assert (told[:, given] == instance.puzzle[given]).all()
        assert len({grid.tobytes() for grid in told}) == len(told)
        levels = (told >= FIRST_SYMBOL).sum(axis=1) - given.sum()
        assert (np.diff(levels) >= 0).all()
        right = ((told == instance.answer) | (told < FIRST_SYMBOL)).all(axis=1)
        reached = levels[right].tolist()
        assert reached == list(range(len(reached)))
        if len(reached) < levels[-1]:  # the last level may be cut short
            assert len(assumptions(task, told[right][-1], 8)) == 1  # nothing was left to guess


def test_what_starts_are_told_does_not_depend_on_how_many_there_are():
    task = task_named("sudoku-9x9")
    all_told = assumptions(task, HARD, 64)
    assert len(all_told) == 64
    for breadth in (1, 2, 7, 32):
        assert (assumptions(task, HARD, breadth) == all_told[:breadth]).all()
    assert len(assumptions(task, HARD, 1 << 30)) == MOST_GUESSES


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
    plain = [
        rollout(reasoner, puzzle[None], budget.replace(assume=False), restarts=start) for start in (0, 1)
    ]
    assert (plain[0].tokens[0] == ended[0].tokens).all()  # the first is told nothing
    assert plain[1].residuals[0, -1] != ended[1].residuals[-1]


def test_hard_puzzles_are_solved_by_assuming():
    # which start of which puzzle gets there differs from processor to processor, so several are asked
    hard = sudoku_hard.library()[0][:12]
    solver = Solver("sudoku-9x9", budget=Budget(depth=16, breadth=8, assume=True))
    answers = [solver.solve(puzzle) for puzzle in hard]
    assert sum(answer.valid for answer in answers) >= 8
    told = next(number for number, answer in enumerate(answers) if answer.valid and answer.start > 0)
    frames = list(solver.trace(hard[told], start=answers[told].start))
    assert (frames[-1].grid == answers[told].grid).all()


def test_tasks_that_say_nothing_about_symbols_are_refused():
    with pytest.raises(UserError, match=r"assume: maze-11x11 .*Task.distinct"):
        Solver("maze", task=task_named("maze-11x11"), budget=Budget(assume=True))


def test_a_task_whose_blank_is_another_symbol_is_refused(monkeypatch):
    task = task_named("sudoku-4x4")
    monkeypatch.setattr(task, "look", lambda: Appearance(empty="4"))
    with pytest.raises(UserError, match="its first symbol"):
        require_assumable(task)


def test_the_command_line_assumes():
    text = "".join(task_named("sudoku-9x9").symbols[token - 1] for token in HARD)
    budget = ["--depth", "16", "--breadth", "8", "--halt", "never", "--assume"]
    done = CliRunner().invoke(app, ["solve", text, *budget])
    assert done.exit_code == 0
    assert "solved" in done.stdout


def test_starts_that_are_told_guesses_have_no_average(tmp_path):
    task = task_named("sudoku-6x6")
    reasoner = load_reasoner("sudoku-9x9").for_task(task)
    some = puzzles("sudoku-6x6", 3)
    held = PuzzleSet.of(task.name, [one.puzzle for one in some], [one.answer for one in some])
    sweep = BudgetSweep.asked([4], [1, 4], assume=True, select=["residual"])
    found = evaluate(reasoner, held, sweep, tmp_path / "told")
    assert found is not None
    assert [(row.breadth, row.to_json()["assume"]) for row in found.budgets] == [(1, True), (4, True)]
    assert [row.scores.starts is None for row in found.budgets] == [False, True]  # one start is an average
    assert found.budgets[1].scores.breadths is None
    plain = evaluate(reasoner, held, BudgetSweep.asked([4], [1, 4], select=["residual"]), tmp_path / "plain")
    assert plain is not None
    assert plain.budgets[1].scores.breadths is not None
    first = [row.budgets[0].scores.selected["residual"].exact.value for row in (found, plain)]
    assert first[0] == first[1]  # the first start is told nothing
