"""When a training row gives its slot to a fresh puzzle, and which heads learn to say so.

A row is stopped by the same rules as when solving (`eqr.dynamics.halting`), or by the depth limit alone. What
training adds is here: it may judge by the label, explore beyond a rule's wish, and train the heads. What is
drawn at random comes from the row's key and depth, so it is the same on any rank.
"""

from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import BeforeValidator, Field, SerializeAsAny
from torch import Tensor

from eqr.dynamics.halting import AnswerAccepted, HaltHead, HaltingRule
from eqr.model.definitions import scramble
from eqr.model.state import Reading
from eqr.registry import Kind, kinds_of, reads, register

_EXPLORE_STREAM, _STAY_STREAM = 3 << 40, 5 << 40
"""Far from the streams that starts and path noise draw with the same keys."""

Share = Annotated[float, Field(ge=0.0, le=1.0)]


class TrainingHalting(Kind):
    """Says which rows end after a segment."""

    trains_halt: ClassVar[bool] = False
    """Whether the halt head is trained to predict a right answer."""
    trains_continue: ClassVar[bool] = False
    """Whether HRM's continue score is trained too, which costs a second pass without gradient."""
    rule: ClassVar[HaltingRule | None] = None
    """What stops a row before the depth limit; a rule that remembers nothing from segment to segment."""

    def least(self, keys: Tensor, depths: Tensor, limit: int) -> Tensor:
        """Return the depth below which a row may not stop at this segment, (rows,) int64."""
        return torch.zeros_like(depths)

    def halted(self, reading: Reading, right: Tensor, keys: Tensor, depths: Tensor, limit: int) -> Tensor:
        """Return which rows end, given how many segments each has behind it, this one included."""
        over = depths >= limit
        if self.rule is not None:
            start = self.rule.start(len(depths), device=depths.device)
            over = over | self.rule.update(start, replace(reading, accepted=right), depths)[1]
        return over & (depths >= self.least(keys, depths, limit))


TRAINING_HALTING = kinds_of(TrainingHalting, "training_halting")


class NoHalting(TrainingHalting):
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
    rule: ClassVar[HaltingRule | None] = AnswerAccepted()


class Exploring(TrainingHalting):
    """Now and then asks a row to stay: with probability `exploration`, at least until a drawn depth."""

    trains_halt: ClassVar[bool] = True
    exploration: Share = 0.1
    """Drawn anew at each segment, as the originals do, so it seldom holds a row for more than one or two."""
    staying: Share = 0.0
    """Rows that run to the depth limit whatever the rule says, drawn once: solved, they learn to stay so."""

    def least(self, keys: Tensor, depths: Tensor, limit: int) -> Tensor:
        """Return 0, or with probability `exploration` a depth uniform on 2..limit; `limit` for who stays."""
        least = torch.zeros_like(depths)
        if self.exploration > 0.0 and limit >= 2:
            bits = scramble(scramble(keys + _EXPLORE_STREAM) + depths)
            drawn = 2 + (bits & 0xFFFFFFFF) % (limit - 1)
            least = torch.where(_happens(bits, self.exploration), drawn, least)
        if self.staying > 0.0:
            stays = _happens(scramble(scramble(keys + _STAY_STREAM)), self.staying)
            least = torch.where(stays, limit, least)
        return least


def _happens(bits: Tensor, chance: float) -> Tensor:
    """Return whether what has this chance happens, by the upper 24 of 63 random bits."""
    return (bits >> 39) < int(chance * 2**24)


class LearnedHalt(Exploring):
    """A row ends when its halt score says so (TRM, URM, EqR)."""

    kind: Literal["learned"] = "learned"
    rule: ClassVar[HaltingRule | None] = HaltHead()


class QHalt(Exploring):
    """HRM: a row ends when halting is worth more than going on, both learned by Q-learning."""

    trains_continue: ClassVar[bool] = True
    kind: Literal["q-learning"] = "q-learning"
    rule: ClassVar[HaltingRule | None] = HaltHead(over_continue=True)


AnyHalting = Annotated[SerializeAsAny[TrainingHalting], BeforeValidator(reads(TRAINING_HALTING))]
for _halting in (NoHalting, UnusedHalt, OracleHalt, LearnedHalt, QHalt):
    register(_halting)
TRAINING_HALTING.close()
