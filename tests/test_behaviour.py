"""Counted versions of the behaviour: what makes a stored result another's, and what does not."""

import pytest

from eqr import behaviour
from eqr.files import read_json
from golden_records import FOLDER, Golden


def test_records_without_a_version_are_those_of_the_first():
    assert behaviour.stated({"code": "0.1.0+f3fd9164"}, "training") == 1
    assert behaviour.stated({}, "answers") == 1
    assert behaviour.stated({"training": 3}, "training") == 3


def test_golden_numbers_are_never_rewritten_without_counting_up(tmp_path, monkeypatch):
    monkeypatch.setenv("EQR_WRITE_GOLDEN", "1")
    path = tmp_path / "golden.json"
    Golden(path, 1).check("a run", {"losses": [1.0, 2.0]})
    with pytest.raises(AssertionError, match=r"count up in eqr\.behaviour"):
        Golden(path, 1).check("a run", {"losses": [1.0, 2.5]})
    Golden(path, 2).check("a run", {"losses": [1.0, 2.5]})
    assert read_json(path) == {"1": {"a run": {"losses": [1.0, 2.0]}}, "2": {"a run": {"losses": [1.0, 2.5]}}}


@pytest.mark.parametrize(
    ("name", "version"), [("training", behaviour.TRAINING), ("answers", behaviour.ANSWERS)]
)
def test_every_version_is_on_record(name, version):
    assert set(read_json(FOLDER / f"{name}.json")) == {str(number) for number in range(1, version + 1)}
