"""Weights from strangers: nothing is run, nothing allocated on their word, nothing but numbers is loaded."""

import json
import os
import pickle
import resource
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from eqr.errors import UserError
from eqr.model.convert import Original, convert, convert_config, read_checkpoint
from eqr.model.reasoner import Reasoner
from fixtures import small

SETTINGS = {"H_cycles": 2, "L_cycles": 2, "seq_len": 16, "num_heads": 4}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Reasoner(small("eqr"), seed=3).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def change(folder: Path, name: str, edit) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file({**weights, name: edit(weights[name])}, folder / "model.safetensors")


def spoiled(value: float):
    def edit(tensor):
        tensor = tensor.clone()
        tensor.view(-1)[3] = value
        return tensor

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (spoiled(torch.nan), "embedding holds NaN or infinity"),
        (spoiled(-torch.inf), "embedding holds NaN or infinity"),
        (lambda tensor: spoiled(1e300)(tensor.double()), "embedding holds NaN or infinity"),
        (lambda tensor: tensor.to(torch.float8_e4m3fn), r"embedding is torch\.float8_e4m3fn"),
        (lambda tensor: tensor.to(torch.int8), r"embedding is torch\.int8"),
        (lambda tensor: tensor > 0, r"embedding is torch\.bool"),
        (lambda tensor: tensor.to(torch.complex64), r"embedding is torch\.complex64"),
        (lambda tensor: tensor[:1, :1].clone(), r"embedding has shape \(1, 1\)"),
    ],
)
def test_only_finite_numbers_of_the_right_shape_are_weights(folder, edit, message):
    change(folder, "embedding", edit)
    with pytest.raises(UserError, match=message):
        Reasoner.from_pretrained(folder)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_load_as_float32(folder, dtype):
    change(folder, "embedding", lambda tensor: tensor.to(dtype))
    assert Reasoner.from_pretrained(folder).embedding.dtype is torch.float32


@pytest.mark.parametrize(
    "changes",
    [
        {"recurrence": {"kind": "two-level", "cycles": 10**9}},
        {"recurrence": {"kind": "two-level", "cycles": 1000, "scratch": 1000}},
        {"width": 10**7},
        {"expansion": 1e308},
        {"blocks": 10**9},
        {"round_hidden_to": 10**12},
        {"rows": 10**5},
        {"vocabulary": 10**9},
        {"identities": 10**12, "identity_tokens": 1},
        {"width": 65_536, "expansion": 64.0, "blocks": 1024},
    ],
)
def test_a_config_that_asks_for_the_moon_costs_nothing(folder, changes, monkeypatch):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match=r"config\.json|model\.safetensors"):
        Reasoner.from_pretrained(folder)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000, "kilobytes"


def test_a_list_of_measurements_is_a_list(folder):
    (folder / "measured.json").write_text("null")
    with pytest.raises(UserError, match=r"measured\.json must hold a list"):
        Reasoner.from_pretrained(folder)


def test_a_pipe_is_no_model(folder):
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.safetensors")
    with pytest.raises(UserError, match="pipe or device"):
        Reasoner.from_pretrained(folder)


def test_a_pickle_under_another_name_is_known_for_what_it_is(folder):
    for content in (pickle.dumps({"a": 1}), pickle.dumps({"a": 1}, protocol=0), b"PK\x03\x04{{{{{"):
        (folder / "model.safetensors").write_bytes(content)
        with pytest.raises(UserError, match=r"is a pickle|is damaged"):
            Reasoner.from_pretrained(folder)


class Harm:
    """Would write a file if it were ever unpickled."""

    def __reduce__(self):
        return os.system, ("touch harm-was-done",)


@pytest.mark.parametrize("name", ["w.pth", "w.safetensors"])
def test_a_legacy_pickle_runs_nothing(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    torch.save({"model": Harm()}, tmp_path / name, _use_new_zipfile_serialization=False)
    assert not zipfile.is_zipfile(tmp_path / name)
    with pytest.raises(UserError, match="cannot be read as weights"):
        read_checkpoint(tmp_path / name)
    assert not (tmp_path / "harm-was-done").exists()


def test_a_legacy_pickle_of_weights_is_read(tmp_path):
    torch.save({"a": torch.ones(3)}, tmp_path / "w.pth", _use_new_zipfile_serialization=False)
    assert torch.equal(read_checkpoint(tmp_path / "w.pth").weights["a"], torch.ones(3))


def test_a_tensor_larger_than_its_file_is_refused(tmp_path):
    torch.save({"a": torch.zeros(1).expand(10**10)}, tmp_path / "w.pth")
    assert (tmp_path / "w.pth").stat().st_size < 3000
    with pytest.raises(UserError, match="not stored number by number"):
        read_checkpoint(tmp_path / "w.pth")
    torch.save({"a": torch.zeros(5, device="meta")}, tmp_path / "w.pth")
    with pytest.raises(UserError, match="not stored number by number"):
        read_checkpoint(tmp_path / "w.pth")


def test_a_compressed_checkpoint_is_refused(tmp_path):
    torch.save({"a": torch.zeros(10**6)}, tmp_path / "w.pth")
    with (
        zipfile.ZipFile(tmp_path / "w.pth") as plain,
        zipfile.ZipFile(tmp_path / "small.pth", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for member in plain.namelist():
            packed.writestr(member, plain.read(member))
    with pytest.raises(UserError, match="is compressed"):
        read_checkpoint(tmp_path / "small.pth")


def original(**changes) -> Original:
    weights = {
        "embed_tokens.embedding_weight": torch.zeros(6, 32),
        "L_level.layers.0.mlp.gate_up_proj.weight": torch.zeros(8, 32),
        **changes,
    }
    return Original({name: tensor for name, tensor in weights.items() if tensor is not None})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *((key, value) for key in ("H_cycles", "num_heads") for value in (0, -1, 10**9, "x", [1], {}, 1.5)),
        *(
            (key, value)
            for key in ("lambda_", "noise_scale", "H_init_std")
            for value in ("x", -1, float("nan"))
        ),
        ("seq_len", -16),
        ("seq_len", 10**30),
        ("board_height", "tall"),
        ("expansion", 1e308),
        ("puzzle_emb_len", -5),
        ("pos_encodings", ["rope"]),
        ("rope_theta", "nan"),
        ("rms_norm_eps", {}),
    ],
)
def test_an_odd_setting_of_an_original_is_named(key, value):
    with pytest.raises(UserError, match=key):
        convert_config({**SETTINGS, key: value}, original(), None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"embed_tokens.embedding_weight": torch.zeros(6)}, "embed_tokens has shape"),
        ({"embed_tokens.embedding_weight": torch.zeros(0, 0)}, "vocabulary"),
        ({"puzzle_emb.weights": torch.zeros(3)}, "puzzle_emb has shape"),
        ({"embed_pos.embedding_weight": torch.zeros(())}, "embed_pos"),
        ({"L_level.layers.0.mlp_t.gate_up_proj.weight": torch.zeros(5)}, "mlp_t"),
        ({"L_level.layers.0.mlp.dwconv.weight": torch.zeros(5)}, "names differ"),
        ({"L_level.layers.x.mlp.gate_up_proj.weight": torch.zeros(5)}, "names differ|shape"),
    ],
)
def test_forged_weights_of_an_original_are_named(tmp_path, changes, message):
    torch.save({**original(**changes).weights, "config": SETTINGS}, tmp_path / "w.pth")
    with pytest.raises(UserError, match=message):
        convert(tmp_path / "w.pth")


@pytest.mark.parametrize(
    "text",
    ["!!timestamp x", "!!bool abc", "a: [" * 2000, "x: 2001-99-99", "- 1", "", "\x00", "a: 0x" + "f" * 5000],
)
def test_odd_yaml_is_a_plain_error(tmp_path, text):
    torch.save(original().weights, tmp_path / "w.pth")
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(UserError, match=r"c\.yaml"):
        convert(tmp_path / "w.pth", tmp_path / "c.yaml")


def test_yaml_that_repeats_itself_a_billion_times_is_one_line(tmp_path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    (tmp_path / "c.yaml").write_text("\n".join([*lines, "L_cycles: 2", "H_cycles: *a11"]))
    torch.save(original().weights, tmp_path / "w.pth")
    with pytest.raises(UserError, match="H_cycles") as caught:
        convert(tmp_path / "w.pth", tmp_path / "c.yaml")
    assert len(str(caught.value)) < 300
