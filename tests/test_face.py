"""What `import eqr` offers: typed, listed, and cheap until it is used."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

import eqr
from eqr.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
PUZZLE = ".2.. ...3 ...1 4..."

RIGHT = """
import eqr

solver = eqr.Solver("sudoku-4x4", budget=eqr.Budget(depth=3, halting=eqr.parse_halting("head")))
answer: eqr.Answer = solver.solve("1...")
tokens = solver.read("1...")[None]
latents = eqr.rollout(solver.reasoner, tokens, keep_states=True).answer.shape
ended: int = len(eqr.rollout(solver.reasoner, tokens).depth)
recipe: eqr.Recipe = eqr.recipe_named("sudoku-6x6").replace(steps=2)
eqr.train_recipe(recipe, "runs/x", overwrite=True)
eqr.figures.training_curves([])
"""
WRONG = """
import eqr

eqr.Solver("sudoku-4x4", bugdet=3)
eqr.Slover("sudoku-4x4")
eqr.Budget(deepth=3)
eqr.task_named(3)
eqr.rollout(eqr.load("a"), eqr.load_split("b", "c").inputs).answer
"""


def imports_for_checkers() -> dict[str, str]:
    """Name and home of everything that the package imports for type checkers alone."""
    tree = ast.parse(Path(eqr.__file__).read_text(encoding="utf-8"))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    found = {}
    for node in guarded.body:
        assert isinstance(node, ast.ImportFrom)
        assert [alias.name for alias in node.names] == [alias.asname for alias in node.names]
        found |= {alias.name: str(node.module) for alias in node.names}
    return found


def test_checkers_and_the_interpreter_see_the_same():
    modules = {name: home.rpartition(".")[0] for name, home in eqr._MODULES.items()}
    assert imports_for_checkers() == {**modules, **eqr._HOME}


def test_every_name_is_listed_and_there():
    for name in imports_for_checkers():
        assert name in dir(eqr)
        assert getattr(eqr, name).__name__.rpartition(".")[2] == name
    with pytest.raises(AttributeError, match="Slover"):
        _ = eqr.Slover


def test_importing_is_light():
    code = "import sys, eqr; dir(eqr); print([m for m in ('torch', 'numpy', 'pydantic') if m in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


def test_the_types_mean_something(tmp_path):
    for name, text in (("right", RIGHT), ("wrong", WRONG)):
        (tmp_path / f"{name}.py").write_text(text)
    # from the root, with the project's own settings: so mypy reads what `make types` has cached
    words = ["--strict", "--no-error-summary", str(tmp_path / "right.py"), str(tmp_path / "wrong.py")]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *words],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": "src"},
        capture_output=True,
        text=True,
        check=False,
    )
    errors = [line.split(":")[:2] for line in done.stdout.splitlines() if ": error:" in line]
    wrong = [str(number) for path, number in errors if path.endswith("wrong.py")]
    assert sorted(set(wrong)) == ["4", "5", "6", "7", "8"], done.stdout + done.stderr
    assert len(wrong) == len(errors), done.stdout
    assert 'Unexpected keyword argument "bugdet"' in done.stdout


def test_latents_in_three_lines():
    solver = eqr.Solver("sudoku-4x4")
    ran = eqr.rollout(solver.reasoner, solver.read(PUZZLE)[None], eqr.Budget(depth=3), keep_states=True)
    config = solver.reasoner.config
    assert ran.answer.shape == (1, 4, config.tokens, config.width)
    assert ran.scratch is not None
    assert ran.scratch.shape == ran.answer.shape


def test_kept_states_are_those_of_the_rollout():
    model = eqr.load("sudoku-4x4")
    puzzles = eqr.make_puzzles("sudoku-4x4", 3).inputs
    budget = eqr.Budget(depth=6, halting=eqr.parse_halting("stable:1"))
    ran = eqr.rollout(model, puzzles, budget, keep_states=True)
    plain = eqr.rollout(model, puzzles, budget)
    assert_array_equal(ran.candidates.tokens, plain.tokens)
    assert_array_equal(ran.candidates.depth, plain.depth)
    for row, depth in enumerate(plain.depth):
        states = ran.answer[row]
        assert all(bool((states[n] != states[n - 1]).any()) for n in range(1, depth + 1))
        assert all(torch.equal(states[n], states[depth]) for n in range(depth, len(states)))
        last = eqr.rollout(model, puzzles[[row]], eqr.Budget(depth=int(depth)), keep_states=True)
        torch.testing.assert_close(states[depth], last.answer[0, -1])


def test_puzzles_are_kept_and_opened_by_a_path_of_either_kind(tmp_path):
    puzzles = eqr.make_puzzles("sudoku-4x4", 3)
    puzzles.save(str(tmp_path / "three"))
    for path in (tmp_path / "three", str(tmp_path / "three")):
        assert eqr.PuzzleSet.load(path).digest == puzzles.digest
    with pytest.raises(UserError, match="is not a folder"):
        eqr.load_split(str(tmp_path / "none"), "test")


def test_evaluate_and_train_take_names_and_words(tmp_path):
    puzzles = eqr.make_puzzles("sudoku-4x4", 6, seed=3)
    found = eqr.evaluate("sudoku-4x4", puzzles, depth=[1, 4], halt="head+stable:1", quiet=True)
    assert list(dict.fromkeys(row.depth for row in found.rows)) == [1, 4]
    with pytest.raises(UserError, match="did you mean 'stable'"):
        eqr.evaluate("sudoku-4x4", puzzles, halt="stabel", quiet=True)
    settings = [
        "steps=2",
        "rows=4",
        "data.train=8",
        "data.validation=4",
        "data.test=4",
        "evaluation.depths=[1]",
    ]
    outcome = eqr.train_recipe("sudoku-4x4", tmp_path / "run", settings=settings, quiet=True)
    assert outcome.summary.steps == 2
    assert eqr.Solver(tmp_path / "run").solve(PUZZLE).grid.dtype == np.uint8


def test_text_where_something_else_is_wanted_is_told_what():
    model = eqr.load("sudoku-4x4")
    with pytest.raises(UserError, match="make_puzzles"):
        eqr.evaluate(model, "sudoku-4x4")
    with pytest.raises(UserError, match=r"give tokens \(rows, cells\)"):
        eqr.rollout(model, PUZZLE)
    with pytest.raises(UserError, match=r"parse\(text\) makes them"):
        eqr.task_named("sudoku-4x4").check(PUZZLE, PUZZLE)
    with pytest.raises(UserError, match=r"solve\(text\) is for one"):
        eqr.Solver(model).solve_many(PUZZLE)
