"""The losses: published anchors, equality with the float64 form, and what is not counted."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from eqr.model.state import Reading
from eqr.tasks import task_named
from eqr.train.loss import CrossEntropy, Loss, cell_losses, continue_losses, log_stable, row_losses

ANCHORS = {0: 0.405465, 1: 2.197225, 2: 1.504077}
"""Stablemax cross-entropy of the logits (2, -1, 0) for each class."""


def reading(logits, halt=None, continue_score=None):
    rows = logits.shape[0]
    zeros = torch.zeros(rows)
    return Reading(
        logits, zeros if halt is None else halt, zeros if continue_score is None else continue_score, zeros
    )


def published_stablemax(logits, labels):
    """The form of the published code: float64, a division and a guard."""
    u = logits.double()
    s = torch.where(u < 0, 1 / (1 - u + 1e-30), u + 1)
    chosen = s.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    return -torch.log(chosen / s.sum(-1))


@pytest.mark.parametrize(("label", "expected"), ANCHORS.items())
def test_stablemax_anchors(label, expected):
    # class 0 is padding in eqr, so the classes move up by one behind a logit that counts as nothing
    logits = torch.tensor([[[-1e30, 2.0, -1.0, 0.0]]])
    loss = cell_losses(logits, torch.tensor([[label + 1]]), CrossEntropy.STABLEMAX)
    assert loss.item() == pytest.approx(expected, abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=3, max_size=12), st.integers(1, 2))
def test_float32_equals_the_float64_form(values, label):
    logits = torch.tensor([[values]], dtype=torch.float32)
    labels = torch.tensor([[label]])
    mine = cell_losses(logits, labels, CrossEntropy.STABLEMAX).item()
    assert mine == pytest.approx(published_stablemax(logits, labels).item(), rel=2e-6, abs=2e-6)


def test_its_gradient_equals_the_float64_form_at_zero_too():
    values = [[[3.0, -2.0, 0.0, 0.5]]]
    labels = torch.tensor([[2]])
    mine = torch.tensor(values, requires_grad=True)
    theirs = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    cell_losses(mine, labels, CrossEntropy.STABLEMAX).sum().backward()
    published_stablemax(theirs, labels).sum().backward()
    torch.testing.assert_close(mine.grad, theirs.grad.float(), rtol=1e-6, atol=1e-7)


def test_huge_logits_stay_finite():
    logits = torch.tensor([[[3e38, -3e38, 1.0]]], requires_grad=True)
    loss = cell_losses(logits, torch.tensor([[1]]), CrossEntropy.STABLEMAX).sum()
    loss.backward()
    assert math.isfinite(loss.item())
    assert torch.isfinite(logits.grad).all()
    assert log_stable(torch.tensor(0.0)).item() == 0.0


def test_softmax_is_torchs():
    logits, labels = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0)), torch.ones(2, 5).long()
    expected = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view(2, 5)
    torch.testing.assert_close(cell_losses(logits, labels, CrossEntropy.SOFTMAX), expected)


def test_padding_counts_neither_for_loss_nor_for_being_right():
    logits = torch.zeros(2, 3, 4)
    logits[..., 2] = 5.0
    labels = torch.tensor([[2, 0, 2], [2, 3, 0]])
    losses = row_losses(reading(logits), labels, Loss())
    cells = cell_losses(logits, labels, CrossEntropy.STABLEMAX)
    assert losses.right.tolist() == [True, False]
    assert losses.answer[0].item() == pytest.approx(cells[0, 0].item())
    assert losses.answer[1].item() == pytest.approx((cells[1, 0] + cells[1, 1]).item() / 2)


def test_the_nearest_of_several_answers_is_right_where_the_loss_says_so():
    task = task_named("maze-1k-5x5")
    puzzle = task.parse("S.###..G##" + "#" * 15)
    upper = task.parse("So###.oG##" + "#" * 15)
    lower = task.parse("S.###ooG##" + "#" * 15)
    inputs, labels = torch.from_numpy(puzzle)[None], torch.from_numpy(upper)[None].long()
    said = reading(8.0 * F.one_hot(torch.from_numpy(lower)[None].long(), task.vocabulary).float())
    for loss, right in ((Loss(), False), (Loss(nearest=True), True)):
        targets = loss.targets(task, inputs, labels, said)
        assert row_losses(said, targets, loss).right.tolist() == [right]


def test_halt_loss_asks_for_right_answers():
    logits = torch.zeros(2, 1, 3)
    logits[0, 0, 1] = 9.0
    logits[1, 0, 2] = 9.0
    losses = row_losses(reading(logits, halt=torch.tensor([2.0, 2.0])), torch.tensor([[1], [1]]), Loss())
    sigmoid = 1 / (1 + math.exp(-2.0))
    assert losses.halt.tolist() == pytest.approx([-math.log(sigmoid), -math.log(1 - sigmoid)], abs=1e-6)


def test_continue_loss_looks_one_segment_ahead():
    logits = torch.zeros(3, 1, 3)
    now = reading(logits, continue_score=torch.tensor([0.3, 0.3, 0.3]))
    later = reading(
        logits, halt=torch.tensor([1.0, -1.0, -1.0]), continue_score=torch.tensor([0.0, 2.0, 2.0])
    )
    last = torch.tensor([False, False, True])
    target = torch.sigmoid(torch.tensor([1.0, 2.0, -1.0]))
    expected = F.binary_cross_entropy_with_logits(now.continue_score, target, reduction="none")
    torch.testing.assert_close(continue_losses(now, later, last), expected)
