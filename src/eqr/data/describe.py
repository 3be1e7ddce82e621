"""What is in a dataset, in numbers: sizes, histograms, repeats and leaks. Shown by `eqr data show`."""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eqr.data.puzzles import PuzzleSet
from eqr.data.splits import Splits, duplicates, leaks
from eqr.tasks.base import Task

BINS = 12


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
