"""What a report is made from: a run's model, recipe and journal, and the puzzles it is shown on."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, PositiveInt

from eqr.data import PuzzleSet, load_split
from eqr.data.splits import read_dataset, sample
from eqr.errors import UserError
from eqr.model.config import ReasonerConfig
from eqr.model.lookup import load
from eqr.model.reasoner import Reasoner
from eqr.results.evaluate import fitting_task
from eqr.runs import RunFolder, Summary
from eqr.solve.budget import Budget, usual_depth
from eqr.train.recipe import Recipe
from eqr.train.sources import run_data
from eqr.value import Value


class ReportPlan(Value):
    """How much is measured; the defaults take a laptop about a minute for a small model."""

    puzzles: PositiveInt = 128
    """Sampled from the split at random; all of it if it has fewer."""
    starts: PositiveInt = 8
    depth: PositiveInt | None = None
    """64, or 1 for a model with nothing to iterate, where not given."""
    landscapes: Annotated[int, Field(ge=0)] = 4
    """Puzzles whose attractor landscape is drawn."""
    landscape_puzzles: Annotated[int, Field(ge=0)] = 32
    """Puzzles whose landscape mode is named, by as many starts each as are drawn."""
    landscape_starts: Annotated[int, Field(ge=2)] = 64
    landscape_depth: PositiveInt | None = None
    """32, likewise."""
    stability: Annotated[int, Field(ge=0)] = 8
    """Puzzles around whose final state the dynamics are examined."""
    panels: Annotated[int, Field(ge=2)] = 11
    """Grids of the decoded trajectory, at most."""
    split: str | None = None
    """`test` if there is one, else `validation`."""
    seed: int = 0

    def budget(self, model: ReasonerConfig) -> Budget:
        """The one run that everything but the landscapes is scored from."""
        depth = self.depth or usual_depth(model, 64)
        return Budget(depth=depth, breadth=self.starts, seed=self.seed)

    def landscape_budget(self, model: ReasonerConfig) -> Budget:
        """The run of the landscapes, with starts of their own."""
        depth = self.landscape_depth or usual_depth(model, 32)
        return Budget(depth=depth, breadth=self.landscape_starts, seed=self.seed + 1)


@dataclass(frozen=True, kw_only=True)
class Source:
    """A run, opened."""

    folder: Path
    reasoner: Reasoner
    puzzles: PuzzleSet
    data: Path
    split: str
    recipe: Recipe | None
    """None for a model that was not trained here."""
    records: list[dict[str, Any]]
    """Lines of `metrics.jsonl`."""
    summary: Summary | None


def open_source(run: Path, plan: ReportPlan, *, data: Path | None, device: str) -> Source:
    """Open a run (or a model folder, then with `data`) and draw the puzzles."""
    if not run.is_dir():
        raise UserError(f"{run} is not a folder; give a run that `eqr train` made, or a model folder")
    kept, folder = RunFolder(run), data or run_data(run)
    split = plan.split or ("test" if "test" in read_dataset(folder).splits else "validation")
    puzzles = load_split(folder, split)
    labelled = np.flatnonzero(puzzles.labels.any(axis=1))
    if len(labelled) < len(puzzles):  # padding counts nowhere
        puzzles = puzzles.take(labelled)
    if plan.puzzles < len(puzzles):
        puzzles = sample(puzzles, plan.puzzles, seed=0)
    reasoner = load(run, device=device)
    fitting_task(reasoner, puzzles)
    return Source(
        folder=run,
        reasoner=reasoner,
        puzzles=puzzles,
        data=folder,
        split=split,
        recipe=Recipe.of_run(kept) if kept.recipe.is_file() else None,
        records=kept.records(),
        summary=kept.summary(),
    )
