"""Checkpoints: whole or absent, the last few kept, damage noticed and passed over."""

import errno
import json
import os
import signal
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save
from small_runs import small_recipe

from eqr.data import Batches
from eqr.data.generated import generate
from eqr.errors import UserError
from eqr.model.saving import digest_of
from eqr.signals import Stopped, stoppable
from eqr.tasks import task_named
from eqr.train.checkpoint import FORMAT, Checkpoint, Checkpoints, read
from eqr.train.trainer import Trainer

PUZZLES = generate(task_named("sudoku-4x4"), {"train": 12}, seed=0, quiet=True)["train"]


def make(step):
    tensors = {
        "weights": torch.full((3,), float(step)),
        "halted": torch.tensor([True, False]),
        "none": torch.zeros(0),
    }
    record = {"seconds": step / 7, "best": {"exact": 0.5}, "meter": {}, "stream": {"taken": step}}
    return Checkpoint(step, tensors, record)


def test_what_is_saved_comes_back(tmp_path):
    store = Checkpoints(tmp_path, keep=2)
    store.save(make(3))
    found = store.latest()
    assert found.checkpoint.step == 3
    assert found.checkpoint.record == make(3).record
    for name, tensor in make(3).tensors.items():
        assert torch.equal(found.checkpoint.tensors[name], tensor)
    assert found.damaged == ()


def test_only_the_last_few_are_kept(tmp_path):
    store = Checkpoints(tmp_path, keep=2)
    for step in (5, 90, 1000):
        store.save(make(step))
    assert [path.name for path in store.paths()] == [
        "step-000000090.safetensors",
        "step-000001000.safetensors",
    ]


def test_no_checkpoint_is_not_an_error(tmp_path):
    assert Checkpoints(tmp_path / "nowhere", keep=1).latest() is None


@pytest.mark.parametrize("damage", ["truncated", "flipped bit", "empty", "something else"])
def test_a_damaged_last_one_falls_back_to_the_one_before(tmp_path, damage):
    store = Checkpoints(tmp_path, keep=3)
    store.save(make(1))
    path = store.save(make(2))
    data = bytearray(path.read_bytes())
    if damage == "flipped bit":
        data[-2] ^= 1
    path.write_bytes(
        {"truncated": data[:-5], "flipped bit": data, "empty": b"", "something else": b"no" * 50}[damage]
    )
    found = store.latest()
    assert found.checkpoint.step == 1
    assert len(found.damaged) == 1
    assert path.name in found.damaged[0]


def test_a_damaged_newer_one_never_displaces_what_is_saved_after_it(tmp_path):
    store = Checkpoints(tmp_path, keep=1)
    store.save(make(9)).write_bytes(b"")
    path = store.save(make(5))
    assert store.paths() == [path]
    assert store.latest().checkpoint.step == 5


def test_when_all_are_damaged_it_says_so(tmp_path):
    store = Checkpoints(tmp_path, keep=3)
    store.save(make(1)).write_bytes(b"")
    with pytest.raises(UserError, match="no checkpoint can be read"):
        store.latest()


def test_a_full_disk_keeps_the_one_before(tmp_path, monkeypatch):
    store = Checkpoints(tmp_path, keep=1)
    store.save(make(1))

    def full(self, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(UserError, match="No space left"):
            store.save(make(2))
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000001.safetensors"]
    assert store.latest().checkpoint.step == 1


def test_a_foreign_file_is_named(tmp_path):
    from safetensors.torch import save_file

    path = tmp_path / "step-1.safetensors"
    save_file({"a": torch.zeros(1)}, path)
    with pytest.raises(UserError, match="not an eqr checkpoint"):
        read(path)


@pytest.mark.parametrize(
    "record",
    [
        *("null", "[]", "{}", "[" * 9999, "9" * 5000),
        *(
            json.dumps({"step": 1, "seconds": 0.0, "best": {}, "meter": {}, "stream": {}} | {name: value})
            for name, value in (("step", -1), ("step", "x"), ("best", 3), ("meter", None), ("stream", []))
        ),
        *('{"step": 1, "best": {}, "meter": {}, "stream": {}}', '{"step": 1, "seconds": 0, "stream": {}}'),
    ],
)
def test_a_forged_record_is_a_plain_error(tmp_path, record):
    tensors = {"a": torch.ones(3)}
    metadata = {"format": FORMAT, "record": record, "digest": digest_of(tensors, record)}
    (tmp_path / "c.safetensors").write_bytes(save(tensors, metadata))
    with pytest.raises(UserError, match=r"c\.safetensors"):
        read(tmp_path / "c.safetensors")


def test_a_signal_waits_until_a_checkpoint_is_read(tmp_path, monkeypatch):
    path, asked = Checkpoints(tmp_path, keep=1).save(make(1)), []

    class Struck:
        def __init__(self, *where):
            self.file = safe_open(*where)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def __getattr__(self, name):
            asked.append(name)
            signal.raise_signal(signal.SIGTERM)
            return getattr(self.file, name)

    monkeypatch.setattr("eqr.train.checkpoint.safe_open", Struck)
    with stoppable(), pytest.raises(Stopped):
        read(path)
    assert asked.count("get_tensor") == len(make(1).tensors)


def test_a_pipe_is_no_checkpoint(tmp_path):
    os.mkfifo(tmp_path / "step-000000001.safetensors")
    with pytest.raises(UserError, match="pipe or device"):
        Checkpoints(tmp_path, keep=1).latest()


def test_a_checkpoint_of_other_shapes_or_tokens_is_not_taken():
    recipe = small_recipe()
    trainer = Trainer(recipe, Batches(PUZZLES, task_named(recipe.data.task), seed=0, augment=False))
    good, record = trainer.tensors(), trainer.record()
    for name, change in (
        ("weights", lambda tensor: tensor[:1]),
        ("average", lambda tensor: tensor.double()),
        ("rows.halted", lambda tensor: tensor[:1]),
        ("rows.inputs", lambda tensor: tensor[:, :1]),
        ("rows.inputs", lambda tensor: tensor + 6),
        ("rows.labels", lambda tensor: tensor - 1),
    ):
        with pytest.raises(UserError, match=f"the checkpoint.*{name}"):
            trainer.restore(1, {**good, name: change(good[name])}, record)
    with pytest.raises(UserError, match="lacks 'weights'"):
        trainer.restore(1, {name: part for name, part in good.items() if name != "weights"}, record)
    trainer.restore(1, good, record)
