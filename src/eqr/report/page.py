"""The page and the pieces it is put together from; `page.html` is its template, `words.md` has its texts.

Figures and styles are inside the page, nothing is fetched from anywhere.
"""

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqr.errors import UserError, with_extra
from eqr.figures.style import as_bytes
from eqr.files import new_file
from eqr.result import Result, csv_text, records
from eqr.results.metrics import ORACLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXACT = ("exact", "exact low", "exact high")
SHARE = ("share", "share low", "share high")
HEADINGS = {
    "item": "run", "depth": "D", "breadth": "B", "nfe": "NFE", "low": "95% from", "high": "to",
    "equivalent layers": "eq. layers", "equivalent_layers": "eq. layers", "flops": "FLOPs",
    "exact n": "puzzles", "better": "better on", "worse": "worse on", "answers": "distinct answers",
    "starts spurious": "settled on a wrong answer", "starts cycling": "on a limit cycle",
    "radius": "spectral radius", "contraction": "L", "conditioning": "condition of I - J",
    "within bound": "within the bound", "segments until halting": "median depth",
}  # fmt: skip
"""Of the columns of tables, where they are not called by their keys."""


def scaled(value: float, unit: str) -> str:
    """Write a large number with a prefix: 1.36 GFLOP, 43.0 MB."""
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def _yes_no(value: float) -> str:
    return "yes" if value else "no"


def _points(share: float) -> str:
    """Write a difference of shares in percentage points, with its sign."""
    return f"{100 * share:+.1f}"


FORMATS: dict[str, str | Callable[[Any], str]] = {
    **dict.fromkeys(("exact", "share", "low", "high", ORACLE), "{:.1%}"),
    **dict.fromkeys(("starts right", "starts spurious", "starts cycling"), "{:.1%}"),
    **dict.fromkeys(("nfe", "period", "answers", "conditioning", "segments until halting"), "{:,.1f}"),
    **dict.fromkeys(("equivalent layers", "equivalent_layers", "segments"), "{:,.0f}"),
    **dict.fromkeys(("radius", "contraction"), "{:,.3f}"),
    **dict.fromkeys(("residual", "bound"), "{:,.4f}"),
    **dict.fromkeys(("number", "step", "better", "worse", "parameters", "exact n"), "{:,}"),
    **dict.fromkeys(("right", "within bound"), _yes_no),
    "margin": "{:,.2f}",
    "difference": _points,
    "flops": lambda value: scaled(value, "FLOP"),
}
"""How the numbers of a column are written, where not as they are; ends of intervals as what they are of."""


@dataclass(frozen=True)
class Picture:
    """A figure."""

    name: str
    """Of its files."""
    figure: "Figure"
    words: str = ""
    """Its entry in `words.md`, where that is not called like it."""

    @property
    def caption(self) -> str:
        """Its entry in `words.md`."""
        return self.words or self.name

    @property
    def rem(self) -> float:
        """Width on the page, in letters: a little larger than in print."""
        return round(float(self.figure.get_size_inches()[0]) * 8.0, 1)

    @cached_property
    def svg(self) -> bytes:
        """The figure as vector graphics, drawn once: for the page and for its file."""
        return as_bytes(self.figure, "svg")

    @property
    def address(self) -> str:
        """An address that holds the figure itself."""
        return "data:image/svg+xml;base64," + base64.b64encode(self.svg).decode()

    def save(self, folder: Path) -> list[Path]:
        """Write the figure as SVG and PNG."""
        svg = self.svg
        self.figure.set_layout_engine("none")  # keep the layout of the first drawing: half the time
        paths = [folder / "figures" / f"{self.name}.{suffix}" for suffix in ("svg", "png")]
        for path, content in zip(paths, (svg, as_bytes(self.figure, "png")), strict=True):
            with new_file(path) as temporary:
                temporary.write_bytes(content)
        return paths


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """A table: all of it goes into a CSV file, the columns named here onto the page."""

    name: str
    rows: Sequence[Mapping[str, Any]]
    """Wide records, a line each."""
    shown: Sequence[str]
    """Keys of the columns on the page."""
    called: Mapping[str, str] = field(default_factory=dict)
    """Headings of some of them."""
    results: Sequence[Result] = ()
    """What the records are made of, if anything; it is what the file then holds."""

    @classmethod
    def of(
        cls, name: str, results: Sequence[Result], by: Sequence[str], shown: Sequence[str], **called: str
    ) -> "Sheet":
        """Return results as a table with a line for each value of the fields `by`."""
        wide, columns = records(results, *by), (*by, *shown)
        return cls(name=name, rows=wide, shown=columns, called=called, results=results)

    @property
    def caption(self) -> str:
        """Its entry in `words.md`."""
        return f"table {self.name}"

    @property
    def headings(self) -> list[str]:
        """The column headings on the page."""
        known = {**HEADINGS, **self.called}
        ends = {key: known[key.split()[-1]] for key in self.shown if key.endswith((" low", " high"))}
        return [ends.get(key) or known.get(key, key) for key in self.shown]

    @property
    def cells(self) -> list[list[str]]:
        """The formatted cells on the page."""
        forms = [
            FORMATS.get(key, FORMATS.get(key.removesuffix(" low").removesuffix(" high"), "{}"))
            for key in self.shown
        ]
        return [
            [_written(row.get(key), form) for key, form in zip(self.shown, forms, strict=True)]
            for row in self.rows
        ]

    def save(self, folder: Path) -> list[Path]:
        """Write the table as CSV."""
        path = folder / "tables" / f"{self.name}.csv"
        with new_file(path) as temporary:
            temporary.write_text(csv_text(self.results or self.rows), encoding="utf-8")
        return [path]


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading, a paragraph, then figures and tables."""

    title: str
    words: str = ""
    """Its entry in `words.md`, where that is not called like it."""
    text: str = ""
    """What to say instead of that entry."""
    parts: Sequence[Picture | Sheet] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    """Of the names in the words."""

    @property
    def anchor(self) -> str:
        """Where links to it lead."""
        return "".join(letter if letter.isalnum() else "-" for letter in self.title.lower())


def _written(value: Any, form: str | Callable[[Any], str]) -> str:
    if value is None:
        return "–"
    return form.format(value) if isinstance(form, str) else form(value)


def write_page(
    page: Path,
    *,
    title: str,
    facts: Mapping[str, str],
    head: Section,
    sections: Sequence[Section],
    commands: Mapping[str, Sequence[str]],
) -> tuple[list[Path], list[Path]]:
    """Write the page, and beside it in a folder of its name all figures and tables, whose paths it returns.

    `commands` print the numbers of `head`, a section without a heading: each says which.
    """
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise UserError(f"the report needs jinja2; {with_extra('plots')}") from None
    figures, tables = list[Path](), list[Path]()
    for section in (head, *sections):
        for part in section.parts:
            (figures if isinstance(part, Picture) else tables).extend(part.save(page.with_suffix("")))
    here, plain = files(__package__), Environment(undefined=StrictUndefined)
    entries = re.split(r"^## (.+)\n", here.joinpath("words.md").read_text(encoding="utf-8"), flags=re.M)
    known = dict(zip(entries[1::2], entries[2::2], strict=True))

    def words(entry: str, section: Section) -> str:
        return " ".join(plain.from_string(known[entry]).render(section.values).split())

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(here.joinpath("page.html").read_text(encoding="utf-8"))
    with new_file(page) as temporary:
        text = template.render(
            title=title, facts=facts, head=head, sections=sections, commands=commands, words=words
        )
        temporary.write_text(text, encoding="utf-8")
    return figures, tables
