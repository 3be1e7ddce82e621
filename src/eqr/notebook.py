"""Verbs for a notebook: make puzzles, train, evaluate; each says in one call what the command line does.

They add nothing of their own: names stand for what they name, rules may be values or the command line's
words, and what the command line keeps in folders is returned.
"""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from eqr.data import PuzzleSet
from eqr.data.generated import generate
from eqr.errors import UserError, brief
from eqr.model.reasoner import Reasoner
from eqr.recipes import recipe_named
from eqr.results.evaluate import BudgetSweep, Evaluation
from eqr.results.evaluate import evaluate as evaluate_sweep
from eqr.solve import HaltingRule, load
from eqr.tasks import Task, task_named
from eqr.train.recipe import Recipe
from eqr.train.run import Outcome, train


def make_puzzles(task: Task | str, count: int, *, seed: int = 0, **options: Any) -> PuzzleSet:
    """Generate distinct puzzles with their answers; `options` are the generator's (`clues=32`)."""
    known = task_named(task) if isinstance(task, str) else task
    return generate(known, {"test": count}, seed=seed, options=known.options(options))["test"]


def train_recipe(
    recipe: Recipe | str,
    run: Path | str,
    *,
    settings: Sequence[str] = (),
    resume: bool = False,
    overwrite: bool = False,
    quiet: bool = False,
) -> Outcome:
    """Train a recipe, or the one of that name, in the folder `run`; settings are those of `--set`."""
    whole = recipe_named(recipe) if isinstance(recipe, str) else recipe
    whole = whole.with_settings(list(settings)) if settings else whole
    return train(whole, Path(run), resume=resume, overwrite=overwrite, quiet=quiet)


def evaluate(
    model: Reasoner | Path | str,
    puzzles: PuzzleSet,
    *,
    depth: int | Sequence[int] = 16,
    breadth: int | Sequence[int] = 1,
    halt: HaltingRule | str = "never",
    select: Sequence[str] = (),
    out: Path | str | None = None,
    quiet: bool = False,
    **dynamics: Any,
) -> Evaluation:
    """Score a model on puzzles with labels at every depth and breadth, as `eqr evaluate --json` does.

    `out` keeps the candidates, so that an interrupted evaluation goes on; without it nothing is kept.
    `dynamics` are further fields of the budget: race, abreast, noise, damping, probe, seed.
    """
    if not isinstance(puzzles, PuzzleSet):
        raise UserError(
            f"puzzles = {brief(puzzles)}: give a set with labels, such as "
            'make_puzzles("sudoku-9x9", 100) or load_split(folder, "test")'
        )
    depths = [depth] if isinstance(depth, int) else depth
    breadths = [breadth] if isinstance(breadth, int) else breadth
    if not depths or not breadths:
        raise UserError("depth and breadth: give a number or several, such as depth=[4, 16]")
    sweep = BudgetSweep.asked(depths, breadths, halt=halt, select=select, **dynamics)
    reasoner = model if isinstance(model, Reasoner) else load(model)
    reasoner = reasoner.for_task(task_named(puzzles.task))
    with TemporaryDirectory() as aside:
        folder = Path(aside if out is None else out)
        found = evaluate_sweep(reasoner, puzzles, sweep, folder, quiet=quiet)
    assert found is not None, "this process is the only one"
    return found
