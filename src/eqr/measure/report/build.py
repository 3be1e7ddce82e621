"""Putting a report together: run what is not in the cache, make the parts, write page and files."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eqr import __version__
from eqr.errors import UserError
from eqr.files import new_file
from eqr.measure.diagnostics import Basins, Landscape
from eqr.measure.report import cost_sections, dynamics_sections, scaling_sections, state_sections
from eqr.measure.report.page import Fact, render
from eqr.measure.report.parts import Section, Sheet, duration, export
from eqr.measure.report.source import ReportPlan, Source, open_source
from eqr.measure.scaling import cost_rows
from eqr.measure.traces import Traces, run_basins, run_traces
from eqr.progress import Progress, progress


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
    source = open_source(run, plan, data=data, device=device)
    folder = page.with_suffix("")
    budget = plan.budget(source.reasoner.config)
    traces = run_traces(source.reasoner, source.puzzles, budget, folder / "cache", quiet=quiet)
    with progress("report", plan.landscapes + 11, unit="parts", quiet=quiet) as shown:
        head, sections = _sections(traces, source, plan, folder / "cache", shown)
        figures, tables = export(folder, [head, *(part for s in sections for part in s.parts)])
        shown.advance()
    facts = _facts(source, traces)
    with new_file(page) as temporary:
        text = render(_title(source), facts, head, sections, _commands(head))
        temporary.write_text(text, encoding="utf-8")
    return Written(
        page=page,
        figures=figures,
        tables=tables,
        headline=[row.to_json() for row in head.rows],
        seconds=time.perf_counter() - began,
    )


def _commands(head: Sheet) -> dict[str, list[str]]:
    """Return the commands that print the headline numbers, each with the budgets it is for."""
    commands: dict[str, list[str]] = {}
    for row in head.rows:
        fields = row.to_json()
        commands.setdefault(fields["command"], []).append(fields["budget"])
    return commands


def _sections(
    traces: Traces, source: Source, plan: ReportPlan, cache: Path, shown: Progress
) -> tuple[Sheet, list[Section]]:
    setting = _setting(traces, source)
    costs = cost_rows(traces)
    head = cost_sections.headline(costs, traces, source, setting)
    basins = _basins(source, plan, cache)
    views: dict[int, Landscape] = {}
    for number in state_sections.pick_landscapes(basins, plan.landscapes):
        views[number] = state_sections.draw_landscape(source, plan, number, cache)
        shown.advance()
    views = dict(sorted(views.items(), key=lambda item: item[1].basins.mode.letter))
    makers: list[Callable[[], Section]] = [
        lambda: cost_sections.training(source),
        lambda: scaling_sections.settling(traces, setting),
        lambda: scaling_sections.spending(traces, costs, setting),
        lambda: state_sections.trajectories(traces, source, setting, plan.panels),
        lambda: state_sections.attractors(basins, views, source),
        lambda: dynamics_sections.around(source, plan, cache),
        lambda: dynamics_sections.over_training(source, plan, cache),
        lambda: scaling_sections.difficulties(traces, setting),
        lambda: cost_sections.compute(source),
        lambda: state_sections.puzzle_sheet(traces, source),
    ]
    sections = []
    for make in makers:
        sections.append(make())
        shown.advance()
    return head, sections


def _basins(source: Source, plan: ReportPlan, cache: Path) -> list[Basins]:
    """Name the modes of the first puzzles from many starts."""
    chosen = dynamics_sections.first_puzzles(source, plan.landscape_puzzles)
    if not len(chosen):
        return []
    return run_basins(
        source.reasoner, chosen, plan.landscape_budget(source.reasoner.config), cache, quiet=True
    )


def _setting(traces: Traces, source: Source) -> str:
    path = traces.budget.path(source.reasoner.config.path)
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
