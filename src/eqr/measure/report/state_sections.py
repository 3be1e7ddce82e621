"""Sections that look inside: one puzzle segment by segment, residuals, the attractor landscape."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eqr.measure.code import code_digest
from eqr.measure.diagnostics import MODE_RULES, Basins, Landscape, Mode, landscape
from eqr.measure.plots_grids import telling_segments, trajectory_figure
from eqr.measure.plots_landscape import landscapes, residual_traces
from eqr.measure.report.parts import ReportPicture, Section, Sheet, decimals, percent, plain
from eqr.measure.report.source import ReportPlan, Source
from eqr.measure.results import ResultRow
from eqr.measure.scaling import mode_rows
from eqr.measure.table import model_digest
from eqr.measure.traces import Traces


@dataclass(frozen=True, kw_only=True)
class PuzzleRow(ResultRow):
    """A puzzle of the report, as `eqr solve` reads it."""

    number: int
    puzzle: str
    identity: int
    starts_right: float
    """Share of the starts that end right at full depth."""


def puzzle_sheet(traces: Traces, source: Source) -> Section:
    """Every puzzle by its number on this page, so that anyone can solve it again."""
    symbols, puzzles = traces.task.symbols, traces.puzzles
    rows = [
        PuzzleRow(
            number=number,
            puzzle="".join(symbols[token - 1] if token else "?" for token in grid.tolist()),
            identity=int(puzzles.identities[number]),
            starts_right=float(traces.right[number, :, -1].mean()),
        )
        for number, grid in enumerate(puzzles.inputs)
    ]
    return Section(
        title="Puzzles",
        text=f'The numbers of puzzles on this page: eqr solve {source.folder} "..." solves one again.',
        parts=[
            Sheet(
                name="puzzles",
                caption=f"The {len(rows):,} {source.split} puzzles, and how many of their starts end right.",
                rows=rows,
                shown={
                    "number": ("puzzle", plain),
                    "puzzle": ("as text", plain),
                    "starts_right": ("starts right", percent),
                },
            )
        ],
    )


def trajectories(traces: Traces, source: Source, setting: str, panels: int) -> Section:
    """A decoded trajectory, and how residuals fall."""
    right = traces.right[:, :, -1].reshape(-1)
    residuals = traces.residuals.reshape(-1, traces.depth)
    trained = source.recipe.schedule.depth if source.recipe is not None else None
    return Section(
        title="Trajectories",
        text="What the answer head reads off the latent state after each segment. Nothing is clamped: the "
        "model may change any cell at any time, and often revises right cells before all of them agree.",
        parts=[
            _decoded(traces, setting, panels),
            ReportPicture(
                name="residual-traces",
                figure=residual_traces(residuals, right, trained=trained),
                caption="Residual after each segment, trajectories that end right and wrong apart: median "
                f"(line), middle half (band) and a few single trajectories. {setting}",
                alt="Line plot of residuals falling over segments, on logarithmic axes.",
            ),
        ],
    )


def hardest_solved(traces: Traces) -> tuple[int, int]:
    """Return puzzle and start of a telling trajectory: right at the end, and as late as possible."""
    right = traces.right
    late = np.where(right[..., -1], right.argmax(axis=-1), -1)
    puzzle, start = np.unravel_index(int(late.argmax()), late.shape)
    return int(puzzle), int(start)


def _decoded(traces: Traces, setting: str, panels: int) -> ReportPicture:
    puzzle, start = hardest_solved(traces)
    grids = traces.candidates.tokens[puzzle, start]
    segments, changes = telling_segments(grids, panels), telling_segments(grids, len(grids))
    shown = "The first segment, and all after which the answer changed"
    if len(segments) < len(changes):
        shown = f"{len(segments)} of the {len(changes)} segments after which the answer was another"
    inputs, label = np.asarray(traces.puzzles.inputs[puzzle]), np.asarray(traces.puzzles.labels[puzzle])
    chosen = grids[[segment - 1 for segment in segments]]
    why = "no trajectory solves its puzzle"
    if traces.right[puzzle, start, -1]:
        why = "of those that end right, the one that took longest to get there"
    marks = "given cells grey, right ones green, wrong ones orange"
    if traces.task.look().fills:
        marks = "wrong cells crossed"
    return ReportPicture(
        name="decoded-trajectory",
        figure=trajectory_figure(traces.task, inputs, label, chosen, segments),
        caption=f"Decoded trajectory of puzzle {puzzle}, start {start}: {why}. {shown}; {marks}, cells that "
        f"differ from the panel before ringed. One of {traces.right[..., 0].size:,} trajectories: {setting}",
        alt=f"The puzzle and its decoded grid after segments {', '.join(map(str, segments))}.",
    )


def attractors(basins: Sequence[Basins], views: dict[int, Landscape], source: Source) -> Section:
    """The landscapes of some puzzles, and how many puzzles have which mode."""
    rules = MODE_RULES
    parts: list[ReportPicture | Sheet] = []
    if not basins:
        return Section(title="Attractor landscape", text="No puzzle's landscape was asked for.")
    if views:
        one = next(iter(views.values()))
        parts.append(
            ReportPicture(
                name="attractor-landscape",
                figure=landscapes(list(views.values()), [f"Puzzle {number}" for number in views]),
                caption=f"{len(views)} puzzles, {one.basins.starts} starts each, {one.depth} segments: "
                "answer states projected to their two principal axes (a plane per puzzle). A path is blue "
                "where its state decodes to the right answer and orange where it does not; final states "
                f"closer than {rules.apart:g} per coordinate form one group. Of latents that go round in a "
                "limit cycle the title says the period and the amplitude. The puzzles were picked to show as "
                "many modes as there are, not at random.",
                alt="; ".join(
                    f"puzzle {number}: {view.basins.mode}, {percent(view.basins.right)} of starts right"
                    for number, view in views.items()
                ),
            )
        )
    parts.append(
        Sheet(
            name="landscape-modes",
            caption=f"Landscape mode of the first {len(basins)} {source.split} puzzles, from "
            f"{basins[0].starts} starts each, with 95% intervals over puzzles.",
            rows=mode_rows(basins),
            shown={
                "mode": ("mode", plain),
                "puzzles": ("puzzles", plain),
                "of_all": ("of all", percent),
                "low": ("95% from", percent),
                "high": ("to", percent),
                "starts_right": ("starts right", percent),
                "starts_spurious": ("settled on a wrong answer", percent),
                "starts_cycling": ("on a limit cycle", percent),
                "period": ("period", decimals(1)),
                "answers": ("distinct answers", decimals(1)),
            },
        )
    )
    return Section(
        title="Attractor landscape",
        text=f"(a) no correct attractor: at most {rules.absent:.0%} of the starts end right. (d) well "
        f"aligned: at least {rules.aligned:.0%} do. In between, (b) correct and spurious attractors if "
        f"at least {rules.spurious:.0%} of the starts settle on a wrong answer, (e) limit cycles if as many "
        "(and more than settle) go round in wrong answers, otherwise (c) a narrow correct basin. Settled: "
        f"the same answer over the last {rules.window} segments, with a mean residual of at most "
        f"{rules.tolerance:g} or {rules.calm:g} times the median of the right starts. A limit cycle: a "
        f"sequence of at most {rules.longest} answers that was walked round three times.",
        parts=parts,
    )


def pick_landscapes(basins: Sequence[Basins], count: int) -> list[int]:
    """Pick puzzles that show the modes: one of each there is, then more of the rarer kinds of trouble."""
    by_mode = {mode: [n for n, part in enumerate(basins) if part.mode is mode] for mode in Mode}
    for mode in (Mode.SPURIOUS, Mode.NARROW, Mode.CYCLING):  # an even split shows two basins best
        by_mode[mode].sort(key=lambda number: abs(basins[number].right - 0.5))
    picked: list[int] = []
    order = [Mode.NO_CORRECT, Mode.SPURIOUS, Mode.CYCLING, Mode.NARROW, Mode.ALIGNED]
    while len(picked) < min(count, len(basins)):
        for mode in order:
            if by_mode[mode] and len(picked) < count:
                picked.append(by_mode[mode].pop(0))
        order = [Mode.SPURIOUS, Mode.CYCLING, Mode.NARROW, Mode.NO_CORRECT]
        if not any(by_mode[mode] for mode in order):
            order = [Mode.ALIGNED]
    return sorted(picked, key=lambda number: (basins[number].mode.letter, number))


def draw_landscape(source: Source, plan: ReportPlan, number: int, folder: Path) -> Landscape:
    """Run the many starts of one puzzle, or read them from the folder that keeps them."""
    puzzles, rules = source.puzzles, MODE_RULES
    puzzle, identity = np.array(puzzles.inputs[number]), int(puzzles.identities[number])
    budget = plan.landscape_budget(source.reasoner.config)
    made_from = [model_digest(source.reasoner), code_digest(), budget.digest(), rules.digest()]
    made_from += [str(plan.landscape_starts), str(identity), puzzle.tobytes().hex()]
    key = hashlib.sha256("/".join(made_from).encode()).hexdigest()[:16]
    path = folder / f"landscape-{key}.npz"
    if path.is_file():
        return Landscape.load(path)
    view = landscape(
        source.reasoner,
        puzzle,
        np.array(puzzles.labels[number]),
        starts=plan.landscape_starts,
        budget=budget,
        identity=identity,
        rules=rules,
    )
    view.save(path)
    return view
