"""One optimizer step's rows, and the gradient of their loss: the schedule's windows, added up.

A row's key is hashed from (seed, position in the data stream). Its start and its noise therefore do not
depend on the slot, the rank or the number of ranks. Rows do not depend on one another, so a batch is cut into
pieces, one core each (`Backend.map`); pieces are summed in order, which keeps a run reproducible bit for bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from eqr.backends import Backend
from eqr.data import Batch
from eqr.dynamics.iterate import Dynamics, Reasoning, Rows
from eqr.dynamics.rows import chunk, put, take, write
from eqr.model.config import ReasonerConfig
from eqr.model.definitions import scramble
from eqr.model.reasoner import Reasoner
from eqr.model.state import Input, LearnedStart, Reading, State
from eqr.tasks import task_named
from eqr.train.loss import RowLosses, continue_losses, row_losses
from eqr.train.optimizer import FlatParameters
from eqr.train.recipe import Recipe
from eqr.train.schedule import Window

STATS = ("loss", "answer_loss", "halt_loss", "right", "halted", "halted_right", "halted_depth")
"""What a step adds up besides the gradient; losses are already divided by the batch, the rest counts rows."""


def position_keys(seed: int, positions: Tensor) -> Tensor:
    """Return the keys of rows drawn at these positions (rows,) of a stream."""
    return scramble(scramble(torch.full_like(positions, seed)) + positions)


@dataclass(frozen=True)
class TrainingRows:
    """Trajectories with their puzzles and labels; every tensor has one entry per row."""

    rows: Rows
    """Without x: weights move, so each window embeds the puzzles anew."""
    inputs: Tensor
    """(rows, cells) uint8."""
    labels: Tensor
    """(rows, cells) int64; 0 is not counted."""
    identities: Tensor
    halted: Tensor
    """Whether the row is over and waits for a fresh puzzle."""

    @classmethod
    def empty(cls, count: int, config: ReasonerConfig, device: torch.device) -> "TrainingRows":
        """Make slots that all wait for a puzzle."""
        number = torch.zeros(count, dtype=torch.int64, device=device)
        grid = torch.zeros(count, config.cells, dtype=torch.uint8, device=device)
        latent = torch.zeros(config.tokens, count, config.width, device=device)
        state = State(latent, latent.clone() if config.two_states else None)
        return cls(
            rows=Rows(x=None, state=state, keys=number.clone(), depths=number.clone()),
            inputs=grid,
            labels=grid.to(torch.int64),
            identities=number,
            halted=number == 0,
        )

    def __len__(self) -> int:
        return len(self.rows)

    @torch.no_grad()
    def refill(self, index: Tensor, batch: Batch, seed: int, model: Reasoner) -> None:
        """Put fresh puzzles with fresh starts into the given rows."""
        device = self.halted.device
        inputs = torch.from_numpy(batch.inputs).to(device)
        identities = torch.from_numpy(batch.identities).to(device, torch.int64)
        keys = position_keys(seed, torch.from_numpy(batch.positions)).to(device)
        x = model.embed_tokens(inputs, model.identity_vectors(identities))
        state = model.initial_state(x, keys)
        fresh = TrainingRows(
            rows=Rows(x=None, state=state, keys=keys, depths=torch.zeros_like(keys)),
            inputs=inputs,
            labels=torch.from_numpy(batch.labels).to(device, torch.int64),
            identities=identities,
            halted=torch.zeros_like(keys, dtype=torch.bool),
        )
        put(self, index, fresh)

    def tensors(self, prefix: str = "rows.") -> dict[str, Tensor]:
        """Return everything by its name in a checkpoint, rows along the first axis."""
        latents = zip(("answer", "scratch"), self.rows.state.tensors(), strict=False)
        parts = {
            "inputs": self.inputs,
            "labels": self.labels,
            "identities": self.identities,
            "keys": self.rows.keys,
            "depths": self.rows.depths,
            "halted": self.halted,
            **{name: latent.transpose(0, 1) for name, latent in latents},
        }
        return {prefix + name: part for name, part in parts.items()}

    def load(self, tensors: dict[str, Tensor], prefix: str = "rows.", start: int = 0) -> None:
        """Overwrite everything with what `tensors` returned, from row `start` on."""
        for name, mine in self.tensors(prefix).items():
            mine.copy_(tensors[name][start : start + len(self)])


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


def step_sums(
    recipe: Recipe, model: Reasoner, flat: FlatParameters, backend: Backend, batch: TrainingRows, depth: int
) -> Sums:
    """Advance all rows by one step's segments and return the gradient of their loss."""
    dynamics = Dynamics(operator=Reasoning(model, model.config.path, backend), depth=depth)

    def work(part: TrainingRows, learns_start: bool) -> list[Sums]:
        return backend.map(
            lambda piece: _descend(recipe, model, dynamics, flat, chunk(part, piece), learns_start), len(part)
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
    recipe: Recipe,
    model: Reasoner,
    dynamics: Dynamics,
    flat: FlatParameters,
    batch: TrainingRows,
    learns_start: bool,
) -> Sums:
    """Take a piece through the windows, write its new state, and return gradient and statistics."""
    vectors, rows = model.identity_vectors(batch.identities), batch.rows
    gradients: list[Tensor] = []
    stats: list[Tensor] = []
    for window in recipe.schedule.windows(dynamics.depth):
        if window.untracked:
            with torch.no_grad():
                rows = replace(rows, x=Input(model.embed_tokens(batch.inputs, vectors), batch.inputs))
                for _ in range(window.untracked):
                    rows = dynamics.step(rows)
        leaf = None if vectors is None else vectors.detach().requires_grad_()
        rows = replace(rows, x=Input(model.embed_tokens(batch.inputs, leaf), batch.inputs))
        applications = recipe.schedule.applications
        if learns_start and rows.state is batch.rows.state:
            rows, applications = replace(rows, state=model.initial_state(rows.x.embedding, rows.keys)), None
        before = rows
        for _ in range(window.tracked):
            before, rows = rows, dynamics.step(rows, tracked=applications)
        reading = dynamics.read(rows, before).reading
        labels = recipe.loss.targets(task_named(recipe.data.task), batch.inputs, batch.labels, reading)
        losses = row_losses(reading, labels, recipe.loss)
        rows = replace(rows, state=rows.state.detach(), x=rows.x.detach())
        loss, parts = _loss(recipe, dynamics, window, rows, reading, losses)
        wanted = flat.parameters if leaf is None else [*flat.parameters, leaf]
        more = torch.autograd.grad(loss, wanted, materialize_grads=True)
        gradients = [a + b for a, b in zip(gradients, more, strict=True)] if gradients else list(more)
        stats.append(parts)
    with torch.no_grad():
        halted = recipe.halting.halted(reading, losses.right, rows.keys, rows.depths, dynamics.depth)
        write((batch.rows.state, batch.rows.depths, batch.halted), (rows.state, rows.depths, halted))
    counts = losses.right.sum(), halted.sum(), (halted & losses.right).sum(), (halted * rows.depths).sum()
    parameters = len(flat.parameters)
    return Sums(
        gradient=flat.join(gradients[:parameters]),
        stats=torch.cat((torch.stack(stats).sum(0), torch.stack(counts).float())),
        vectors=None if vectors is None else gradients[parameters],
    )


def _loss(
    recipe: Recipe, dynamics: Dynamics, window: Window, rows: Rows, reading: Reading, losses: RowLosses
) -> tuple[Tensor, Tensor]:
    """Return the loss of a window; and it, its answer part and its halt part as plain numbers."""
    answer, halting = losses.answer.sum(), recipe.halting
    halt = losses.halt.sum() if halting.trains_halt else torch.zeros((), device=answer.device)
    if halting.trains_halt and halting.trains_continue:
        with torch.no_grad():
            following = dynamics.read(dynamics.step(rows), rows).reading
        halt = (losses.halt + continue_losses(reading, following, rows.depths >= dynamics.depth)).sum()
    scale = window.weight / recipe.rows
    loss = (answer + recipe.loss.halt_weight * halt) * scale
    return loss, torch.stack((loss, answer * scale, halt * scale)).detach()
