"""The gradient of one optimizer step: run the schedule's windows on each cut of rows and add up.

Rows never look at one another, so a batch is cut into runs of rows, one core each (`RowExecutor`).
Cuts are summed in order, which keeps a run reproducible bit for bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from eqr.cpu.row_executor import RowExecutor
from eqr.model.config import LearnedStart
from eqr.model.fast import advance
from eqr.model.reasoner import Reasoner
from eqr.model.state import Reading
from eqr.train.halting import TrainingHalting
from eqr.train.loss import Loss, RowLosses, continue_losses, row_losses
from eqr.train.parameters import FlatParameters
from eqr.train.rows import Rows
from eqr.train.schedule import Schedule, Window

STATS = ("loss", "answer_loss", "halt_loss", "right", "halted", "halted_right", "halted_depth")
"""What a step adds up besides the gradient; losses are already divided by the batch, the rest counts rows."""


@dataclass(frozen=True)
class Sums:
    """Sums over rows, which add over cuts and ranks."""

    gradient: Tensor
    """Flat, of the loss."""
    stats: Tensor
    """One number for each name in `STATS`."""
    vectors: Tensor | None
    """Gradient of each row's identity vector, (rows, width); not summed."""

    @classmethod
    def over(cls, cuts: Sequence["Sums"]) -> "Sums":
        """Add cuts up in order."""
        gradient, stats = cuts[0].gradient, cuts[0].stats
        for cut in cuts[1:]:
            gradient, stats = gradient.add_(cut.gradient), stats.add_(cut.stats)
        vectors = [cut.vectors for cut in cuts if cut.vectors is not None]
        return cls(gradient, stats, torch.cat(vectors) if vectors else None)


@dataclass(frozen=True)
class Objective:
    """Everything that defines the loss of a step, apart from the weights and the rows."""

    schedule: Schedule
    halting: TrainingHalting
    loss: Loss
    rows: int
    """Rows of the whole batch over all ranks, by which the loss is divided."""

    def sums(
        self, model: Reasoner, flat: FlatParameters, executor: RowExecutor, rows: Rows, depth: int
    ) -> Sums:
        """Advance all rows by one step's segments and return the gradient of their loss."""

        def work(part: Rows, learns_start: bool) -> list[Sums]:
            def cut(run: slice) -> Sums:
                return _Walk(self, model, flat, part.chunk(run), depth, learns_start).run()

            return executor.map(cut, len(part))

        if not isinstance(model.config.start, LearnedStart):
            return Sums.over(work(rows, False))
        # A truncated window never lets the loss see the start. So the rows in their first segment, and only
        # these, are a group of their own that tracks that segment whole, from g(x) on.
        order = torch.argsort((rows.depths > 0).to(torch.int8), stable=True)
        fresh = int((rows.depths == 0).sum())
        found = []
        for group, learns_start in ((order[:fresh], True), (order[fresh:], False)):
            if len(group):
                part = rows.take(group)
                found += work(part, learns_start)
                rows.put(group, part)
        total = Sums.over(found)
        if total.vectors is None:
            return total
        return Sums(total.gradient, total.stats, total.vectors.index_select(0, torch.argsort(order)))


@dataclass(frozen=True)
class _Descent:
    """What a window leaves behind."""

    gradients: list[Tensor]
    losses: Tensor
    """Loss, its answer part and its halt part."""
    reading: Reading
    right: Tensor


def _added(sums: list[Tensor], more: list[Tensor]) -> list[Tensor]:
    return [a + b for a, b in zip(sums, more, strict=True)] if sums else more


class _Walk:
    """One run of rows on its way through the windows of a step."""

    def __init__(
        self,
        objective: Objective,
        model: Reasoner,
        flat: FlatParameters,
        rows: Rows,
        depth: int,
        learns_start: bool,
    ) -> None:
        self.objective, self.model, self.flat, self.rows = objective, model, flat, rows
        self.limit, self.learns_start = depth, learns_start
        self.vectors = model.identity_vectors(rows.identities)
        self.state = self.before = rows.state
        self.depths = rows.depths

    def run(self) -> Sums:
        """Walk through the windows, write the rows' new state, and return gradient and statistics."""
        gradients: list[Tensor] = []
        stats: list[Tensor] = []
        for window in self.objective.schedule.windows(self.limit):
            for _ in range(window.untracked):
                self._advance_untracked()
            found = self._descend(window)
            gradients = _added(gradients, found.gradients)
            stats.append(found.losses)
        rows, parameters = self.rows, len(self.flat.parameters)
        for old, new in zip(rows.state.tensors(), self.state.tensors(), strict=True):
            old.copy_(new)
        rows.depths.copy_(self.depths)
        return Sums(
            gradient=self.flat.join(gradients[:parameters]),
            stats=torch.cat((torch.stack(stats).sum(0), self._halt(found.reading, found.right))),
            vectors=None if self.vectors is None else gradients[parameters],
        )

    @torch.no_grad()
    def _advance_untracked(self) -> None:
        self._advance(self.model.embed(self.rows.inputs, self.vectors), None)

    def _advance(self, x: Tensor, applications: int | None) -> None:
        self.before = self.state
        self.state = advance(self.model, self.state, x, self.rows.keys, self.depths, tracked=applications)
        self.depths = self.depths + 1

    def _descend(self, window: Window) -> "_Descent":
        """Run the tracked segments and differentiate the loss at their end."""
        rows, objective = self.rows, self.objective
        leaf = None if self.vectors is None else self.vectors.detach().requires_grad_()
        x = self.model.embed(rows.inputs, leaf)
        applications = objective.schedule.applications
        if self.learns_start and self.state is rows.state:
            self.state, applications = self.model.start(x, rows.keys), None
        for _ in range(window.tracked):
            self._advance(x, applications)
        reading = self.model.read(self.state, self.before)
        losses = row_losses(reading, rows.labels, objective.loss)
        self.state = self.state.detach()
        answer, halt = losses.answer.sum(), self._halt_loss(reading, losses, x.detach())
        scale = window.weight / objective.rows
        loss = (answer + objective.loss.halt_weight * halt) * scale
        wanted = self.flat.parameters if leaf is None else [*self.flat.parameters, leaf]
        gradients = list(torch.autograd.grad(loss, wanted, materialize_grads=True))
        parts = torch.stack((loss, answer * scale, halt * scale)).detach()
        return _Descent(gradients, parts, reading, losses.right)

    def _halt_loss(self, reading: Reading, losses: RowLosses, x: Tensor) -> Tensor:
        halting = self.objective.halting
        if not halting.trains_halt:
            return torch.zeros((), device=x.device)
        if not halting.trains_continue:
            return losses.halt.sum()
        with torch.no_grad():
            later = advance(self.model, self.state, x, self.rows.keys, self.depths)
            following = self.model.read(later, self.state)
        return (losses.halt + continue_losses(reading, following, self.depths >= self.limit)).sum()

    @torch.no_grad()
    def _halt(self, reading: Reading, right: Tensor) -> Tensor:
        """Mark the rows that end here and count what the log wants to know about them."""
        rows = self.rows
        halted = self.objective.halting.halted(reading, right, rows.keys, self.depths, self.limit)
        rows.halted.copy_(halted)
        return torch.stack(
            (right.sum(), halted.sum(), (halted & right).sum(), (halted * self.depths).sum())
        ).float()
