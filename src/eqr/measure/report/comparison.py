"""The comparison of several runs as a page, as files and as text."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eqr import __version__
from eqr.files import new_file, write_json
from eqr.measure import plots
from eqr.measure.compare import Comparison
from eqr.measure.report.cost_sections import training
from eqr.measure.report.page import Fact, render
from eqr.measure.report.parts import ReportPicture, Section, Sheet, decimals, export, percent, plain, scaled


@dataclass(frozen=True, kw_only=True)
class WrittenComparison:
    """Where a comparison lies on disk."""

    folder: Path
    page: Path
    files: list[Path]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {"page": str(self.page), "files": [str(path) for path in self.files]}


def write_comparison(found: Comparison, page: Path) -> WrittenComparison:
    """Write the page, and beside it in a folder of its name the figure, the table and the numbers."""
    folder, (sheet, picture) = page.with_suffix(""), parts(found)
    curves = [training(source, name) for name, source in zip(found.names, found.sources, strict=True)]
    figures, tables = export(folder, [sheet, picture, *(part for curve in curves for part in curve.parts)])
    numbers = folder / "comparison.json"
    write_json(numbers, to_json(found))
    section = Section(
        title="At equal budgets",
        text="The same puzzles and the same numbered starts for every run. Differences are those to the "
        "first run on each puzzle, averaged; their intervals are bootstraps over puzzles.",
        parts=[picture],
    )
    facts = [
        Fact("Task", f"{found.task}, {found.puzzles:,} {found.split} puzzles"),
        *(Fact(name, str(source.folder)) for name, source in zip(found.names, found.sources, strict=True)),
        Fact("Made by", f"eqr {__version__}"),
    ]
    command = f"eqr compare {' '.join(str(source.folder) for source in found.sources)}"
    with new_file(page) as temporary:
        title = f"{found.task}: {' and '.join(found.names)}"
        text = render(title, facts, sheet, [section, *curves], {command: ["the table"]})
        temporary.write_text(text, encoding="utf-8")
    return WrittenComparison(folder=folder, page=page, files=[*figures, *tables, numbers])


def parts(found: Comparison) -> tuple[Sheet, ReportPicture]:
    """Return the table and the figure of a comparison."""
    setting = f"{found.puzzles:,} {found.split} puzzles of {found.task}."
    cost = "NFE: segments per puzzle, all starts" if found.same_segments else "equivalent layers per puzzle"
    sheet = Sheet(
        name="comparison",
        caption=f"Exact accuracy with 95% intervals, and paired differences to {found.names[0]} in points. "
        f"{setting}",
        rows=found.rows,
        shown={
            "run": ("run", plain),
            "depth": ("D", plain),
            "breadth": ("B", plain),
            "exact": ("exact", percent),
            "low": ("95% from", percent),
            "high": ("to", percent),
            "difference": ("difference", points),
            "difference_low": ("95% from", points),
            "difference_high": ("to", points),
            "better": ("better on", plain),
            "worse": ("worse on", plain),
            "equivalent_layers": ("eq. layers", decimals(0)),
            "flops": ("FLOPs", scaled("FLOP")),
            "parameters": ("parameters", plain),
        },
    )
    picture = ReportPicture(
        name="comparison",
        figure=plots.accuracy_against_cost(found.costs(), cost=cost),
        caption=f"Share of puzzles wrong against cost, by depth in powers of two. Bands: 95% over puzzles. "
        f"{setting}",
        alt=f"Lines of {' and '.join(found.names)}: share of puzzles wrong against cost.",
    )
    return sheet, picture


def points(share: float | None) -> str:
    """Write a difference of shares in percentage points, with its sign."""
    return "–" if share is None else f"{100 * share:+.1f}"


def to_json(found: Comparison) -> dict[str, Any]:
    """Return the numbers as plain data."""
    return {
        "task": found.task,
        "split": found.split,
        "puzzles": found.puzzles,
        "runs": [str(source.folder) for source in found.sources],
        "rows": [row.to_json() for row in found.rows],
    }


def as_text(found: Comparison) -> str:
    """Return the table for a terminal."""
    sheet, _ = parts(found)
    shown = [[*sheet.headings[:11]], *(cells[:11] for cells in sheet.cells)]
    widths = [max(len(cells[column]) for cells in shown) for column in range(11)]
    lines = [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ).rstrip()
        for cells in shown
    ]
    head = f"{found.task}, {found.puzzles:,} {found.split} puzzles; differences to {found.names[0]} in points"
    return "\n".join([head, "", *lines])
