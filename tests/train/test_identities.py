"""Puzzle identities: a sparse table trained by sign descent, made to fit the data, resumed exactly."""

import numpy as np
import pytest
import torch
from small_runs import small_recipe

from eqr.data import PuzzleSet, Splits
from eqr.files import read_json
from eqr.model import systems
from eqr.model.reasoner import Reasoner
from eqr.runs import RunFolder
from eqr.tasks import task_named
from eqr.train.checkpoint import Checkpoints
from eqr.train.optimizer import SignDescent
from eqr.train.recipe import Folder
from eqr.train.run import train
from eqr.train.sources import fitted, load_data, open_stream
from eqr.train.trainer import Trainer


@pytest.fixture
def recipe(tmp_path):
    """Mini-ARC by name, with random grids: four identities, one of which is never drawn."""
    rng = np.random.default_rng(0)
    task = task_named("mini-arc")

    def puzzles(count):
        grids = rng.integers(1, task.vocabulary, (count, task.cells))
        return PuzzleSet.of(
            task.name,
            grids,
            grids,
            identities=rng.integers(1, 4, count),
            identity_names=("<blank>", "a", "b", "c", "never"),
        )

    Splits({"train": puzzles(12), "validation": puzzles(4), "test": puzzles(4)}).save(tmp_path / "data")
    model = systems.eqr(task, cycles=2, scratch=1, width=16, blocks=1, round_hidden_to=16, identity_tokens=2)
    recipe = small_recipe(steps=12, identity_optimizer=SignDescent(rate=0.01, weight_decay=0.1))
    return recipe.replace(data=Folder(task=task.name, path=str(tmp_path / "data")), model=model)


def test_the_table_learns_for_the_identities_it_sees(recipe, tmp_path):
    splits = load_data(recipe.data, RunFolder(tmp_path))
    recipe = fitted(recipe, splits)
    assert recipe.model.identities == 5
    trainer = Trainer(recipe, open_stream(recipe, splits))
    trainer.step()
    seen = sorted(set(trainer.rows.identities.tolist()))
    moved = trainer.model.identity_table.abs().amax(dim=1).nonzero().flatten().tolist()
    assert moved == seen
    warm = recipe.rate.factor(1, recipe.steps)
    assert trainer.model.identity_table.abs().max().item() == pytest.approx(0.01 * warm)


def test_a_run_with_identities_resumes_and_saves_its_table(recipe, tmp_path):
    train(recipe, tmp_path / "straight", quiet=True)
    train(recipe.replace(steps=9), tmp_path / "run", quiet=True)
    train(recipe, tmp_path / "run", resume=True, quiet=True)
    assert read_json(tmp_path / "run" / "recipe.json")["model"]["identities"] == 5
    one, other = (
        Checkpoints(tmp_path / name / "checkpoints", 1).latest().checkpoint.tensors
        for name in ("straight", "run")
    )
    assert torch.equal(one["model.identity_table"], other["model.identity_table"])
    assert torch.equal(one["weights"], other["weights"])
    table = Reasoner.from_pretrained(tmp_path / "run" / "last").identity_table
    assert torch.equal(table, one["model.identity_table"])
