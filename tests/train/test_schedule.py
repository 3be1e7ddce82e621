"""Each schedule has the gradient of a reference that applies the stack by hand and leaves it to autograd."""

import pytest
import torch
from small_runs import small_recipe
from torch.nn import functional as F

from eqr.cpu.rows import RowExecutor
from eqr.errors import UserError
from eqr.model.config import FixedStart, LearnedStart, Path, SingleState
from eqr.runs import RunFolder
from eqr.train.halting import LearnedHalt, NoHalting, QHalt, UnusedHalt
from eqr.train.schedule import (
    Curriculum,
    SegmentedOnline,
    TerminalDetached,
    TerminalFull,
    Trajectory,
    Window,
)
from eqr.train.sources import load_data, open_stream
from eqr.train.trainer import Trainer

DAMPING = 0.05
SINGLE = {"recurrence": SingleState(cycles=2, applications=2)}


def make_trainer(tmp_path, *, model=None, **fields):
    recipe = small_recipe(**{"steps": 5, **fields})
    changed = recipe.model.replace(**{"path": Path(damping=DAMPING), **(model or {})})
    recipe = recipe.replace(model=changed)
    trainer = Trainer(recipe, open_stream(recipe, load_data(recipe.data, RunFolder(tmp_path), quiet=True)))
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():  # a halt head that says something
        trainer.model.halt_head.weight.normal_(generator=generator)
    return trainer


def by_hand(model, state, x, tracked):
    """One segment, application by application; the states are detached where the window begins."""
    answer, scratch = state
    moves = model.config.recurrence.moves()
    for index, move in enumerate(moves):
        if tracked is not None and index == len(moves) - tracked:
            answer, scratch = answer.detach(), None if scratch is None else scratch.detach()
        if move == "scratch":
            scratch = torch.lerp(scratch, model.stack(scratch, answer + x), 1 - DAMPING)
        else:
            answer = torch.lerp(answer, model.stack(answer, scratch if move == "answer" else x), 1 - DAMPING)
    return answer, scratch


def naive_loss(model, state, labels, rule):
    """The loss of the published code, in float64."""
    logits = (state[0] @ model.answer_head.t()).transpose(0, 1)
    u = logits.double()
    s = torch.where(u < 0, 1 / (1 - u), u + 1)
    chosen = s.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    loss = -(chosen / s.sum(-1)).log().mean(dim=1).sum()
    if rule.trains_halt:
        right = (logits.argmax(-1) == labels).all(1).double()
        q = F.linear(state[0][0], model.halt_head.weight, model.halt_head.bias)[:, 0].double()
        loss = loss + 0.5 * F.binary_cross_entropy_with_logits(q, right, reduction="sum")
    return loss


def naive_gradient(trainer, depth, anchors, *, full=False, tracked=None):
    """Walk all rows to `depth` with losses at the anchors, whose mean is differentiated."""
    model, rows, rule = trainer.model, trainer.rows, trainer.recipe.halting
    x = model.embed(rows.inputs)
    state = (rows.state.answer.clone(), None if rows.state.scratch is None else rows.state.scratch.clone())
    total = 0.0
    for segment in range(1, depth + 1):
        if not full:
            state = tuple(None if part is None else part.detach() for part in state)
        state = by_hand(model, state, x, tracked)
        if segment in anchors:
            total = total + naive_loss(model, state, rows.labels, rule) / len(anchors)
    total = total / len(rows)
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
@pytest.mark.parametrize("latents", [{}, SINGLE], ids=["two-level", "single-state"])
def test_gradient_equals_the_naive_one(tmp_path, case, latents):
    schedule, depth, anchors, how = CASES[case]
    trainer = make_trainer(tmp_path, schedule=schedule, model=latents, halting=UnusedHalt())
    trainer._refill()
    loss, expected = naive_gradient(trainer, depth, anchors, **how)
    sums = trainer._objective.sums(
        trainer.model, trainer.flat, RowExecutor(1, 2), trainer.rows, schedule.depth
    )
    torch.testing.assert_close(sums.gradient, expected, rtol=2e-4, atol=2e-6)
    assert sums.stats[0].item() == pytest.approx(loss.item(), rel=1e-5)


def test_without_a_halt_loss_the_halt_head_gets_no_gradient(tmp_path):
    trainer = make_trainer(tmp_path, halting=NoHalting())
    trainer._refill()
    _, expected = naive_gradient(trainer, 1, (1,), tracked=2)
    sums = trainer._objective.sums(trainer.model, trainer.flat, trainer.executor, trainer.rows, 4)
    torch.testing.assert_close(sums.gradient, expected, rtol=2e-4, atol=2e-6)
    places = {place.name: place for place in trainer.flat.places}
    assert not places["halt_head.weight"].view(sums.gradient).any()


def test_q_learning_adds_the_continue_loss(tmp_path):
    trainer = make_trainer(tmp_path, halting=QHalt())
    trainer._refill()
    model, rows = trainer.model, trainer.rows
    x = model.embed(rows.inputs)
    state = by_hand(model, (rows.state.answer.clone(), rows.state.scratch.clone()), x, 2)
    loss = naive_loss(model, state, rows.labels, trainer.recipe.halting)
    with torch.no_grad():
        ahead = by_hand(model, state, x, None)[0][0]
        target = F.linear(ahead, model.halt_head.weight, model.halt_head.bias).max(1).values.sigmoid()
    go_on = F.linear(state[0][0], model.halt_head.weight, model.halt_head.bias)[:, 1]
    loss = (loss + 0.5 * F.binary_cross_entropy_with_logits(go_on, target, reduction="sum")) / len(rows)
    gradients = torch.autograd.grad(loss, trainer.flat.parameters)
    sums = trainer._objective.sums(model, trainer.flat, trainer.executor, rows, 4)
    torch.testing.assert_close(sums.gradient, trainer.flat.join(gradients), rtol=2e-4, atol=2e-6)


def test_a_learned_start_learns_through_first_segments_only(tmp_path):
    trainer = make_trainer(tmp_path, model={"start": LearnedStart()}, halting=UnusedHalt())
    trainer._refill()
    trainer.rows.depths[:4] = 1  # of six rows, two are in their first segment
    model, rows, flat = trainer.model, trainer.rows, trainer.flat
    total = 0.0
    for row in range(len(rows)):
        part = rows.chunk(slice(row, row + 1))
        x = model.embed(part.inputs)
        fresh = row >= 4
        state = model.start(x, part.keys).tensors() if fresh else part.state.tensors()
        state = by_hand(model, tuple(state), x, None if fresh else 2)
        total = total + naive_loss(model, state, part.labels, trainer.recipe.halting) / len(rows)
    expected = flat.join(torch.autograd.grad(total, flat.parameters))
    sums = trainer._objective.sums(model, flat, RowExecutor(1, 3), rows, 4)
    torch.testing.assert_close(sums.gradient, expected, rtol=2e-4, atol=2e-6)
    places = {place.name: place for place in flat.places}
    assert places["starter.into"].view(sums.gradient).abs().sum() > 0


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
