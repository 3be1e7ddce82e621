"""One precision and one meaning of `auto` for a run, its evaluation and what solves with it later."""

import pytest
import torch
from small_runs import small_recipe

from eqr.data.generated import generate
from eqr.model.lookup import load, local_device
from eqr.model.reasoner import Reasoner
from eqr.tasks import task_named
from eqr.train.distributed import World
from eqr.train.journal import evaluate
from eqr.train.recipe import Precision, computing

PUZZLES = generate(task_named("sudoku-4x4"), {"train": 4}, seed=0, quiet=True)["train"]


@pytest.mark.parametrize("precision", Precision)
def test_an_evaluation_computes_in_the_precision_of_its_run(precision, monkeypatch):
    entered, seen = [], []

    def note(asked, device):
        entered.append((asked, device.type))
        return computing(Precision.FLOAT32, device)  # bfloat16 products are not for every cpu

    monkeypatch.setattr("eqr.train.journal.computing", note)
    recipe = small_recipe(precision=precision, evaluation={"depths": (1,)})
    model = Reasoner(recipe.model)
    model.stack.register_forward_hook(lambda *_: seen.append(len(entered)))
    evaluate(recipe, model, PUZZLES, 4, World())
    assert entered == [(precision, "cpu")]
    assert set(seen) == {1}, "entered before anything is computed"


@pytest.mark.parametrize("precision", Precision)
def test_bfloat16_is_autocast_and_float32_is_not(precision):
    with computing(precision, torch.device("cpu")):
        assert torch.is_autocast_enabled("cpu") == (precision is Precision.BFLOAT16)
        assert torch.get_autocast_dtype("cpu") is torch.bfloat16


def test_auto_means_the_same_device_in_training_and_solving(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    Reasoner(small_recipe().model).save_pretrained(tmp_path)
    assert load(tmp_path).embedding.device.type == local_device("auto").type
