"""Starts that are told anew: the doubtful are told more, the settled stay, and company does not matter."""

from itertools import product

import numpy as np
import pytest
from typer.testing import CliRunner

from eqr.cli import app
from eqr.data import PuzzleSet
from eqr.errors import UserError
from eqr.measure.evaluate import BudgetSweep, evaluate
from eqr.solve import Budget, Engine, Solver, load_reasoner
from eqr.solve.assumptions import FIRST_SYMBOL, TELLINGS, frontier, retold
from eqr.solve.line import Puzzle
from eqr.solve.rollout import rollout
from eqr.tasks import sudoku_hard, task_named

TASK = task_named("sudoku-9x9")
LIBRARY = list(sudoku_hard.library()[0][1:5])
"""Some of our own that single assumptions leave open."""
HARD = LIBRARY[0]
BUDGET = Budget(depth=24, breadth=16, assume=True, retell=8)


def agrees(grids, answer):
    return ((grids == answer) | (grids < FIRST_SYMBOL)).all(axis=1)


def test_a_frontier_is_a_whole_level_of_which_one_grid_is_right():
    stream = TASK.generate(np.random.default_rng(5))
    for _ in range(4):
        instance = next(stream)
        for breadth, tree in product((1, 2, 9, 32), (0, 1, 100)):
            level = frontier(TASK, instance.puzzle, breadth, tree)
            assert 1 <= len(level) <= breadth
            assert agrees(level, instance.answer).sum() == 1
            assert len({grid.tobytes() for grid in level}) == len(level)


def test_the_least_sure_are_told_more_and_who_stays_keeps_its_grid():
    level = frontier(TASK, HARD, 16)
    told = level[np.arange(16) % len(level)]
    sure, staying = np.linspace(0.5, 0.9, 16), np.arange(16) >= 14
    after = retold(TASK, HARD, told, sure, staying, 1)
    assert (after[14:] == told[14:]).all()
    given = (told >= FIRST_SYMBOL).sum(axis=1)
    assert ((after >= FIRST_SYMBOL).sum(axis=1)[:14] == given[:14] + 1).all()
    held = told[0] >= FIRST_SYMBOL
    assert (after[0][held] == told[0][held]).all()  # the least sure comes first
    descends = [
        [(grid[row >= FIRST_SYMBOL] == row[row >= FIRST_SYMBOL]).all() for row in told] for grid in after
    ]
    kept = {int(np.flatnonzero(row)[0]) for row in descends[:14]}
    assert kept == set(range(len(kept)))  # then the next sure, none is passed over


def test_a_grid_told_twice_is_split_once():
    level = frontier(TASK, HARD, 2)
    told = level[np.array([0, 0, 0, 0, 1, 1])]
    after = retold(TASK, HARD, told, np.array([0.5, 0.6, 0.7, 0.8, 0.9, 0.9]), np.zeros(6, bool), 1)
    assert len({grid.tobytes() for grid in after}) >= 4  # both were split


def test_with_nothing_left_to_guess_all_keep_theirs():
    answer = next(TASK.generate(np.random.default_rng(1))).answer
    told = np.repeat(answer[None], 3, axis=0)
    nobody, everyone = np.zeros(3, bool), np.ones(3, bool)
    level = frontier(TASK, HARD, 3)[np.arange(3) % 2]
    for telling in range(1, 2 * TELLINGS + 1):
        assert (retold(TASK, answer, told, np.zeros(3), nobody, telling) == told).all()
        assert (retold(TASK, HARD, level, np.zeros(3), everyone, telling) == level).all()


def test_after_its_tellings_a_tree_gives_way_to_the_next():
    first, sure = frontier(TASK, HARD, 16), np.linspace(0.5, 0.9, 16)
    told, staying = first[np.arange(16) % len(first)], np.arange(16) < 2
    after = retold(TASK, HARD, told, sure, staying, TELLINGS)
    level = frontier(TASK, HARD, 14, tree=1)
    assert (after[:2] == told[:2]).all()
    assert {grid.tobytes() for grid in after[2:]} == {grid.tobytes() for grid in level}
    guessed = [set(np.flatnonzero((grids != HARD).any(axis=0))) for grids in (first, level)]
    assert guessed[0] != guessed[1]


def ended(slots, puzzles, noted=()):
    """Return what each start of each puzzle ended with."""
    engine = Engine(load_reasoner("sudoku-9x9"), BUDGET, slots=slots, noted=noted)
    found = {}
    for finished in engine.run(Puzzle(number, grid) for number, grid in enumerate(puzzles)):
        for place in range(len(finished.puzzles)):
            if not finished.passing:
                found[int(finished.puzzles[place]), int(finished.restarts[place])] = finished.candidates[
                    place
                ]
    return found


def test_what_starts_are_told_does_not_depend_on_slots_or_company():
    alone, beside = ended(16, [HARD]), ended(48, LIBRARY[:3])
    assert sorted(alone) == [(0, start) for start in range(16)]
    assert len(beside) == 48
    for key, candidate in alone.items():
        assert candidate.depth == 24
        assert (candidate.tokens == beside[key].tokens).all()
        assert candidate.residuals == pytest.approx(beside[key].residuals, rel=1e-3, nan_ok=True)


def test_slots_too_few_for_the_starts_of_one_puzzle_take_them_all_the_same():
    few, many = ended(4, [HARD]), ended(64, [HARD])
    assert all((few[key].tokens == many[key].tokens).all() for key in many)


def test_depths_on_the_way_are_those_of_shorter_runs(tmp_path):
    reasoner = load_reasoner("sudoku-9x9")
    stream = TASK.generate(np.random.default_rng(2))
    some = [next(stream) for _ in range(2)]
    held = PuzzleSet.of(TASK.name, [one.puzzle for one in some], [one.answer for one in some])
    shared = {"assume": True, "retell": 3, "select": ["residual"]}
    both = evaluate(reasoner, held, BudgetSweep.asked([3, 6], [4], **shared), tmp_path / "both")
    short = evaluate(reasoner, held, BudgetSweep.asked([3], [4], **shared), tmp_path / "short")
    assert both is not None
    assert short is not None
    assert both.budgets[0].to_json()["retell"] == 3
    first, alone = (one.budgets[0].scores.selected["residual"].exact for one in (both, short))
    assert first == alone


def test_telling_anew_solves_what_a_fixed_tree_does_not():
    hard = sudoku_hard.library()[0][:12]
    few = BUDGET.replace(breadth=4, retell=6)
    anew, fixed = (
        sum(Solver("sudoku-9x9", budget=budget).solve(puzzle).valid for puzzle in hard)
        for budget in (few, few.replace(retell=None))
    )
    assert anew >= 10
    assert anew > fixed


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"assume": False}, "set assume"),
        ({"breadth": 2000}, "1024 at most"),
        ({"race": True, "halting": "head"}, "abreast to 16"),
        ({"retell": 0}, "retell"),
    ],
)
def test_budgets_that_make_no_sense_are_refused(change, words):
    with pytest.raises(UserError, match=words):
        BUDGET.replace(**change)


def test_a_start_is_traced_among_the_others():
    solver = Solver("sudoku-9x9", budget=BUDGET, select="residual")
    answer = solver.solve(HARD)
    frames = list(solver.trace(HARD, start=answer.start))
    assert [frame.segment for frame in frames] == list(range(1, 25))
    assert (frames[-1].grid == answer.grid).all()
    assert frames[-1].residual == pytest.approx(
        answer.residual, rel=0.5
    )  # of the last, and of the last three


def test_one_start_alone_is_refused():
    with pytest.raises(UserError, match="depends on the others"):
        rollout(load_reasoner("sudoku-9x9"), HARD[None], BUDGET)


def test_the_command_line_tells_anew():
    text = "".join(TASK.symbols[token - 1] for token in HARD)
    done = CliRunner().invoke(app, ["solve", text, "--breadth", "16", "--assume", "--retell", "8"])
    assert done.exit_code == 0, done.output
    assert "solved" in done.stdout
    refused = CliRunner().invoke(app, ["solve", text, "--breadth", "16", "--retell", "8"])
    assert isinstance(refused.exception, UserError)
    assert "set assume" in str(refused.exception)
