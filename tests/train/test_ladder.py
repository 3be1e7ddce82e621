"""Harder puzzles join the generated ones with answers given away; none of them judges the run."""

import numpy as np
import pytest

from eqr.data import PuzzleSet, Splits
from eqr.data.generated import generate
from eqr.errors import UserError
from eqr.recipes import recipe_named
from eqr.runs import RunFolder
from eqr.tasks import task_named
from eqr.train.recipe import Generated, Ladder
from eqr.train.sources import load_data

TASK = task_named("sudoku-4x4")
DATA = Generated(task=TASK.name, train=40, validation=8, test=8, options={"clues": 7})


@pytest.fixture(scope="module")
def hard() -> PuzzleSet:
    return generate(TASK, {"train": 6}, seed=3, quiet=True)["train"]


def climbing(folder, hard, **ladder) -> Generated:
    Splits({"train": hard}).save(folder / "hard")
    return DATA.replace(ladder=Ladder(path=str(folder / "hard"), **ladder))


def test_copies_join_with_answers_given_away_and_the_rest_stays(tmp_path, hard):
    plain = load_data(DATA, RunFolder(tmp_path / "plain"), quiet=True)
    data = climbing(tmp_path, hard, copies=20, least=2, most=4)
    splits = load_data(data, RunFolder(tmp_path / "run"), quiet=True)
    for name in ("validation", "test"):
        assert splits[name].digest == plain[name].digest
    train = splits["train"]
    assert (train.inputs[:40] == plain["train"].inputs).all()
    told, whole = train.inputs[40:], np.tile(hard.inputs, (20, 1))
    changed = told != whole
    assert set(changed.sum(axis=1).tolist()) == {2, 3, 4}
    assert (told[changed] == train.labels[40:][changed]).all()
    assert (train.labels[40:] == np.tile(hard.labels, (20, 1))).all()
    assert len(np.unique(train.groups)) == len(train)  # an epoch visits each copy
    again = load_data(data, RunFolder(tmp_path / "another"), quiet=True)
    assert again["train"].digest == train.digest


def test_what_judges_the_run_is_no_rung(tmp_path, hard):
    Splits({"train": hard, "validation": hard.take(range(2))}).save(tmp_path / "both")
    path = str(tmp_path / "both")
    data = DATA.replace(validation_from=path, ladder=Ladder(path=path, copies=1))
    splits = load_data(data, RunFolder(tmp_path / "run"), quiet=True)
    assert len(splits["validation"]) == 2
    assert (splits["train"].labels[40:] == hard.labels[2:]).all()


def test_runs_without_a_ladder_keep_their_names():
    assert "ladder" not in DATA.to_json()
    data = recipe_named("sudoku-9x9-hard").data
    assert Generated.from_json(data.to_json()) == data


def test_a_ladder_that_is_not_there_or_goes_down_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"data.ladder.path = 'nowhere': no such folder"):
        load_data(DATA.replace(ladder=Ladder(path="nowhere")), RunFolder(tmp_path / "run"), quiet=True)
    with pytest.raises(UserError, match="least 4 lies beyond most 3"):
        DATA.replace(ladder={"path": "hard", "least": 4, "most": 3})
    with pytest.raises(UserError, match="set endless to false"):
        DATA.replace(endless=True, ladder=Ladder(path="hard"))
