"""Where trajectories begin: a fixed vector, a random draw, or a prediction from the input.

A start depends on the row's key, that is on (seed, puzzle, restart), and on nothing else in the batch.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from eqr.model.config import RandomStart, ReasonerConfig
from eqr.model.counters import truncated_normal
from eqr.model.layers import matrix, scaled_normal
from eqr.model.state import State

_ANSWER_STREAM, _SCRATCH_STREAM = 1 << 40, 2 << 40
"""Far from the small counters that path noise uses with the same keys."""


class Starter(nn.Module, ABC):
    """Makes initial states."""

    @abstractmethod
    def forward(self, x: Tensor, keys: Tensor) -> State:
        """Return the start of each row, given the embedded input (tokens, rows, width) and keys (rows,)."""


class FixedStarter(Starter):
    """One vector per state, drawn when the model is made, saved with it, never trained."""

    answer: Tensor
    scratch: Tensor | None

    def __init__(self, config: ReasonerConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.register_buffer("answer", scaled_normal(config.width, std=1.0, generator=generator))
        scratch = scaled_normal(config.width, std=1.0, generator=generator) if config.two_states else None
        self.register_buffer("scratch", scratch)

    def forward(self, x: Tensor, keys: Tensor) -> State:
        """Broadcast the vectors over tokens and rows."""
        return State(
            self.answer.expand_as(x).clone(),
            None if self.scratch is None else self.scratch.expand_as(x).clone(),
        )


class RandomStarter(Starter):
    """Truncated normals, independent over tokens and channels."""

    def __init__(self, config: ReasonerConfig, scales: RandomStart) -> None:
        super().__init__()
        self._scales, self._two_states = scales, config.two_states

    def forward(self, x: Tensor, keys: Tensor) -> State:
        """Draw each row from its own key."""
        tokens, _, width = x.shape

        def draw(stream: int, scale: float) -> Tensor:
            if scale == 0.0:
                return torch.zeros_like(x)
            return (truncated_normal(keys, stream, tokens, width) * scale).to(x.dtype)

        return State(
            draw(_ANSWER_STREAM, self._scales.answer),
            draw(_SCRATCH_STREAM, self._scales.scratch) if self._two_states else None,
        )


class LearnedStarter(Starter):
    """z_0 = g(x), a two-layer MLP on each token's embedding, trained with the rest."""

    def __init__(self, config: ReasonerConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.into = matrix(config.width, config.width, generator)
        self.states = 2 if config.two_states else 1
        self.out = matrix(self.states * config.width, config.width, generator)

    def forward(self, x: Tensor, keys: Tensor) -> State:
        """Predict the start from the input."""
        return State(*(F.silu(x @ self.into.t()) @ self.out.t()).chunk(self.states, dim=2))
