"""The sections of a report: training and cost, depth and breadth, one puzzle from inside, the dynamics."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eqr.behaviour import ANSWERS
from eqr.data import PuzzleSet
from eqr.diagnostics.landscape import MODE_RULES, Basins, Landscape, Mode, landscape
from eqr.diagnostics.over_training import FOLLOWED, modes_over_training, tracking_rows
from eqr.diagnostics.scaling import (
    DEPTH_USED,
    FIXED,
    HALTED,
    TOP,
    breadth_rows,
    difficulty,
    difficulty_rows,
    mode_rows,
    scaling_rows,
)
from eqr.diagnostics.stability import stability
from eqr.diagnostics.traces import Traces
from eqr.figures import plots
from eqr.figures.grids import telling_segments, trajectory_figure
from eqr.figures.plots import landscapes, residual_traces, stability_figure, tracking
from eqr.figures.plots import modes_over_training as draw_modes
from eqr.files import read_json, write_json
from eqr.progress import duration
from eqr.report.page import ReportPicture, Section, Sheet, decimals, percent, plain, scaled, yes_no
from eqr.report.source import ReportPlan, Source
from eqr.result import Result, one, pivot, records, select
from eqr.results.costs import equivalent_layers, flops, flops_per_segment
from eqr.results.metrics import ORACLE
from eqr.results.table import model_digest
from eqr.runs import RunFolder
from eqr.solve.budget import Budget
from eqr.train.schedule import SegmentedOnline

FLOP = scaled("FLOP")


def headline_rows(rows: Sequence[Result], traces: Traces, source: Source) -> list[dict[str, Any]]:
    """Return the accuracy of the usual budgets: trained depth, full depth, halting, all starts, racing."""
    trained = min(source.recipe.schedule.depth if source.recipe else 16, traces.depth)
    wanted = records(select(rows, depth=traces.depth), "rule", "depth", "breadth")
    if trained != traces.depth:
        wanted = records(select(rows, depth=trained, rule=FIXED), "rule", "depth", "breadth") + wanted
    return [_headline(row, traces, source) for row in wanted]


def _headline(row: dict[str, Any], traces: Traces, source: Source) -> dict[str, Any]:
    config, rule = source.reasoner.config, row["rule"]
    options = f"--depth {row['depth']} --breadth {traces.breadth}"
    if rule.startswith((HALTED, "racing")):
        options += " --halt head+stable:1" + (" --race" if rule.startswith("racing") else "")
    if source.split != "test":
        options += f" --split {source.split}"
    if traces.budget.seed:
        options += f" --seed {traces.budget.seed}"
    return {
        "budget": f"{rule}, D={row['depth']}" + ("" if row["breadth"] > 1 else ", B=1"),
        "exact": row["exact"],
        "low": row["exact low"],
        "high": row["exact high"],
        "nfe": row["nfe"],
        "equivalent_layers": equivalent_layers(config, row["nfe"]),
        "flops": flops(config, row["nfe"]),
        "command": f"eqr evaluate {source.folder} --data {source.data} "
        f"--limit {len(source.puzzles)} {options}",
    }


def headline(rows: Sequence[Result], traces: Traces, source: Source, setting: str) -> Sheet:
    """The table at the top."""
    return Sheet(
        name="headline",
        caption="Exact accuracy with 95% intervals, and what it costs per puzzle: NFE (segments over all "
        "starts), equivalent layers (NFE times blocks times applications) and operations. B=1 is averaged "
        f"over the starts there are. {setting}",
        rows=headline_rows(rows, traces, source),
        shown={
            "budget": ("budget", plain),
            "exact": ("exact", percent),
            "low": ("95% from", percent),
            "high": ("to", percent),
            "nfe": ("NFE", decimals(1)),
            "equivalent_layers": ("eq. layers", decimals(0)),
            "flops": ("FLOPs", FLOP),
        },
    )


def training(source: Source, name: str = "") -> Section:
    """Training curves, where the run has kept its journal; `name` tells several runs apart."""
    title, file = (f"Training of {name}", f"training-{name}") if name else ("Training", "training")
    steps = [record for record in source.records if record["kind"] == "train"]
    recipe = source.recipe
    if not steps or recipe is None:
        return Section(title=title, text="This model was not trained in this folder: no curves to show.")
    last, checks = steps[-1], recipe.evaluation
    return Section(
        title=title,
        text=f"Recipe {recipe.name}: batches of {recipe.rows} rows, trajectories of up to "
        f"{recipe.schedule.depth} segments, seed {recipe.seed}.",
        parts=[
            ReportPicture(
                name=file,
                figure=plots.training_curves(source.records),
                caption="Left: losses of the answer and of the halt score, means over "
                f"{recipe.saving.log_every} steps. Middle: exact accuracy by depth on up to {checks.puzzles} "
                "validation puzzles, one start each, averaged weights. Right: segments after which training "
                f"rows halt. {last['step']:,} steps, {duration(last.get('seconds', 0.0))} of training.",
                alt="Three line plots over optimizer steps: loss, validation accuracy by depth, mean depth.",
            )
        ],
    )


def compute(source: Source) -> Section:
    """What a segment costs."""
    config = source.reasoner.config
    return Section(
        title="Compute",
        text=f"One segment is {config.applications} applications of {config.blocks} "
        f"block{'s' if config.blocks > 1 else ''}: {config.layers_per_segment} equivalent layers and "
        f"{FLOP(flops_per_segment(config))} per puzzle and start (matrix products, two operations per "
        "multiply-add).",
    )


EXACT = {"exact": ("exact", percent), "exact low": ("95% from", percent), "exact high": ("to", percent)}


def settling(traces: Traces, setting: str) -> Section:
    """Accuracy against residual, and both over depth and breadth."""
    rows = scaling_rows(traces)
    first, last = (
        {m: one(rows, metric=m, rule=TOP, depth=d, breadth=b).value for m in ("residual", "exact")}
        for d, b in ((1, 1), (traces.depth, traces.breadth))
    )
    return Section(
        title="Settling and accuracy",
        text="The residual is how far one more segment moves the latent state, as root mean square per "
        "coordinate. More depth lets a trajectory settle; more breadth gives the choice of the start that "
        "settled best (Top-1 converged: lowest mean residual of the last 3 segments). Labels play no part in "
        "the choice.",
        parts=[
            ReportPicture(
                name="accuracy-against-residual",
                figure=plots.accuracy_against_residual(rows),
                caption="Share of puzzles wrong against the residual of the chosen start, both axes "
                f"logarithmic; colour is the depth, a line joins the depths of one breadth. {setting}",
                alt=f"Scatter plot: residual goes from {first['residual']:.2g} to {last['residual']:.2g}, "
                f"accuracy from {percent(first['exact'])} to {percent(last['exact'])} as depth grows.",
            ),
            ReportPicture(
                name="depth-and-breadth",
                figure=plots.depth_and_breadth(rows),
                caption="Left: mean residual of the chosen start. Right: share of puzzles whose chosen "
                "answer is wrong, expected over subsets of the starts. Both colours are logarithmic, dark "
                f"is low. {setting}",
                alt=f"Two heat maps over depth 1 to {traces.depth} and breadth 1 to {traces.breadth}.",
            ),
            Sheet.of(
                "scaling",
                "Top-1 converged at every depth and breadth; the oracle counts a puzzle that any "
                f"start solves. {setting}",
                rows,
                ("depth", "breadth"),
                {
                    "depth": ("D", plain),
                    "breadth": ("B", plain),
                    "nfe": ("NFE", plain),
                    **EXACT,
                    "residual": ("residual", decimals(4)),
                    ORACLE: (ORACLE, percent),
                },
            ),
        ],
    )


def spending(traces: Traces, costs: Sequence[Result], setting: str) -> Section:
    """Accuracy against cost, and against breadth."""
    breadths = breadth_rows(traces)
    parts: list[ReportPicture | Sheet] = [
        ReportPicture(
            name="accuracy-against-nfe",
            figure=plots.accuracy_against_cost(costs),
            caption="Share of puzzles wrong against NFE, the mean number of segments spent on a puzzle over "
            "all its starts. Each line runs over the greatest depth allowed, in powers of two. Fixed depth "
            "and halting use one start (averaged over the starts there are); halting stops when the head "
            "says so and the answer stands; racing takes the first start that halts and cancels the others. "
            f"Bands: 95% over puzzles. {setting}",
            alt="Line plot of accuracy against NFE for "
            + ", ".join(dict.fromkeys(row.rule for row in costs))
            + ".",
        ),
        Sheet.of(
            "cost",
            f"What each way of spending segments reaches. {setting}",
            costs,
            ("rule", "depth", "breadth"),
            {
                "rule": ("method", plain),
                "depth": ("greatest D", plain),
                "breadth": ("B", plain),
                "nfe": ("NFE", decimals(1)),
                **EXACT,
            },
        ),
    ]
    if traces.breadth > 1:
        parts[1:1] = [
            ReportPicture(
                name="accuracy-against-breadth",
                figure=plots.accuracy_against_breadth(breadths),
                caption=f"Expected exact accuracy at depth {traces.depth} as starts are added, over random "
                "subsets of the starts: the start that settled best, the most frequent answer, and the "
                f"oracle that no selection can beat. Bands: 95% over puzzles. {setting}",
                alt=f"Line plot of three selection rules for breadth 1 to {traces.breadth}.",
            )
        ]
        parts.append(_breadth_sheet(breadths, setting))
    return Section(
        title="Accuracy and its price",
        text="One NFE is one segment of one start. Halting spends segments where they are needed, racing "
        "spends starts where they are needed; both are replayed on the recorded readings, segment by "
        "segment, with the same result as running them.",
        parts=parts,
    )


def _breadth_sheet(rows: Sequence[Result], setting: str) -> Sheet:
    shown = {"rule": ("rule", plain), "breadth": ("B", plain), **EXACT}
    return Sheet.of(
        "breadth", f"Selection rules at depth {rows[0].depth}. {setting}", rows, ("rule", "breadth"), shown
    )


def difficulties(traces: Traces, setting: str) -> Section:
    """Accuracy and depth used by difficulty; a note where puzzles have no rating that varies."""
    name, _ = difficulty(traces)
    rows = difficulty_rows(traces)
    ranges = len({row.part for row in rows})
    if ranges < 2:
        return Section(
            title="Difficulty", text=f"The {name} of these puzzles hardly varies: nothing to show."
        )
    return Section(
        title="Difficulty",
        text=f"Puzzles in bins of {name} that hold about equally many each.",
        parts=[
            ReportPicture(
                name="depth-by-difficulty",
                figure=plots.depth_by_difficulty(rows, rating=name, most=traces.depth),
                caption=f"Segments until halting (head says done, answer stands), by {name}: median and "
                f"middle half over puzzles and starts; a start that never halts counts as {traces.depth}. "
                f"{setting}",
                alt=f"Depth used against {name} in {ranges} bins.",
            ),
            ReportPicture(
                name="accuracy-by-difficulty",
                figure=plots.accuracy_by_difficulty(rows, rating=name),
                caption=f"Exact accuracy of one start at depth {traces.depth} by {name}, averaged over "
                f"starts, with 95% intervals over puzzles. {setting}",
                alt=f"Bar chart of accuracy against {name} in {ranges} bins.",
            ),
            Sheet.of(
                "difficulty",
                f"Accuracy and depth used by {name}. {setting}",
                rows,
                ("part",),
                {
                    "part": (name, plain),
                    "exact n": ("puzzles", plain),
                    **EXACT,
                    DEPTH_USED: ("median depth", decimals(1)),
                },
            ),
        ],
    )


def puzzle_sheet(traces: Traces, source: Source) -> Section:
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
                    "starts right": ("starts right", percent),
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
        Sheet.of(
            "landscape-modes",
            f"Landscape mode of the first {len(basins)} {source.split} puzzles, from "
            f"{basins[0].starts} starts each, with 95% intervals over puzzles.",
            mode_rows(basins),
            ("part",),
            {
                "part": ("mode", plain),
                "share": ("of all", percent),
                "share low": ("95% from", percent),
                "share high": ("to", percent),
                "starts right": ("starts right", percent),
                "starts spurious": ("settled on a wrong answer", percent),
                "starts cycling": ("on a limit cycle", percent),
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
    made_from = [model_digest(source.reasoner), str(ANSWERS), budget.digest(), rules.digest()]
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
    )
    view.save(path)
    return view


def first_puzzles(source: Source, count: int) -> PuzzleSet:
    """Return the first puzzles of the report; they were drawn at random."""
    return source.puzzles.take(np.arange(min(count, len(source.puzzles))))


def stability_rows(source: Source, budget: Budget, count: int, folder: Path) -> list[Result]:
    """Look around the final states of some puzzles, or read what an earlier call found there."""
    chosen = first_puzzles(source, count)
    made_from = "/".join((model_digest(source.reasoner), budget.digest(), chosen.digest))
    path = folder / f"stability-{hashlib.sha256(made_from.encode()).hexdigest()[:16]}.json"
    if path.is_file():
        return [Result(**row) for row in read_json(path)["rows"]]
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
    return rows


def around(source: Source, plan: ReportPlan, cache: Path) -> Section:
    """Contraction, spectral radius, conditioning and margin at the reached states."""
    if not plan.stability or source.reasoner.config.greatest_depth == 1:
        return Section(title="Stability", text="Nothing was examined around the final states.")
    budget = plan.budget(source.reasoner.config).replace(breadth=1)
    rows = stability_rows(source, budget, plan.stability, cache)
    puzzles, settled = len(pivot(rows, "part")), len(select(rows, metric="within bound", value=1.0))
    setting = (
        f"{puzzles} {source.split} puzzles, one start each, {budget.depth} segments, seed {budget.seed}."
    )
    return Section(
        title="Stability",
        text="A segment without noise is a map of the latents; around the state that a start has reached, "
        "its Jacobian says what becomes of small differences. A spectral radius below 1 draws them in, in "
        "the long run; a contraction factor L below 1 does so in every segment, and where it holds all the "
        "way to the attractor, a residual below (1 - L) margin / gap is enough for the label to be read: gap "
        f"is how fast two logits can part. Here {settled} of {puzzles} starts are within that bound, "
        "with L as measured at the reached state. A large condition number of I - J means that small changes "
        "of the weights move the attractor far.",
        parts=[
            ReportPicture(
                name="stability",
                figure=stability_figure(rows),
                caption="Left: least lead of the label's logit over all others against the spectral radius. "
                f"Right: spectral radius against contraction factor. {setting}",
                alt=f"Two scatter plots of {puzzles} puzzles: margin, radius and contraction.",
            ),
            Sheet.of(
                "stability",
                "Residual and bound are norms over all coordinates, of the number of segments in a "
                f"row whose bound is most generous. {setting}",
                rows,
                ("part",),
                {
                    "part": ("puzzle", plain),
                    "right": ("right", yes_no),
                    "radius": ("spectral radius", decimals(3)),
                    "contraction": ("L", decimals(3)),
                    "conditioning": ("condition of I - J", decimals(1)),
                    "margin": ("margin", decimals(2)),
                    "segments": ("segments", decimals(0)),
                    "residual": ("residual", decimals(4)),
                    "bound": ("bound", decimals(4)),
                    "within bound": ("within the bound", yes_no),
                },
            ),
        ],
    )


def over_training(source: Source, plan: ReportPlan, cache: Path) -> Section:
    """Landscape modes and tracking error at the run's checkpoints."""
    title, there = "Over training", RunFolder(source.folder).checkpoints
    if source.recipe is None or not any(there.glob("step-*.safetensors")):
        return Section(title=title, text="This folder holds no checkpoints.")
    parts: list[ReportPicture | Sheet] = []
    chosen = first_puzzles(source, plan.landscape_puzzles)
    if len(chosen):
        budget = plan.landscape_budget(source.reasoner.config)
        rows = modes_over_training(source.folder, chosen, budget, cache, quiet=True)
        setting = (
            f"{len(chosen)} {source.split} puzzles, {budget.breadth} starts each, {budget.depth} segments."
        )
        if len(pivot(rows, "step")) > 1:
            parts.append(
                ReportPicture(
                    name="modes-over-training",
                    figure=draw_modes(rows),
                    caption=f"Share of puzzles in each landscape mode at the run's checkpoints. {setting}",
                    alt="Stacked areas: shares of the landscape modes over optimizer steps.",
                )
            )
        parts.append(
            Sheet.of(
                "modes-over-training",
                "Share of puzzles in each landscape mode at the checkpoints, with 95% intervals "
                f"over puzzles. {setting}",
                rows,
                ("step", "part"),
                {
                    "step": ("step", plain),
                    "part": ("mode", plain),
                    "share": ("share", percent),
                    "share low": ("95% from", percent),
                    "share high": ("to", percent),
                },
            )
        )
    if isinstance(source.recipe.schedule, SegmentedOnline):
        tracked = tracking_rows(source.folder)
        parts.append(
            ReportPicture(
                name="tracking",
                figure=tracking(tracked),
                caption="How far the rows under way at a checkpoint were from where the weights of that step "
                f"take them in {FOLLOWED} further segments without noise: root mean square per coordinate, "
                "mean over the rows of one depth.",
                alt="Distance of training rows to their attractor over their depth, a line per checkpoint.",
            )
        )
    return Section(
        title=title,
        text="Read off the checkpoints that the run has kept (saving.keep says how many). In segmented "
        "online training a state is carried on while the weights change: it chases a moving attractor.",
        parts=parts,
    )
