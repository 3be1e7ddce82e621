"""From a recipe's data field to puzzle sets and a training stream; what is generated is kept in the run."""

from pathlib import Path

import numpy as np

from eqr.data import Batches, GeneratedStream, PuzzleSet, Splits, load_split
from eqr.data.batches import revealed
from eqr.data.generated import generate
from eqr.data.splits import carve, leaks
from eqr.errors import UserError
from eqr.runs import DATA, RunFolder
from eqr.tasks import task_named
from eqr.tasks.base import Task
from eqr.train.recipe import Folder, Generated, Ladder, Recipe


def load_data(data: Generated | Folder, folder: RunFolder, *, quiet: bool = False) -> Splits:
    """Return the splits a recipe names; generated ones are made once and then read from the run's folder."""
    if isinstance(data, Folder):
        return _from_folder(data)
    kept = folder.data(data.digest())
    if kept.is_dir():
        return Splits.load(kept)
    if folder.puzzles is None:
        folder.require_own(DATA)
    task = task_named(data.task)
    sizes = {"train": data.train, "validation": data.validation, "test": data.test}
    if data.geometries is not None:
        sizes["train"] = 1  # trained on are others; a set wants one
    judging = None
    if data.validation_from is not None:
        judging = _elsewhere("validation_from", data.validation_from, "validation", task)
        del sizes["validation"]
    climbed = None if data.ladder is None else _elsewhere("ladder.path", data.ladder.path, "train", task)
    options = task.options(data.options)
    splits = generate(task, sizes, seed=data.seed, options=options, fewer=data.fewer, quiet=quiet)
    sets = dict(splits.sets)
    if judging is not None:
        sets["validation"] = _unseen(judging, sets["train"], task)
    if data.ladder is not None and climbed is not None:
        for name in sets.keys() & {
            "validation",
            "test",
        }:  # with answers given away they would not be recognised
            climbed = _unseen(climbed, sets[name], task)
        sets["train"] = _joined(sets["train"], climbed, data.ladder, data.seed)
    splits = Splits(sets)
    splits.save(kept)
    return splits


def _elsewhere(field: str, path: str, split: str, task: Task) -> PuzzleSet:
    """Return the puzzles of another folder that judge a run or join it."""
    if not Path(path).is_dir():
        raise UserError(
            f"data.{field} = {path!r}: no such folder; make it from CSV files of puzzles, "
            f"`eqr data import FILE --task {task.name} --validation-from FILE --out {path}`, or from the "
            f"task's own, `eqr data build {task.name} --out {path}`"
        )
    puzzles = load_split(path, split)
    if puzzles.task != task.name:
        raise UserError(f"data.{field} = {path!r} holds {puzzles.task}, data.task is {task.name}")
    return puzzles


def _unseen(puzzles: PuzzleSet, others: PuzzleSet, task: Task) -> PuzzleSet:
    """Return the puzzles that are not among others."""
    return puzzles.take(np.setdiff1d(np.arange(len(puzzles)), leaks(others, puzzles, task)))


def _joined(generated: PuzzleSet, climbed: PuzzleSet, ladder: Ladder, seed: int) -> PuzzleSet:
    """Return the generated puzzles, then copies of the others with answers given away."""
    rng = np.random.default_rng(seed)
    copies = [
        revealed(rng, climbed.inputs, climbed.labels, least=ladder.least, most=ladder.most)
        for _ in range(ladder.copies)
    ]
    return PuzzleSet.of(
        generated.task,
        np.concatenate([generated.inputs, *copies]),
        np.concatenate([generated.labels, *(climbed.labels,) * ladder.copies]),
    )


def _from_folder(data: Folder) -> Splits:
    splits = Splits.load(Path(data.path))
    task = task_named(data.task)
    if splits.task != task.name:
        raise UserError(f"data.path = {data.path!r} holds {splits.task}, data.task is {task.name}")
    if "validation" in splits.sets:
        return splits
    train, validation = carve(splits["train"], task, data.validation, data.seed)
    return Splits({**splits.sets, "train": train, "validation": validation})


def run_data(run: Path) -> Path:
    """Return the dataset folder that a run was trained on."""
    folder = RunFolder(run)
    if not run.is_dir():
        raise UserError(
            f"there is no folder {run}; name a run's, or give the puzzles of a model with --data DIR"
        )
    if not folder.recipe.is_file():
        raise UserError(
            f"{run} has no {folder.recipe.name} that names its puzzles; give them with --data DIR"
        )
    data = Recipe.of_run(folder).data
    path = Path(data.path) if isinstance(data, Folder) else folder.data(data.digest())
    if not path.is_dir():
        raise UserError(f"the puzzles of {run} are not at {path} any more; give some with --data DIR")
    return path


def open_stream(recipe: Recipe, splits: Splits) -> Batches | GeneratedStream:
    """Return the stream of training rows, by global position whatever the number of processes."""
    task, data = task_named(recipe.data.task), recipe.data
    if isinstance(data, Generated) and data.endless:
        options = task.options(data.options)
        held_out = [puzzles for name, puzzles in splits if name != "train"]
        return GeneratedStream(task, options, seed=recipe.seed, held_out=held_out, workers=data.workers)
    reveal = data.reveal if isinstance(data, Folder) else 0
    return Batches(splits["train"], task, seed=recipe.seed, augment=recipe.augment, reveal=reveal)


def fitted(recipe: Recipe, splits: Splits) -> Recipe:
    """Return the recipe with the model's table of identities made to fit the data's."""
    if not recipe.model.identity_tokens or not task_named(recipe.data.task).identities:
        return recipe
    names = len(splits["train"].identity_names)
    return recipe.replace(model=recipe.model.replace(identities=names))
