"""A saved model comes back bit for bit, and what does not fit is refused with the reason."""

import json
import pickle
import random
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from huggingface_hub import HfApi
from safetensors.torch import load_file, save_file

from eqr.errors import UserError
from eqr.model.reasoner import Reasoner
from eqr.model.saving import SINGLE, read_measured
from eqr.model.systems import SYSTEMS
from eqr.result import Result
from fixtures import ATTENTION, keys_of, puzzles_of, small

NUMBERS = (
    Result(
        item="toy",
        rule=SINGLE,
        metric="exact",
        depth=16,
        breadth=1,
        value=0.875,
        low=0.7,
        high=0.95,
        n=64,
    ),
    Result(item="toy", rule="residual of 8", metric="accuracy", depth=64, breadth=8, value=0.9, n=64),
    Result(item="toy", rule="residual of 8", metric="nfe", depth=64, breadth=8, value=77.5, n=64),
)
OLDER = [
    {"metric": "exact accuracy", "value": 0.875, "puzzles": "toy", "count": 64, "depth": 16, "breadth": 1,
     "selection": SINGLE, "mean_nfe": 16.0, "low": 0.7, "high": 0.95}
]  # fmt: skip
"""As numbers were saved before they were results."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Reasoner(small("eqr"), seed=3).save_pretrained(tmp_path / "model", measured=NUMBERS)
    return tmp_path / "model"


def change_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in {**config, **changes}.items() if v is not ...}))


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("fields", [{}, ATTENTION | {"identities": 3, "identity_tokens": 2}])
def test_a_round_trip_is_bit_identical(system, fields, tmp_path):
    model = Reasoner(small(system, **fields), seed=5)
    model.save_pretrained(tmp_path)
    loaded = Reasoner.from_pretrained(tmp_path)
    assert loaded.config == model.config
    ours, theirs = model.state_dict(), loaded.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    keys, depths = keys_of(3)
    logits = []
    for each in (model, loaded):
        x = each.embed_tokens(puzzles_of(each.config, 3))
        start = each.initial_state(x, keys)
        logits.append(each.read(each.segment(start, x, keys, depths), start).logits)
    assert torch.equal(*logits)


def test_numbers_of_older_models_are_read_as_results():
    exact, nfe = read_measured(OLDER, where="measured.json")
    assert (exact, nfe.metric, nfe.value) == (NUMBERS[0], "nfe", 16.0)
    for damaged in ([{"puzzles": "toy"}], [{"metric": "exact"}], [7], {}):
        with pytest.raises(UserError, match=r"measured\.json"):
            read_measured(damaged, where="measured.json")


def test_numbers_travel_with_the_model_and_show_their_cost(folder):
    model = Reasoner.from_pretrained(folder)
    assert model.measured == NUMBERS
    model.save_pretrained(folder.parent / "again")
    card = (folder.parent / "again" / "README.md").read_text()
    assert "| exact accuracy | 0.875 (0.7 to 0.95) | toy (64) | 16 | 1 | 16 | single start |" in card
    assert "| 64 | 8 | 77.5 |" in card
    assert "toy" in card
    assert card.startswith("---\nlibrary_name: eqr\n")
    assert sorted(file.name for file in folder.iterdir()) == [
        "README.md",
        "config.json",
        "measured.json",
        "model.safetensors",
    ]


def test_pushing_uploads_the_same_folder(folder, monkeypatch):
    sent = {}

    def upload(self, *, folder_path, **options):
        sent.update({file.name: file.read_bytes() for file in Path(folder_path).iterdir()})
        return "done"

    monkeypatch.setattr(HfApi, "create_repo", lambda self, repo_id, **_: SimpleNamespace(repo_id=repo_id))
    monkeypatch.setattr(HfApi, "upload_folder", upload)
    Reasoner.from_pretrained(folder).push_to_hub("someone/toy")
    assert sent == {file.name: file.read_bytes() for file in folder.iterdir()}


def test_unknown_and_missing_config_keys_are_named(folder):
    change_config(folder, widht=12)
    with pytest.raises(UserError, match=r"config\.json: unknown key 'widht'; did you mean 'width'"):
        Reasoner.from_pretrained(folder)
    change_config(folder, widht=..., vocabulary=...)
    with pytest.raises(UserError, match=r"vocabulary.*[Ff]ield required"):
        Reasoner.from_pretrained(folder)
    (folder / "config.json").write_text("[1]")
    with pytest.raises(UserError, match="must hold an object"):
        Reasoner.from_pretrained(folder)
    (folder / "config.json").write_text('{"rows": ')
    with pytest.raises(UserError, match="not valid JSON"):
        Reasoner.from_pretrained(folder)
    (folder / "config.json").unlink()
    with pytest.raises(UserError, match=r"neither config\.json nor"):
        Reasoner.from_pretrained(folder)


def test_weights_of_another_shape_are_named(folder):
    change_config(folder, width=48, heads=4)
    with pytest.raises(UserError, match=r"embedding has shape \(5, 32\), the config needs \(5, 48\)"):
        Reasoner.from_pretrained(folder)


def test_weights_of_another_system_are_named(folder):
    change_config(folder, blocks=3)
    with pytest.raises(UserError, match=r"lacks 'stack.blocks.2"):
        Reasoner.from_pretrained(folder)


def test_truncated_pickled_and_missing_weights_are_refused(folder):
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    for length in (0, 4, 100, len(whole) - 1):
        weights.write_bytes(whole[:length])
        with pytest.raises(UserError, match="damaged or truncated"):
            Reasoner.from_pretrained(folder)
    weights.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(UserError, match="is a pickle"):
        Reasoner.from_pretrained(folder)
    weights.rename(folder / "model.pth")
    with pytest.raises(UserError, match=r"is missing; model\.pth is a pickle.*eqr convert"):
        Reasoner.from_pretrained(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_flipped_bits_are_noticed(folder, name):
    """Whatever loads is what was saved: bits of a header may say the same in other words, such as spaces."""
    rng, path, saved = random.Random(5), folder / name, Reasoner.from_pretrained(folder)
    whole, refused = path.read_bytes(), 0
    for _ in range(150):
        damaged = bytearray(whole)
        for _ in range(rng.choice((1, 1, 20))):
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            loaded = Reasoner.from_pretrained(folder)
        except UserError:
            refused += 1
            continue
        assert loaded.config == saved.config
        ours, theirs = saved.state_dict(), loaded.state_dict()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    assert refused > 140


def test_a_config_that_was_changed_on_purpose_can_be_saved_anew(folder):
    change_config(folder, task="sudoku-4x4")
    with pytest.raises(
        UserError, match=r"config\.json beside it has changed .*verify=False.*save_pretrained"
    ):
        Reasoner.from_pretrained(folder)
    Reasoner.from_pretrained(folder, verify=False).save_pretrained(folder)
    assert Reasoner.from_pretrained(folder).config.task == "sudoku-4x4"


def test_weights_of_another_model_of_the_same_shape_are_noticed(folder, tmp_path):
    Reasoner(small("eqr").replace(task="sudoku-4x4"), seed=4).save_pretrained(tmp_path / "other")
    (tmp_path / "other" / "model.safetensors").replace(folder / "model.safetensors")
    with pytest.raises(UserError, match=r"model\.safetensors or .* has changed since"):
        Reasoner.from_pretrained(folder)


def test_weights_without_a_digest_load_and_say_so_once(folder, capsys):
    path = folder / "model.safetensors"
    save_file(load_file(path), path, {"format": "pt"})
    for said in (1, 0):
        Reasoner.from_pretrained(folder)
        assert capsys.readouterr().err.count("has no digest of its weights") == said


def test_places_that_are_neither_folder_nor_hub_id(tmp_path):
    for place in (tmp_path / "none", "./none", "a/b/c", "runs/none"):
        with pytest.raises(UserError, match=f"no folder {re.escape(str(place))}"):
            Reasoner.from_pretrained(place)
    with pytest.raises(UserError, match="neither a folder here"):
        Reasoner.from_pretrained("none")
    with pytest.raises(UserError, match="no option 'width'"):
        Reasoner.from_pretrained(tmp_path, width=3)


def test_a_failed_save_leaves_the_old_model(folder, monkeypatch):
    def fail(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", fail)
    with pytest.raises(UserError, match="No space left"):
        Reasoner(small("trm")).save_pretrained(folder)
    assert Reasoner.from_pretrained(folder).config == small("eqr")
