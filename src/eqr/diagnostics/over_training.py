"""What changes while a model trains, read off the checkpoints of its run.

A checkpoint holds the weights of a step and the rows that were under way: how the landscape of held-out
puzzles looked then, and how far the carried states were from the attractor of the weights they were carried
under (the tracking error of segmented online training, paper appendix A.2).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from eqr.data import PuzzleSet
from eqr.diagnostics.scaling import mode_rows
from eqr.diagnostics.traces import run_basins
from eqr.dynamics.iterate import iterate
from eqr.errors import UserError
from eqr.model.reasoner import Reasoner
from eqr.model.state import Input
from eqr.progress import progress
from eqr.result import Result
from eqr.runs import RunFolder
from eqr.solve.budget import Budget
from eqr.train.checkpoint import Checkpoints, read
from eqr.train.optimizer import FlatParameters
from eqr.train.recipe import Recipe
from eqr.train.step import TrainingRows

FOLLOWED = 64
"""Segments that a carried state is followed for; where it is then stands for its attractor."""


@dataclass(frozen=True, kw_only=True)
class Moment:
    """A run as it was at one step."""

    step: int
    trained: Reasoner
    """The weights that the rows were carried under."""
    averaged: Reasoner
    """The weights that would have been evaluated and saved."""
    rows: TrainingRows


def moments(run: Path) -> Iterator[Moment]:
    """Yield what the checkpoints of a run hold, in order of steps."""
    folder = RunFolder(run)
    if not folder.recipe.is_file():
        raise UserError(f"{run} has no recipe.json; only runs of `eqr train` have checkpoints")
    recipe = Recipe.of_run(folder)
    for file in Checkpoints(folder.checkpoints, recipe.saving.keep).paths():
        checkpoint = read(file)
        tensors = checkpoint.tensors
        models = {}
        for name in ("weights", "average"):
            models[name] = model = Reasoner(recipe.model).requires_grad_(False)
            FlatParameters(model).vector.copy_(tensors[name])
            for key, buffer in model.named_buffers():
                buffer.copy_(tensors[f"model.{key}"])
        rows = TrainingRows.empty(len(tensors["rows.keys"]), recipe.model, torch.device("cpu"))
        rows.load(tensors)
        averaged = models["average" if recipe.averaging is not None else "weights"]
        yield Moment(step=checkpoint.step, trained=models["weights"], averaged=averaged, rows=rows)


def modes_over_training(
    run: Path, puzzles: PuzzleSet, budget: Budget, folder: Path | None = None, *, quiet: bool = False
) -> list[Result]:
    """Return the share of puzzles in each landscape mode at every checkpoint of a run."""
    rows = []
    with progress("modes over training", None, unit="checkpoints", quiet=quiet) as shown:
        for moment in moments(run):
            basins = run_basins(moment.averaged, puzzles, budget, folder, quiet=True)
            rows += mode_rows(basins, step=moment.step)
            shown.advance()
    return rows


def tracking_rows(run: Path, *, follow: int = FOLLOWED) -> list[Result]:
    """Return how far the carried rows of every checkpoint were from their attractor, by depth of the rows."""
    return [row for moment in moments(run) for row in tracking_error(moment, follow=follow)]


@torch.inference_mode()
def tracking_error(moment: Moment, *, follow: int = FOLLOWED) -> list[Result]:
    """Follow each carried state under its own weights, without noise, and measure how far it goes.

    That is |z_s - z*(theta_s)|: what the segment was off when it was trained on, by the depth it had. `moved`
    is how far it still moves per segment where it was followed to: 0 if that is a fixed point.
    """
    model, batch = moment.trained, moment.rows
    began, depths = batch.rows.state, batch.rows.depths.numpy()
    x = Input(model.embed_tokens(batch.inputs, model.identity_vectors(batch.identities)), batch.inputs)
    begun = replace(began, keys=batch.rows.keys, depths=batch.rows.depths)
    *_, last = iterate(model, x, begun, depth=follow, perturb=model.config.path.still)
    distance, moved = last.moved.distance(began).numpy(), last.residual.numpy()
    return [
        Result(
            metric=metric,
            step=moment.step,
            depth=int(depth),
            value=float(values[depths == depth].mean()),
            n=int((depths == depth).sum()),
        )
        for depth in np.unique(depths)
        for metric, values in (("distance", distance), ("moved", moved))
    ]
