"""The gradient of one optimizer step: the schedule's windows over each piece of a batch, added up.

Rows never look at one another, so a batch is cut into pieces, one core each (`Backend.map`). Pieces are
summed in order, which keeps a run reproducible bit for bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from eqr.backends import Backend
from eqr.dynamics.iterate import Dynamics, Reasoning
from eqr.dynamics.rows import Rows, chunk, put, take, write
from eqr.model.reasoner import Reasoner
from eqr.model.state import Input, LearnedStart, Reading
from eqr.tasks.base import Task
from eqr.train.halting import TrainingHalting
from eqr.train.loss import Loss, RowLosses, continue_losses, row_losses
from eqr.train.optimizer import FlatParameters
from eqr.train.rows import TrainingRows
from eqr.train.schedule import Schedule, Window

STATS = ("loss", "answer_loss", "halt_loss", "right", "halted", "halted_right", "halted_depth")
"""What a step adds up besides the gradient; losses are already divided by the batch, the rest counts rows."""


@dataclass(frozen=True)
class Sums:
    """Sums over rows, which add over pieces and ranks."""

    gradient: Tensor
    """Flat, of the loss."""
    stats: Tensor
    """One number for each name in `STATS`."""
    vectors: Tensor | None
    """Gradient of each row's identity vector, (rows, width); not summed."""

    @classmethod
    def over(cls, pieces: Sequence["Sums"]) -> "Sums":
        """Add pieces up in order."""
        gradient, stats = pieces[0].gradient, pieces[0].stats
        for piece in pieces[1:]:
            gradient, stats = gradient.add_(piece.gradient), stats.add_(piece.stats)
        vectors = [piece.vectors for piece in pieces if piece.vectors is not None]
        return cls(gradient, stats, torch.cat(vectors) if vectors else None)


@dataclass(frozen=True)
class Objective:
    """Everything that defines the loss of a step, apart from the weights and the rows."""

    schedule: Schedule
    halting: TrainingHalting
    loss: Loss
    task: Task
    rows: int
    """Rows of the whole batch over all ranks, by which the loss is divided."""

    def sums(
        self, model: Reasoner, flat: FlatParameters, backend: Backend, batch: TrainingRows, depth: int
    ) -> Sums:
        """Advance all rows by one step's segments and return the gradient of their loss."""
        dynamics = Dynamics(operator=Reasoning(model, model.config.path, backend), depth=depth)

        def work(part: TrainingRows, learns_start: bool) -> list[Sums]:
            return backend.map(
                lambda piece: _descend(self, dynamics, flat, chunk(part, piece), learns_start), len(part)
            )

        if not isinstance(model.config.start, LearnedStart):
            return Sums.over(work(batch, False))
        # A truncated window never lets the loss see the start. So the rows in their first segment, and only
        # these, are a group of their own that tracks that segment whole, from g(x) on.
        depths = batch.rows.depths
        order = torch.argsort((depths > 0).to(torch.int8), stable=True)
        fresh = int((depths == 0).sum())
        found = []
        for group, learns_start in ((order[:fresh], True), (order[fresh:], False)):
            if len(group):
                part = take(batch, group)
                found += work(part, learns_start)
                put(batch, group, part)
        total = Sums.over(found)
        if total.vectors is None:
            return total
        return replace(total, vectors=total.vectors.index_select(0, torch.argsort(order)))


def _descend(
    objective: Objective, dynamics: Dynamics, flat: FlatParameters, batch: TrainingRows, learns_start: bool
) -> Sums:
    """Take a piece through the windows, write its new state, and return gradient and statistics."""
    model = _model(dynamics)
    vectors, rows = model.identity_vectors(batch.identities), batch.rows
    gradients: list[Tensor] = []
    stats: list[Tensor] = []
    for window in objective.schedule.windows(dynamics.depth):
        if window.untracked:
            with torch.no_grad():
                rows = replace(rows, x=Input(model.embed_tokens(batch.inputs, vectors), batch.inputs))
                for _ in range(window.untracked):
                    rows = dynamics.step(rows)
        leaf = None if vectors is None else vectors.detach().requires_grad_()
        rows = replace(rows, x=Input(model.embed_tokens(batch.inputs, leaf), batch.inputs))
        applications = objective.schedule.applications
        if learns_start and rows.state is batch.rows.state:
            rows, applications = replace(rows, state=model.initial_state(rows.x.embedding, rows.keys)), None
        before = rows
        for _ in range(window.tracked):
            before, rows = rows, dynamics.step(rows, tracked=applications)
        reading = dynamics.read(rows, before).reading
        labels = objective.loss.targets(objective.task, batch.inputs, batch.labels, reading)
        losses = row_losses(reading, labels, objective.loss)
        rows = replace(rows, state=rows.state.detach(), x=rows.x.detach())
        loss, parts = _loss(objective, dynamics, window, rows, reading, losses)
        wanted = flat.parameters if leaf is None else [*flat.parameters, leaf]
        more = torch.autograd.grad(loss, wanted, materialize_grads=True)
        gradients = [a + b for a, b in zip(gradients, more, strict=True)] if gradients else list(more)
        stats.append(parts)
    with torch.no_grad():
        halted = objective.halting.halted(reading, losses.right, rows.keys, rows.depths, dynamics.depth)
        write(
            (batch.rows.state, batch.rows.depths, batch.halted),
            (rows.state, rows.depths, halted),
        )
    counts = losses.right.sum(), halted.sum(), (halted & losses.right).sum(), (halted * rows.depths).sum()
    parameters = len(flat.parameters)
    return Sums(
        gradient=flat.join(gradients[:parameters]),
        stats=torch.cat((torch.stack(stats).sum(0), torch.stack(counts).float())),
        vectors=None if vectors is None else gradients[parameters],
    )


def _loss(
    objective: Objective,
    dynamics: Dynamics,
    window: Window,
    rows: Rows,
    reading: Reading,
    losses: RowLosses,
) -> tuple[Tensor, Tensor]:
    """Return the loss of a window; and it, its answer part and its halt part as plain numbers."""
    answer, halting = losses.answer.sum(), objective.halting
    halt = losses.halt.sum() if halting.trains_halt else torch.zeros((), device=answer.device)
    if halting.trains_halt and halting.trains_continue:
        with torch.no_grad():
            following = dynamics.read(dynamics.step(rows), rows).reading
        halt = (losses.halt + continue_losses(reading, following, rows.depths >= dynamics.depth)).sum()
    scale = window.weight / objective.rows
    loss = (answer + objective.loss.halt_weight * halt) * scale
    return loss, torch.stack((loss, answer * scale, halt * scale)).detach()


def _model(dynamics: Dynamics) -> Reasoner:
    assert isinstance(dynamics.operator, Reasoning)
    return dynamics.operator.model
