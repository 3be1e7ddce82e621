"""One segment: the applications of a recurrence, each wrapped by damping and noise, in one loop.

A wrapper is told which application of the segment it is asked for and keeps nothing between two calls, so
that wrappers compose: one that applies the inner one twice gets the same noise twice.

The gradient window is the caller's: the last `tracked` applications are differentiated, those before run
without a graph. Seven of 21 is TRM's last cycle, two of six HRM's one-step gradient, all is full
back-propagation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from eqr.cpu.operators import operator
from eqr.cpu.states import ADD_NOISE, DAMP_AND_ADD_NOISE
from eqr.model.config import Move
from eqr.model.counters import NoiseBank
from eqr.model.layers import Application
from eqr.model.state import State


class Numbered(Protocol):
    """An application that knows its number in the segment, from 0."""

    def __call__(self, z: Tensor, condition: Tensor | None, index: int) -> Tensor:
        """Return the new z; all are (sites, rows, width)."""


@dataclass(frozen=True)
class Bare:
    """A block stack, which is the same at every application."""

    application: Application

    def __call__(self, z: Tensor, condition: Tensor | None, index: int) -> Tensor:
        """Apply."""
        return self.application(z, condition)


@dataclass(frozen=True)
class Damped:
    """z <- z + (1 - damping)(f(z) - z): the same fixed points, approached more slowly."""

    application: Numbered
    damping: float | Tensor

    def __call__(self, z: Tensor, condition: Tensor | None, index: int) -> Tensor:
        """Apply and keep a share of the old state."""
        return torch.lerp(z, self.application(z, condition, index), 1.0 - self.damping)


@dataclass(frozen=True)
class Noisy:
    """f(z) + scale * eps, eps fresh for every application and drawn from the rows' own keys."""

    application: Numbered
    scale: float | Tensor
    bank: NoiseBank
    chosen: Tensor
    """(applications, sites, rows): which noise each application of the segment adds."""

    def __call__(self, z: Tensor, condition: Tensor | None, index: int) -> Tensor:
        """Apply and perturb."""
        moved, chosen = self.application(z, condition, index), self.chosen[index]
        if isinstance(self.scale, float):
            return add_noise(moved, self.bank.vectors, chosen, self.scale)
        picked = F.embedding(chosen, self.bank.vectors).to(moved.dtype)
        return torch.addcmul(moved, picked, self.scale.to(moved.dtype))


@dataclass(frozen=True)
class DampedNoisy:
    """`Noisy(Damped(...))` for constant shares, computed in one go."""

    application: Numbered
    damping: float
    scale: float
    bank: NoiseBank
    chosen: Tensor

    def __call__(self, z: Tensor, condition: Tensor | None, index: int) -> Tensor:
        """Apply, keep a share of the old state, and perturb."""
        moved = self.application(z, condition, index)
        return damp_and_add_noise(z, moved, self.bank.vectors, self.chosen[index], self.damping, self.scale)


def strayed(
    application: Numbered, damping: float, scale: float | Tensor, bank: NoiseBank, chosen: Tensor
) -> Numbered:
    """Wrap an application by damping, if any, and noise."""
    if damping and isinstance(scale, float):
        return DampedNoisy(application, damping, scale, bank, chosen)
    return Noisy(Damped(application, damping) if damping else application, scale, bank, chosen)


@operator(cpu=ADD_NOISE)
def add_noise(h: Tensor, vectors: Tensor, chosen: Tensor, scale: float) -> Tensor:
    """h + scale * vectors[chosen] for h (sites, rows, width) and chosen (sites, rows)."""
    return h.add(F.embedding(chosen, vectors).to(h.dtype), alpha=scale)


@operator(cpu=DAMP_AND_ADD_NOISE)
def damp_and_add_noise(
    z: Tensor, moved: Tensor, vectors: Tensor, chosen: Tensor, damping: float, scale: float
) -> Tensor:
    """z + (1 - damping)(moved - z) + scale * vectors[chosen]."""
    return add_noise(torch.lerp(z, moved, 1.0 - damping), vectors, chosen, scale)


@dataclass(frozen=True)
class Accelerated:
    """Anderson acceleration: combine the last applications so that their changes cancel best, row by row.

    It looks back over at most `memory` applications that had the same condition: those of a cycle's scratch
    state, or of a single state through the whole segment. Where conditions differ it changes nothing. Made
    anew for every segment, so what it looks back on is a row's own.
    """

    application: Numbered
    memory: int
    ridge: float = 1e-4
    """Share of the mean squared change that is added to it, so that near-equal changes do not blow up."""
    _past: list[tuple[Tensor | None, Tensor, Tensor]] = field(default_factory=list, repr=False)
    """Condition, new state and change of each."""

    def __call__(self, z: Tensor, condition: Tensor | None, index: int) -> Tensor:
        """Apply and combine with what came before."""
        moved = self.application(z, condition, index)
        past = self._past
        if past and past[-1][0] is not condition:
            past.clear()
        past.append((condition, moved, moved - z))
        del past[: -self.memory]
        if len(past) == 1:
            return moved
        changes = torch.stack([change for _, _, change in past]).float()
        products = torch.einsum("isrw,jsrw->rij", changes, changes)
        size = products.diagonal(dim1=1, dim2=2).mean(dim=1)[:, None, None].clamp_min(1e-12)
        eye = torch.eye(len(past), device=z.device)
        weights = torch.linalg.solve(products + self.ridge * size * eye, torch.ones_like(products[:, :, 0]))
        weights = (weights / weights.sum(dim=1, keepdim=True)).to(z.dtype)
        return torch.einsum("ri,isrw->srw", weights, torch.stack([new for _, new, _ in past]))


@dataclass(frozen=True)
class Wrapped:
    """The two applications of a segment, wrapped for this run."""

    answer: Numbered
    scratch: Numbered


def run_segment(
    state: State, x: Tensor, moves: Sequence[Move], wrapped: Wrapped, *, tracked: int | None = None
) -> State:
    """Apply `moves` in order; if gradients are on, the last `tracked` (None: all) record a graph."""
    first_tracked = 0 if tracked is None else max(len(moves) - tracked, 0)
    wanted = torch.is_grad_enabled()
    answer, scratch, context = state.answer, state.scratch, None
    for index, move in enumerate(moves):
        if index == first_tracked:
            context = None  # made without a graph; the tracked part needs its own
        with torch.set_grad_enabled(wanted and index >= first_tracked):
            if move is Move.SCRATCH:
                assert scratch is not None
                # z_H + x stays the same through a cycle's scratch applications
                context = answer + x if context is None else context
                scratch = wrapped.scratch(scratch, context, index)
            else:
                condition = {Move.ANSWER: scratch, Move.INPUT: x, Move.ALONE: None}[move]
                answer = wrapped.answer(answer, condition, index)
                context = None
    return State(answer, scratch)
