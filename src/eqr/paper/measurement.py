"""Measurements: what is found out about a trained model, or about a recipe before any training.

A measurement is a value; its digest names what it gave in a store, where each is kept once. It gives tidy
rows, and where a picture needs more some data beside them. How each is taken is in `measure.py`; this module
stays light, because the list of experiments is made of it.
"""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from eqr.result import Result
from eqr.value import Value, unless_default

RATINGS = ((0, 0), (1, 3), (4, 15), (16, 63), (64, None))
"""Ranges of the difficulty rating (backtracks of a search), both ends inside."""


def rated(metric: str, low: int, high: int | None) -> str:
    """Return the metric of puzzles of some rating."""
    return f"{metric} rated {low}-{'' if high is None else high}"


def named(metric: str, depth: int | None = None, breadth: int | None = None) -> str:
    """Return the name of a number in stores and results: `exact@16x1`, its metric where it has no budget."""
    return metric if depth is None else f"{metric}@{depth}x{breadth or 1}"


class Output(Value, extra="ignore"):
    """What a measurement gave, as stores keep it."""

    numbers: dict[str, float]
    """By `named`."""
    data: dict[str, Any] | None = None
    """What a picture needs beside the numbers."""
    puzzles: int | None = None
    """How many were measured."""
    answers: int = 1
    """Version of the answers that were measured (`eqr.behaviour`)."""
    core_seconds: float = 0.0

    @classmethod
    def of(cls, rows: Sequence[Result], **more: Any) -> Self:
        """Return the output of some rows."""
        return cls(numbers={named(row.metric, row.depth, row.breadth): row.value for row in rows}, **more)

    def of_puzzles(self, number: str) -> list[float] | None:
        """Return a number puzzle by puzzle; None if it is no mean over puzzles, or they were not kept."""
        kept: dict[str, list[float]] = (self.data or {}).get("by puzzle", {})
        metric, _, budget = number.partition("@")
        if metric == "error" and f"exact@{budget}" in kept:
            return [1.0 - value for value in kept[f"exact@{budget}"]]
        return kept.get(number, kept.get(metric))


class Measurement(Value):
    """What to find out."""

    trained: ClassVar[bool] = True
    """Whether it is of a trained model, so that it differs by seed."""

    def smoke(self) -> Self:
        """Return the same measurement at a size that takes a moment."""
        return self


class Solve(Measurement):
    """Run a model on puzzles within one budget; every smaller depth and breadth is read off on the way."""

    kind: Literal["solve"] = "solve"
    split: Literal["train", "test"] = "test"
    puzzles: PositiveInt = 500
    """At most so many, a seeded sample."""
    depth: PositiveInt = 16
    breadth: PositiveInt = 1
    halt: str | None = None
    """A halting rule as `eqr evaluate --halt` takes it."""
    start: str | None = None
    """A start instead of the model's own, as `eqr evaluate --start` takes it."""
    first: bool = False
    """Whether the first puzzles are taken instead of a sample."""
    data: tuple[tuple[str, Any], ...] = ()
    """Other values in fields of the recipe's `data` for these puzzles: larger mazes, other clues."""
    least_rating: NonNegativeInt = 0
    """Only puzzles of at least this difficulty rating."""
    by_puzzle: bool = False
    """Whether numbers that are means over puzzles are kept by puzzle too."""
    noise: NonNegativeFloat | None = None
    """Path noise instead of the model's."""
    damping: NonNegativeFloat | None = None
    """Damping instead of the model's."""

    @model_serializer(mode="wrap")
    def _as_before(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit newer fields at their defaults, so that old digests stay valid."""
        return unless_default(self, dump, "least_rating", "by_puzzle", "noise", "damping")

    def smoke(self) -> Self:
        """Few puzzles, shallow and narrow."""
        small = {"puzzles": 6, "least_rating": 0}
        return self.replace(depth=min(self.depth, 4), breadth=min(self.breadth, 2), **small)


class Modes(Measurement):
    """Name the landscape mode of puzzles from where many starts settle, and draw a few landscapes."""

    kind: Literal["modes"] = "modes"
    puzzles: PositiveInt = 64
    starts: PositiveInt = 64
    depth: PositiveInt = 32
    drawn: PositiveInt = 4

    def smoke(self) -> Self:
        """A handful."""
        return self.replace(puzzles=4, starts=8, depth=4, drawn=2)


class Halves(Measurement):
    """Name the landscape mode of puzzles by half of their starts when shallow, and say what depth and breadth
    buy the other half: a prediction, not a description."""

    kind: Literal["halves"] = "halves"
    puzzles: PositiveInt = 128
    starts: PositiveInt = 32
    """Of both halves together."""
    shallow: PositiveInt = 8
    depth: PositiveInt = 32

    def smoke(self) -> Self:
        """A handful."""
        return self.replace(puzzles=6, starts=4, shallow=3, depth=4)


class Curve(Measurement):
    """Read training and held-out accuracy from the run's own journal."""

    kind: Literal["curve"] = "curve"


class Final(Measurement):
    """Read from the run's summary how it did: its best validation, and the one time it met the test set."""

    kind: Literal["final"] = "final"


class Decoding(Measurement):
    """Decode one start of the first test puzzle after every segment."""

    kind: Literal["trajectory"] = "trajectory"
    depth: PositiveInt = 32

    def smoke(self) -> Self:
        """Four panels."""
        return self.replace(depth=4)


class Shape(Measurement):
    """Count parameters and layers of a recipe's model, and name its other sizes."""

    trained: ClassVar[bool] = False
    kind: Literal["shape"] = "shape"


class Cost(Measurement):
    """Count operations and bytes of one optimizer step, and measure both on a few steps."""

    trained: ClassVar[bool] = False
    kind: Literal["cost"] = "cost"
    steps: PositiveInt = 20

    def smoke(self) -> Self:
        """Two steps."""
        return self.replace(steps=2)


class Puzzles(Measurement):
    """Count and rate the puzzles of a recipe, and keep some to be drawn."""

    trained: ClassVar[bool] = False
    kind: Literal["puzzles"] = "puzzles"
    drawn: PositiveInt = 2


AnyMeasurement = Annotated[
    Solve | Modes | Halves | Curve | Final | Decoding | Shape | Cost | Puzzles, Field(discriminator="kind")
]
