"""The examples of a puzzle of one's own: declared in a few lines, they train, solve and work by name."""

import re
import runpy
import subprocess
import sys

import numpy as np
import pytest

from docs_pages import ROOT
from eqr.recipes import RECIPES
from eqr.tasks.registry import TASKS

pytest.importorskip("cpmpy", reason="CPMpy is not installed: pip install 'eqr[puzzles]'")
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


def test_latin_squares_are_declared_in_five_lines(example):
    declared = EXAMPLE.read_text(encoding="utf-8").partition("import cpmpy")[2].partition("\n\n\ndef")[0]
    assert len([line for line in declared.splitlines()[1:] if line]) <= 5
    task = example["task"]
    puzzle = task.parse("A..D .C.. .... D...")
    assert task.count_answers(puzzle[None])[0] == 1
    assert task.check(puzzle, task.parse("ABCD BCDA CDAB DABC"))
    assert "row 4 has B twice" in task.check(puzzle, task.parse("ABCD BCDA CDAB DABB")).reason
    assert "was changed to B" in task.check(puzzle, task.parse("BACD" * 4)).reason
    assert "row 1 has A twice" in task.check_puzzle(task.parse("AA.. .... .... ....")).reason


def test_it_trains_and_solves(example, tmp_path, capsys):
    example["main"](tmp_path / "run", TINY)
    said = capsys.readouterr().out
    assert "exact accuracy by depth: {'exact@4'" in said
    assert re.search(r"depth (\d+) \((settled|out of segments)\), NFE \1\b", said)


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


def test_takuzu_is_declared_with_all_of_its_rules():
    path = ROOT / "examples" / "takuzu.py"
    code = path.read_text(encoding="utf-8").split('"""', 2)[2]
    assert len([line for line in code.splitlines() if line]) <= 12
    task = runpy.run_path(str(path))["task"]
    made = [one for one, _ in zip(task.generate(np.random.default_rng(0)), range(3), strict=False)]
    puzzles, answers = np.stack([one.puzzle for one in made]), np.stack([one.answer for one in made])
    assert task.check_many(puzzles, answers).all()
    assert (task.count_answers(puzzles) == 1).all()
    for answer in answers:
        grid = answer.reshape(6, 6)
        assert ((grid == 3).sum(axis=0) == 3).all()
        assert len(np.unique(grid, axis=0)) == len(np.unique(grid, axis=1).T) == 6
    blank = np.ones(36, np.uint8)
    alike = task.parse("001011 001011 110100 110100 001101 110010")
    assert not task.check(blank, alike)
    assert not task.check_puzzle(task.parse("000..." + "." * 30))
    assert task.board.box is None
