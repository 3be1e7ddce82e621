"""Each schedule has the gradient of a walk by the reference, which is left to autograd."""

import pytest
import torch
from small_runs import small_recipe
from torch.nn import functional as F

from eqr.backends import Cpu
from eqr.backends.cpu.row_executor import RowExecutor
from eqr.dynamics.rows import chunk
from eqr.errors import UserError
from eqr.model.config import CandidateSites, Positions
from eqr.model.mixers import Attention
from eqr.model.operator import SingleState, TwoLevel
from eqr.model.state import FixedStart, LearnedStart
from eqr.model.structured import Groups
from eqr.model.systems import EQR_PATH
from eqr.runs import RunFolder
from eqr.train.recipe import Recipe
from eqr.train.schedule import (
    Curriculum,
    LearnedHalt,
    NoHalting,
    QHalt,
    SegmentedOnline,
    TerminalDetached,
    TerminalFull,
    Trajectory,
    UnusedHalt,
    Window,
)
from eqr.train.sources import load_data, open_stream
from eqr.train.step import step_sums
from eqr.train.trainer import Trainer
from reference import Latents, Reference

MODELS = {
    "two-level": {},
    "single-state": {"recurrence": SingleState(cycles=2, applications=2)},
    "attention": {"mixer": Attention(), "positions": Positions.LEARNED, "heads": 2},
    "candidates": {"mixer": Groups(hidden=16), "sites": CandidateSites()},
}


def make_trainer(tmp_path, *, model=None, **fields):
    recipe = small_recipe(**{"steps": 5, **fields})
    changed = recipe.model.replace(**{"path": EQR_PATH, **(model or {})})
    recipe = recipe.replace(model=changed)
    trainer = Trainer(recipe, open_stream(recipe, load_data(recipe.data, RunFolder(tmp_path), quiet=True)))
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():  # a halt head that says something
        trainer.model.halt_head.weight.normal_(generator=generator)
    return trainer


class Naive:
    """The reference on a trainer's rows: states with the batch in front."""

    def __init__(self, trainer, rows=None):
        self.model, self.rows = trainer.model, trainer.rows if rows is None else rows
        self.rule = trainer.recipe.halting
        named = (*self.model.named_parameters(), *self.model.named_buffers())
        weights = {name: weight.double() for name, weight in named}
        self.reference = Reference(self.model.config.to_json(), weights)
        self.x = self.reference.embed(self.rows.inputs)
        self.keys = self.rows.rows.keys.tolist()

    def state(self):
        return Latents(*(latent.transpose(0, 1).double() for latent in self.rows.rows.state.tensors()))

    def segment(self, state, done=0, tracked=None):
        depths = [depth + done for depth in self.rows.rows.depths.tolist()]
        return self.reference.segment(state, self.x, self.keys, depths, tracked=tracked)

    def loss(self, state):
        """The loss of the published code, in float64."""
        logits, labels = self.reference.logits(state), self.rows.labels
        u = logits.double()
        s = torch.where(u < 0, 1 / (1 - u), u + 1)
        chosen = s.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
        loss = -(chosen / s.sum(-1)).log().mean(dim=1).sum()
        if self.rule.trains_halt:
            right = (logits.argmax(-1) == labels).all(1).double()
            q = self.reference.halts(state)[:, 0].double()
            loss = loss + 0.5 * F.binary_cross_entropy_with_logits(q, right, reduction="sum")
        return loss


def assert_same(found, wanted):
    """To single precision, whose roundings a walk over several segments amplifies."""
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=2e-4 * float(wanted.abs().max()))


def naive_gradient(trainer, depth, anchors, *, full=False, tracked=None):
    """Walk all rows to `depth` with losses at the anchors, whose mean is differentiated."""
    naive = Naive(trainer)
    state, total = naive.state(), 0.0
    for segment in range(1, depth + 1):
        state = naive.segment(state if full else state.detach(), segment - 1, tracked)
        if segment in anchors:
            total = total + naive.loss(state) / len(anchors)
    total = total / len(trainer.rows)
    gradients = torch.autograd.grad(total, trainer.flat.parameters, allow_unused=True)
    known = zip(gradients, trainer.flat.parameters, strict=True)
    return total, trainer.flat.join([torch.zeros_like(p) if g is None else g for g, p in known])


CASES = {
    "terminal, full": (TerminalFull(depth=3), 3, (3,), {"full": True}),
    "terminal, detached": (TerminalDetached(depth=3), 3, (3,), {}),
    "terminal, detached and truncated": (TerminalDetached(depth=3, tracked=1), 3, (3,), {"tracked": 1}),
    "trajectory": (Trajectory(depth=3), 3, (1, 2, 3), {}),
    "late anchors": (Trajectory(depth=4, first=3), 4, (3, 4), {}),
    "segmented": (SegmentedOnline(depth=4), 1, (1,), {}),
    "segmented, truncated": (SegmentedOnline(depth=4, tracked=2), 1, (1,), {"tracked": 2}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("model", MODELS)
def test_gradient_equals_the_naive_one(tmp_path, case, model):
    schedule, depth, anchors, how = CASES[case]
    trainer = make_trainer(tmp_path, schedule=schedule, model=MODELS[model], halting=UnusedHalt())
    trainer._refill()
    loss, expected = naive_gradient(trainer, depth, anchors, **how)
    sums = step_sums(
        trainer.recipe, trainer.model, trainer.flat, Cpu(RowExecutor(1, 2)), trainer.rows, schedule.depth
    )
    assert_same(sums.gradient, expected)
    assert sums.stats[0].item() == pytest.approx(loss.item(), rel=1e-5)


def test_without_a_halt_loss_the_halt_head_gets_no_gradient(tmp_path):
    trainer = make_trainer(tmp_path, halting=NoHalting())
    trainer._refill()
    _, expected = naive_gradient(trainer, 1, (1,), tracked=2)
    sums = step_sums(trainer.recipe, trainer.model, trainer.flat, trainer.backend, trainer.rows, 4)
    assert_same(sums.gradient, expected)
    assert not trainer.flat.views(sums.gradient)["halt_head.weight"].any()


def test_q_learning_adds_the_continue_loss(tmp_path):
    trainer = make_trainer(tmp_path, halting=QHalt())
    trainer._refill()
    naive, rows = Naive(trainer), trainer.rows
    state = naive.segment(naive.state(), tracked=2)
    with torch.no_grad():
        target = naive.reference.halts(naive.segment(state, 1)).max(1).values.sigmoid()
    go_on = F.binary_cross_entropy_with_logits(naive.reference.halts(state)[:, 1], target, reduction="sum")
    loss = (naive.loss(state) + 0.5 * go_on) / len(rows)
    gradients = torch.autograd.grad(loss, trainer.flat.parameters)
    sums = step_sums(trainer.recipe, trainer.model, trainer.flat, trainer.backend, rows, 4)
    assert_same(sums.gradient, trainer.flat.join(gradients))


def test_a_learned_start_learns_through_first_segments_only(tmp_path):
    trainer = make_trainer(tmp_path, model={"start": LearnedStart()}, halting=UnusedHalt())
    trainer._refill()
    trainer.rows.rows.depths[:4] = 1  # of six rows, two are in their first segment
    model, rows, flat = trainer.model, trainer.rows, trainer.flat
    total = 0.0
    for row in range(len(rows)):
        naive, fresh = Naive(trainer, chunk(rows, slice(row, row + 1))), row >= 4
        state = naive.reference.start(naive.x, naive.keys) if fresh else naive.state()
        total = total + naive.loss(naive.segment(state, tracked=None if fresh else 2)) / len(rows)
    expected = flat.join(torch.autograd.grad(total, flat.parameters))
    sums = step_sums(trainer.recipe, model, flat, Cpu(RowExecutor(1, 3)), rows, 4)
    assert_same(sums.gradient, expected)
    assert flat.views(sums.gradient)["starter.into"].abs().sum() > 0


def test_a_learned_start_begins_a_trajectory_once(tmp_path):
    schedule = Trajectory(depth=2, first=1, tracked=2)
    trainer = make_trainer(tmp_path, model={"start": LearnedStart()}, halting=UnusedHalt(), schedule=schedule)
    trainer._refill()
    rows, flat = trainer.rows, trainer.flat
    naive, total = Naive(trainer, rows), 0.0
    state = naive.reference.start(naive.x, naive.keys)
    for done, tracked in ((0, None), (1, 2)):  # the first window reaches back to the start
        state = naive.segment(state, done, tracked=tracked)
        total = total + naive.loss(state) / 2 / len(rows)
        state = state.detach()
    expected = flat.join(torch.autograd.grad(total, flat.parameters))
    sums = step_sums(trainer.recipe, trainer.model, flat, trainer.backend, rows, 2)
    assert_same(sums.gradient, expected)


def test_a_schedule_that_never_sees_the_start_refuses_to_learn_it():
    with pytest.raises(UserError, match="learned start gets no gradient"):
        small_recipe(schedule=TerminalDetached(depth=3)).with_settings(["model.start=learned"])


def test_windows_say_where_losses_sit():
    assert TerminalFull(depth=3).windows(3) == (Window(0, 3, 1.0),)
    assert TerminalDetached(depth=3).windows(3) == (Window(2, 1, 1.0),)
    assert Trajectory(depth=4, first=3).windows(4) == (Window(2, 1, 0.5), Window(0, 1, 0.5))
    assert SegmentedOnline().windows(16) == (Window(0, 1, 1.0),)


def test_a_curriculum_deepens_by_share_of_the_steps():
    curriculum = Curriculum(stages=((0.0, 2), (0.5, 8), (0.75, 32)))
    assert [curriculum.depth(step, 100, 16) for step in (1, 50, 51, 75, 76, 100)] == [2, 2, 8, 8, 16, 16]


def test_a_curriculum_ends_rows_at_its_own_depth(tmp_path):
    trainer = make_trainer(
        tmp_path, curriculum=Curriculum(stages=((0.0, 1), (0.6, 4))), halting=NoHalting(), steps=10
    )
    halted = [trainer.step().stats["halted"] for _ in range(10)]
    assert halted == [6, 6, 6, 6, 6, 6, 0, 0, 0, 6]


def test_fixed_starts_and_learned_halting_run_too(tmp_path):
    trainer = make_trainer(tmp_path, model={"start": FixedStart()}, halting=LearnedHalt())
    assert trainer.step().stats["loss"] > 0


def test_a_model_learns_from_shorter_segments_than_it_is_run_in(tmp_path):
    """As one of those segments learns; what is judged and saved has the model's own."""
    short, long = SegmentedOnline(depth=4), SegmentedOnline(depth=4, cycles=2)
    twins = [
        make_trainer(tmp_path / "short", schedule=short),
        make_trainer(tmp_path / "long", schedule=long, model={"recurrence": TwoLevel(cycles=6, scratch=1)}),
    ]
    for _ in range(6):
        losses = [trainer.step().stats["loss"] for trainer in twins]
        assert losses[0] == losses[1]
    assert torch.equal(twins[0].flat.vector, twins[1].flat.vector)
    assert [trainer.averaged().config.applications for trainer in twins] == [4, 12]


def test_cycles_of_training_are_told_where_there_are_any():
    assert "cycles" not in SegmentedOnline().to_json()
    shorter = small_recipe(schedule=SegmentedOnline(cycles=1, tracked=2))
    assert Recipe.from_json(shorter.to_json()) == shorter
    with pytest.raises(UserError, match="tracked = 3: a segment has only 2 applications"):
        shorter.with_settings(["schedule.tracked=3"])
    once = ["model.start=fixed", "model.path.noise=0", "model.path.damping=0", "evaluation.depths=[1]"]
    with pytest.raises(UserError, match="cycles = 1: a feedforward recurrence has no cycles"):
        shorter.with_settings(["model.recurrence=feedforward", "schedule.depth=1", *once])
