"""What a reasoner is made of, as one frozen value that is saved beside its weights as `config.json`.

Every system of the paper is a different value of the same few fields; `eqr.model.systems` names them.
"""

from abc import abstractmethod
from enum import StrEnum
from math import ceil
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BeforeValidator,
    Field,
    PositiveFloat,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from eqr.errors import UserError
from eqr.model.mixers import AnyMixer, Tokens
from eqr.registry import Kind, kinds_of, reads, register
from eqr.tasks import task_named
from eqr.value import Value, unless_default

if TYPE_CHECKING:
    import torch

    from eqr.model.start import Starter

# Far beyond any model of this kind, and near enough that a config can be looked at before its weights are:
# whatever is looped over or multiplied when a model is made has a limit.
Count = Annotated[int, Field(ge=1, le=1024)]
Size = Annotated[int, Field(ge=1, le=65_536)]
Side = Annotated[int, Field(ge=1, le=512)]
Segments = Annotated[int, Field(gt=0, le=1 << 20)]
"""Of a trajectory: beyond that the counters of path noise would run into those of the starts."""
Spread = Annotated[float, Field(ge=0.0, le=1e6)]
"""A standard deviation; latents are of size 1, and what float32 cannot hold would make them NaN."""
MOST_APPLICATIONS = 10_000


class Positions(StrEnum):
    """How attention learns where a token is."""

    NONE = "none"
    LEARNED = "learned"
    ROTARY = "rotary"
    ROTARY_2D = "rotary-2d"


class Move(StrEnum):
    """One application of the block stack: which state it updates, given what."""

    SCRATCH = "scratch"  # z_L <- f(z_L; z_H + x)
    ANSWER = "answer"  # z_H <- f(z_H; z_L)
    INPUT = "input"  # z <- f(z; x)
    ALONE = "alone"  # z <- f(z; 0)


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
        """Return the applications of one segment in order."""
        return (Move.INPUT,)


class SingleState(Recurrence):
    """One latent state z, updated `applications` times a cycle."""

    kind: Literal["single-state"] = "single-state"
    cycles: Count = 3
    applications: Count = 7
    close_alone: bool = False
    """Whether each cycle's last application does not see the input, as in TRM's single-z code."""

    def moves(self) -> tuple[Move, ...]:
        """Return the applications of one segment in order."""
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
        """Return the applications of one segment in order."""
        return ((Move.SCRATCH,) * self.scratch + (Move.ANSWER,)) * self.cycles

    @property
    def two_stacks(self) -> bool:
        """As the field says."""
        return self.separate


AnyRecurrence = Annotated[SerializeAsAny[Recurrence], BeforeValidator(reads(RECURRENCES))]
for _recurrence in (Feedforward, SingleState, TwoLevel):
    register(_recurrence)
RECURRENCES.close()


class Start(Kind):
    """Where trajectories begin: makes the module that draws first states."""

    @abstractmethod
    def starter(self, config: "ReasonerConfig", generator: "torch.Generator") -> "Starter":
        """Build the module."""


STARTS = kinds_of(Start, "starts")


class FixedStart(Start):
    """The same untrained random vector for every token of every puzzle (TRM, HRM, URM)."""

    kind: Literal["fixed"] = "fixed"

    def starter(self, config: "ReasonerConfig", generator: "torch.Generator") -> "Starter":
        """Draw the vectors."""
        from eqr.model.start import FixedStarter

        return FixedStarter(config, generator)


class RandomStart(Start):
    """Drawn afresh for every trajectory (RI); a scale of 0 starts from zeros."""

    kind: Literal["random"] = "random"
    answer: Spread = 1.0
    """Standard deviation of the answer state, sigma_H."""
    scratch: Spread = 1.0
    """Standard deviation of the scratch state, sigma_L."""

    def starter(self, config: "ReasonerConfig", generator: "torch.Generator") -> "Starter":
        """Nothing is trained or kept."""
        from eqr.model.start import RandomStarter

        return RandomStarter(config, self)


class LearnedStart(Start):
    """Predicted from the input by a two-layer MLP, z_0 = g(x)."""

    kind: Literal["learned"] = "learned"

    def starter(self, config: "ReasonerConfig", generator: "torch.Generator") -> "Starter":
        """Draw the MLP's weights."""
        from eqr.model.start import LearnedStarter

        return LearnedStarter(config, generator)


AnyStart = Annotated[SerializeAsAny[Start], BeforeValidator(reads(STARTS))]
for _start in (FixedStart, RandomStart, LearnedStart):
    register(_start)
STARTS.close()


class Path(Value):
    """The wrappers around each application: z <- z + (1 - damping) (f(z) - z) + noise * eps."""

    damping: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Share of the old state that is kept, lambda."""
    noise: Spread = 0.0
    """Standard deviation of the path noise, beta."""
    learned_noise: bool = False
    """Whether the noise scale is a trained parameter, one per state, that starts at `noise`."""

    @model_validator(mode="after")
    def _learned_needs_a_start(self) -> "Path":
        if self.learned_noise and self.noise == 0.0:
            raise ValueError("learned_noise needs a noise above 0 to start from, such as 0.01")
        return self


STILL = Path()
"""No damping and no noise."""


class CandidateSites(Value):
    """A site for each (cell, symbol) instead of each cell: renaming symbols only renames sites."""

    first: Annotated[int, Field(ge=1)] = 2
    """The tokens from here on are symbols that a cell may hold; those before (padding, blank) are not."""
    live: bool = False
    """Whether candidates that the givens rule out (`Task.distinct`) are left out: they hold nothing, say
    nothing and are never chosen."""

    @model_serializer(mode="wrap")
    def _as_before(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Say `live` only where it holds."""
        return unless_default(self, dump, "live")


class ReasonerConfig(Value):
    """Everything that decides a reasoner's parameters and dynamics."""

    task: str | None = None
    """Name of the task it was made for, when there is one."""
    rows: Side
    columns: Side
    vocabulary: Annotated[int, Field(ge=2, le=256)]
    width: Size = 512
    blocks: Annotated[int, Field(ge=1, le=256)] = 2
    """Distinct blocks in each stack."""
    mixer: AnyMixer = Tokens()
    sites: CandidateSites | None = None
    """What a state has a latent for: each cell (None) or each candidate of a cell."""
    positions: Positions = Positions.NONE
    heads: Size = 8
    expansion: Annotated[PositiveFloat, Field(le=64)] = 4.0
    round_hidden_to: Size = 256
    """Hidden sizes of gated MLPs are rounded up to a multiple of this."""
    convolution: bool = False
    """Whether the gated MLP has a short depthwise convolution over tokens (URM)."""
    recurrence: AnyRecurrence = TwoLevel()
    start: AnyStart = RandomStart()
    path: Path = STILL
    identities: Annotated[int, Field(ge=0, le=100_000_000)] = 0
    """Rows of the sparse table of puzzle identities, 0 for none."""
    identity_tokens: Annotated[int, Field(ge=0, le=1024)] = 0
    """Tokens put before the grid: the first carries the identity vector, the rest start as zeros."""

    @model_validator(mode="after")
    def _parts_fit(self) -> "ReasonerConfig":
        if self.sites is not None and self.sites.first >= self.vocabulary:
            raise ValueError(f"sites.first = {self.sites.first}: there are only {self.vocabulary} tokens")
        self.mixer.check(self)
        if self.live:
            self._check_live()
        if self.identities and not self.identity_tokens:
            raise ValueError("identities need identity_tokens of at least 1 to carry their vector")
        if not self.recurrence.iterates and isinstance(self.start, RandomStart):
            raise ValueError(
                f"a {self.recurrence.kind} model has no state to start at random; use the fixed start"
            )
        if self.applications > MOST_APPLICATIONS:
            raise ValueError(f"{self.applications} applications a segment; at most {MOST_APPLICATIONS}")
        return self

    def _check_live(self) -> None:
        if self.mixer.kind != "groups":
            raise ValueError(f"sites.live needs the groups mixer, not {self.mixer.kind}; set live to false")
        if not task_named(self.task or "").distinct():
            raise ValueError(f"sites.live: {self.task} says of no groups that symbols differ (Task.distinct)")

    @property
    def live(self) -> bool:
        """Whether candidates that the givens rule out are left out."""
        return self.sites is not None and self.sites.live

    @property
    def cells(self) -> int:
        """Grid cells, which are the tokens that are decoded."""
        return self.rows * self.columns

    @property
    def tokens(self) -> int:
        """All sites of a state: identity tokens, then cells or their candidates."""
        return self.identity_tokens + self.cells * self.symbols

    @property
    def symbols(self) -> int:
        """Sites of a cell: its candidates, or the cell itself."""
        return 1 if self.sites is None else self.vocabulary - self.sites.first

    def families(self) -> dict[str, NDArray[np.intp]]:
        """Return the groups of sites that the task declares, by family, each (groups, members), -1 for none.

        With candidates as sites, a group of cells becomes one for each symbol, and the candidates of a cell
        are a family of their own.
        """
        if self.task is None:
            raise UserError("groups come from a task; this model has none")
        cells = task_named(self.task).groups()
        if not cells:
            raise UserError(f"the task {self.task} declares no groups (Task.groups)")
        if self.sites is None:
            return cells
        symbols = np.arange(self.symbols)
        own = np.arange(self.cells)[:, None] * self.symbols + symbols
        copied = {
            name: np.where(members < 0, -1, members * self.symbols)[:, None, :]
            + np.where(members[:, None, :] < 0, 0, symbols[:, None])
            for name, members in cells.items()
        }
        return {"cell": own, **{name: table.reshape(-1, table.shape[2]) for name, table in copied.items()}}

    @property
    def two_states(self) -> bool:
        """Whether there is a scratch state beside the answer state."""
        return self.recurrence.two_states

    @property
    def applications(self) -> int:
        """Applications of a block stack in one segment."""
        return len(self.recurrence.moves())

    @property
    def widest(self) -> int:
        """Numbers in the widest intermediate of one row."""
        return max(self.tokens * 2 * self.hidden(self.width), self.mixer.widest(self))

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds on one row of the larger half of an application: its mixers', or the channels'."""
        channels = 3 * self.tokens * self.width * self.hidden(self.width)
        return self.blocks * max(channels, self.mixer.multiply_adds(self))

    @property
    def layers_per_segment(self) -> int:
        """Equivalent layers of one segment, N_eq in the paper."""
        return self.blocks * self.applications

    @property
    def greatest_depth(self) -> int | None:
        """Segments a trajectory can have: one where there is nothing to iterate, else any number (None)."""
        return None if self.recurrence.iterates else 1

    def hidden(self, size: int) -> int:
        """Hidden size of a gated MLP whose input has `size` features."""
        multiple = self.round_hidden_to
        return multiple * ceil(round(self.expansion * size * 2 / 3) / multiple)
