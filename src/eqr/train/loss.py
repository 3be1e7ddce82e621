"""What a reading costs: cross-entropy over cells plus a halt loss, per row, safe in float32.

Stablemax replaces exp by s(u) = u + 1 for u >= 0 and 1 / (1 - u) below. Published code computes it in
float64. Its logarithm is plain: log s(u) = log1p(u) above zero and -log1p(-u) below; so stablemax
cross-entropy is softmax cross-entropy of log s(u), without a division, an overflow or a guard.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

import torch
from pydantic import NonNegativeFloat
from torch import Tensor
from torch.nn import functional as F

from eqr.model.state import Reading
from eqr.tasks.base import PAD, Task
from eqr.value import Value


class CrossEntropy(StrEnum):
    """Which function turns logits into probabilities."""

    STABLEMAX = "stablemax"
    SOFTMAX = "softmax"


class Loss(Value):
    """Cross-entropy of the answer plus `halt_weight` times the loss of the halt head."""

    newer: ClassVar[tuple[str, ...]] = ("nearest",)

    cross_entropy: CrossEntropy = CrossEntropy.STABLEMAX
    halt_weight: NonNegativeFloat = 0.5
    nearest: bool = False
    """Whether a puzzle of several answers is judged by the likeliest of them, as the reading has it, instead
    of the one in the data: a label drawn among many teaches to hedge between them."""

    def targets(self, task: Task, inputs: Tensor, labels: Tensor, reading: Reading) -> Tensor:
        """Return what a reading is judged by, (rows, cells) int64."""
        if not self.nearest:
            return labels
        scores = _log_weights(reading.logits.detach(), self.cross_entropy).cpu().numpy()
        puzzles, answers = inputs.cpu().numpy(), labels.to(torch.uint8).cpu().numpy()
        return torch.from_numpy(task.nearest(puzzles, answers, scores)).to(labels)


@dataclass(frozen=True)
class RowLosses:
    """Losses of each row of a reading, shape (rows,)."""

    answer: Tensor
    """Mean cross-entropy over the cells that count."""
    halt: Tensor
    """Binary cross-entropy of the halt score against `right`."""
    right: Tensor
    """Whether every cell that counts is right (bool, no gradient)."""


def log_stable(u: Tensor) -> Tensor:
    """Return log s(u); its slope at 0 is 1, as it should be, hence one clamp and one relu."""
    return torch.log1p(u.clamp(min=0.0)) - torch.log1p(F.relu(-u))


def _log_weights(logits: Tensor, cross_entropy: CrossEntropy) -> Tensor:
    """Return logarithms of weights that are in the proportion of the probabilities."""
    logits = logits.float()
    return log_stable(logits) if cross_entropy is CrossEntropy.STABLEMAX else logits


def cell_losses(logits: Tensor, labels: Tensor, cross_entropy: CrossEntropy) -> Tensor:
    """Return the cross-entropy of each cell, (rows, cells); 0 where the label is padding."""
    logits = _log_weights(logits, cross_entropy)
    flat = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=PAD, reduction="none")
    return flat.view(labels.shape)


def all_right(reading: Reading, labels: Tensor) -> Tensor:
    """Return which rows have every cell that counts right, (rows,) bool."""
    return ((reading.tokens == labels) | (labels == PAD)).all(dim=1)


def row_losses(reading: Reading, labels: Tensor, loss: Loss) -> RowLosses:
    """Judge a reading against labels (rows, cells) int64, of which 0 is not counted."""
    cells = cell_losses(reading.logits, labels, loss.cross_entropy)
    right = all_right(reading, labels)
    return RowLosses(
        answer=cells.sum(dim=1) / (labels != PAD).sum(dim=1).clamp(min=1),
        halt=F.binary_cross_entropy_with_logits(reading.halt, right.float(), reduction="none"),
        right=right,
    )


def continue_losses(reading: Reading, following: Reading, last: Tensor) -> Tensor:
    """Return HRM's loss of the continue score, (rows,).

    The target is the value one segment later (`following`, without gradient): its halt score where this
    segment was the `last`, else the better of its two scores.
    """
    with torch.no_grad():
        best = torch.maximum(following.halt, following.continue_score)
        target = torch.sigmoid(torch.where(last, following.halt, best))
    return F.binary_cross_entropy_with_logits(reading.continue_score, target, reduction="none")
