"""Two processes are one: same gradients, rows and metrics; a lost process ends the job, resumably."""

import json
import os
import socket
import subprocess
import sys
import time

import pytest
import torch
from small_runs import small_recipe

from eqr.errors import UserError
from eqr.files import read_json, write_json
from eqr.model.lookup import local_device
from eqr.train.checkpoint import Checkpoints
from eqr.train.distributed import World
from eqr.train.recipe import Saving
from eqr.train.run import train


def start(folder, run, *more):
    """Start two processes in the environment that `torchrun --nproc-per-node 2 -m eqr train ...` makes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    recipe = str(folder / "recipe.json")
    command = [sys.executable, "-m", "eqr", "train", recipe, "--out", str(run), "--json", *more]
    shared = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [
        subprocess.Popen(
            command,
            env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]


def records(run):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


@pytest.mark.slow
def test_two_processes_train_what_one_does(tmp_path):
    # one process cuts its rows where two would part, so even the order of summation is the same
    recipe = small_recipe(rows_per_cut=3, steps=24)
    write_json(tmp_path / "recipe.json", recipe.to_json())
    train(recipe, tmp_path / "one", quiet=True)
    two = start(tmp_path, tmp_path / "two")
    printed, *_ = [_ended(process) for process in two]
    one = read_json(tmp_path / "one" / "summary.json")
    assert json.loads(printed) | {"seconds": 0} == one | {"seconds": 0}
    a, b = (Checkpoints(tmp_path / run / "checkpoints", 1).latest().checkpoint for run in ("one", "two"))
    assert a.step == b.step
    for name in a.tensors:
        torch.testing.assert_close(a.tensors[name], b.tensors[name], rtol=1e-5, atol=1e-6, msg=name)
    for mine, theirs in zip(records(tmp_path / "one"), records(tmp_path / "two"), strict=True):
        assert mine.pop("kind") == theirs.pop("kind")
        assert mine == pytest.approx(theirs, rel=1e-4)
    # and a checkpoint of two processes goes on in one
    outcome = train(recipe.replace(steps=30), tmp_path / "two", resume=True, quiet=True)
    assert outcome.summary.steps == 30


def _ended(process):
    printed, said = process.communicate(timeout=180)
    assert process.returncode == 0, said
    return printed


@pytest.mark.slow
def test_a_killed_process_ends_the_job_with_a_word_and_a_checkpoint(tmp_path):
    recipe = small_recipe(steps=1_000_000, saving=Saving(checkpoint_every=20))
    write_json(tmp_path / "recipe.json", recipe.to_json())
    run = tmp_path / "run"
    first, second = start(tmp_path, run)
    for _ in range(6000):
        if list((run / "checkpoints").glob("step-*")) or first.poll() is not None:
            break
        time.sleep(0.05)
    second.kill()
    second.communicate(timeout=60)
    _, said = first.communicate(timeout=120)
    assert first.returncode == 2
    assert "another process of this job has ended" in said
    assert "--resume" in said
    step = Checkpoints(run / "checkpoints", 1).latest().checkpoint.step
    assert train(recipe.replace(steps=step + 2), run, resume=True, quiet=True).summary.steps == step + 2


def test_rows_must_divide_among_processes():
    with pytest.raises(UserError, match="rows = 7 does not divide among 2"):
        World(0, 2).share(7)
    assert World(0, 2).share(8) == 4


def test_a_missing_device_is_named():
    if not torch.cuda.is_available():
        with pytest.raises(UserError, match="no CUDA device"):
            local_device("cuda")
    for name in ("gpu", "meta", "cpu:x", "cuda:" + "9" * 5000, "\ud800", "\0", ""):
        with pytest.raises(UserError, match=r"use auto, cpu, cuda|no CUDA device"):
            local_device(name)
    assert local_device("cpu") == torch.device("cpu")
