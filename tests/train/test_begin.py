"""Training that begins with the weights of another model."""

import json
from functools import partial

import pytest
from small_runs import small_recipe

from eqr.cli import app
from eqr.errors import UserError
from eqr.model.reasoner import Reasoner
from eqr.recipes import RECIPES
from eqr.runs import RunFolder
from eqr.train.optimizer import Rate
from eqr.train.run import train


def test_training_begins_with_the_weights_of_a_model(tmp_path):
    first = small_recipe(steps=10)
    train(first, tmp_path / "first", quiet=True)
    begun = first.replace(begin=str(tmp_path / "first"), steps=1, rate=Rate(warmup=1000))
    train(begun, tmp_path / "second", quiet=True)
    old, new, fresh = (
        Reasoner.from_pretrained(tmp_path / "first"),
        Reasoner.from_pretrained(tmp_path / "second"),
        Reasoner(first.model, seed=first.seed),
    )
    apart = [
        sum((a - b).norm().item() for a, b in zip(old.parameters(), other.parameters(), strict=True))
        for other in (new, fresh)
    ]
    assert apart[0] < 0.01 * apart[1], "a step at a thousandth of the rate hardly leaves them"


def test_a_model_to_begin_with_is_read_before_anything_is_replaced(tmp_path):
    run = tmp_path / "run"
    train(small_recipe(steps=10), run, quiet=True)
    wider = small_recipe(steps=1, model={"width": 32}, begin=str(run))
    with pytest.raises(UserError, match=r"begin = .*built otherwise"):
        train(wider, run, quiet=True, overwrite=True)
    assert (run / "best").is_dir()
    train(small_recipe(steps=10, begin=str(run)), run, quiet=True, overwrite=True)


def test_the_recipe_of_the_run_to_begin_with_is_trained_first_and_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = ["rung-one", "rung-two", "rung-three"]
    begins = [None, "runs/rung-one", "runs/rung-two"]
    for name, begin in zip(names, begins, strict=True):
        recipe = small_recipe(steps=4, name=name, begin=begin)
        monkeypatch.setitem(RECIPES._known, name, recipe.replace)
    app(["train", "rung-three", "--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["steps"] == 4  # of the last alone
    assert all(RunFolder(tmp_path / "runs" / name).summary() for name in names)
    rung = tmp_path / "runs" / "rung-one" / "best" / "model.safetensors"
    trained = rung.stat().st_mtime_ns
    app(["train", "rung-three", "--overwrite"], standalone_mode=False)
    assert "first:" not in capsys.readouterr().out
    assert rung.stat().st_mtime_ns == trained


def test_a_run_that_has_begun_does_not_need_the_one_it_began_with(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(RECIPES._known, "rung-one", partial(small_recipe, steps=4, name="rung-one"))
    begun = small_recipe(steps=4, name="top", begin="runs/rung-one")
    monkeypatch.setitem(RECIPES._known, "top", lambda: begun)
    app(["train", "top"], standalone_mode=False)
    assert "first:\nrung-one" in capsys.readouterr().out
    (tmp_path / "runs" / "rung-one").rename(tmp_path / "elsewhere")
    app(["train", "--out", "runs/top", "--resume"], standalone_mode=False)
    assert not (tmp_path / "runs" / "rung-one").exists()
