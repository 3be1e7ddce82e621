"""Every kind of puzzle in the gallery declares, makes puzzles of one answer quickly, and has a recipe."""

import runpy
import time
from itertools import islice

import numpy as np
import pytest

from docs_pages import ROOT
from eqr.model.reasoner import Reasoner
from eqr.recipes import recipe_named
from eqr.tasks.registry import TASKS

cp = pytest.importorskip("cpmpy", reason="CPMpy is not installed: pip install 'eqr[puzzles]'")
FILES = sorted((ROOT / "examples" / "puzzles").glob("*.py"))


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    """What an example declares is forgotten after the test."""
    monkeypatch.setattr(TASKS, "_known", dict(TASKS._known))


def test_there_are_twelve_kinds():
    assert len(FILES) >= 12


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_kind_declares_generates_and_has_a_recipe(file):
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 45
    task = runpy.run_path(str(file))["puzzle"]
    assert task.name == file.stem.replace("_", "-")
    source = task.generate(np.random.default_rng(0))
    next(source)  # compiles
    start = time.process_time()
    made = list(islice(source, 3))
    assert time.process_time() - start < 20
    puzzles, answers = np.stack([one.puzzle for one in made]), np.stack([one.answer for one in made])
    assert task.check_many(puzzles, answers).all()
    assert (task.count_answers(puzzles) == 1).all()
    assert all((task.parse(task.render(grid)) == grid).all() for grid in (*puzzles, *answers))
    model = Reasoner(recipe_named(task.name).model)
    x = model.embed(puzzles)
    z = model(model.start(x), x)
    assert model.decode(z).shape == (3, task.cells, task.vocabulary)
