"""What flows through a reasoner: the latent `State` and the `Reading` the heads take from it.

Latents are token-major, (tokens, rows, width): then mixing over tokens and mixing over channels are both
plain matrix products of contiguous memory, with no transposed copy between them.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from eqr.cpu.operators import operator
from eqr.cpu.states import SQUARE_DISTANCES


@dataclass(frozen=True)
class State:
    """The latents of a batch of rows."""

    answer: Tensor
    """z_H (or the only state z), shape (tokens, rows, width)."""
    scratch: Tensor | None = None
    """z_L, same shape; None for systems with one state."""

    @property
    def rows(self) -> int:
        """Number of trajectories held."""
        return self.answer.shape[1]

    def tensors(self) -> tuple[Tensor, ...]:
        """Return the latents there are."""
        return (self.answer,) if self.scratch is None else (self.answer, self.scratch)

    def detach(self) -> "State":
        """Cut the gradient: the next segment starts from these numbers, not from their history."""
        return State(*(latent.detach() for latent in self.tensors()))

    def take(self, rows: Tensor) -> "State":
        """Copy out some rows by index."""
        return State(*(latent.index_select(1, rows) for latent in self.tensors()))

    def put(self, rows: Tensor, other: "State") -> None:
        """Overwrite some rows in place with the rows of `other`."""
        for latent, new in zip(self.tensors(), other.tensors(), strict=True):
            latent.index_copy_(1, rows, new.to(latent.dtype))

    def chunk(self, rows: slice) -> "State":
        """View a run of rows without copying."""
        return State(*(latent[:, rows] for latent in self.tensors()))

    def distance(self, other: "State") -> Tensor:
        """Root-mean-square difference per latent coordinate, shape (rows,).

        The paper's un-normalised norm is this times sqrt(states * tokens * width); dividing makes one
        tolerance mean the same for every size of model.
        """
        pairs = zip(self.tensors(), other.tensors(), strict=True)
        squares = [square_distances(mine.detach(), theirs.detach()) for mine, theirs in pairs]
        tokens, _, width = self.answer.shape
        return (torch.stack(squares).sum(0) / (len(squares) * tokens * width)).sqrt()


@operator(cpu=SQUARE_DISTANCES)
def square_distances(one: Tensor, other: Tensor) -> Tensor:
    """Sum (one - other)^2 over the tokens and channels of each row; both (tokens, rows, width)."""
    return (one.float() - other.float()).square().sum(dim=(0, 2))


def join(states: list[State]) -> State:
    """Put batches of rows side by side."""
    return State(*(torch.cat(latents, dim=1) for latents in zip(*(s.tensors() for s in states), strict=True)))


@dataclass(frozen=True)
class Reading:
    """What the heads see after a segment."""

    logits: Tensor
    """(rows, cells, vocabulary)."""
    halt: Tensor
    """Halt score q as a logit, above 0 means "I am done"; float32, shape (rows,)."""
    continue_score: Tensor
    """HRM's continue score as a logit, float32, shape (rows,); trained by HRM's rule only."""
    residual: Tensor
    """Change of the latents over the segment (see `State.distance`), shape (rows,)."""
    accepted: Tensor | None = None
    """Whether a judge from outside (the rules, a label) accepts the answer, bool (rows,); None: not asked."""

    @cached_property
    def tokens(self) -> Tensor:
        """The decoded grid, uint8, shape (rows, cells)."""
        return self.logits.detach().argmax(dim=-1).to(torch.uint8)
