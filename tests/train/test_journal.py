"""The journal: whole lines, nothing from the future after a resume, trackers where asked for."""

import json
import sys
from types import SimpleNamespace

import pytest
from small_runs import small_recipe

from eqr.errors import UserError
from eqr.runs import RunFolder
from eqr.train.journal import Journal, Meter
from eqr.train.recipe import Saving


def test_a_meter_averages_by_step_by_row_and_by_halted_row():
    meter = Meter()
    base = {"answer_loss": 0.0, "halt_loss": 0.0, "gradient_norm": 1.0}
    meter.add({**base, "loss": 1.0, "right": 1, "halted": 1, "halted_right": 1, "halted_depth": 3}, rows=4)
    meter.add({**base, "loss": 3.0, "right": 2, "halted": 3, "halted_right": 0, "halted_depth": 9}, rows=4)
    again = Meter(json.loads(json.dumps(meter.sums)))
    means = meter.flush()
    assert (means["loss"], means["right"], means["exact"], means["halt_depth"]) == (2.0, 0.375, 0.25, 3.0)
    assert again.flush() == means
    meter.add({**base, "loss": 5.0, "right": 0, "halted": 0, "halted_right": 0, "halted_depth": 0}, rows=4)
    assert "exact" not in meter.flush(), "nothing halted, so there is nothing to say about it"


def test_records_after_the_checkpoint_are_dropped_on_resume(tmp_path):
    journal = Journal(RunFolder(tmp_path), small_recipe(), step=0)
    for step in (5, 10, 15):
        journal.write("train", step, {"loss": step / 10})
    with journal.path.open("a") as file:
        file.write('{"kind": "train", "st')  # cut short by the end of the process
    Journal(RunFolder(tmp_path), small_recipe(), step=10).write("train", 12, {"loss": 9.0})
    steps = [json.loads(line)["step"] for line in journal.path.read_text().splitlines()]
    assert steps == [5, 10, 12]


@pytest.mark.parametrize("name", ["tensorboard", "trackio"])
def test_a_missing_tracker_names_the_extra(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, {"tensorboard": "torch.utils.tensorboard"}.get(name, name), None)
    recipe = small_recipe(saving=Saving(trackers=(name,)))
    with pytest.raises(UserError, match=r"pip install 'eqr\[tracking\] @ git\+"):
        Journal(RunFolder(tmp_path), recipe, step=0)


def test_trackers_get_every_number(tmp_path, monkeypatch):
    seen = []
    trackio = SimpleNamespace(
        init=lambda **fields: seen.append(fields["name"]),
        log=seen.append,
        finish=lambda: seen.append("finish"),
    )

    class Writer:
        def __init__(self, folder):
            seen.append(folder)

        def add_scalar(self, name, value, step):
            seen.append((name, value, step))

        def close(self):
            seen.append("close")

    monkeypatch.setitem(sys.modules, "trackio", trackio)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=Writer))
    journal = Journal(
        RunFolder(tmp_path), small_recipe(saving=Saving(trackers=("tensorboard", "trackio"))), step=0
    )
    journal.write("train", 3, {"loss": 0.5, "puzzles": 7})
    journal.close()
    assert seen == [
        str(tmp_path / "tensorboard"),
        tmp_path.name,
        ("train/loss", 0.5, 3),
        {"train/loss": 0.5, "step": 3},
        "close",
        "finish",
    ]


def test_a_damaged_journal_names_its_line_unless_it_is_the_last(tmp_path):
    path = tmp_path / "metrics.jsonl"
    good = '{"kind": "train", "step": 5, "loss": 1.0}\n'
    for bad in (
        "null\n",
        "[1]\n",
        '{"step": 5}\n',
        '{"kind": "x", "step": -1}\n',
        "{\n",
        '"\\ud800' + "[" * 9999 + "\n",
    ):
        path.write_text(good + bad)
        assert [record["step"] for record in RunFolder(tmp_path).records()] == [5]
        path.write_text(bad + good)
        with pytest.raises(UserError, match=r"metrics\.jsonl, record 1.*remove the line"):
            RunFolder(tmp_path).records()


@pytest.mark.parametrize("text", ["null", "[]", "{}", '{"steps": "many"}', "[" * 9999])
def test_a_summary_is_one(tmp_path, text):
    (tmp_path / "summary.json").write_text(text)
    with pytest.raises(UserError, match=r"summary\.json"):
        RunFolder(tmp_path).summary()
