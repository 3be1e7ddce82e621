"""Dataset folders of HRM, TRM and EqR, read and written so that the original loaders accept them.

A split there is `dataset.json` beside arrays named `<set>__inputs.npy` and so on: examples are joined into
puzzles (one identifier each) and puzzles into groups (variants of one another), both by offsets. Ratings,
sources and facts have no place in that format and are lost on export.
"""

from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import NonNegativeInt, PositiveInt, StringConstraints

from eqr.data.arrays import read_integers
from eqr.data.puzzles import BLANK, PuzzleSet, require_sound
from eqr.data.splits import SPLITS, Splits, components
from eqr.errors import UserError
from eqr.files import new_folder, read_json, write_json
from eqr.tasks.base import Task
from eqr.tasks.registry import task_named
from eqr.value import Value

METADATA = "dataset.json"
NAMES = "identifiers.json"

KNOWN = {
    (16, 6): "sudoku-4x4",
    (36, 8): "sudoku-6x6",
    (81, 11): "sudoku-9x9",
    (256, 18): "sudoku-16x16",
    (900, 6): "maze-1k",
    (25, 11): "mini-arc",
}
"""Task by sequence length and vocabulary."""


SetName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$")]
"""The beginning of file names beside the metadata, never a way out of the folder."""

MOST_NAMELESS = 100_000
"""Identifiers that may go without names; every published folder with more of them brings its names."""


class FolderMetadata(Value, extra="ignore"):
    """`dataset.json` of one split; TRM needs `total_puzzles`, EqR may use `total_samples`."""

    pad_id: int | None = 0
    ignore_label_id: int | None = 0
    blank_identifier_id: int = 0
    vocab_size: PositiveInt
    seq_len: PositiveInt
    num_puzzle_identifiers: PositiveInt
    total_groups: NonNegativeInt
    mean_puzzle_examples: float
    total_puzzles: int | None = None
    total_samples: int | None = None
    sets: tuple[SetName, ...]


def is_folder(path: Path) -> bool:
    """Whether a path looks like such a dataset: a split folder with the originals' metadata in it."""
    return any((path / split / METADATA).is_file() for split in SPLITS)


def read_folder(path: Path, task: Task | None = None, *, quiet: bool = True) -> Splits:
    """Read every split of a dataset folder; every row is checked."""
    names = [split for split in SPLITS if (path / split / METADATA).is_file()]
    if not names:
        raise UserError(f"{path} has no train/{METADATA} or test/{METADATA}; it is not an HRM/TRM/EqR folder")
    return Splits({name: _read_split(path / name, task, quiet=quiet) for name in names})


def _read_split(path: Path, task: Task | None, *, quiet: bool) -> PuzzleSet:
    metadata = FolderMetadata.from_json(read_json(path / METADATA), where=str(path / METADATA))
    task = task or _task_of(metadata, path)
    if (metadata.seq_len, metadata.vocab_size) != (task.cells, task.vocabulary):
        raise UserError(
            f"{path / METADATA} says {metadata.seq_len} cells and {metadata.vocab_size} tokens; {task.name} "
            f"has {task.cells} and {task.vocabulary}: name the right --task"
        )
    parts = [_read_set(path, name, metadata) for name in metadata.sets]
    if not parts or not sum(len(part.inputs) for part in parts):
        raise UserError(f"{path} holds no puzzles; leave the split out")
    inputs = np.concatenate([part.inputs for part in parts])
    labels = np.concatenate([part.labels for part in parts])
    identities = np.concatenate([part.identities for part in parts])
    require_sound(task, inputs, labels, lambda row: f"{path}, row {row}", quiet=quiet)
    return PuzzleSet.of(
        task.name,
        inputs,
        labels,
        groups=_joined_groups([part.groups for part in parts]),
        identities=identities,
        identity_names=_identity_names(path.parent, metadata.num_puzzle_identifiers),
        source_names=("folder",),
        metadata={"made_by": "eqr data import", "folder": path.parent.name},
    )


def _task_of(metadata: FolderMetadata, path: Path) -> Task:
    name = KNOWN.get((metadata.seq_len, metadata.vocab_size))
    if name is None:
        raise UserError(
            f"{path / METADATA}: no task has {metadata.seq_len} cells and {metadata.vocab_size} tokens; name "
            "one with --task"
        )
    return task_named(name)


class _Set(NamedTuple):
    inputs: NDArray[np.uint8]
    labels: NDArray[np.uint8]
    identities: NDArray[np.int32]
    groups: NDArray[np.int64]


def _read_set(path: Path, name: str, metadata: FolderMetadata) -> _Set:
    def column(field: str, dimensions: int) -> NDArray[Any]:
        return read_integers(path / f"{name}__{field}.npy", dimensions=dimensions, mmap=dimensions == 2)

    inputs, labels = column("inputs", 2), column("labels", 2)
    for field, grids in (("inputs", inputs), ("labels", labels)):
        if grids.shape != (len(inputs), metadata.seq_len):
            raise UserError(
                f"{path / name}__{field}.npy is {grids.shape}, needed ({len(inputs)}, {metadata.seq_len})"
            )
    if metadata.ignore_label_id not in (None, 0):
        labels = np.where(labels == metadata.ignore_label_id, 0, labels)
    identifiers = column("puzzle_identifiers", 1)
    puzzle_ends, group_ends = column("puzzle_indices", 1), column("group_indices", 1)
    puzzles = _membership(puzzle_ends, len(inputs), path / f"{name}__puzzle_indices.npy")
    groups = _membership(group_ends, len(identifiers), path / f"{name}__group_indices.npy")
    if len(puzzle_ends) != len(identifiers) + 1:
        raise UserError(f"{path}: {len(identifiers)} puzzle identifiers, {len(puzzle_ends) - 1} puzzles")
    if len(identifiers) and not 0 <= identifiers.min() <= identifiers.max() < metadata.num_puzzle_identifiers:
        raise UserError(
            f"{path / name}__puzzle_identifiers.npy: identifiers must lie in "
            f"0..{metadata.num_puzzle_identifiers - 1}"
        )
    slots = np.arange(len(inputs)) - puzzle_ends[puzzles]
    return _Set(
        _tokens(inputs, metadata.vocab_size, path / f"{name}__inputs.npy"),
        _tokens(labels, metadata.vocab_size, path / f"{name}__labels.npy"),
        identifiers[puzzles].astype(np.int32),
        _pairs(groups[puzzles], slots),
    )


def _membership(ends: NDArray[Any], count: int, path: Path) -> NDArray[np.int64]:
    """Turn offsets 0, a, b, ..., count into the number of the part that each of `count` items is in."""
    ends = ends.astype(np.int64)
    if not len(ends) or ends[0] != 0 or ends[-1] != count or (np.diff(ends) < 0).any():
        raise UserError(f"{path} must rise from 0 to {count}; the folder is damaged: copy or build it again")
    return np.repeat(np.arange(len(ends) - 1), np.diff(ends))


def _pairs(first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.int64]:
    """Number the distinct pairs: the k-th examples of a group's puzzles are variants of one another."""
    codes = first.astype(np.int64) * (int(second.max(initial=0)) + 1) + second
    return np.unique(codes, return_inverse=True)[1].astype(np.int64)


def _joined_groups(parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    offsets = np.cumsum([0, *(int(part.max(initial=-1)) + 1 for part in parts[:-1])])
    return np.concatenate([part + offset for part, offset in zip(parts, offsets, strict=True)])


def _tokens(grids: NDArray[Any], vocabulary: int, path: Path) -> NDArray[np.uint8]:
    bad = ((grids < 0) | (grids >= vocabulary)).any(axis=1)
    if bad.any():
        raise UserError(f"{path}, row {int(np.argmax(bad))}: tokens must lie in 0..{vocabulary - 1}")
    return grids.astype(np.uint8)


def _identity_names(root: Path, count: int) -> tuple[str, ...]:
    names = read_json(root / NAMES) if (root / NAMES).is_file() else []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UserError(f"{root / NAMES} must be a list of names, one per puzzle identifier")
    if count > max(len(names), MOST_NAMELESS):
        raise UserError(f"{root}: {count} puzzle identifiers but {len(names)} names in {NAMES}")
    return tuple(names[i] if i < len(names) else (f"puzzle-{i}" if i else BLANK) for i in range(count))


def write_folder(splits: Splits, task: Task, path: Path, *, overwrite: bool = False) -> None:
    """Write a dataset folder for the original loaders, all of it or nothing."""
    with new_folder(path, replacing=NAMES if overwrite else None) as root:
        for name, puzzles in splits:
            (root / name).mkdir()
            _write_split(puzzles, task, root / name)
        write_json(root / NAMES, max(([*puzzles.identity_names] for _, puzzles in splits), key=len))


def _write_split(puzzles: PuzzleSet, task: Task, folder: Path) -> None:
    rows = np.arange(len(puzzles))
    first_of_identity = np.full(len(puzzles.identity_names), len(puzzles), np.int64)
    np.minimum.at(first_of_identity, puzzles.identities, rows)
    puzzle = np.where(puzzles.identities > 0, first_of_identity[puzzles.identities], rows)
    family = components(puzzles.groups, puzzle)
    order = np.lexsort((rows, puzzle, family))
    starts = np.flatnonzero(np.diff(puzzle[order], prepend=-1))
    group_starts = np.flatnonzero(np.diff(family[order][starts], prepend=-1))
    arrays: dict[str, NDArray[Any]] = {
        "inputs": puzzles.inputs[order],
        "labels": puzzles.labels[order],
        "puzzle_identifiers": puzzles.identities[order][starts].astype(np.int32),
        "puzzle_indices": np.append(starts, len(rows)).astype(np.int32),
        "group_indices": np.append(group_starts, len(starts)).astype(np.int32),
    }
    for field, array in arrays.items():
        np.save(folder / f"all__{field}.npy", array)
    metadata = FolderMetadata(
        vocab_size=task.vocabulary,
        seq_len=task.cells,
        num_puzzle_identifiers=len(puzzles.identity_names),
        total_groups=len(group_starts),
        mean_puzzle_examples=len(rows) / len(starts),
        total_puzzles=len(starts),
        total_samples=len(rows),
        sets=("all",),
    )
    write_json(folder / METADATA, metadata.to_json())
