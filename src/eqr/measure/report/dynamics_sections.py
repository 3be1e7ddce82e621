"""Sections on the dynamics themselves: what holds around the reached states, and what changed in training."""

import hashlib
from pathlib import Path

import numpy as np

from eqr.data import PuzzleSet
from eqr.files import read_json, write_json
from eqr.measure.over_training import FOLLOWED, modes_over_training, tracking_rows
from eqr.measure.plots_landscape import modes_over_training as draw_modes
from eqr.measure.plots_landscape import stability_figure, tracking
from eqr.measure.report.parts import ReportPicture, Section, Sheet, decimals, percent, plain
from eqr.measure.report.source import ReportPlan, Source
from eqr.measure.results import StabilityRow
from eqr.measure.stability import stability
from eqr.measure.table import model_digest
from eqr.runs import RunFolder
from eqr.solve.budget import Budget
from eqr.train.schedule import SegmentedOnline


def first_puzzles(source: Source, count: int) -> PuzzleSet:
    """Return the first puzzles of the report; they were drawn at random."""
    return source.puzzles.take(np.arange(min(count, len(source.puzzles))))


def stability_rows(source: Source, budget: Budget, count: int, folder: Path) -> list[StabilityRow]:
    """Look around the final states of some puzzles, or read what an earlier call found there."""
    chosen = first_puzzles(source, count)
    made_from = "/".join((model_digest(source.reasoner), budget.digest(), chosen.digest))
    path = folder / f"stability-{hashlib.sha256(made_from.encode()).hexdigest()[:16]}.json"
    if path.is_file():
        return [StabilityRow(**row) for row in read_json(path)["rows"]]
    found = stability(
        source.reasoner, chosen.inputs, chosen.labels, budget=budget, identities=chosen.identities
    )
    rows = [
        StabilityRow(
            puzzle=number,
            right=bool(found.right[number]),
            radius=float(found.radius[number]),
            contraction=float(found.contraction[number]),
            conditioning=float(found.conditioning[number]),
            sensitivity=float(found.sensitivity[number]),
            margin=float(found.margin[number]),
            segments=int(found.segments[number]),
            residual=float(found.residual[number]),
            bound=float(found.bound[number]),
            within_bound=bool(found.within_bound[number]),
        )
        for number in range(len(chosen))
    ]
    write_json(path, {"rows": [row.to_json() for row in rows]})
    return rows


def around(source: Source, plan: ReportPlan, cache: Path) -> Section:
    """Contraction, spectral radius, conditioning and margin at the reached states."""
    if not plan.stability or source.reasoner.config.greatest_depth == 1:
        return Section(title="Stability", text="Nothing was examined around the final states.")
    budget = plan.budget(source.reasoner.config).replace(breadth=1)
    rows = stability_rows(source, budget, plan.stability, cache)
    settled = [row for row in rows if row.within_bound]
    setting = (
        f"{len(rows)} {source.split} puzzles, one start each, {budget.depth} segments, seed {budget.seed}."
    )
    return Section(
        title="Stability",
        text="A segment without noise is a map of the latents; around the state that a start has reached, "
        "its Jacobian says what becomes of small differences. A spectral radius below 1 draws them in, in "
        "the long run; a contraction factor L below 1 does so in every segment, and where it holds all the "
        "way to the attractor, a residual below (1 - L) margin / gap is enough for the label to be read: gap "
        f"is how fast two logits can part. Here {len(settled)} of {len(rows)} starts are within that bound, "
        "with L as measured at the reached state. A large condition number of I - J means that small changes "
        "of the weights move the attractor far.",
        parts=[
            ReportPicture(
                name="stability",
                figure=stability_figure(rows),
                caption="Left: least lead of the label's logit over all others against the spectral radius. "
                f"Right: spectral radius against contraction factor. {setting}",
                alt=f"Two scatter plots of {len(rows)} puzzles: margin, radius and contraction.",
            ),
            Sheet(
                name="stability",
                caption="Residual and bound are norms over all coordinates, of the number of segments in a "
                f"row whose bound is most generous. {setting}",
                rows=rows,
                shown={
                    "puzzle": ("puzzle", plain),
                    "right": ("right", plain),
                    "radius": ("spectral radius", decimals(3)),
                    "contraction": ("L", decimals(3)),
                    "conditioning": ("condition of I - J", decimals(1)),
                    "margin": ("margin", decimals(2)),
                    "segments": ("segments", plain),
                    "residual": ("residual", decimals(4)),
                    "bound": ("bound", decimals(4)),
                    "within_bound": ("within the bound", plain),
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
        if len({row.step for row in rows}) > 1:
            parts.append(
                ReportPicture(
                    name="modes-over-training",
                    figure=draw_modes(rows),
                    caption=f"Share of puzzles in each landscape mode at the run's checkpoints. {setting}",
                    alt="Stacked areas: shares of the landscape modes over optimizer steps.",
                )
            )
        parts.append(
            Sheet(
                name="modes-over-training",
                caption="Share of puzzles in each landscape mode at the checkpoints, with 95% intervals "
                f"over puzzles. {setting}",
                rows=rows,
                shown={
                    "step": ("step", plain),
                    "mode": ("mode", plain),
                    "share": ("share", percent),
                    "low": ("95% from", percent),
                    "high": ("to", percent),
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
