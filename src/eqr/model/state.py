"""What flows through a reasoner: `Input`, `State` and how it begins, and the `Reading` that the heads take.

Latents are token-major, (tokens, rows, width): then mixing over tokens and mixing over channels are both
plain matrix products of contiguous memory, with no transposed copy between them.

A start depends on the row's key, that is on (seed, puzzle, restart), and on nothing else in the batch.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import torch
from pydantic import BeforeValidator, Field, SerializeAsAny
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import register_pytree_node

from eqr.model.definitions import definition, matrix, scaled_normal, truncated_normal
from eqr.registry import Kind, kinds_of, reads, register

if TYPE_CHECKING:
    from eqr.model.config import ReasonerConfig

Segments = Annotated[int, Field(gt=0, le=1 << 20)]
"""Of a trajectory: beyond that the counters of path noise would run into those of the starts."""
Spread = Annotated[float, Field(ge=0.0, le=1e6)]
"""A standard deviation; latents are of size 1, and what float32 cannot hold would make them NaN."""
_ANSWER_STREAM, _SCRATCH_STREAM = 1 << 40, 2 << 40
"""Far from the small counters that path noise uses with the same keys."""


@dataclass(frozen=True)
class Input:
    """Puzzles as a reasoner is conditioned on them."""

    embedding: Tensor
    """(tokens, rows, width)."""
    puzzles: Tensor
    """(rows, cells) uint8: as given, for whoever checks answers or draws starts."""
    identities: Tensor | None = None
    """(rows,) int64: the families they belong to, for whoever draws starts."""
    row_axes: ClassVar[dict[str, int]] = {"embedding": 1}
    """Where rows are counted (see `eqr.dynamics.rows`)."""

    def detach(self) -> "Input":
        """Cut the gradient."""
        return replace(self, embedding=self.embedding.detach())


@dataclass(frozen=True)
class State:
    """The latents of a batch of rows; arithmetic on them keeps whose they are."""

    answer: Tensor
    """z_H (or the only state z), shape (tokens, rows, width)."""
    scratch: Tensor | None = None
    """z_L, same shape; None for systems with one state."""
    keys: Tensor | None = None
    """(rows,) int64: stand for (seed, puzzle, restart), where a caller keeps them here."""
    depths: Tensor | None = None
    """(rows,) int64: segments behind each row, likewise."""
    row_axes: ClassVar[dict[str, int]] = {"answer": 1, "scratch": 1}
    """Where rows are counted (see `eqr.dynamics.rows`)."""

    @property
    def rows(self) -> int:
        """Number of trajectories held."""
        return self.answer.shape[1]

    def tensors(self) -> tuple[Tensor, ...]:
        """Return the latents there are."""
        return (self.answer,) if self.scratch is None else (self.answer, self.scratch)

    def map(self, work: Callable[..., Tensor], *others: "State") -> "State":
        """Return the same rows with other latents: what `work` makes of each, and of those of `others`."""
        latents = zip(self.tensors(), *(other.tensors() for other in others), strict=True)
        made = [work(*parts) for parts in latents]
        return replace(self, answer=made[0], scratch=made[1] if len(made) > 1 else None)

    def __add__(self, other: "State | Tensor | float") -> "State":
        return self._with(torch.add, other)

    def __sub__(self, other: "State | Tensor | float") -> "State":
        return self._with(torch.sub, other)

    def __mul__(self, other: "State | Tensor | float") -> "State":
        return self._with(torch.mul, other)

    __radd__, __rmul__ = __add__, __mul__

    def _with(self, work: Callable[..., Tensor], other: "State | Tensor | float") -> "State":
        if isinstance(other, State):
            return self.map(work, other)
        return self.map(lambda latent: work(latent, other))

    def copies(self, count: int) -> "State":
        """Return so many copies of every row, side by side."""
        rows = torch.arange(self.rows, device=self.answer.device).repeat_interleave(count)
        keys, depths = (None if part is None else part[rows] for part in (self.keys, self.depths))
        return replace(self.map(lambda latent: latent[:, rows]), keys=keys, depths=depths)

    def flat(self) -> Tensor:
        """Return each row as one vector, (rows, coordinates)."""
        return torch.cat([latent.transpose(0, 1).flatten(1) for latent in self.tensors()], dim=1)

    def like(self, flat: Tensor) -> "State":
        """Return the same rows at other places, (rows, coordinates): the reverse of `flat`."""
        tokens, rows, width = self.answer.shape
        parts = flat.chunk(len(self.tensors()), dim=1)
        latents = (part.reshape(rows, tokens, width).transpose(0, 1).contiguous() for part in parts)
        return replace(self, **dict(zip(("answer", "scratch"), latents, strict=False)))

    def detach(self) -> "State":
        """Cut the gradient: the next segment starts from these numbers, not from their history."""
        return self.map(torch.Tensor.detach)

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


@definition
def square_distances(one: Tensor, other: Tensor, /) -> Tensor:
    """Sum (one - other)^2 over the tokens and channels of each row; both (tokens, rows, width)."""
    return (one.float() - other.float()).square().sum(dim=(0, 2))


@definition
def halt_scores(h: Tensor, weight: Tensor, bias: Tensor, /) -> Tensor:
    """Return scores (rows, k) of the mean token of each row of h (tokens, rows, width)."""
    return F.linear(h.mean(dim=0), weight, bias)


@definition
def products(h: Tensor, weight: Tensor, /) -> Tensor:
    """Return h (tokens, rows, width) times each row of `weight` (k, width), as (tokens, rows, k)."""
    return h @ weight.t()


# so that function transforms take a state for what it holds
register_pytree_node(State, lambda state: (list(state.tensors()), None), lambda parts, _: State(*parts))


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

    @classmethod
    def of_residual(cls, residual: Tensor) -> "Reading":
        """Return the reading of a function without heads: no cells, no scores."""
        none = torch.full_like(residual, torch.nan)
        return cls(
            logits=residual.new_zeros(len(residual), 0, 1), halt=none, continue_score=none, residual=residual
        )

    @cached_property
    def tokens(self) -> Tensor:
        """The decoded grid, uint8, shape (rows, cells)."""
        return self.logits.detach().argmax(dim=-1).to(torch.uint8)


class Starter(nn.Module, ABC):
    """Makes initial states."""

    @abstractmethod
    def forward(self, x: Tensor, keys: Tensor) -> State:
        """Return the start of each row, given the embedded input (tokens, rows, width) and keys (rows,)."""


class Start(Kind):
    """Where trajectories begin."""

    @abstractmethod
    def starter(self, config: "ReasonerConfig", generator: torch.Generator) -> Starter:
        """Build the module."""


STARTS = kinds_of(Start, "starts")


class FixedStart(Start):
    """The same untrained random vector for every token of every puzzle (TRM, HRM, URM)."""

    kind: Literal["fixed"] = "fixed"

    def starter(self, config: "ReasonerConfig", generator: torch.Generator) -> Starter:
        return FixedStarter(config, generator)


class FixedStarter(Starter):
    """One vector per state, drawn when the model is made, saved with it, never trained."""

    answer: Tensor
    scratch: Tensor | None

    def __init__(self, config: "ReasonerConfig", generator: torch.Generator) -> None:
        super().__init__()
        self.register_buffer("answer", scaled_normal(config.width, std=1.0, generator=generator))
        scratch = scaled_normal(config.width, std=1.0, generator=generator) if config.two_states else None
        self.register_buffer("scratch", scratch)

    def forward(self, x: Tensor, keys: Tensor) -> State:
        scratch = None if self.scratch is None else self.scratch.expand_as(x).clone()
        return State(self.answer.expand_as(x).clone(), scratch)


class RandomStart(Start):
    """Drawn afresh for every trajectory (RI); a scale of 0 starts from zeros."""

    kind: Literal["random"] = "random"
    answer: Spread = 1.0
    """Standard deviation of the answer state, sigma_H."""
    scratch: Spread = 1.0
    """Standard deviation of the scratch state, sigma_L."""

    def starter(self, config: "ReasonerConfig", generator: torch.Generator) -> Starter:
        return RandomStarter(config, self)


class RandomStarter(Starter):
    """Truncated normals, independent over tokens and channels; each row draws from its own key."""

    def __init__(self, config: "ReasonerConfig", scales: RandomStart) -> None:
        super().__init__()
        self._scales, self._two_states = scales, config.two_states

    def forward(self, x: Tensor, keys: Tensor) -> State:
        tokens, _, width = x.shape

        def draw(stream: int, scale: float) -> Tensor:
            if scale == 0.0:
                return torch.zeros_like(x)
            return (truncated_normal(keys, stream, tokens, width) * scale).to(x.dtype)

        scratch = draw(_SCRATCH_STREAM, self._scales.scratch) if self._two_states else None
        return State(draw(_ANSWER_STREAM, self._scales.answer), scratch)


class LearnedStart(Start):
    """Predicted from the input by a two-layer MLP on each token, trained with the rest: z_0 = g(x)."""

    kind: Literal["learned"] = "learned"

    def starter(self, config: "ReasonerConfig", generator: torch.Generator) -> Starter:
        return LearnedStarter(config, generator)


class LearnedStarter(Starter):
    """g(x), for one state or two."""

    def __init__(self, config: "ReasonerConfig", generator: torch.Generator) -> None:
        super().__init__()
        self.into = matrix(config.width, config.width, generator)
        self.states = 2 if config.two_states else 1
        self.out = matrix(self.states * config.width, config.width, generator)

    def forward(self, x: Tensor, keys: Tensor) -> State:
        return State(*(F.silu(x @ self.into.t()) @ self.out.t()).chunk(self.states, dim=2))


AnyStart = Annotated[SerializeAsAny[Start], BeforeValidator(reads(STARTS))]
for _start in (FixedStart, RandomStart, LearnedStart):
    register(_start)
STARTS.close()
