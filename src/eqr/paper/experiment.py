"""What is measured, tables and figures of the paper as data (`Experiment`), and what it claims (`Claim`).

A cell of a table belongs to a row and a column. Its recipe is the column's setting at the chosen scale,
changed by the row; its number is what the column's measurement gives. A measurement is a value too; its
digest names what it gave in a store, where each is kept once. How it is taken is in `measure.py`: this module
stays light.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from eqr.value import Value

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
    """Run a model on puzzles within one budget; every smaller depth and breadth is read off on the way.

    `halt` and `start` are as in `eqr evaluate`; they, `noise` and `damping` replace the model's own.
    """

    newer: ClassVar[tuple[str, ...]] = ("least_rating", "by_puzzle", "noise", "damping")

    kind: Literal["solve"] = "solve"
    split: Literal["train", "test"] = "test"
    puzzles: PositiveInt = 500
    """At most so many, a seeded sample."""
    depth: PositiveInt = 16
    breadth: PositiveInt = 1
    halt: str | None = None
    start: str | None = None
    first: bool = False
    """Whether the first puzzles are taken instead of a sample."""
    data: tuple[tuple[str, Any], ...] = ()
    """Other values in fields of the recipe's `data` for these puzzles: larger mazes, other clues."""
    least_rating: NonNegativeInt = 0
    """Only puzzles of at least this difficulty rating."""
    by_puzzle: bool = False
    """Whether numbers that are means over puzzles are kept by puzzle too."""
    noise: NonNegativeFloat | None = None
    damping: NonNegativeFloat | None = None

    def smoke(self) -> Self:
        """Few puzzles, shallow and narrow."""
        return self.replace(puzzles=6, least_rating=0, depth=min(self.depth, 4), breadth=min(self.breadth, 2))


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


Scale = Literal["lab", "paper"]
Changes = Mapping[str, Any]
"""Values of a recipe's fields, by dotted name; a later one is made on top of those before it."""
NO_CHANGES: Changes = {}


class Setting(Value):
    """A recipe by name and changes to it."""

    recipe: str
    changes: Changes = NO_CHANGES
    paper: "Setting | None" = None
    """The published recipe that a lab's stands for; None where the paper's scale has nothing to train."""
    why: str = ""
    """What it is, and why an effect can show in it."""

    def plus(self, changes: Changes) -> "Setting":
        """Return it with more changes."""
        return self.replace(changes={**self.changes, **changes})


class Column(Value):
    """One number per row."""

    name: str
    metric: str = "exact"
    measurement: AnyMeasurement = Solve()
    at: tuple[int, int] | None = None
    """Depth and breadth at which the number is read; the measurement's own unless given."""
    percent: bool = True
    digits: int = 1
    lab: Setting | None = None
    """Instead of the experiment's, where columns differ in task."""
    seeds: PositiveInt | None = None
    """Instead of the experiment's, where the lab's runs of a column are cheaper or dearer."""


class Row(Value):
    """One line of the table."""

    name: str
    changes: Changes = NO_CHANGES
    """At either scale; `lab_changes` and `paper_changes` are of one scale only."""
    variants: tuple[str, ...] = ()
    """Variants of `eqr.recipes` by name, applied before the changes: `trm`, `07-segmented`."""
    lab: Setting | None = None
    """Instead of the experiment's and the column's."""
    lab_changes: Changes = NO_CHANGES
    paper_changes: Changes = NO_CHANGES
    measurement: Solve | None = None
    """The row's own budget, instead of the column's."""
    start: str | None = None
    """`random` for a model that was trained from a fixed start."""
    metric: str | None = None
    at: tuple[int, int] | None = None
    only: tuple[str, ...] | None = None
    """The columns that this row has; all unless given."""
    published: Mapping[str, int | float | str] = Field(default_factory=dict)
    """The printed number by column."""
    series: str | None = None
    """The line of a figure that the row belongs to."""
    seeds: PositiveInt | None = None
    """Instead of the column's and the experiment's, where the lab's runs of a row are dearer."""


Drawing = Literal["bars", "lines", "points", "heat", "grids", "landscapes", "trajectory", "none"]


class Picture(Value):
    """How an experiment's table is drawn."""

    kind: Drawing = "bars"
    x: str | None = None
    """Column on the horizontal axis, for points."""
    y: str | None = None
    x_label: str = ""
    y_label: str = "exact accuracy (%)"
    log_x: bool = False
    columns: tuple[str, ...] | None = None
    """The columns drawn; all unless given."""


class Experiment(Value):
    """A table or figure: the question, what is compared, what was printed, and its form on two cores."""

    item: str
    title: str
    question: str
    lab: Setting
    regime: str
    """The lab form, and why the effect can show in it."""
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    seeds: PositiveInt = 5
    first_seed: NonNegativeInt = 0
    """The recipe's seed of the seed that tables call 0."""
    minutes: PositiveFloat
    """Core-minutes to expect beyond runs that other items share."""
    picture: Picture = Picture()
    note: str = ""
    """What a reader of the table should know."""

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        names, columns = [row.name for row in self.rows], [column.name for column in self.columns]
        for kind, found in (("row", names), ("column", columns)):
            twice = [name for name in found if found.count(name) > 1]
            if twice:
                raise ValueError(f"{self.item} has two {kind}s {twice[0]!r}")
        for row in self.rows:
            for name in {*row.published, *(row.only or ())}:
                if name not in columns:
                    raise ValueError(f"{self.item}, row {row.name!r}: no column {name!r}")
        return self

    def cells(self) -> list["Cell"]:
        """Return every cell, row by row."""
        return [
            Cell(self, row, column)
            for row in self.rows
            for column in self.columns
            if row.only is None or column.name in row.only
        ]


@dataclass(frozen=True)
class Cell:
    """A row and a column of an experiment."""

    experiment: Experiment
    row: Row
    column: Column

    @property
    def seeds(self) -> int:
        """How many seeds the cell is a mean over at lab scale, where a run is trained for it."""
        return self.row.seeds or self.column.seeds or self.experiment.seeds

    @property
    def name(self) -> str:
        """The cell in contrasts: `item | row | column`."""
        return f"{self.experiment.item} | {self.row.name} | {self.column.name}"

    @property
    def unit(self) -> str:
        """Of the number."""
        return "%" if self.column.percent else ""

    def measurement(self, *, smoke: bool = False) -> AnyMeasurement:
        """Return what is measured: the column's measurement, within the row's budget where it has one."""
        found, own = self.column.measurement, self.row.measurement
        if isinstance(found, Solve):
            found = found if own is None else own.replace(split=found.split)
            found = found if self.row.start is None else found.replace(start=self.row.start)
        return found.smoke() if smoke else found

    def number(self, *, smoke: bool = False) -> str:
        """Return the name of the number that the cell shows."""
        measurement = self.measurement(smoke=smoke)
        if not isinstance(measurement, Solve):
            return self.column.metric
        whole = (measurement.depth, measurement.breadth)
        depth, breadth = map(min, self.row.at or self.column.at or whole, whole)
        return named(self.row.metric or self.column.metric, depth, breadth)

    def setting(self, scale: Scale) -> Setting | None:
        """Return the recipe that the row's variants and changes apply to."""
        lab = self.row.lab or self.column.lab or self.experiment.lab
        return lab if scale == "lab" else lab.paper

    def changes(self, scale: Scale) -> Changes:
        """Return the row's changes, those of the scale last."""
        return {**self.row.changes, **(self.row.lab_changes if scale == "lab" else self.row.paper_changes)}


class Contrast(Value):
    """A sum of cells, seed by seed, whose mean is asked to lie on one side of a number, or within two."""

    plus: tuple[str, ...]
    """Cells as `item | row | column`."""
    minus: tuple[str, ...] = ()
    above: float | None = None
    below: float | None = None
    """Together with `above`: within the two."""
    says: str = ""
    """In words, where the cells do not say it all."""

    @model_validator(mode="after")
    def _is_bounded(self) -> Self:
        if self.above is None and self.below is None:
            raise ValueError("a contrast needs a bound: above, below or both")
        return self

    @property
    def text(self) -> str:
        """The contrast as one line."""
        cells = " + ".join(f"[{cell}]" for cell in self.plus) + "".join(f" - [{cell}]" for cell in self.minus)
        if self.above is not None and self.below is not None:
            return f"{self.above:g} < {cells} < {self.below:g}"
        return f"{cells} > {self.above:g}" if self.above is not None else f"{cells} < {self.below:g}"

    @property
    def items(self) -> set[str]:
        """The experiments it needs."""
        return {cell.split(" | ")[0] for cell in (*self.plus, *self.minus)}


class Check(Value):
    """What must hold of a regime before a contrast can show anything: a mean over seeds, within bounds."""

    cell: str
    minus: str | None = None
    low: float
    high: float
    says: str

    @property
    def cells(self) -> set[str]:
        """The cells it needs."""
        return {self.cell} if self.minus is None else {self.cell, self.minus}


class ClaimTest(Value):
    """How a claim is decided for one operator."""

    operator: str
    primary: Contrast
    secondary: tuple[Contrast, ...] = ()
    checks: tuple[Check, ...]
    of_interest: PositiveFloat
    """The smallest effect that would matter, in the contrast's unit: less than it either way is none."""
    unit: str = "points"
    paper: float | None = None
    """The primary contrast in the paper's own numbers."""
    log: bool = False
    """Whether logarithms of cells are compared, seed by seed."""
    unreached: float | None = None
    """What a cell counts as where it has no value for a seed that others have."""
    peers: bool = False
    """Whether the primary contrast compares how well two things tell what is solved, as AUROC: other seeds'
    successes on the puzzles of the plus cell, and the ratings in the minus cell."""

    @property
    def compared(self) -> set[str]:
        """The cells of its contrasts."""
        contrasts = (self.primary, *self.secondary)
        return {cell for contrast in contrasts for cell in (*contrast.plus, *contrast.minus)}

    @property
    def cells(self) -> set[str]:
        """The cells it needs."""
        return self.compared.union(*(check.cells for check in self.checks))


class Claim(Value):
    """What the paper claims, in plain words, and a test for each operator."""

    item: str
    says: str
    tests: tuple[ClaimTest, ...]

    def also(self, operator: str, primary: Contrast, *secondary: Contrast, **fields: Any) -> "Claim":
        """Return it with a test for one more operator."""
        test = ClaimTest(operator=operator, primary=primary, secondary=secondary, **fields)
        return self.replace(tests=(*self.tests, test))

    @property
    def items(self) -> list[str]:
        """The experiments it needs."""
        return sorted({cell.split(" | ")[0] for test in self.tests for cell in test.cells}, key=item_order)


def item_order(name: str) -> tuple[int, int]:
    """Sort tables, figures, studies, claims and questions, each by number."""
    return "TFECQ".index(name[0]), int(name[1:])
