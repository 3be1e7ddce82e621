"""Checkpoints of the originals load in all their wrappings; what cannot be one is refused."""

import json
import os
import pickle
import sys
import types
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from eqr.cli import app
from eqr.errors import UserError
from eqr.model.config import Positions
from eqr.model.convert import Grid, convert
from eqr.model.operator import Perturbation
from eqr.model.reasoner import Reasoner
from eqr.model.state import RandomStart
from fixtures import NAMES, recording


def settings_file(folder: Path, settings: dict[str, object], *, yaml: bool = False) -> Path:
    if not yaml:
        path = folder / "config.json"
        path.write_text(json.dumps(settings))
        return path
    path = folder / "all_config.yaml"
    lines = [f"  {key}: {json.dumps(value)}" for key, value in settings.items()]
    path.write_text("\n".join(["lr: 0.0001", "arch:", *lines, "  puzzle_emb_ndim_of: ${.hidden_size}"]))
    return path


def wrapped(weights, lead="_orig_mod.model.inner."):
    return {lead + name: tensor for name, tensor in weights.items()}


class Carry:
    """Stands for the originals' own classes inside a training state."""


Carry.__module__ = "models.eqr"


def training_state(weights):
    shadow = {
        f"_orig_mod.model.inner.{name}": tensor + 1
        for name, tensor in weights.items()
        if not name.endswith("_init")
    }
    return {
        "step": 5,
        "model": wrapped({**weights, "puzzle_emb.local_ids": torch.zeros(3)}, "model._orig_mod.inner."),
        "optimizers": [],
        "ema": {"mu": 0.999, "shadow": shadow},
        "numpy": np.random.RandomState(0).get_state(),
    }


def same(model, weights_of):
    found, wanted = model.state_dict(), weights_of.state_dict()
    return found.keys() == wanted.keys() and all(torch.equal(found[k], wanted[k]) for k in wanted)


@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_loads_in_every_wrapping_and_reloads_bit_for_bit(name, tmp_path):
    run = recording(name)
    bare, compiled, safe = tmp_path / "bare.pth", tmp_path / "step_1", tmp_path / "weights.safetensors"
    torch.save(run.weights, bare)
    torch.save(wrapped(run.weights), compiled)
    save_file(wrapped(run.weights), safe)
    for place, yaml in ((bare, False), (compiled, True), (safe, False)):
        model = convert(place, settings_file(tmp_path, run.settings, yaml=yaml))
        assert model.config == run.model.config
        assert same(model, run.model)
    model.save_pretrained(tmp_path / "ours")
    assert same(Reasoner.from_pretrained(tmp_path / "ours"), run.model)


def test_averaged_weights_win_and_bystanders_are_ignored(tmp_path, monkeypatch):
    for name in ("models", "models.eqr"):
        module = types.ModuleType(name)
        module.Carry = Carry
        monkeypatch.setitem(sys.modules, name, module)
    run = recording("trm_mixer")
    carry = Carry()
    carry.steps = torch.zeros(3)
    state = {**training_state(run.weights), "carry": carry, "config": run.settings}
    torch.save(state, tmp_path / "step_5.pth")
    monkeypatch.undo()
    model = convert(tmp_path / "step_5.pth")
    assert torch.equal(model.embedding, run.weights["embed_tokens.embedding_weight"] + 1)
    assert torch.equal(model.starter.answer, run.weights["H_init"])


def test_an_eqr_config_becomes_ours(tmp_path):
    run = recording("eqr_mixer_damped")
    torch.save(run.weights, tmp_path / "w.pth")
    extra = {"noise_scale": 0.01, "H_init_std": 0.5, "pos_encodings": "rope"}
    config = convert(tmp_path / "w.pth", settings_file(tmp_path, {**run.settings, **extra})).config
    assert config.path == Perturbation(damping=0.05, noise=0.01)
    assert config.start == RandomStart(answer=0.5, scratch=1.0)
    assert config.positions is Positions.NONE  # what the originals do with rotary beside the token mixer


def test_the_command_writes_a_model_folder(tmp_path):
    run = recording("eqr_attention_rope2d")
    torch.save(run.weights, tmp_path / "w.pth")
    config = settings_file(tmp_path, run.settings)
    arguments = ["convert", str(tmp_path / "w.pth"), "--config", str(config), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "grid 4x4" in result.output
    assert same(Reasoner.from_pretrained(tmp_path / "out"), run.model)
    named = [*arguments, "--overwrite", "--task", "sudoku-4x4"]
    assert CliRunner().invoke(app, named).exit_code == 0
    assert Reasoner.from_pretrained(tmp_path / "out").config.task == "sudoku-4x4"


def refuse(tmp_path, match, weights, settings, grid=None):
    torch.save(weights, tmp_path / "w.pth")
    with pytest.raises(UserError, match=match):
        convert(tmp_path / "w.pth", settings and settings_file(tmp_path, settings), grid)


def test_what_does_not_fit_is_named(tmp_path):
    run = recording("trm_attention_rope")
    known, weights = run.settings, run.weights
    without = {key: value for key, value in known.items() if key != "H_cycles"}
    refuse(tmp_path, "lacks 'H_cycles'", weights, without)
    refuse(tmp_path, "carries no config", weights, None)
    refuse(tmp_path, "rope_theta = 500", weights, {**known, "rope_theta": 500})
    refuse(tmp_path, "pos_encodings = 'alibi'", weights, {**known, "pos_encodings": "alibi"})
    refuse(tmp_path, "16 cells, the grid 5x5", weights, known, Grid(5, 5))
    shapeless = {key: value for key, value in known.items() if key != "seq_len"}
    refuse(tmp_path, "--task", weights, shapeless)
    short = {name: tensor for name, tensor in weights.items() if name != "lm_head.weight"}
    refuse(tmp_path, "lacks 'answer_head'", short, known)
    refuse(tmp_path, "no embed_tokens", {"a": torch.zeros(2)}, known)
    refuse(tmp_path, "holds no weights", {"a": 3}, known)
    refuse(tmp_path, "not a table", [1], known)


class Harm:
    """Would run a command if it were ever unpickled."""

    def __reduce__(self):
        return os.system, ("touch harm-was-done",)


def test_pickles_that_run_code_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refuse(tmp_path, "wants to run 'posix.system'", {"model": Harm()}, {"a": 1})
    assert not (tmp_path / "harm-was-done").exists()


def test_broken_files_are_refused(tmp_path):
    torch.save({"a": torch.zeros(100)}, tmp_path / "w.pth")
    whole = (tmp_path / "w.pth").read_bytes()
    newer = pickle.dumps({"a": 1}, protocol=4)  # torch warns of what it was not written for
    for content in (
        whole[: len(whole) // 2],
        b"PK\x03\x04",
        b"\x80\x02}q",
        b"",
        b"hello, this is text",
        newer,
    ):
        (tmp_path / "broken").write_bytes(content)
        with warnings.catch_warnings(action="error"), pytest.raises(UserError, match="broken"):
            convert(tmp_path / "broken", settings_file(tmp_path, {"a": 1}))
    with pytest.raises(UserError, match="no such checkpoint"):
        convert(tmp_path / "absent")
