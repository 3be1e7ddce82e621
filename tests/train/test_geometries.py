"""Training on random geometries: puzzles have one answer, weights are shared, a run goes on bit for bit."""

from itertools import islice

import numpy as np
import pytest
import torch

from eqr.data import Batches
from eqr.model.reasoner import Reasoner
from eqr.puzzles.different import KNIGHT, all_different, dug, random_geometry
from eqr.recipes import recipe_named
from eqr.tasks import task_named
from eqr.tasks.registry import TASKS
from eqr.train.geometries import GeometryTrainer, geometry, sharing

SETTINGS = ["data.geometries.sizes=[4,5]", "data.geometries.abreast=3", "data.geometries.turns=2", "rows=4"]


def trainer():
    recipe = recipe_named("all-different").with_settings([*SETTINGS, "threads=1"])
    home = task_named("sudoku-9x9")
    _, puzzles = geometry(0, 0, (9,), 1)
    stream = Batches(puzzles.of(home.name, puzzles.inputs, puzzles.labels), home, seed=0, augment=False)
    return GeometryTrainer(recipe, stream)


@pytest.mark.parametrize("seed", range(12))
def test_random_geometries_hold_in_their_answers_and_puzzles_have_one(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(4, 8))
    task, answer = random_geometry("random", rng, size)
    assert task.rows.kept(answer[None]).all()
    instances = list(islice(dug(rng, task, answer), 3))
    puzzles = np.stack([one.puzzle for one in instances])
    assert task.check_many(puzzles, np.stack([one.answer for one in instances])).all()
    assert (task.count_answers(puzzles) == 1).all()
    lines = np.arange(size * size).reshape(size, size)
    groups = [set(rule.cells) for rule in task.rules]
    assert all(set(line.tolist()) in groups for line in (*lines, *lines.T))


def test_regions_stay_connected_and_no_pairs_are_a_knights_step_by_rule():
    odd = 0
    for seed in range(20):
        task, _ = random_geometry("random", np.random.default_rng(seed), 6)
        for rule in task.rules[12:18]:
            reached, cells = {rule.cells[0]}, set(rule.cells)
            if len(cells) < 6:
                break
            for _ in cells:
                near = {cell + way for cell in reached for way in (-6, 6)}
                near |= {cell + way for cell in reached for way in (-1, 1) if (cell + way) // 6 == cell // 6}
                reached |= near & cells
            odd += reached == cells
    assert odd >= 60  # of some geometries these are no regions but transversals
    assert set(KNIGHT) == {(1, 2), (2, 1)}


def test_models_of_geometries_share_their_weights():
    model = Reasoner(recipe_named("all-different").model)
    task = all_different("shared", (4, 4), list(np.arange(16).reshape(4, 4)), 4)
    TASKS.keep(task.name, task)
    other = sharing(model, task)
    TASKS.forget(task.name)
    assert all(a is b for a, b in zip(model.parameters(), other.parameters(), strict=True))
    assert other.config.rows == 4


def test_a_run_goes_on_bit_for_bit():
    whole = trainer()
    for _ in range(10):
        whole.step()
    first = trainer()
    for _ in range(5):
        first.step()
    tensors = {name: tensor.clone() for name, tensor in first.tensors().items()}
    second = trainer()
    second.restore(5, tensors, first.record())
    for _ in range(5):
        second.step()
    assert torch.equal(whole.flat.vector, second.flat.vector)
    assert {place.number for place in whole._places.values()} == {
        place.number for place in second._places.values()
    }
    assert len(whole._places) == 3


def test_it_begins_with_the_weights_of_a_model_told_its_groups_by_name():
    mine = trainer()
    hard = Reasoner.from_pretrained("sudoku-9x9-hard")
    mine.begin_with(hard)
    assert all(torch.equal(a, b) for a, b in zip(mine.model.parameters(), hard.parameters(), strict=True))
