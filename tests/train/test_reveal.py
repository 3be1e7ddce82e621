"""Answers of a folder's rows given away: a setting of the data that old runs never had."""

import numpy as np
import pytest
from small_runs import small_recipe

from eqr.data import Batches, PuzzleSet, Splits
from eqr.errors import UserError
from eqr.runs import RunFolder
from eqr.tasks import task_named
from eqr.train.recipe import Folder
from eqr.train.sources import load_data, open_stream
from settling import puzzles_4x4


def recipe_on(path, **more):
    return small_recipe().replace(
        data=Folder(task="sudoku-4x4", path=str(path), validation=2, **more), augment=False
    )


def test_training_rows_are_told_answers_and_held_out_ones_are_not(tmp_path):
    Splits({"train": puzzles_4x4(12)}).save(tmp_path / "data")
    plain, told = recipe_on(tmp_path / "data"), recipe_on(tmp_path / "data", reveal=4)
    splits = load_data(told.data, RunFolder(tmp_path))
    assert splits["validation"].digest == load_data(plain.data, RunFolder(tmp_path))["validation"].digest
    as_they_are, easier = (open_stream(recipe, splits).take(200) for recipe in (plain, told))
    given = (easier.inputs != as_they_are.inputs).sum(axis=1)
    assert set(given.tolist()) == {0, 1, 2, 3, 4}
    assert (easier.labels == as_they_are.labels).all()


def test_runs_from_before_it_existed_keep_their_names(tmp_path):
    assert "reveal" not in recipe_on(tmp_path).data.to_json()
    told = recipe_on(tmp_path, reveal=3)
    assert type(told).from_json(told.to_json(), where="recipe") == told
    assert any("reveal" in change for change in told.changed_since(recipe_on(tmp_path)))


def test_inputs_that_are_no_answers_with_blanks_are_refused():
    task = task_named("mini-arc")
    grids = np.full((2, task.cells), 2, np.uint8)
    puzzles = PuzzleSet.of(task.name, grids, grids, identities=[1, 1], identity_names=["", "one"])
    with pytest.raises(UserError, match=r"data.reveal = 2: the input of mini-arc"):
        Batches(puzzles, task, seed=0, augment=False, reveal=2)
