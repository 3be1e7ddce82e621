"""The custom task of the README: it obeys the laws of every task, trains, and works through `--load`."""

import runpy
import subprocess
import sys

import numpy as np
import pytest

from docs_pages import ROOT
from eqr.errors import UserError
from eqr.recipes import RECIPES
from eqr.tasks.registry import TASKS

EXAMPLE = ROOT / "examples" / "custom_task.py"
TINY = ["steps=3", "rows=8", "data.train=40", "data.validation=8", "data.test=8", "evaluation.puzzles=8"]


@pytest.fixture(autouse=True)
def registries(monkeypatch):
    """What an example registers is forgotten after the test."""
    for registry in (TASKS, RECIPES):
        monkeypatch.setattr(registry, "_known", dict(registry._known))


@pytest.fixture
def example():
    """The example's names, as `--load` makes them."""
    return runpy.run_path(str(EXAMPLE))


def test_the_task_obeys_the_laws(example):
    task, rng = example["task"], np.random.default_rng(0)
    source = task.generate(rng)
    made = [next(source) for _ in range(100)]
    puzzles, answers = np.stack([one.puzzle for one in made]), np.stack([one.answer for one in made])
    assert all(len(example["fitting"](puzzle)) == 1 for puzzle in puzzles)
    assert all(task.check_puzzle(puzzle) for puzzle in puzzles)
    assert task.check_many(puzzles, answers).all()
    assert not task.check_many(puzzles, np.roll(answers, 1, axis=1)).any()
    turned = task.draw_symmetries(rng, len(made))
    assert task.check_many(turned.apply(puzzles), turned.apply(answers)).all()
    assert (turned.inverse().apply(turned.apply(puzzles)) == puzzles).all()
    assert all((task.parse(task.render(puzzle)) == puzzle).all() for puzzle in puzzles)


def test_its_mistakes_are_named(example):
    task = example["task"]
    with pytest.raises(UserError, match=r"written with \.ABCD"):
        task.parse("A" * 15 + "X")
    with pytest.raises(UserError, match="needs 16 cells"):
        task.parse("AB")
    puzzle = task.parse("A..D .C.. .... D...")
    assert "given letter" in task.check(puzzle, task.parse("BACD" * 4)).reason
    assert (
        task.check(puzzle, task.parse("ABCD BCDA CDAB DABB")).reason
        == "row 4 does not hold every letter once"
    )
    assert task.check(puzzle, task.parse("ABCD BCDA CDAB DABC"))
    assert not task.check_puzzle(task.parse("AA.. .... .... ...."))


def test_it_trains_and_solves(example, tmp_path, capsys):
    example["main"](tmp_path / "run", TINY)
    said = capsys.readouterr().out
    assert "exact accuracy by depth: {'exact@1'" in said
    assert "(depth 64)" in said
    assert "solved" in said


def test_it_works_by_name_on_the_command_line(tmp_path):
    words = ["train", "latin-4x4", "--out", str(tmp_path / "run"), "--json"]
    settings = [word for setting in TINY for word in ("--set", setting)]
    done = subprocess.run(
        [sys.executable, "-m", "eqr", "--load", str(EXAMPLE), *words, *settings],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert '"task": "latin-4x4"' in done.stdout


def test_takuzu_obeys_the_laws_of_a_task():
    made = runpy.run_path(str(ROOT / "examples" / "takuzu.py"))
    task, grids, rng = made["task"], made["GRIDS"], np.random.default_rng(0)
    assert grids.shape == (11_222, 36)
    source = task.generate(rng)
    found = [next(source) for _ in range(20)]
    puzzles, answers = np.stack([one.puzzle for one in found]), np.stack([one.answer for one in found])
    assert task.check_many(puzzles, answers).all()
    for puzzle in puzzles:
        assert ((puzzle == made["BLANK"]) | (puzzle == grids)).all(axis=1).sum() == 1
        assert (task.parse(task.render(puzzle)) == puzzle).all()
    turned = task.draw_symmetries(rng, len(found))
    assert task.check_many(turned.apply(puzzles), turned.apply(answers)).all()
    assert (turned.inverse().apply(turned.apply(puzzles)) == puzzles).all()
    assert {name: members.shape for name, members in task.groups().items()} == {
        "line": (12, 6),
        "three": (48, 3),
    }
    blank = np.full(36, made["BLANK"], np.uint8)
    assert task.check(blank, np.tile(np.array([2, 3], np.uint8), 18)).valid is False  # columns of one symbol
    assert "three equal" in task.check(blank, task.parse("000111" * 6)).reason
    assert not task.check_puzzle(task.parse("000..." + "." * 30))


def test_takuzu_trains_by_its_groups(tmp_path):
    made = runpy.run_path(str(ROOT / "examples" / "takuzu.py"))
    made["main"](tmp_path / "run", TINY)
    assert (tmp_path / "run" / "best" / "config.json").is_file()
