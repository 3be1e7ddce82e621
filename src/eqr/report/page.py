"""The page and the pieces it is put together from, and how their numbers are written.

Sections are poured into `page.html`, figures and styles inside it, nothing fetched from anywhere.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqr.errors import UserError, with_extra
from eqr.figures.style import as_bytes
from eqr.files import make_folder, new_file
from eqr.result import Result, csv_text, records

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
        self.figure.set_layout_engine("none")  # keep the first drawing's layout: half the time
        return as_bytes(self.figure, "png")


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """A table: all of it goes into a CSV file, the columns named here onto the page."""

    name: str
    caption: str
    rows: Sequence[Mapping[str, Any]]
    """Wide records, a line each."""
    shown: Mapping[str, tuple[str, Callable[[Any], str]]]
    """Heading and formatting of each column on the page, by key."""
    results: Sequence[Result] | None = None
    """What the records are made of, which then is what the file holds."""

    @classmethod
    def of(
        cls,
        name: str,
        caption: str,
        results: Sequence[Result],
        by: Sequence[str],
        shown: Mapping[str, tuple[str, Callable[[Any], str]]],
    ) -> "Sheet":
        """Return results as a table with a line for each value of the fields `by`."""
        wide = records(results, *by)
        return cls(name=name, caption=caption, rows=wide, shown=shown, results=results)

    def csv(self) -> str:
        """Return the table as comma-separated text."""
        return csv_text(self.rows if self.results is None else self.results)

    @property
    def headings(self) -> list[str]:
        """The column headings on the page."""
        return [heading for heading, _ in self.shown.values()]

    @property
    def cells(self) -> list[list[str]]:
        """The formatted cells on the page."""
        return [[form(row.get(name)) for name, (_, form) in self.shown.items()] for row in self.rows]


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


def yes_no(value: float) -> str:
    """Write what is 1 or 0 as a word."""
    return "yes" if value else "no"


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


@dataclass(frozen=True)
class Fact:
    """One line of the summary."""

    name: str
    text: str


def render(
    title: str,
    facts: Sequence[Fact],
    head: Sheet,
    sections: Sequence[Section],
    commands: Mapping[str, Sequence[str]],
) -> str:
    """Return the whole page as text."""
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise UserError(f"the report needs jinja2; {with_extra('plots')}") from None
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["embedded"] = embedded
    environment.tests["picture"] = lambda part: isinstance(part, ReportPicture)
    template = environment.from_string(files(__package__).joinpath("page.html").read_text(encoding="utf-8"))
    return template.render(title=title, facts=facts, head=head, sections=sections, commands=commands.items())


def embedded(picture: ReportPicture) -> str:
    """Return a figure as an address that holds the figure itself."""
    return "data:image/svg+xml;base64," + base64.b64encode(picture.svg).decode()
