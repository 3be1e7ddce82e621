"""The operator: blocks, f(z; c) = block_k(... block_1(z + c)), and a segment of its applications.

Blocks take and give token-major states (sites, rows, width), add their own residual and normalise. A
condition enters only by that first addition. Weights keep PyTorch's (out, in) shape.

What is put around an application (damping, noise) is told which of the segment it is asked for and keeps
nothing between two calls, so that it composes: what applies the inner one twice gets the same noise twice.

The gradient window is the caller's: the last `tracked` applications are differentiated, those before run
without a graph. Seven of 21 is TRM's last cycle, two of six HRM's one-step gradient, all is full
back-propagation.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Protocol

import torch
from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from eqr.model.definitions import gate, gated_mlp, matrix, normalise
from eqr.model.state import Spread, State
from eqr.registry import Kind, kinds_of, reads, register
from eqr.value import Value

if TYPE_CHECKING:
    from eqr.model.config import ReasonerConfig

Count = Annotated[int, Field(ge=1, le=1024)]


class ChannelMlp(nn.Module):
    """h <- R(h + W_down(silu(g) * u)), a gated MLP over the channels of each token."""

    def __init__(self, config: "ReasonerConfig", generator: torch.Generator) -> None:
        super().__init__()
        hidden = config.hidden(config.width)
        self.up = matrix(2 * hidden, config.width, generator)
        self.down = matrix(config.width, hidden, generator)

    def forward(self, h: Tensor) -> Tensor:
        return gated_mlp(h.flatten(0, 1), self.up, self.down, 1).view_as(h)


class ConvChannelMlp(nn.Module):
    """URM's gated MLP: a depthwise convolution over tokens (position t sees t-1 and t) before W_down."""

    def __init__(self, config: "ReasonerConfig", generator: torch.Generator) -> None:
        super().__init__()
        hidden = config.hidden(config.width)
        self.up = matrix(2 * hidden, config.width, generator)
        bound = 2**-0.5  # PyTorch's default for one input channel and a kernel of two
        self.kernel = nn.Parameter(torch.empty(2, hidden).uniform_(-bound, bound, generator=generator))
        self.bias = nn.Parameter(torch.empty(hidden).uniform_(-bound, bound, generator=generator))
        self.down = matrix(config.width, hidden, generator)

    def forward(self, h: Tensor) -> Tensor:
        gated = gate(F.linear(h.flatten(0, 1), self.up), 1).view(*h.shape[:2], -1)
        before = F.pad(gated[:-1], (0, 0, 0, 0, 1, 0))
        seen = torch.addcmul(self.bias + before * self.kernel[0], gated, self.kernel[1])
        return normalise(h + F.linear(F.silu(seen), self.down), dim=2)


class Block(nn.Module):
    """The config's mixer, then a channel mixer, both post-norm."""

    def __init__(self, config: "ReasonerConfig", generator: torch.Generator) -> None:
        super().__init__()
        self._mixer = config.mixer.kind
        # under the mixer's own name, by which saved weights know it
        self.add_module(self._mixer, config.mixer.layer(config, generator))
        make = ConvChannelMlp if config.convolution else ChannelMlp
        self.channels: nn.Module = make(config, generator)

    @property
    def mixer(self) -> nn.Module:
        """The layer in which sites look at one another."""
        return self.get_submodule(self._mixer)

    def forward(self, h: Tensor) -> Tensor:
        mixed: Tensor = self.channels(self.mixer(h))
        return mixed


class Stack(nn.Module):
    """The shared blocks that one application runs through."""

    def __init__(self, config: "ReasonerConfig", generator: torch.Generator) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(config, generator) for _ in range(config.blocks))

    def forward(self, z: Tensor, condition: Tensor | None, index: int = 0) -> Tensor:
        """Return f(z; condition), whichever application of the segment it is."""
        h = z if condition is None else z + condition
        for block in self.blocks:
            h = block(h)
        return h


class Application(Protocol):
    """f(z; condition), a block stack or what is put around one."""

    def __call__(self, z: Tensor, condition: Tensor | None, index: int) -> Tensor:
        """Return the new z, (sites, rows, width); `index` counts the segment's applications from 0."""


@dataclass(frozen=True)
class Damped:
    """z <- z + (1 - damping)(f(z) - z): the same fixed points, approached more slowly."""

    application: Application
    damping: float | Tensor

    def __call__(self, z: Tensor, condition: Tensor | None, index: int) -> Tensor:
        return torch.lerp(z, self.application(z, condition, index), 1.0 - self.damping)


@dataclass(frozen=True)
class Noise:
    """scale * eps, with eps fresh for every application and drawn from the rows' own keys."""

    vectors: Tensor
    """(vectors, width), standard normal."""
    chosen: Tensor
    """(applications, sites, rows): which vector each application adds to each site."""
    scale: float | Tensor


@dataclass(frozen=True)
class Noisy:
    """f(z) + scale * eps."""

    application: Application
    noise: Noise

    def __call__(self, z: Tensor, condition: Tensor | None, index: int) -> Tensor:
        moved = self.application(z, condition, index)
        eps = F.embedding(self.noise.chosen[index], self.noise.vectors).to(moved.dtype)
        return moved + self.noise.scale * eps


class Perturbation(Value):
    """What is put around each application: z <- z + (1 - damping) (f(z) - z) + noise * eps."""

    damping: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Share of the old state that is kept, lambda."""
    noise: Spread = 0.0
    """Standard deviation of the path noise, beta."""
    learned_noise: bool = False
    """Whether the noise scale is a trained parameter, one per state, that starts at `noise`."""

    @property
    def still(self) -> "Perturbation":
        """The same damping without noise: the fixed points stay where they are."""
        return self.replace(noise=0.0, learned_noise=False)

    @model_validator(mode="after")
    def _learned_needs_a_start(self) -> "Perturbation":
        if self.learned_noise and self.noise == 0.0:
            raise ValueError("learned_noise needs a noise above 0 to start from, such as 0.01")
        return self

    def around(self, application: Application, noise: Noise | None) -> Application:
        """Put damping and noise around an application; a perturbation of your own overrides this."""
        if self.damping:
            application = Damped(application, self.damping)
        return application if noise is None else Noisy(application, noise)


STILL = Perturbation()
"""No damping and no noise."""


class Move(StrEnum):
    """One application of the block stack: which state it updates, given what."""

    SCRATCH = "scratch"  # z_L <- f(z_L; z_H + x)
    ANSWER = "answer"  # z_H <- f(z_H; z_L)
    INPUT = "input"  # z <- f(z; x)
    ALONE = "alone"  # z <- f(z; 0)


@dataclass(frozen=True)
class Applications:
    """What a segment applies to either state, damping and noise included."""

    answer: Application
    scratch: Application


def run_segment(
    state: State, x: Tensor, moves: Sequence[Move], apply: Applications, *, tracked: int | None = None
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
                scratch = apply.scratch(scratch, context, index)
            else:
                condition = {Move.ANSWER: scratch, Move.INPUT: x, Move.ALONE: None}[move]
                answer = apply.answer(answer, condition, index)
                context = None
    return State(answer, scratch)


class Recurrence(Kind):
    """Which applications make a segment."""

    iterates: ClassVar[bool] = True
    """Whether a trajectory can have more than one segment."""

    @abstractmethod
    def moves(self) -> tuple[Move, ...]:
        """Return the applications of one segment in order."""

    @property
    def two_states(self) -> bool:
        """Whether there is a scratch state beside the answer state."""
        return Move.SCRATCH in self.moves()

    @property
    def two_stacks(self) -> bool:
        """Whether the two states have block stacks of their own."""
        return False


RECURRENCES = kinds_of(Recurrence, "recurrences")


class Feedforward(Recurrence):
    """Every block once, no iteration: the baseline."""

    iterates: ClassVar[bool] = False
    kind: Literal["feedforward"] = "feedforward"

    def moves(self) -> tuple[Move, ...]:
        return (Move.INPUT,)


class SingleState(Recurrence):
    """One latent state z, updated `applications` times a cycle."""

    kind: Literal["single-state"] = "single-state"
    cycles: Count = 3
    applications: Count = 7
    close_alone: bool = False
    """Whether each cycle's last application does not see the input, as in TRM's single-z code."""

    def moves(self) -> tuple[Move, ...]:
        last = Move.ALONE if self.close_alone else Move.INPUT
        return ((Move.INPUT,) * (self.applications - 1) + (last,)) * self.cycles


class TwoLevel(Recurrence):
    """Scratch z_L updated `scratch` times, then answer z_H once, `cycles` times over."""

    kind: Literal["two-level"] = "two-level"
    cycles: Count = 3
    scratch: Count = 6
    separate: bool = False
    """Whether the two states have block stacks of their own (HRM) instead of sharing one (TRM, EqR)."""

    def moves(self) -> tuple[Move, ...]:
        return ((Move.SCRATCH,) * self.scratch + (Move.ANSWER,)) * self.cycles

    @property
    def two_stacks(self) -> bool:
        return self.separate


AnyRecurrence = Annotated[SerializeAsAny[Recurrence], BeforeValidator(reads(RECURRENCES))]
for _recurrence in (Feedforward, SingleState, TwoLevel):
    register(_recurrence)
RECURRENCES.close()
