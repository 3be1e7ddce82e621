"""Sections that look inside: one puzzle segment by segment, residuals, the attractor landscape."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from eqr.measure.candidates import model_digest
from eqr.measure.diagnostics import MODE_RULES, Basins, Landscape, Mode, landscape
from eqr.measure.plots_grids import look_of, telling_segments, trajectory_figure
from eqr.measure.plots_landscape import landscapes, residual_traces
from eqr.measure.report.parts import Picture, Section, Sheet, decimals, percent, plain
from eqr.measure.report.source import ReportPlan, Source
from eqr.measure.scaling import mode_rows
from eqr.measure.traces import Traces

PANELS = 11


def trajectories(traces: Traces, source: Source, setting: str) -> Section:
    """A decoded trajectory, and how residuals fall."""
    right = traces.right[:, :, -1].reshape(-1)
    residuals = traces.residuals.reshape(-1, traces.depth)
    trained = source.recipe.schedule.depth if source.recipe is not None else None
    return Section(
        title="Trajectories",
        text="What the answer head reads off the latent state after each segment. Nothing is clamped: the "
        "model may change any cell at any time, and often revises right cells before all of them agree.",
        parts=[
            _decoded(traces, setting),
            Picture(
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


def _decoded(traces: Traces, setting: str) -> Picture:
    puzzle, start = hardest_solved(traces)
    grids = traces.candidates.tokens[puzzle, start]
    segments = telling_segments(grids, PANELS)
    inputs, label = np.asarray(traces.puzzles.inputs[puzzle]), np.asarray(traces.puzzles.labels[puzzle])
    chosen = grids[[segment - 1 for segment in segments]]
    why = "no trajectory solves its puzzle"
    if traces.right[puzzle, start, -1]:
        why = "of those that end right, the one that took longest to get there"
    marks = "given cells grey, right ones green, wrong ones orange"
    if look_of(traces.task).fills:
        marks = "wrong cells crossed"
    return Picture(
        name="decoded-trajectory",
        figure=trajectory_figure(traces.task, inputs, label, chosen, segments),
        caption=f"Decoded trajectory of puzzle {puzzle}, start {start}: {why}. Shown are segments after "
        f"which the answer changed; {marks}, cells that changed since the panel before ringed. One of "
        f"{traces.right[..., 0].size:,} trajectories: {setting}",
        alt=f"The puzzle and its decoded grid after segments {', '.join(map(str, segments))}.",
    )


def attractors(
    traces: Traces, basins: Sequence[Basins], views: dict[int, Landscape], setting: str
) -> Section:
    """The landscapes of some puzzles, and how many puzzles have which mode."""
    rules = MODE_RULES
    parts: list[Picture | Sheet] = []
    if views:
        one = next(iter(views.values()))
        parts.append(
            Picture(
                name="attractor-landscape",
                figure=landscapes(list(views.values()), [f"Puzzle {number}" for number in views]),
                caption=f"{len(views)} puzzles, {one.basins.starts} starts each, {one.depth} segments: "
                "answer states projected to their two principal axes (a plane per puzzle). A path is blue "
                "where its state decodes to the right answer and orange where it does not; final states "
                f"closer than {rules.apart:g} per coordinate form one group. Modes are named from these "
                "starts. The puzzles were picked to show as many modes as there are, not at random.",
                alt="; ".join(
                    f"puzzle {number}: {view.basins.mode}, {percent(view.basins.right)} of starts right"
                    for number, view in views.items()
                ),
            )
        )
    parts.append(
        Sheet(
            name="landscape-modes",
            caption=f"Landscape mode of every puzzle, from {traces.breadth} starts each. {setting}",
            rows=mode_rows(basins),
            shown={
                "mode": ("mode", plain),
                "puzzles": ("puzzles", plain),
                "of_all": ("of all", percent),
                "starts_right": ("starts right", percent),
                "starts_spurious": ("settled on a wrong answer", percent),
                "answers": ("distinct answers", decimals(1)),
            },
        )
    )
    return Section(
        title="Attractor landscape",
        text=f"(a) no correct attractor: at most {rules.absent:.0%} of the starts end right. (d) well "
        f"aligned: at least {rules.aligned:.0%} do. In between, (b) correct and spurious attractors if "
        f"at least {rules.spurious:.0%} of the starts settle on a wrong answer, otherwise (c) a narrow "
        f"correct basin. Settled: the same answer over the last {rules.window} segments, with a mean "
        f"residual of at most {rules.tolerance:g} or {rules.calm:g} times the median of the right starts.",
        parts=parts,
    )


def pick_landscapes(basins: Sequence[Basins], count: int) -> list[int]:
    """Pick puzzles that show the modes: one of each there is, then more of the rarer kinds of trouble."""
    by_mode = {mode: [n for n, part in enumerate(basins) if part.mode is mode] for mode in Mode}
    for mode in (Mode.SPURIOUS, Mode.NARROW):  # an even split shows two basins best
        by_mode[mode].sort(key=lambda number: abs(basins[number].right - 0.5))
    picked: list[int] = []
    order = [Mode.NO_CORRECT, Mode.SPURIOUS, Mode.NARROW, Mode.ALIGNED]
    while len(picked) < min(count, len(basins)):
        for mode in order:
            if by_mode[mode] and len(picked) < count:
                picked.append(by_mode[mode].pop(0))
        order = [Mode.SPURIOUS, Mode.NARROW, Mode.NO_CORRECT]
        if not any(by_mode[mode] for mode in order):
            order = [Mode.ALIGNED]
    return sorted(picked, key=lambda number: (basins[number].mode.letter, number))


def draw_landscape(source: Source, plan: ReportPlan, number: int, folder: Path) -> Landscape:
    """Run the many starts of one puzzle, or read them from the folder that keeps them."""
    puzzles, rules = source.puzzles, MODE_RULES
    puzzle, identity = np.array(puzzles.inputs[number]), int(puzzles.identities[number])
    budget = plan.landscape_budget(source.reasoner.config)
    made_from = [model_digest(source.reasoner), budget.digest(), rules.digest()]
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
