"""Putting a report together: run what is not in the cache, make the parts, write page and files."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eqr import __version__
from eqr.diagnostics.landscape import Basins, Landscape
from eqr.diagnostics.scaling import cost_rows
from eqr.diagnostics.traces import Traces, run_basins, run_traces
from eqr.errors import UserError
from eqr.files import new_file, require_own
from eqr.progress import Progress, duration, progress
from eqr.report import sections
from eqr.report.page import Fact, Section, Sheet, export, render
from eqr.report.source import ReportPlan, Source, open_source


@dataclass(frozen=True, kw_only=True)
class Written:
    """What a report consists of on disk."""

    page: Path
    figures: list[Path]
    tables: list[Path]
    headline: list[dict[str, Any]]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {
            "page": str(self.page),
            "figures": [str(path) for path in self.figures],
            "tables": [str(path) for path in self.tables],
            "headline": self.headline,
            "seconds": self.seconds,
        }


def write_report(
    run: Path,
    plan: ReportPlan | None = None,
    *,
    data: Path | None = None,
    out: Path | None = None,
    device: str = "auto",
    quiet: bool = False,
) -> Written:
    """Write the report of a run: `RUN/report.html`, and beside it `report/figures` and `report/tables`.

    Candidates and landscapes are kept in `report/cache`, so that a second call only draws.
    """
    began = time.perf_counter()
    plan = plan or ReportPlan()
    page = out or run / "report.html"
    if page.suffix not in (".html", ".htm"):
        raise UserError(f"--out {page}: a report is an .html file")
    folder = page.with_suffix("")
    for part in ("cache", "figures", "tables"):
        require_own(page.parent, folder.name, part)
    source = open_source(run, plan, data=data, device=device)
    budget = plan.budget(source.reasoner.config)
    traces = run_traces(source.reasoner, source.puzzles, budget, folder / "cache", quiet=quiet)
    with progress("report", plan.landscapes + 11, unit="parts", quiet=quiet) as shown:
        head, parts = _sections(traces, source, plan, folder / "cache", shown)
        figures, tables = export(folder, [head, *(part for section in parts for part in section.parts)])
        shown.advance()
    facts = _facts(source, traces)
    with new_file(page) as temporary:
        text = render(_title(source), facts, head, parts, _commands(head))
        temporary.write_text(text, encoding="utf-8")
    return Written(
        page=page,
        figures=figures,
        tables=tables,
        headline=[dict(row) for row in head.rows],
        seconds=time.perf_counter() - began,
    )


def _commands(head: Sheet) -> dict[str, list[str]]:
    """Return the commands that print the headline numbers, each with the budgets it is for."""
    commands: dict[str, list[str]] = {}
    for row in head.rows:
        commands.setdefault(row["command"], []).append(row["budget"])
    return commands


def _sections(
    traces: Traces, source: Source, plan: ReportPlan, cache: Path, shown: Progress
) -> tuple[Sheet, list[Section]]:
    setting = _setting(traces, source)
    costs = cost_rows(traces)
    head = sections.headline(costs, traces, source, setting)
    basins = _basins(source, plan, cache)
    views: dict[int, Landscape] = {}
    for number in sections.pick_landscapes(basins, plan.landscapes):
        views[number] = sections.draw_landscape(source, plan, number, cache)
        shown.advance()
    views = dict(sorted(views.items(), key=lambda item: item[1].basins.mode.letter))
    makers: list[Callable[[], Section]] = [
        lambda: sections.training(source),
        lambda: sections.settling(traces, setting),
        lambda: sections.spending(traces, costs, setting),
        lambda: sections.trajectories(traces, source, setting, plan.panels),
        lambda: sections.attractors(basins, views, source),
        lambda: sections.around(source, plan, cache),
        lambda: sections.over_training(source, plan, cache),
        lambda: sections.difficulties(traces, setting),
        lambda: sections.compute(source),
        lambda: sections.puzzle_sheet(traces, source),
    ]
    made = []
    for make in makers:
        made.append(make())
        shown.advance()
    return head, made


def _basins(source: Source, plan: ReportPlan, cache: Path) -> list[Basins]:
    """Name the modes of the first puzzles from many starts."""
    chosen = sections.first_puzzles(source, plan.landscape_puzzles)
    if not len(chosen):
        return []
    return run_basins(
        source.reasoner, chosen, plan.landscape_budget(source.reasoner.config), cache, quiet=True
    )


def _setting(traces: Traces, source: Source) -> str:
    path = traces.budget.perturbation(source.reasoner.config.path)
    starts = "1 start" if traces.breadth == 1 else f"{traces.breadth} starts"
    return (
        f"{len(traces.puzzles):,} {source.split} puzzles, {starts} each, up to {traces.depth} segments, path "
        f"noise {path.noise:g}, damping {path.damping:g}, seed {traces.budget.seed}."
    )


def _title(source: Source) -> str:
    return f"{source.puzzles.task}: {source.folder.resolve().name}"


def _facts(source: Source, traces: Traces) -> list[Fact]:
    config, summary = source.reasoner.config, source.summary
    path = config.path
    facts = [
        Fact("Task", f"{traces.task.name}: {traces.task.summary}"),
        Fact(
            "Model",
            f"{config.recurrence.kind}, width {config.width}, {config.blocks} block"
            f"{'s' if config.blocks > 1 else ''} mixing {config.mixer.kind}, {config.applications} "
            f"applications per segment, {config.start.kind} start, damping {path.damping:g}, "
            f"path noise {path.noise:g}",
        ),
        Fact("Parameters", f"{source.reasoner.parameter_count():,}"),
    ]
    if source.recipe is not None and summary is not None:
        facts.append(
            Fact(
                "Training",
                f"recipe {source.recipe.name}, {summary.steps:,} steps, {duration(summary.seconds)}",
            )
        )
    facts += [
        Fact("Measured on", _setting(traces, source)),
        Fact("Measuring took", f"{duration(traces.seconds)} of computing for the candidates"),
        Fact("Made by", f"eqr {__version__}"),
    ]
    return facts
