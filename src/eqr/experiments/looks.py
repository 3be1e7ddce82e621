"""Ways to look at a trained model, or at a recipe before any training; each is taken once and kept.

A look is a value. What it finds is a flat table of numbers by name (`exact@16x1`) and, where a picture needs
more, some data beside it. How it is taken is in `observe.py`; this module stays light, because the list of
experiments is made of it.
"""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PositiveInt

from eqr.value import Value

RATINGS = ((0, 0), (1, 3), (4, 15), (16, 63), (64, None))
"""Ranges of the difficulty rating (backtracks of a search), both ends inside."""


def at(metric: str, depth: int, breadth: int = 1) -> str:
    """Return the name of a number that belongs to a budget."""
    return f"{metric}@{depth}x{breadth}"


def rated(metric: str, low: int, high: int | None) -> str:
    """Return the name of a number that belongs to puzzles of some rating."""
    return f"{metric} rated {low}-{'' if high is None else high}"


class Look(Value):
    """What to find out; the digest names what was found in the store."""

    trained: ClassVar[bool] = True
    """Whether it looks at a trained model, so that it differs by seed."""

    def smoke(self) -> Self:
        """Return the same look at a size that takes a moment."""
        return self


class Found(Value, extra="ignore"):
    """What a look found."""

    numbers: dict[str, float]
    data: dict[str, Any] | None = None
    """What a picture needs beside the numbers."""
    puzzles: int | None = None
    """How many were looked at."""
    code: str = ""
    """The version of the code that looked."""
    core_seconds: float = 0.0


class Solve(Look):
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
    data: tuple[str, ...] = ()
    """Changes to the recipe's `data` for the puzzles looked at: larger mazes, other clues."""

    def smoke(self) -> Self:
        """Few puzzles, shallow and narrow."""
        return self.replace(puzzles=6, depth=min(self.depth, 4), breadth=min(self.breadth, 2))


class Modes(Look):
    """Name the landscape mode of puzzles from where many starts settle, and draw a few landscapes."""

    kind: Literal["modes"] = "modes"
    puzzles: PositiveInt = 64
    starts: PositiveInt = 64
    depth: PositiveInt = 32
    drawn: PositiveInt = 4

    def smoke(self) -> Self:
        """A handful."""
        return self.replace(puzzles=4, starts=8, depth=4, drawn=2)


class Curve(Look):
    """Read training and held-out accuracy from the run's own journal."""

    kind: Literal["curve"] = "curve"


class Final(Look):
    """Read from the run's summary how it did: its best validation, and its one look at the test set."""

    kind: Literal["final"] = "final"


class Decoding(Look):
    """Decode one start of the first test puzzle after every segment."""

    kind: Literal["trajectory"] = "trajectory"
    depth: PositiveInt = 32

    def smoke(self) -> Self:
        """Four panels."""
        return self.replace(depth=4)


class Shape(Look):
    """Count parameters and layers of a recipe's model, and name its other sizes."""

    trained: ClassVar[bool] = False
    kind: Literal["shape"] = "shape"


class Cost(Look):
    """Count operations and bytes of one optimizer step, and measure both on a few steps."""

    trained: ClassVar[bool] = False
    kind: Literal["cost"] = "cost"
    steps: PositiveInt = 20

    def smoke(self) -> Self:
        """Two steps."""
        return self.replace(steps=2)


class Puzzles(Look):
    """Count and rate the puzzles of a recipe, and keep some to be drawn."""

    trained: ClassVar[bool] = False
    kind: Literal["puzzles"] = "puzzles"
    drawn: PositiveInt = 2


AnyLook = Annotated[
    Solve | Modes | Curve | Final | Decoding | Shape | Cost | Puzzles, Field(discriminator="kind")
]


def shrunk(budget: tuple[int, int], look: Any) -> tuple[int, int]:
    """Return the part of a budget that a look holds."""
    if not isinstance(look, Solve):
        return budget
    return min(budget[0], look.depth), min(budget[1], look.breadth)
