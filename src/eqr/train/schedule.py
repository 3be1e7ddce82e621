"""Schedules: where losses sit along a trajectory and how far gradients reach; and which rows end.

Every schedule is a list of windows that one optimizer step walks through. A window runs some segments
without a graph, then some with one, and ends in a loss. Between windows the state is detached.

A training row is stopped by the same rules as when solving (`eqr.dynamics.halting`), or by the depth limit
alone. Training may also judge by the label, keep a row longer than a rule asks, and train the heads. What is
drawn at random comes from the row's key and depth, so it is the same on any rank.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import BeforeValidator, Field, PositiveInt, SerializeAsAny, model_validator
from torch import Tensor

from eqr.dynamics.halting import AnswerAccepted, HaltHead, HaltingRule
from eqr.model.definitions import scramble
from eqr.model.state import Reading, Segments
from eqr.registry import Kind, kinds_of, reads, register
from eqr.value import Value

Share = Annotated[float, Field(ge=0.0, le=1.0)]


@dataclass(frozen=True)
class Window:
    """Segments without a graph, then segments with one, then a loss of this weight."""

    untracked: int
    tracked: int
    weight: float


class Schedule(Kind):
    """What one optimizer step does to the rows of a batch."""

    newer: ClassVar[tuple[str, ...]] = ("cycles",)
    carries: ClassVar[bool] = False
    """Whether rows live on over optimizer steps; otherwise each step takes a fresh batch from its start."""
    depth: Segments = 16
    """Segments a trajectory has at most."""
    cycles: PositiveInt | None = None
    """Cycles of a segment while it trains, None for the model's own: a model that is to run long between two
    readings learns more from short segments, which show more of the search and less of the rest after it."""

    @abstractmethod
    def windows(self, depth: int) -> tuple[Window, ...]:
        """Return the windows of one step for trajectories of `depth` segments."""

    @property
    def applications(self) -> int | None:
        """Trailing applications of a tracked segment that record a graph, None for all."""
        return None


SCHEDULES = kinds_of(Schedule, "schedules")


class TerminalFull(Schedule):
    """One loss after the last segment, back-propagated through the whole trajectory (rows 1-4)."""

    kind: Literal["terminal-full"] = "terminal-full"
    depth: Segments = 1

    def windows(self, depth: int) -> tuple[Window, ...]:
        return (Window(untracked=0, tracked=depth, weight=1.0),)


class Truncated(Schedule):
    """A schedule whose gradient stays within a segment, or within its last applications."""

    tracked: PositiveInt | None = None

    @property
    def applications(self) -> int | None:
        return self.tracked


class TerminalDetached(Truncated):
    """One loss after the last segment; the state before that segment is detached (row 5)."""

    kind: Literal["terminal-detached"] = "terminal-detached"

    def windows(self, depth: int) -> tuple[Window, ...]:
        return (Window(untracked=depth - 1, tracked=1, weight=1.0),)


class Trajectory(Truncated):
    """A loss after every segment from `first` on, their mean back-propagated in one step (row 6)."""

    kind: Literal["trajectory"] = "trajectory"
    first: Segments = 1
    """First supervised segment, counting from 1; the last is `depth` (8:16 is first 8, depth 16)."""

    @model_validator(mode="after")
    def _first_is_reached(self) -> "Trajectory":
        if self.first > self.depth:
            raise ValueError(f"first {self.first} lies beyond depth {self.depth}")
        return self

    def windows(self, depth: int) -> tuple[Window, ...]:
        first = min(self.first, depth)
        count = depth - first + 1
        later = Window(untracked=0, tracked=1, weight=1 / count)
        return (Window(untracked=first - 1, tracked=1, weight=1 / count), *(later,) * (count - 1))


class SegmentedOnline(Truncated):
    """One optimizer step per segment; rows at mixed depths, halted ones refilled (rows 7-12, SOT)."""

    carries: ClassVar[bool] = True
    kind: Literal["segmented-online"] = "segmented-online"

    def windows(self, depth: int) -> tuple[Window, ...]:
        return (Window(untracked=0, tracked=1, weight=1.0),)


AnySchedule = Annotated[SerializeAsAny[Schedule], BeforeValidator(reads(SCHEDULES))]
for _schedule in (TerminalFull, TerminalDetached, Trajectory, SegmentedOnline):
    register(_schedule)
SCHEDULES.close()


class Curriculum(Value):
    """Shorter trajectories first: from each share of the steps on, depth is at most so many segments."""

    stages: tuple[tuple[Share, Segments], ...]
    """Pairs (share of the steps, depth), shares ascending."""

    @model_validator(mode="after")
    def _shares_ascend(self) -> "Curriculum":
        shares = [share for share, _ in self.stages]
        if not shares or shares != sorted(set(shares)):
            raise ValueError(f"shares must be given and ascend, not {shares}")
        return self

    def depth(self, step: int, steps: int, most: int) -> int:
        """Return the depth limit at optimizer step `step` (from 1) of `steps`."""
        limits = [depth for share, depth in self.stages if share <= (step - 1) / steps]
        return min(limits[-1] if limits else self.stages[0][1], most)


_EXPLORE_STREAM, _STAY_STREAM = 3 << 40, 5 << 40
"""Far from the streams that starts and path noise draw with the same keys."""


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
    """Now and then keeps a row: with probability `exploration`, at least until a drawn depth."""

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
