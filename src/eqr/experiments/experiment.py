"""`Experiment`: one table or figure of the paper as data, and `Claim`: what the paper says it shows.

A cell of the table belongs to a row and a column. Its recipe is the column's setting at the chosen scale,
changed by the row; its number is what the column's look finds. A row says in words of `traits.py` what the
paper says about it, and building a recipe that is not so is an error.
"""

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from eqr.experiments.looks import AnyLook, Look, Solve, at, shrunk
from eqr.value import Value

Scale = Literal["lab", "paper"]
Trait = bool | int | float | str


class Setting(Value):
    """A recipe by name and changes to it, as `eqr train NAME --set KEY=VALUE` takes them."""

    recipe: str
    changes: tuple[str, ...] = ()

    def plus(self, *changes: str) -> "Setting":
        """Return it with more changes."""
        return self.replace(changes=(*self.changes, *changes))


class Column(Value):
    """One number per row."""

    name: str
    metric: str = "exact"
    look: AnyLook = Solve()
    at: tuple[int, int] | None = None
    """Depth and breadth at which the number is read; the look's own unless given."""
    percent: bool = True
    digits: int = 1
    lab: Setting | None = None
    """Instead of the experiment's, where columns differ in task."""
    paper: Setting | None = None
    seeds: PositiveInt | None = None
    """Instead of the experiment's, where the lab's runs of a column are cheaper or dearer."""


class Row(Value):
    """One line of the table."""

    name: str
    changes: tuple[str, ...] = ()
    """What this row is, at either scale; the two kinds of changes below are of one scale only."""
    variants: tuple[str, ...] = ()
    """Variants of `eqr.recipes` by name, applied before the changes: `trm`, `07-segmented`."""
    lab: Setting | None = None
    """Instead of the experiment's and the column's."""
    lab_changes: tuple[str, ...] = ()
    paper: Setting | None = None
    paper_changes: tuple[str, ...] = ()
    look: Solve | None = None
    """The row's own budget, instead of the column's."""
    start: str | None = None
    """`random` for a model that was trained from a fixed start."""
    metric: str | None = None
    at: tuple[int, int] | None = None
    only: tuple[str, ...] | None = None
    """The columns that this row has; all unless given."""
    says: Mapping[str, Trait] = Field(default_factory=dict)
    """What the paper says about the row, checked against the recipe."""
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
    paper: Setting | None = None
    """None where the paper's scale has nothing to train."""
    regime: str
    """The lab form, and why the effect can show in it."""
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    seeds: PositiveInt = 3
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
            Cell(experiment=self, row=row, column=column)
            for row in self.rows
            for column in self.columns
            if row.only is None or column.name in row.only
        ]


class Cell(Value):
    """A row and a column of an experiment."""

    experiment: Experiment
    row: Row
    column: Column

    @property
    def seeds(self) -> int:
        """How many seeds the cell is a mean over at lab scale, where a run is trained for it."""
        return self.row.seeds or self.column.seeds or self.experiment.seeds

    def look(self, *, smoke: bool) -> AnyLook:
        """Return what is looked at: the column's look, within the row's budget where it has one."""
        look, own = self.column.look, self.row.look
        if isinstance(look, Solve) and own is not None:
            look = own.replace(split=look.split)
        if isinstance(look, Solve) and self.row.start is not None:
            look = look.replace(start=self.row.start)
        return look.smoke() if smoke else look

    def number(self, look: Look) -> str:
        """Return the name of the number that the cell shows."""
        if not isinstance(look, Solve):
            return self.column.metric
        budget = self.row.at or self.column.at or (look.depth, look.breadth)
        return at(self.row.metric or self.column.metric, *shrunk(budget, look))

    def setting(self, scale: Scale) -> Setting | None:
        """Return the recipe that the row's variants and changes apply to."""
        if scale == "lab":
            return self.row.lab or self.column.lab or self.experiment.lab
        return self.row.paper or self.column.paper or self.experiment.paper

    def changes(self, scale: Scale) -> tuple[str, ...]:
        """Return the row's changes, those of the scale last."""
        return (*self.row.changes, *(self.row.lab_changes if scale == "lab" else self.row.paper_changes))


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


class Claim(Value):
    """What the paper claims, and the contrasts that decide it: all must hold."""

    item: str
    says: str
    contrasts: tuple[Contrast, ...]

    @property
    def items(self) -> list[str]:
        """The experiments it needs."""
        return sorted({item for contrast in self.contrasts for item in contrast.items}, key=item_order)


def item_order(name: str) -> tuple[int, int]:
    """Sort tables, figures and claims, each by number."""
    return "TFC".index(name[0]), int(name[1:])
