"""Train, validation and test sets that share no puzzle, and the folder that keeps them together.

Two puzzles are "the same" when the task's `canonical` form (its cheap symmetries) is: a test puzzle that is a
training puzzle with its digits renamed would measure memory, not reasoning.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from eqr.data.puzzles import PuzzleSet
from eqr.errors import UserError, nearest
from eqr.files import new_folder, read_json, write_json
from eqr.tasks.base import Task
from eqr.value import Value

SPLITS = ("train", "validation", "test")
BINS = 12

DATASET = "dataset.json"


class SplitSummary(Value):
    """One line of `dataset.json`."""

    count: int
    content_digest: str


class Dataset(Value):
    """The top of a dataset folder, for people and for a quick look by machines."""

    format: Literal["eqr-dataset-1"] = "eqr-dataset-1"
    task: str
    splits: dict[Literal["train", "validation", "test"], SplitSummary]


@dataclass(frozen=True)
class Splits:
    """Puzzle sets of one task by split name."""

    sets: Mapping[str, PuzzleSet]

    def __post_init__(self) -> None:
        for name in self.sets:
            if name not in SPLITS:
                raise UserError(f"unknown split {name!r}{nearest(name, SPLITS)}")
        tasks = sorted({puzzles.task for puzzles in self.sets.values()})
        if len(tasks) != 1:
            raise UserError(f"a dataset holds one task, this one {', '.join(tasks) or 'no puzzles'}")

    def __getitem__(self, name: str) -> PuzzleSet:
        if name not in self.sets:
            raise UserError(f"no {name!r} split here; there is {', '.join(self.sets)}")
        return self.sets[name]

    def __iter__(self) -> Iterator[tuple[str, PuzzleSet]]:
        """Name and set of each split there is, train first."""
        return ((name, self.sets[name]) for name in SPLITS if name in self.sets)

    @property
    def task(self) -> str:
        """Name of the one task all splits are of."""
        return next(iter(self.sets.values())).task

    def save(self, path: Path, *, overwrite: bool = False) -> None:
        """Write a dataset folder, all of it or nothing."""
        with new_folder(path, replacing=DATASET if overwrite else None) as folder:
            self.write(folder)

    def write(self, folder: Path) -> None:
        """Write the dataset's files into a folder that the caller makes appear at once (see `new_folder`)."""
        summaries = {}
        for name, puzzles in self:
            puzzles.write(folder / name)
            summaries[name] = {"count": len(puzzles), "content_digest": puzzles.digest}
        top = Dataset.from_json({"task": self.task, "splits": summaries})
        write_json(folder / DATASET, top.to_json())

    @classmethod
    def load(cls, path: Path, *, mmap: bool = True, verify: bool = True) -> "Splits":
        """Open every split of a dataset folder."""
        names = read_dataset(path).splits
        return cls({name: load_split(path, name, mmap=mmap, verify=verify) for name in names})


def read_dataset(path: Path) -> Dataset:
    """Read the top of a dataset folder."""
    if not path.is_dir():
        raise UserError(f"{path} is not a folder; make one with `eqr data build` or `eqr data import`")
    if not (path / DATASET).is_file():
        raise UserError(f"{path} has no {DATASET}; make it with `eqr data build` or `eqr data import`")
    return Dataset.from_json(read_json(path / DATASET), where=str(path / DATASET))


def load_split(path: Path | str, name: str, *, mmap: bool = True, verify: bool = True) -> PuzzleSet:
    """Open one split of a dataset folder."""
    path = Path(path)
    top = read_dataset(path)
    known = {str(split): summary for split, summary in top.splits.items()}
    if name not in known:
        raise UserError(
            f"{path} has no {name!r} split{nearest(name, known)}; name one that it has with --split"
        )
    puzzles = PuzzleSet.load(path / name, mmap=mmap, verify=verify)
    if (puzzles.task, puzzles.digest) != (top.task, known[name].content_digest):
        raise UserError(
            f"{path / name} is not the set that {path / DATASET} names "
            f"({puzzles.task} {puzzles.digest}, not {top.task} {known[name].content_digest}); build it again"
        )
    return puzzles


def keys(puzzles: PuzzleSet, task: Task | None) -> list[bytes]:
    """Return one hashable per row, equal for the same puzzle (up to `task.canonical`, given a task)."""
    grids = puzzles.inputs if task is None else task.canonical(np.asarray(puzzles.inputs))
    identities = puzzles.identities
    return [grid.tobytes() + identity.tobytes() for grid, identity in zip(grids, identities, strict=True)]


def leaks(seen: PuzzleSet, held_out: PuzzleSet, task: Task) -> NDArray[np.intp]:
    """Return the rows of `held_out` whose puzzle, up to cheap symmetries, is also in `seen`."""
    known = set(keys(seen, task))
    return np.array([row for row, key in enumerate(keys(held_out, task)) if key in known], np.intp)


def duplicates(puzzles: PuzzleSet, task: Task | None = None) -> NDArray[np.intp]:
    """Return the rows that repeat an earlier row of another group; up to symmetries, given a task."""
    first: dict[bytes, int] = {}
    groups = puzzles.groups.tolist()
    repeated = [
        row
        for row, key in enumerate(keys(puzzles, task))
        if first.setdefault(key, groups[row]) != groups[row]
    ]
    return np.array(repeated, np.intp)


def sample(puzzles: PuzzleSet, count: int, seed: int) -> PuzzleSet:
    """Draw `count` rows without replacement, kept in order; the metadata says which (Sudoku-Lite: 2,048)."""
    if not 0 < count <= len(puzzles):
        raise UserError(f"cannot sample {count:,} of {len(puzzles):,} puzzles")
    rows = chosen_rows(len(puzzles), count, seed)
    drawn: dict[str, Any] = {"seed": seed, "of": puzzles.digest, "indices": rows.tolist()}
    return puzzles.take(rows).with_metadata(sample=drawn)


def chosen_rows(total: int, count: int, seed: int) -> NDArray[np.int64]:
    """Return `count` of `total` row numbers, ascending, the same for the same seed."""
    return np.sort(np.random.default_rng(seed).choice(total, count, replace=False))


def carve(puzzles: PuzzleSet, task: Task, count: int, seed: int) -> tuple[PuzzleSet, PuzzleSet]:
    """Split off about `count` rows (never more) that share no puzzle and no group with the rest."""
    _, kinds = np.unique(np.array(keys(puzzles, task)), return_inverse=True)
    family = components(puzzles.groups, kinds)
    _, members, sizes = np.unique(family, return_inverse=True, return_counts=True)
    order = np.random.default_rng(seed).permutation(len(sizes))
    chosen, room = np.zeros(len(sizes), bool), count
    for kind in order:
        if sizes[kind] <= room:
            chosen[kind] = True
            room -= int(sizes[kind])
    held_out = chosen[members]
    if room == count or held_out.all():
        raise UserError(
            f"cannot hold out {count:,} of {len(puzzles):,} puzzles that share none with the rest"
        )
    return puzzles.take(np.flatnonzero(~held_out)), puzzles.take(np.flatnonzero(held_out))


def components(left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.int64]:
    """Label rows so that rows sharing a `left` or a `right` value, directly or through others, agree."""
    _, left = np.unique(left, return_inverse=True)
    _, right = np.unique(right, return_inverse=True)
    label = np.arange(len(left), dtype=np.int64)
    while True:
        before = label
        for side in (left, right):
            lowest = np.full(len(label), len(label), np.int64)
            np.minimum.at(lowest, side, label)
            label = lowest[side]
        if np.array_equal(before, label):
            return label


def describe(splits: Splits, task: Task) -> dict[str, Any]:
    """Return plain JSON data about every split and about what they share."""
    sets = dict(splits)
    pairs = [(a, b) for a in sets for b in sets if list(sets).index(a) < list(sets).index(b)]
    return {
        "task": task.name,
        "splits": {name: describe_set(puzzles, task) for name, puzzles in sets.items()},
        "leaks": {f"{a}-{b}": len(leaks(sets[a], sets[b], task)) for a, b in pairs},
    }


def describe_set(puzzles: PuzzleSet, task: Task) -> dict[str, Any]:
    """Return plain JSON data about one set."""
    numbers: dict[str, NDArray[Any]] = {}
    if task.clues_name is not None:
        numbers[task.clues_name] = task.clues(np.asarray(puzzles.inputs))
    if puzzles.ratings.any():
        numbers[task.rating_name] = puzzles.ratings
    if not task.identities:  # there the facts are labels (which family, which variant), not quantities
        numbers |= {name.replace("_", " "): values for name, values in puzzles.facts.items()}
    return {
        "count": len(puzzles),
        "groups": len(np.unique(puzzles.groups)),
        "identities": len(np.unique(puzzles.identities[puzzles.identities > 0])),
        "digest": puzzles.digest,
        "sources": _source_counts(puzzles),
        "repeats": len(duplicates(puzzles)),
        "repeats_up_to_symmetry": len(duplicates(puzzles, task)),
        "numbers": {name: _summary(values) for name, values in numbers.items()},
    }


def histogram(values: NDArray[Any], bins: int = BINS) -> list[tuple[int, int, int]]:
    """Count integers in (low, high, count) bins, both ends inside; long tails get bins of growing width."""
    low, high = int(values.min()), int(values.max())
    if high - low < 2 * bins:
        edges = np.arange(low, high + 2)
    elif low >= 0 and high > 8 * (np.median(values) + 1):
        edges = np.unique(np.round(np.geomspace(low + 1, high + 2, bins + 1)).astype(np.int64)) - 1
    else:
        edges = np.unique(np.round(np.linspace(low, high + 1, bins + 1)).astype(np.int64))
    counts = np.histogram(values, edges)[0]
    return [(int(a), int(b) - 1, int(n)) for (a, b), n in zip(pairwise(edges), counts, strict=True)]


def _source_counts(puzzles: PuzzleSet) -> dict[str, int]:
    counts = np.bincount(puzzles.sources, minlength=len(puzzles.source_names))
    return {name: int(n) for name, n in zip(puzzles.source_names, counts, strict=True) if n}


def _summary(values: NDArray[Any]) -> dict[str, Any]:
    return {
        "least": int(values.min()),
        "mean": round(float(values.mean()), 3),
        "median": float(np.median(values)),
        "most": int(values.max()),
        "histogram": histogram(values),
    }
