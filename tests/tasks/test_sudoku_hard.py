"""Hard puzzles: what makes them so, and what drawing them gives."""

import importlib.util
import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

from eqr.errors import UserError
from eqr.tasks.registry import task_named
from eqr.tasks.sudoku import Sudoku
from eqr.tasks.sudoku_generate import library

CLIMB = Path(__file__).parents[2] / "benchmarks" / "climb.py"


def load_climb():
    """Load the script that found the library; it measures what single assumptions leave open."""
    spec = importlib.util.spec_from_file_location("climb", CLIMB)
    module = importlib.util.module_from_spec(spec)
    sys.modules["climb"] = module  # numba's cache on disk names the module
    spec.loader.exec_module(module)
    return module


def test_hard_puzzles_come_from_the_library_relabelled():
    task = task_named("sudoku-9x9")
    made = task.generate(np.random.default_rng(0), task.options({"hard": 1.0, "min_rating": 60}))
    drawn = [next(made) for _ in range(20)]
    puzzles = np.stack([one.puzzle for one in drawn])
    assert task.check_many(puzzles, np.stack([one.answer for one in drawn])).all()
    found = task.solve_many(puzzles)
    assert (found.solutions == 1).all()
    assert np.median(found.backtracks) > 40  # dug at random it is 1
    assert min(one.rating for one in drawn) >= 60
    mixed = task.generate(np.random.default_rng(0), task.options({"hard": 0.5}))
    assert 10 < sum(next(mixed).rating >= 40 for _ in range(60)) < 50


def test_answers_given_away_make_hard_puzzles_easier():
    task = task_named("sudoku-9x9")
    made = task.generate(np.random.default_rng(0), task.options({"hard": 1.0, "reveal": 6}))
    found = [next(made) for _ in range(60)]
    puzzles = np.stack([one.puzzle for one in found])
    for one in found:
        solved = task.solve(one.puzzle)
        assert solved.solutions == 1
        assert (solved.answer == one.answer).all()
    counts = task.clues(library()[0])
    extra = task.clues(puzzles) - counts.min()
    assert extra.min() >= 0
    assert extra.max() <= 6 + counts.max() - counts.min()
    ratings = np.array([one.rating for one in found])
    assert ratings.min() == 0
    assert np.median(ratings) < 40 <= ratings.max()  # every puzzle of the library needs 40 and more


def test_single_assumptions_solve_what_is_dug_at_random_and_leave_the_hardest_open():
    undecided = load_climb().undecided
    task = Sudoku(3, 3)
    dug = itertools.islice(task.generate(np.random.default_rng(0)), 20)
    assert [undecided(one.puzzle - np.uint8(1), task.units)[0] for one in dug] == [0] * 20
    nugget = "000000039000001005003050800008090006070002000100400000009080050020000600400700000"
    left, tries = undecided(task.parse(nugget) - np.uint8(1), task.units)
    assert left > 100
    assert tries > left
    assert undecided(task.parse("11" + "." * 79) - np.uint8(1), task.units)[0] == -1
    solved = next(task.generate(np.random.default_rng(0))).answer - np.uint8(1)
    assert undecided(solved, task.units) == (0, 0)


def test_every_puzzle_of_the_library_needs_nested_assumptions():
    undecided = load_climb().undecided
    task = Sudoku(3, 3)
    puzzles, ratings = library()
    assert (task.solve_many(puzzles).solutions == 1).all()
    assert (task.solve_many(puzzles).backtracks == ratings).all()
    assert min(undecided(puzzle - np.uint8(1), task.units)[0] for puzzle in puzzles) > 0
    assert len(np.unique(task.canonical(puzzles), axis=0)) == len(puzzles)


def test_hard_puzzles_exist_for_9x9_only():
    small, large = task_named("sudoku-6x6"), task_named("sudoku-9x9")
    with pytest.raises(UserError, match="sudoku-9x9 only"):
        next(small.generate(np.random.default_rng(0), small.options({"hard": 0.5})))
    with pytest.raises(UserError, match="leave out clues or hard"):
        large.options({"hard": 0.5, "clues": 30})
    with pytest.raises(UserError, match="reveal = 3 is about hard puzzles"):
        large.options({"reveal": 3})
    with pytest.raises(UserError, match="no hard puzzle with"):
        next(large.generate(np.random.default_rng(0), large.options({"hard": 1.0, "min_rating": 10_000})))
