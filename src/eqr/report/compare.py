"""Several runs side by side, at equal budgets, on the same puzzles from the same numbered starts.

Differences are paired: what counts is how each puzzle fares under one run and under another, so that puzzles
which all runs solve, or none does, do not blur them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eqr import __version__
from eqr.diagnostics.scaling import TOP
from eqr.diagnostics.traces import Traces, run_traces
from eqr.errors import UserError
from eqr.figures import accuracy_against_cost
from eqr.files import write_json
from eqr.report.page import EXACT, Picture, Section, Sheet, write_page
from eqr.report.run import training
from eqr.report.source import ReportPlan, Source, open_source
from eqr.result import Result
from eqr.results.costs import equivalent_layers, flops
from eqr.results.metrics import MEAN, average, expected_of_lowest, outcomes, powers_of_two, share

Place = tuple[int, int]
"""A budget: depth and breadth."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What several runs reach on the same puzzles."""

    task: str
    split: str
    puzzles: int
    sources: list[Source]
    names: list[str]
    rows: list[Result]
    """Of each run (`item`) at each budget, and how it differs from the first run there."""

    @property
    def same_segments(self) -> bool:
        """Whether a segment means as many layers in every run, so that NFE compares their cost."""
        return len({source.reasoner.config.layers_per_segment for source in self.sources}) == 1

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as plain data."""
        return {
            "task": self.task,
            "split": self.split,
            "puzzles": self.puzzles,
            "runs": [str(source.folder) for source in self.sources],
            "rows": [row.to_json() for row in self.rows],
        }


def compare(
    runs: Sequence[Path],
    plan: ReportPlan | None = None,
    *,
    data: Path | None = None,
    device: str = "auto",
    quiet: bool = False,
) -> Comparison:
    """Measure runs at depths in powers of two, one start each and all starts; the first is the reference.

    Without `data` the runs must have been trained on the same puzzles, whose test split (else validation) is
    used. Candidates are kept in each run's `report/cache`, where a report of the same size finds them too.
    """
    if len(runs) < 2:
        raise UserError(f"{len(runs)} run given: a comparison needs at least two")
    plan = plan or ReportPlan()
    sources = [open_source(run, plan, data=data, device=device) for run in runs]
    first = sources[0]
    for other in sources[1:]:
        if other.puzzles.digest != first.puzzles.digest:
            raise UserError(
                f"{first.folder} and {other.folder} have different {first.split} puzzles ({first.data}, "
                f"{other.data}); name those to compare on with --data DIR"
            )
    names = [run.resolve().name for run in runs]
    if len(set(names)) < len(names):
        names = [str(run) for run in runs]
    rows: list[Result] = []
    reference: dict[Place, NDArray[np.float64]] | None = None
    for name, source in zip(names, sources, strict=True):
        budget = plan.budget(source.reasoner.config)
        cache = source.folder / "report" / "cache"
        scores = _scores(run_traces(source.reasoner, source.puzzles, budget, cache, quiet=quiet))
        rows += _rows(name, source, scores, reference)
        reference = reference or scores
    return Comparison(
        task=first.puzzles.task,
        split=first.split,
        puzzles=len(first.puzzles),
        sources=sources,
        names=names,
        rows=rows,
    )


def _scores(traces: Traces) -> dict[Place, NDArray[np.float64]]:
    """Return the accuracy on each puzzle by budget: over starts, and of Top-1 converged among all of them."""
    found: dict[Place, NDArray[np.float64]] = {}
    for depth in powers_of_two(traces.depth):
        scored = outcomes(traces.at(depth), traces.puzzles, traces.task, [])
        for breadth in sorted({1, traces.breadth}):
            found[depth, breadth] = expected_of_lowest(scored.costs, scored.right, breadth)
    return found


def _rows(
    name: str,
    source: Source,
    scores: dict[Place, NDArray[np.float64]],
    reference: dict[Place, NDArray[np.float64]] | None,
) -> list[Result]:
    config, rows = source.reasoner.config, list[Result]()
    for (depth, breadth), values in scores.items():
        nfe, rule = depth * breadth, MEAN if breadth == 1 else TOP
        where: dict[str, Any] = {"item": name, "rule": rule, "depth": depth, "breadth": breadth}
        rows.append(Result.of("exact", share(values), **where))
        numbers = {
            "nfe": nfe,
            "equivalent layers": equivalent_layers(config, nfe),
            "flops": flops(config, nfe),
            "parameters": source.reasoner.parameter_count(),
        }
        if reference is not None and (depth, breadth) in reference:
            apart = values - reference[depth, breadth]
            rows.append(Result.of("difference", average(apart), **where))
            numbers |= {"better": int((apart > 0).sum()), "worse": int((apart < 0).sum())}
        rows += [Result(metric=metric, value=value, **where) for metric, value in numbers.items()]
    return rows


def write_comparison(found: Comparison, page: Path) -> list[Path]:
    """Write the page, and in a folder of its name beside it the figures, tables and numbers; return these."""
    runs = dict(zip(found.names, found.sources, strict=True))
    numbers = page.with_suffix("") / "comparison.json"
    write_json(numbers, found.to_json())
    metric, cost = "nfe", "NFE: segments per puzzle, all starts"
    if not found.same_segments:
        metric, cost = "equivalent layers", "equivalent layers per puzzle"
    picture = Picture("comparison", accuracy_against_cost(found.rows, metric=metric, cost=cost))
    values = {
        "first": found.names[0],
        "setting": f"{found.puzzles:,} {found.split} puzzles of {found.task}.",
    }
    section = Section(title="At equal budgets", parts=[picture], values=values)
    figures, tables = write_page(
        page,
        title=f"{found.task}: {' and '.join(runs)}",
        facts={
            "Task": f"{found.task}, {found.puzzles:,} {found.split} puzzles",
            **{name: str(source.folder) for name, source in runs.items()},
            "Made by": f"eqr {__version__}",
        },
        head=Section(title="", parts=[table(found)], values=values),
        sections=[section, *(training(source, name) for name, source in runs.items())],
        commands={f"eqr compare {' '.join(str(source.folder) for source in found.sources)}": ["the table"]},
    )
    return [*figures, *tables, numbers]


def table(found: Comparison) -> Sheet:
    """Return the table of a comparison."""
    shown = (
        *EXACT, "difference", "difference low", "difference high", "better", "worse", "equivalent layers",
        "flops", "parameters",
    )  # fmt: skip
    return Sheet.of("comparison", found.rows, ("item", "depth", "breadth"), shown)


def as_text(found: Comparison) -> str:
    """Return the table for a terminal."""
    sheet = table(found)
    shown = [cells[:11] for cells in (sheet.headings, *sheet.cells)]
    first, *widths = (max(map(len, column)) for column in zip(*shown, strict=True))
    lines = []
    for name, *cells in shown:
        padded = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
        lines.append("  ".join([name.ljust(first), *padded]).rstrip())
    head = f"{found.task}, {found.puzzles:,} {found.split} puzzles; differences to {found.names[0]} in points"
    return "\n".join([head, "", *lines])
