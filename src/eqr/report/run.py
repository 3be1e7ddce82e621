"""The report of a run: what it reaches and costs, how it settles, one puzzle from inside, its dynamics.

`write_report` runs what is not in the cache, a function makes each section, and page and files are written.
"""

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from eqr import __version__
from eqr.behaviour import ANSWERS
from eqr.data import PuzzleSet
from eqr.diagnostics.landscape import MODE_RULES, Basins, Landscape, Mode, landscape
from eqr.diagnostics.over_training import FOLLOWED, modes_over_training, tracking_rows
from eqr.diagnostics.scaling import (
    DEPTH_USED,
    FIXED,
    HALTED,
    breadth_rows,
    cost_rows,
    difficulty,
    difficulty_rows,
    mode_rows,
    scaling_rows,
)
from eqr.diagnostics.stability import stability
from eqr.diagnostics.traces import Traces, run_basins, run_traces
from eqr.errors import UserError
from eqr.figures import plots
from eqr.figures.grids import telling_segments, trajectory_figure
from eqr.files import read_json, require_own, write_json
from eqr.progress import duration, progress
from eqr.report.page import EXACT, SHARE, Picture, Section, Sheet, scaled, write_page
from eqr.report.source import ReportPlan, Source, open_source
from eqr.result import Result, pivot, records, select
from eqr.results.costs import equivalent_layers, flops, flops_per_segment
from eqr.results.metrics import ORACLE
from eqr.results.table import model_digest
from eqr.runs import RunFolder
from eqr.train.schedule import SegmentedOnline

Parts = list[Picture | Sheet]


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
        files = {name: [str(path) for path in getattr(self, name)] for name in ("figures", "tables")}
        return {**vars(self), "page": str(self.page), **files}


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
    plan, page = plan or ReportPlan(), out or run / "report.html"
    if page.suffix not in (".html", ".htm"):
        raise UserError(f"--out {page}: a report is an .html file")
    for part in ("cache", "figures", "tables"):
        require_own(page.parent, page.stem, part)
    source, cache = open_source(run, plan, data=data, device=device), page.with_suffix("") / "cache"
    traces = run_traces(
        source.reasoner, source.puzzles, plan.budget(source.reasoner.config), cache, quiet=quiet
    )
    costs, setting = cost_rows(traces), _setting(traces, source)
    head = _headline(costs, traces, source)
    makers: list[Callable[[], Section]] = [
        partial(training, source),
        partial(_settling, traces, setting),
        partial(_spending, traces, costs, setting),
        partial(_trajectories, traces, source, setting, plan.panels),
        partial(_attractors, source, plan, cache),
        partial(_stability, source, plan, cache),
        partial(_over_training, source, plan, cache),
        partial(_difficulty, traces, setting),
        partial(_puzzles, traces, source),
    ]
    sections = []
    with progress("report", len(makers), unit="parts", quiet=quiet) as shown:
        for make in makers:
            sections.append(make())
            shown.advance()
    commands: dict[str, list[str]] = {}
    for row in head.rows:
        commands.setdefault(row["command"], []).append(row["budget"])
    figures, tables = write_page(
        page,
        title=f"{source.puzzles.task}: {run.resolve().name}",
        facts=_facts(source, traces, setting),
        head=Section(title="", parts=[head], values={"setting": setting}),
        sections=sections,
        commands=commands,
    )
    headline, seconds = [dict(row) for row in head.rows], time.perf_counter() - began
    return Written(page=page, figures=figures, tables=tables, headline=headline, seconds=seconds)


def _setting(traces: Traces, source: Source) -> str:
    path = traces.budget.perturbation(source.reasoner.config.path)
    starts = "1 start" if traces.breadth == 1 else f"{traces.breadth} starts"
    return (
        f"{len(traces.puzzles):,} {source.split} puzzles, {starts} each, up to {traces.depth} segments, path "
        f"noise {path.noise:g}, damping {path.damping:g}, seed {traces.budget.seed}."
    )


def _facts(source: Source, traces: Traces, setting: str) -> dict[str, str]:
    config, summary = source.reasoner.config, source.summary
    facts = {
        "Task": f"{traces.task.name}: {traces.task.summary}",
        "Model": f"{config.recurrence.kind}, width {config.width}, {config.blocks} block"
        f"{'s' if config.blocks > 1 else ''} mixing {config.mixer.kind}, {config.applications} applications "
        f"per segment, {config.start.kind} start, damping {config.path.damping:g}, path noise "
        f"{config.path.noise:g}",
        "Parameters": f"{source.reasoner.parameter_count():,}",
        "A segment": f"{config.layers_per_segment} equivalent layers, "
        f"{scaled(flops_per_segment(config), 'FLOP')} per puzzle and start (matrix products, two operations "
        "per multiply-add)",
    }
    if source.recipe is not None and summary is not None:
        facts["Training"] = (
            f"recipe {source.recipe.name}, {summary.steps:,} steps, {duration(summary.seconds)}"
        )
    return facts | {
        "Measured on": setting,
        "Measuring took": f"{duration(traces.seconds)} of computing for the candidates",
        "Made by": f"eqr {__version__}",
    }


def _headline(rows: Sequence[Result], traces: Traces, source: Source) -> Sheet:
    """The accuracy of the usual budgets: trained depth, full depth, halting, all starts, racing."""
    trained = min(source.recipe.schedule.depth if source.recipe else 16, traces.depth)
    wanted = records(select(rows, depth=traces.depth), "rule", "depth", "breadth")
    if trained != traces.depth:
        wanted = records(select(rows, depth=trained, rule=FIXED), "rule", "depth", "breadth") + wanted
    config = source.reasoner.config
    lines = [
        {
            "budget": f"{row['rule']}, D={row['depth']}" + ("" if row["breadth"] > 1 else ", B=1"),
            "exact": row["exact"],
            "low": row["exact low"],
            "high": row["exact high"],
            "nfe": row["nfe"],
            "equivalent_layers": equivalent_layers(config, row["nfe"]),
            "flops": flops(config, row["nfe"]),
            "command": _command(row["rule"], row["depth"], traces, source),
        }
        for row in wanted
    ]
    shown = ("budget", "exact", "low", "high", "nfe", "equivalent_layers", "flops")
    return Sheet(name="headline", rows=lines, shown=shown)


def _command(rule: str, depth: int, traces: Traces, source: Source) -> str:
    """Return what prints a headline number."""
    command = f"eqr evaluate {source.folder} --data {source.data} --limit {len(source.puzzles)} "
    command += f"--depth {depth} --breadth {traces.breadth}"
    if rule.startswith((HALTED, "racing")):
        command += " --halt head+stable:1" + (" --race" if rule.startswith("racing") else "")
    if source.split != "test":
        command += f" --split {source.split}"
    return command + (f" --seed {traces.budget.seed}" if traces.budget.seed else "")


def training(source: Source, name: str = "") -> Section:
    """Training curves, where the run has kept its journal; `name` tells several runs apart."""
    title, file = (f"Training of {name}", f"training-{name}") if name else ("Training", "training")
    steps = [record for record in source.records if record["kind"] == "train"]
    if not steps or source.recipe is None:
        return Section(title=title, text="This model was not trained in this folder: no curves to show.")
    took = duration(steps[-1].get("seconds", 0.0))
    return Section(
        title=title,
        words="Training",
        parts=[Picture(file, plots.training_curves(source.records), words="training")],
        values={"recipe": source.recipe, "steps": steps[-1]["step"], "took": took},
    )


def _settling(traces: Traces, setting: str) -> Section:
    """Accuracy against residual, and both over depth and breadth."""
    rows = scaling_rows(traces)
    return Section(
        title="Settling and accuracy",
        parts=[
            Picture("accuracy-against-residual", plots.accuracy_against_residual(rows)),
            Picture("depth-and-breadth", plots.depth_and_breadth(rows)),
            Sheet.of("scaling", rows, ("depth", "breadth"), ("nfe", *EXACT, "residual", ORACLE)),
        ],
        values={"setting": setting},
    )


def _spending(traces: Traces, costs: Sequence[Result], setting: str) -> Section:
    """Accuracy against cost, and against breadth."""
    table = Sheet.of("cost", costs, ("rule", "depth", "breadth"), ("nfe", *EXACT), depth="greatest D")
    parts: Parts = [Picture("accuracy-against-nfe", plots.accuracy_against_cost(costs)), table]
    if traces.breadth > 1:
        rows = breadth_rows(traces)
        parts.insert(1, Picture("accuracy-against-breadth", plots.accuracy_against_breadth(rows)))
        parts.append(Sheet.of("breadth", rows, ("rule", "breadth"), EXACT))
    values = {"setting": setting, "depth": traces.depth}
    return Section(title="Accuracy and its price", parts=parts, values=values)


def _trajectories(traces: Traces, source: Source, setting: str, panels: int) -> Section:
    """A telling trajectory, right at the end and as late as possible, and how residuals fall."""
    late = np.where(traces.right[..., -1], traces.right.argmax(axis=-1), -1)
    puzzle, start = (int(index) for index in np.unravel_index(int(late.argmax()), late.shape))
    grids = traces.candidates.tokens[puzzle, start]
    segments = telling_segments(grids, panels)
    inputs, label = np.asarray(traces.puzzles.inputs[puzzle]), np.asarray(traces.puzzles.labels[puzzle])
    chosen = grids[[segment - 1 for segment in segments]]
    residuals, right = traces.residuals.reshape(-1, traces.depth), traces.right[:, :, -1].reshape(-1)
    trained = source.recipe.schedule.depth if source.recipe is not None else None
    return Section(
        title="Trajectories",
        parts=[
            Picture("decoded-trajectory", trajectory_figure(traces.task, inputs, label, chosen, segments)),
            Picture("residual-traces", plots.residual_traces(residuals, right, trained=trained)),
        ],
        values={
            "setting": setting,
            "puzzle": puzzle,
            "start": start,
            "solved": traces.right[puzzle, start, -1],
            "shown": len(segments),
            "changes": len(telling_segments(grids, len(grids))),
            "coloured": bool(traces.task.look().fills),
            "count": late.size,
        },
    )


def _attractors(source: Source, plan: ReportPlan, cache: Path) -> Section:
    """The landscapes of some puzzles, and how many puzzles have which mode."""
    title, chosen = "Attractor landscape", _first(source, plan.landscape_puzzles)
    if not len(chosen):
        return Section(title=title, text="No puzzle's landscape was asked for.")
    budget = plan.landscape_budget(source.reasoner.config)
    basins = run_basins(source.reasoner, chosen, budget, cache, quiet=True)
    numbers = pick_landscapes(basins, plan.landscapes)
    views = [(number, _landscape(source, plan, number, cache)) for number in numbers]
    views.sort(key=lambda view: view[1].basins.mode.letter)
    shown = (*SHARE, "starts right", "starts spurious", "starts cycling", "period", "answers")
    parts: Parts = [
        Sheet.of("landscape-modes", mode_rows(basins), ("part",), shown, part="mode", share="of all")
    ]
    if views:
        figure = plots.landscapes([view for _, view in views], [f"Puzzle {number}" for number, _ in views])
        parts.insert(0, Picture("attractor-landscape", figure))
    values = {"rules": MODE_RULES, "budget": budget, "drawn": len(views), "split": source.split}
    return Section(title=title, parts=parts, values={**values, "count": len(basins)})


def pick_landscapes(basins: Sequence[Basins], count: int) -> list[int]:
    """Pick puzzles that show the modes: one of each there is, then more of the rarer kinds of trouble."""
    first = [Mode.NO_CORRECT, Mode.SPURIOUS, Mode.CYCLING, Mode.NARROW, Mode.ALIGNED]
    later = [Mode.SPURIOUS, Mode.CYCLING, Mode.NARROW, Mode.NO_CORRECT, Mode.ALIGNED]
    ranked = []
    for mode in Mode:
        numbers = [number for number, part in enumerate(basins) if part.mode is mode]
        if mode not in (Mode.NO_CORRECT, Mode.ALIGNED):  # an even split shows two basins best
            numbers.sort(key=lambda number: abs(basins[number].right - 0.5))
        for place, number in enumerate(numbers):
            order = (later if place else first).index(mode)
            ranked.append((place > 0 and mode is Mode.ALIGNED, place, order, number))
    picked = [number for *_, number in sorted(ranked)[:count]]
    return sorted(picked, key=lambda number: (basins[number].mode.letter, number))


def _landscape(source: Source, plan: ReportPlan, number: int, cache: Path) -> Landscape:
    """Run the many starts of one puzzle, or read them from the cache."""
    puzzles, budget = source.puzzles, plan.landscape_budget(source.reasoner.config)
    puzzle, identity = np.array(puzzles.inputs[number]), int(puzzles.identities[number])
    made_from = [model_digest(source.reasoner), str(ANSWERS), budget.digest(), MODE_RULES.digest()]
    made_from += [str(plan.landscape_starts), str(identity), puzzle.tobytes().hex()]
    path = _kept(cache, "landscape", made_from, "npz")
    if path.is_file():
        return Landscape.load(path)
    view = landscape(
        source.reasoner,
        puzzle,
        np.array(puzzles.labels[number]),
        starts=plan.landscape_starts,
        budget=budget,
        identity=identity,
    )
    view.save(path)
    return view


def _stability(source: Source, plan: ReportPlan, cache: Path) -> Section:
    """Contraction, spectral radius, conditioning and margin at the reached states."""
    if not plan.stability or source.reasoner.config.greatest_depth == 1:
        return Section(title="Stability", text="Nothing was examined around the final states.")
    budget = plan.budget(source.reasoner.config).replace(breadth=1)
    chosen = _first(source, plan.stability)
    path = _kept(cache, "stability", [model_digest(source.reasoner), budget.digest(), chosen.digest], "json")
    if path.is_file():
        rows = [Result(**row) for row in read_json(path)["rows"]]
    else:
        found = stability(
            source.reasoner, chosen.inputs, chosen.labels, budget=budget, identities=chosen.identities
        )
        metrics = {**vars(found), "within bound": found.within_bound}
        rows = [
            Result(part=f"puzzle {number}", metric=metric, value=float(values[number]), depth=budget.depth)
            for number in range(len(chosen))
            for metric, values in metrics.items()
        ]
        write_json(path, {"rows": [row.to_json() for row in rows]})
    shown = (
        "right", "radius", "contraction", "conditioning", "margin", "segments", "residual", "bound",
        "within bound",
    )  # fmt: skip
    return Section(
        title="Stability",
        parts=[
            Picture("stability", plots.stability_figure(rows)),
            Sheet.of("stability", rows, ("part",), shown, part="puzzle"),
        ],
        values={
            "count": len(chosen),
            "settled": len(select(rows, metric="within bound", value=1.0)),
            "setting": f"{len(chosen)} {source.split} puzzles, one start each, {budget.depth} segments, seed "
            f"{budget.seed}.",
        },
    )


def _over_training(source: Source, plan: ReportPlan, cache: Path) -> Section:
    """Landscape modes and tracking error at the run's checkpoints."""
    title, there = "Over training", RunFolder(source.folder).checkpoints
    if source.recipe is None or not any(there.glob("step-*.safetensors")):
        return Section(title=title, text="This folder holds no checkpoints.")
    parts: Parts = []
    chosen, budget = _first(source, plan.landscape_puzzles), plan.landscape_budget(source.reasoner.config)
    if len(chosen):
        rows = modes_over_training(source.folder, chosen, budget, cache, quiet=True)
        if len(pivot(rows, "step")) > 1:
            parts.append(Picture("modes-over-training", plots.modes_over_training(rows)))
        parts.append(Sheet.of("modes-over-training", rows, ("step", "part"), SHARE, part="mode"))
    if isinstance(source.recipe.schedule, SegmentedOnline):
        parts.append(Picture("tracking", plots.tracking(tracking_rows(source.folder))))
    setting = f"{len(chosen)} {source.split} puzzles, {budget.breadth} starts each, {budget.depth} segments."
    return Section(title=title, parts=parts, values={"setting": setting, "followed": FOLLOWED})


def _difficulty(traces: Traces, setting: str) -> Section:
    """Accuracy and depth used by difficulty; a note where puzzles have no rating that varies."""
    (rating, _), rows = difficulty(traces), difficulty_rows(traces)
    if len({row.part for row in rows}) < 2:
        text = f"The {rating} of these puzzles hardly varies: nothing to show."
        return Section(title="Difficulty", text=text)
    depth = plots.depth_by_difficulty(rows, rating=rating, most=traces.depth)
    return Section(
        title="Difficulty",
        parts=[
            Picture("depth-by-difficulty", depth),
            Picture("accuracy-by-difficulty", plots.accuracy_by_difficulty(rows, rating=rating)),
            Sheet.of("difficulty", rows, ("part",), ("exact n", *EXACT, DEPTH_USED), part=rating),
        ],
        values={"setting": setting, "rating": rating, "depth": traces.depth},
    )


def _puzzles(traces: Traces, source: Source) -> Section:
    """Every puzzle by its number on this page, so that anyone can solve it again."""
    symbols, puzzles = traces.task.symbols, traces.puzzles
    rows = [
        {
            "number": number,
            "puzzle": "".join(symbols[token - 1] if token else "?" for token in grid.tolist()),
            "identity": int(puzzles.identities[number]),
            "starts right": float(traces.right[number, :, -1].mean()),
        }
        for number, grid in enumerate(puzzles.inputs)
    ]
    shown, called = ("number", "puzzle", "starts right"), {"number": "puzzle", "puzzle": "as text"}
    values = {"folder": source.folder, "count": len(rows), "split": source.split}
    table = Sheet(name="puzzles", rows=rows, shown=shown, called=called)
    return Section(title="Puzzles", parts=[table], values=values)


def _first(source: Source, count: int) -> PuzzleSet:
    """Return the first puzzles of the report; they were drawn at random."""
    return source.puzzles.take(np.arange(min(count, len(source.puzzles))))


def _kept(cache: Path, name: str, made_from: Sequence[str], suffix: str) -> Path:
    """Return the file that keeps what was made from these."""
    return cache / f"{name}-{hashlib.sha256('/'.join(made_from).encode()).hexdigest()[:16]}.{suffix}"
