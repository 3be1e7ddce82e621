"""Live candidates: those the givens rule out are left out of the state, of every sum and of the answer.

A symbol that is given rules out the others of its cell, and itself elsewhere in each group where no symbol
stands twice (`Task.distinct`). What is ruled out holds zeros, in the input and in every state, by which it is
known. A candidate that is not ruled out but alone in all its groups is settled, as givens are: nothing it
holds matters to another, so it stays what its input is. The rest is open, and is what a segment changes.

`eqr.cpu.segment` carries the open candidates alone; the functions here say the same by masks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from eqr.model.config import Move, ReasonerConfig
from eqr.model.exchange import Factors
from eqr.model.operator import Numbered, Wrapped, run_segment
from eqr.model.state import State
from eqr.tasks import task_named


def holds(h: Tensor) -> Tensor:
    """Whether a site (sites, rows, width) holds anything, (sites, rows, 1)."""
    size: Tensor = torch.linalg.vector_norm(h.detach(), dim=2, keepdim=True)  # one pass; any() takes several
    return size > 0


class Rules(nn.Module):
    """The groups of candidates, and those of them of which only one can be right."""

    def __init__(self, config: ReasonerConfig) -> None:
        super().__init__()
        families = config.families()
        distinct = ("cell", *task_named(config.task or "").distinct())
        self.groups = Factors(tuple(families.values()), config.tokens)
        self.distinct = Factors(tuple(families[name] for name in distinct), config.tokens)

    def possible(self, given: Tensor) -> Tensor:
        """Return what the given candidates (sites, rows, 1) leave, the same shape, bool."""
        return given | (self.distinct.count(given.float()) == 0)

    def open(self, x: Tensor) -> Tensor:
        """Return the sites of an input that a segment changes, (sites, rows, 1), bool."""
        there = holds(x)
        company = self.groups.count(there.float(), at_least=2.0)
        return there & (company > 0)


@dataclass(frozen=True)
class Open:
    """An application after which sites that are not open hold nothing."""

    application: Numbered
    sites: Tensor

    def __call__(self, z: Tensor, condition: Tensor | None, index: int) -> Tensor:
        """Apply."""
        return torch.where(self.sites, self.application(z, condition, index), 0.0)


def only_open(
    sites: Tensor,
    state: State,
    x: Tensor,
    moves: Sequence[Move],
    wrapped: Wrapped,
    *,
    tracked: int | None = None,
) -> State:
    """Run a segment on open sites (sites, rows, 1); the others become their input."""
    before = State(*(torch.where(sites, latent, 0.0) for latent in state.tensors()))
    inside = Wrapped(answer=Open(wrapped.answer, sites), scratch=Open(wrapped.scratch, sites))
    after = run_segment(before, torch.where(sites, x, 0.0), moves, inside, tracked=tracked)
    return State(*(torch.where(sites, latent, x) for latent in after.tensors()))
