"""What the checkpoints of a run tell about its training: landscapes then, and how far carried states lag."""

from pathlib import Path

import numpy as np
import pytest
import torch

from eqr.data import load_split
from eqr.diagnostics.over_training import modes_over_training, moments, tracking_error, tracking_rows
from eqr.errors import UserError
from eqr.model import systems
from eqr.model.reasoner import Reasoner
from eqr.model.state import FixedStart, RandomStart
from eqr.result import select
from eqr.solve.budget import Budget
from eqr.tasks import task_named
from eqr.train.recipe import EvaluationPlan, Generated, Recipe, Saving
from eqr.train.run import train
from eqr.train.schedule import SegmentedOnline


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    task = task_named("sudoku-4x4")
    recipe = Recipe(
        name="small",
        data=Generated(task=task.name, train=20, validation=8, test=8, options={"clues": 8}),
        model=systems.eqr(
            task, cycles=1, scratch=1, width=16, blocks=1, round_hidden_to=16, start=FixedStart()
        ),
        schedule=SegmentedOnline(tracked=2, depth=3),
        rows=6,
        steps=6,
        evaluation=EvaluationPlan(every=6, depths=(1, 3), puzzles=8, test_puzzles=8),
        saving=Saving(checkpoint_every=2, keep=3),
        threads=1,
        device="cpu",
    )
    folder = tmp_path_factory.mktemp("runs") / "small"
    train(recipe, folder, quiet=True)
    return folder


def test_moments_are_the_weights_of_their_steps(run):
    found = list(moments(run))
    assert [moment.step for moment in found] == [2, 4, 6]
    last = Reasoner.from_pretrained(run / "last")
    for name, weight in last.named_parameters():
        torch.testing.assert_close(dict(found[-1].averaged.named_parameters())[name], weight)
    for name, buffer in last.named_buffers():
        assert torch.equal(dict(found[-1].averaged.named_buffers())[name], buffer)
    first, second = (dict(moment.trained.named_parameters())["answer_head"] for moment in found[:2])
    assert not torch.equal(first, second)


def test_every_checkpoint_shares_its_puzzles_out_among_the_modes(run):
    puzzles = load_split(next((run / "data").iterdir()), "test")
    rows = modes_over_training(run, puzzles, Budget(depth=4, breadth=4, start=RandomStart()), quiet=True)
    for step in (2, 4, 6):
        assert sum(row.value for row in select(rows, metric="share", step=step)) == pytest.approx(1.0)
    assert all(row.low <= row.value <= row.high for row in select(rows, metric="share"))


def test_the_tracking_error_is_the_distance_to_where_the_state_is_going(run):
    moment = list(moments(run))[-1]
    rows, model = moment.rows, moment.trained
    still = model.config.path.replace(noise=0.0)
    with torch.inference_mode():
        x, state = model.embed_tokens(rows.inputs), rows.rows.state
        for _ in range(5):
            state = model.segment(state, x, rows.rows.keys, rows.rows.depths, perturbation=still)
        apart = state.distance(rows.rows.state).numpy()
    found = tracking_error(moment, follow=5)
    distances = select(found, metric="distance")
    assert sum(row.n for row in distances) == len(rows)
    for row in distances:
        here = rows.rows.depths.numpy() == row.depth
        assert row.value == pytest.approx(apart[here].mean(), rel=1e-5)
    assert len(tracking_rows(run, follow=1)) >= 3
    assert np.isfinite([row.value for row in found]).all()


def test_a_folder_without_a_recipe_has_no_training(tmp_path):
    with pytest.raises(UserError, match=r"no recipe\.json"):
        list(moments(tmp_path))
