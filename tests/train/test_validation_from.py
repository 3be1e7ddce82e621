"""A run may be judged by other puzzles than it learns from; none of them is trained on."""

import numpy as np
import pytest

from eqr.data import PuzzleSet, Splits
from eqr.data.generated import generate
from eqr.errors import UserError
from eqr.runs import RunFolder
from eqr.tasks import task_named
from eqr.train.recipe import Generated
from eqr.train.sources import load_data

TASK = task_named("sudoku-4x4")
DATA = Generated(task=TASK.name, train=40, validation=8, test=8, options={"clues": 7})


def keep(folder, **sets):
    Splits(sets).save(folder)
    return DATA.replace(validation_from=str(folder))


def test_another_folder_judges_and_what_is_trained_on_does_not(tmp_path):
    plain = load_data(DATA, RunFolder(tmp_path / "plain"), quiet=True)
    others = generate(TASK, {"validation": 6}, seed=3, options=TASK.options({"clues": 8}), quiet=True)
    known = plain["train"].take(range(3))
    both = PuzzleSet.of(
        TASK.name,
        [*others["validation"].inputs, *known.inputs],
        [*others["validation"].labels, *known.labels],
    )
    data = keep(tmp_path / "others", validation=both)
    judged = load_data(data, RunFolder(tmp_path / "run"), quiet=True)
    assert (judged["validation"].inputs == others["validation"].inputs).all()
    trained = {grid.tobytes() for grid in judged["train"].inputs}
    assert len(trained) == 40
    assert not trained & {grid.tobytes() for grid in judged["validation"].inputs}
    again = load_data(data, RunFolder(tmp_path / "run"), quiet=True)
    assert np.array_equal(again["validation"].inputs, judged["validation"].inputs)


def test_recipes_from_before_keep_their_names():
    assert "validation_from" not in DATA.to_json()
    assert DATA.replace(validation_from="elsewhere").digest() != DATA.digest()


def test_a_folder_that_is_not_there_or_of_another_task_is_refused(tmp_path):
    missing = DATA.replace(validation_from=str(tmp_path / "missing"))
    with pytest.raises(UserError, match="eqr data import FILE"):
        load_data(missing, RunFolder(tmp_path / "run"), quiet=True)
    six = task_named("sudoku-6x6")
    strange = keep(tmp_path / "six", **generate(six, {"validation": 2}, seed=0, quiet=True).sets)
    with pytest.raises(UserError, match=r"holds sudoku-6x6, data.task is sudoku-4x4"):
        load_data(strange, RunFolder(tmp_path / "run"), quiet=True)
    nothing = keep(tmp_path / "train", train=generate(TASK, {"train": 4}, seed=0, quiet=True)["train"])
    with pytest.raises(UserError, match="validation"):
        load_data(nothing, RunFolder(tmp_path / "run"), quiet=True)
