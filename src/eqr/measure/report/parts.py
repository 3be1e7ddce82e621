"""The pieces a report is put together from, and how its numbers are written."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqr.files import make_folder, new_file
from eqr.measure.results import ResultRow
from eqr.measure.style import as_bytes, settle_layout

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class ReportPicture:
    """A figure with the words that belong to it."""

    name: str
    """Of its files."""
    caption: str
    alt: str
    figure: "Figure"

    @property
    def rem(self) -> float:
        """Width on the page, in letters: a little larger than in print."""
        return round(float(self.figure.get_size_inches()[0]) * 8.0, 1)

    @cached_property
    def svg(self) -> bytes:
        """The figure as vector graphics, drawn once: for the page and for its file."""
        return as_bytes(self.figure, "svg")

    @cached_property
    def png(self) -> bytes:
        """The figure as pixels."""
        settle_layout(self.figure)
        return as_bytes(self.figure, "png")


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """A table: all of it goes into a CSV file, the columns named here onto the page."""

    name: str
    caption: str
    rows: Sequence[ResultRow]
    shown: dict[str, tuple[str, Callable[[Any], str]]]
    """Heading and formatting of each column on the page, by field."""

    def csv(self) -> str:
        """Return every field of every row as comma-separated text."""
        text = io.StringIO()
        if self.rows:
            writer = csv.DictWriter(text, list(self.rows[0].to_json()), lineterminator="\n")
            writer.writeheader()
            writer.writerows(row.to_json() for row in self.rows)
        return text.getvalue()

    @property
    def headings(self) -> list[str]:
        """The column headings on the page."""
        return [heading for heading, _ in self.shown.values()]

    @property
    def cells(self) -> list[list[str]]:
        """The formatted cells on the page."""
        return [[form(getattr(row, name)) for name, (_, form) in self.shown.items()] for row in self.rows]


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading, a paragraph, then figures and tables."""

    title: str
    text: str
    parts: Sequence[ReportPicture | Sheet] = ()

    @property
    def anchor(self) -> str:
        """Where links to it lead."""
        return "".join(letter if letter.isalnum() else "-" for letter in self.title.lower())


def export(folder: Path, parts: Sequence[ReportPicture | Sheet]) -> tuple[list[Path], list[Path]]:
    """Write every figure as SVG and PNG and every table as CSV."""
    figures, tables = [], []
    make_folder(folder)
    for part in parts:
        if isinstance(part, ReportPicture):
            for suffix, content in (("svg", part.svg), ("png", part.png)):
                figures.append(folder / "figures" / f"{part.name}.{suffix}")
                with new_file(figures[-1]) as temporary:
                    temporary.write_bytes(content)
        else:
            tables.append(folder / "tables" / f"{part.name}.csv")
            with new_file(tables[-1]) as temporary:
                temporary.write_text(part.csv(), encoding="utf-8")
    return figures, tables


def plain(value: Any) -> str:
    """Write a number or text as it is; nothing for None."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else str(value)


def percent(value: float | None) -> str:
    """Write a share as a percentage."""
    return "–" if value is None else f"{100 * value:.1f}%"


def decimals(places: int) -> Callable[[float | None], str]:
    """Return a writer with so many digits behind the point."""
    return lambda value: "–" if value is None else f"{value:,.{places}f}"


def scaled(unit: str) -> Callable[[float], str]:
    """Return a writer of large numbers with a prefix: 1.36 GFLOP, 43.0 MB."""

    def write(value: float) -> str:
        for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
            if value >= size:
                return f"{value / size:.3g} {prefix}{unit}"
        return f"{value:.3g} {unit}"

    return write


def duration(seconds: float) -> str:
    """Write seconds as people say them."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
