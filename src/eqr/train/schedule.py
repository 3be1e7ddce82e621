"""Schedules: where losses sit along a trajectory, how far gradients reach, when the optimizer steps.

Every schedule is a list of windows that one optimizer step walks through. A window runs some segments
without a graph, then some with one, and ends in a loss. Between windows the state is detached.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BeforeValidator,
    Field,
    PositiveInt,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from eqr.model.state import Segments
from eqr.registry import Kind, kinds_of, reads, register
from eqr.value import Value, unless_default


@dataclass(frozen=True)
class Window:
    """Segments without a graph, then segments with one, then a loss of this weight."""

    untracked: int
    tracked: int
    weight: float


class Schedule(Kind):
    """What one optimizer step does to the rows of a batch."""

    carries: ClassVar[bool] = False
    """Whether rows live on over optimizer steps; otherwise each step takes a fresh batch from its start."""
    depth: Segments = 16
    """Segments a trajectory has at most."""
    cycles: PositiveInt | None = None
    """Cycles of a segment while it trains, None for the model's own. A model that is to think long between
    two readings learns more from short segments, which hear more of the search and less of the rest after."""

    @model_serializer(mode="wrap")
    def _as_before(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Say `cycles` only where there are any."""
        return unless_default(self, dump, "cycles")

    @abstractmethod
    def windows(self, depth: int) -> tuple[Window, ...]:
        """Return the windows of one step for trajectories of `depth` segments."""

    @property
    def applications(self) -> int | None:
        """Trailing applications of a tracked segment that record a graph, None for all of them."""
        return None


SCHEDULES = kinds_of(Schedule, "schedules")


class TerminalFull(Schedule):
    """One loss after the last segment, back-propagated through the whole trajectory (rows 1-4)."""

    kind: Literal["terminal-full"] = "terminal-full"
    depth: Segments = 1

    def windows(self, depth: int) -> tuple[Window, ...]:
        """One window, all of it tracked."""
        return (Window(untracked=0, tracked=depth, weight=1.0),)


class Truncated(Schedule):
    """A schedule whose gradient stays within a segment, or within its last applications."""

    tracked: PositiveInt | None = None
    """Trailing applications of a segment with gradient, None for all."""

    @property
    def applications(self) -> int | None:
        """The window within a segment."""
        return self.tracked


class TerminalDetached(Truncated):
    """One loss after the last segment; the state before that segment is detached (row 5)."""

    kind: Literal["terminal-detached"] = "terminal-detached"

    def windows(self, depth: int) -> tuple[Window, ...]:
        """One window, only its last segment tracked."""
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
        """One window for each supervised segment."""
        first = min(self.first, depth)
        count = depth - first + 1
        later = Window(untracked=0, tracked=1, weight=1 / count)
        return (Window(untracked=first - 1, tracked=1, weight=1 / count), *(later,) * (count - 1))


class SegmentedOnline(Truncated):
    """One optimizer step per segment; rows at mixed depths, halted ones refilled (rows 7-12, SOT)."""

    carries: ClassVar[bool] = True
    kind: Literal["segmented-online"] = "segmented-online"

    def windows(self, depth: int) -> tuple[Window, ...]:
        """A single tracked segment."""
        return (Window(untracked=0, tracked=1, weight=1.0),)


AnySchedule = Annotated[SerializeAsAny[Schedule], BeforeValidator(reads(SCHEDULES))]
for _schedule in (TerminalFull, TerminalDetached, Trajectory, SegmentedOnline):
    register(_schedule)
SCHEDULES.close()


class Curriculum(Value):
    """Shorter trajectories first: from each share of the steps on, depth is at most so many segments."""

    stages: tuple[tuple[Annotated[float, Field(ge=0.0, le=1.0)], Segments], ...]
    """Pairs (share of the steps, depth), shares ascending."""

    @model_validator(mode="after")
    def _shares_ascend(self) -> "Curriculum":
        shares = [share for share, _ in self.stages]
        if not shares or shares != sorted(set(shares)):
            raise ValueError(f"shares must be given and ascend, not {shares}")
        return self

    def depth(self, step: int, steps: int, most: int) -> int:
        """Return the depth limit at optimizer step `step` (from 1) of `steps`."""
        done = (step - 1) / steps
        limits = [depth for share, depth in self.stages if share <= done]
        return min(limits[-1], most) if limits else min(self.stages[0][1], most)
