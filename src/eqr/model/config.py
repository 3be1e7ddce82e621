"""What a reasoner is made of, as one frozen value that is saved beside its weights as `config.json`."""

from enum import StrEnum
from math import ceil
from typing import Annotated, ClassVar

from pydantic import (
    Field,
    PositiveFloat,
    model_validator,
)

from eqr.model.mixers import MIXERS, AnyMixer, Attention, Tokens
from eqr.model.operator import STILL, AnyRecurrence, Perturbation, TwoLevel
from eqr.model.state import AnyStart, RandomStart
from eqr.model.structured import Candidates, Groups, LiveCandidates, Neighbours, Rules, Structured
from eqr.registry import register
from eqr.value import Value

for _mixer in (Tokens, Attention, Neighbours, Groups, Rules):
    register(_mixer)
MIXERS.close()

# whatever is looped over or multiplied when a model is made has a limit, far beyond any model of this kind
Size = Annotated[int, Field(ge=1, le=65_536)]
Side = Annotated[int, Field(ge=1, le=512)]
MOST_APPLICATIONS = 10_000


class Positions(StrEnum):
    """How attention learns where a token is."""

    NONE = "none"
    LEARNED = "learned"
    ROTARY = "rotary"
    ROTARY_2D = "rotary-2d"


class CandidateSites(Value):
    """A site for each (cell, symbol) instead of each cell: renaming symbols only renames sites."""

    newer: ClassVar[tuple[str, ...]] = ("live",)

    first: Annotated[int, Field(ge=1)] = 2
    """The tokens from here on are symbols that a cell may hold; those before (padding, blank) are not."""
    live: bool = False
    """Whether candidates that the givens rule out (`Task.distinct`) are left out: they hold nothing, say
    nothing and are never chosen."""

    def layer(self, config: "ReasonerConfig") -> Candidates:
        """Build what makes sites of cells."""
        return (LiveCandidates if self.live else Candidates)(config, self.first)


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
    path: Perturbation = STILL
    identities: Annotated[int, Field(ge=0, le=100_000_000)] = 0
    """Rows of the sparse table of puzzle identities, 0 for none."""
    identity_tokens: Annotated[int, Field(ge=0, le=1024)] = 0
    """Tokens put before the grid: the first carries the identity vector, the rest start as zeros."""

    @model_validator(mode="after")
    def _parts_fit(self) -> "ReasonerConfig":
        if self.sites is not None and self.sites.first >= self.vocabulary:
            raise ValueError(f"sites.first = {self.sites.first}: there are only {self.vocabulary} tokens")
        self.mixer.check(self)
        if self.live and not isinstance(self.mixer, Structured):
            raise ValueError(
                f"sites.live needs the groups or the rules mixer, not {self.mixer.kind}; set live to false"
            )
        if self.identities and not self.identity_tokens:
            raise ValueError("identities need identity_tokens of at least 1 to carry their vector")
        if not self.recurrence.iterates and isinstance(self.start, RandomStart):
            raise ValueError(
                f"a {self.recurrence.kind} model has no state to start at random; use the fixed start"
            )
        if self.applications > MOST_APPLICATIONS:
            raise ValueError(f"{self.applications} applications a segment; at most {MOST_APPLICATIONS}")
        return self

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
