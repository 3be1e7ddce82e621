"""When a training row gives its slot to a fresh puzzle.

These rules may look at labels (the oracle does) and explore; the rules that stop a row when solving are in
`eqr.solve`. What they draw at random comes from the row's key and depth, so it is the same on any rank.
"""

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from eqr.model.counters import scramble
from eqr.model.state import Reading
from eqr.value import Value

_EXPLORE_STREAM = 3 << 40
"""Far from the streams that starts and path noise draw with the same keys."""

Share = Annotated[float, Field(ge=0.0, le=1.0)]


class TrainingHalting(Value):
    """Says which rows end after a segment."""

    trains_halt: ClassVar[bool] = False
    """Whether the halt head is trained to predict a right answer."""
    trains_continue: ClassVar[bool] = False
    """Whether HRM's continue score is trained too, which costs a second pass without gradient."""

    def wishes(self, reading: Reading, right: Tensor) -> Tensor:
        """Return which rows would like to stop here, (rows,) bool; by default none."""
        return torch.zeros_like(right)

    def least(self, keys: Tensor, depths: Tensor, limit: int) -> Tensor:
        """Return the depth below which a row may not stop at this segment, (rows,) int64."""
        return torch.zeros_like(depths)

    def halted(self, reading: Reading, right: Tensor, keys: Tensor, depths: Tensor, limit: int) -> Tensor:
        """Return which rows end, given how many segments each has behind it, this one included."""
        over = (depths >= limit) | self.wishes(reading, right)
        return over & (depths >= self.least(keys, depths, limit))


class FixedDepth(TrainingHalting):
    """Every row runs to the depth limit and the halt head stays untrained."""

    kind: Literal["none"] = "none"


class UnusedHalt(TrainingHalting):
    """The halt head is trained, so that it can stop rows when solving, but training ignores it."""

    trains_halt: ClassVar[bool] = True
    kind: Literal["learned-unused"] = "learned-unused"


class OracleHalt(TrainingHalting):
    """A row ends as soon as its answer is right, by the label (the paper's collapse, row 11)."""

    trains_halt: ClassVar[bool] = True
    kind: Literal["oracle"] = "oracle"

    def wishes(self, reading: Reading, right: Tensor) -> Tensor:
        """When right."""
        return right


class Exploring(TrainingHalting):
    """Now and then asks a row to stay: with probability `exploration`, at least until a drawn depth."""

    trains_halt: ClassVar[bool] = True
    exploration: Share = 0.1

    def least(self, keys: Tensor, depths: Tensor, limit: int) -> Tensor:
        """Return 0, or with probability `exploration` a depth uniform on 2..limit, drawn at each segment."""
        if self.exploration == 0.0 or limit < 2:
            return torch.zeros_like(depths)
        bits = scramble(scramble(keys + _EXPLORE_STREAM) + depths)
        explores = (bits >> 39) < int(self.exploration * 2**24)
        return torch.where(explores, 2 + (bits & 0xFFFFFFFF) % (limit - 1), 0)


class LearnedHalt(Exploring):
    """A row ends when its halt score says so (TRM, URM, EqR)."""

    kind: Literal["learned"] = "learned"

    def wishes(self, reading: Reading, right: Tensor) -> Tensor:
        """When q > 0."""
        return reading.halt > 0.0


class QHalt(Exploring):
    """HRM: a row ends when halting is worth more than going on, both learned by Q-learning."""

    trains_continue: ClassVar[bool] = True
    kind: Literal["q-learning"] = "q-learning"

    def wishes(self, reading: Reading, right: Tensor) -> Tensor:
        """When the halt score exceeds the continue score."""
        return reading.halt > reading.go_on


AnyHalting = Annotated[
    FixedDepth | UnusedHalt | OracleHalt | LearnedHalt | QHalt, Field(discriminator="kind")
]
