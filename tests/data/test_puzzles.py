"""Laws of puzzle sets: what is saved is what is loaded, and damage is always noticed."""

import json

import numpy as np
import pytest

from eqr.data import PuzzleSet
from eqr.data.generated import generate
from eqr.errors import UserError
from toy_task import Toy


@pytest.fixture
def puzzles() -> PuzzleSet:
    return generate(Toy(), {"train": 12}, seed=3)["train"]


def test_save_and_load_keep_everything(puzzles, tmp_path):
    named = puzzles.with_metadata(note="häppy")
    named.save(tmp_path / "set")
    for mmap in (True, False):
        loaded = PuzzleSet.load(tmp_path / "set", mmap=mmap)
        assert loaded.digest == puzzles.digest
        assert loaded.metadata["note"] == "häppy"
        assert list(loaded.facts) == ["distinct"]
        np.testing.assert_array_equal(loaded.inputs, puzzles.inputs)
        assert isinstance(loaded.inputs, np.memmap) == mmap


def test_digest_depends_on_content_and_order_alone(puzzles):
    assert puzzles.with_metadata(other=1).digest == puzzles.digest
    assert puzzles.take(range(len(puzzles))).digest == puzzles.digest
    assert puzzles.take(range(len(puzzles))[::-1]).digest != puzzles.digest
    assert puzzles.take([0, 1]).digest != puzzles.take([0, 2]).digest


def test_take_keeps_rows_together(puzzles):
    part = puzzles.take([5, 2])
    assert len(part) == 2
    np.testing.assert_array_equal(part.labels, puzzles.labels[[5, 2]])
    np.testing.assert_array_equal(part.facts["distinct"], puzzles.facts["distinct"][[5, 2]])
    np.testing.assert_array_equal(part.ratings, puzzles.ratings[[5, 2]])


def test_a_changed_token_is_noticed(puzzles, tmp_path):
    puzzles.save(tmp_path / "set")
    changed = np.array(puzzles.labels)
    changed[0, 0] = 1
    np.save(tmp_path / "set" / "labels.npy", changed)
    with pytest.raises(UserError, match="changed after it was made"):
        PuzzleSet.load(tmp_path / "set")
    assert len(PuzzleSet.load(tmp_path / "set", verify=False)) == len(puzzles)


def test_a_mistyped_header_key_names_the_nearest(puzzles, tmp_path):
    puzzles.save(tmp_path / "set")
    header = tmp_path / "set" / "puzzles.json"
    data = json.loads(header.read_text())
    header.write_text(json.dumps({**data, "tsk": "toy"}))
    with pytest.raises(UserError, match="did you mean 'task'"):
        PuzzleSet.load(tmp_path / "set")


def test_arrays_must_agree():
    with pytest.raises(UserError, match="ratings has 1 entries for 2 puzzles"):
        PuzzleSet.of("toy", np.ones((2, 6)), np.ones((2, 6)), ratings=[1])
    with pytest.raises(UserError, match=r"identities must lie in 0\.\.0"):
        PuzzleSet.of("toy", np.ones((2, 6)), np.ones((2, 6)), identities=[0, 1])


def test_an_existing_folder_is_kept(puzzles, tmp_path):
    puzzles.save(tmp_path / "set")
    with pytest.raises(UserError, match="already exists"):
        puzzles.take([0]).save(tmp_path / "set")
    assert len(PuzzleSet.load(tmp_path / "set")) == len(puzzles)
    puzzles.take([0]).save(tmp_path / "set", overwrite=True)
    assert len(PuzzleSet.load(tmp_path / "set")) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["set"]
