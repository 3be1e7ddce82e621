"""`PuzzleSet`: puzzles with their answers as arrays, with a content digest, saved as memory-mapped files.

Everything that trains or measures reads puzzles from here, whatever they came from. On disk a set is a folder
of plain `.npy` arrays beside a readable `puzzles.json`, so that a million rows open at once and other tools
can read them too.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, NonNegativeInt, StringConstraints

from eqr.data.arrays import read_integers
from eqr.errors import UserError
from eqr.files import new_folder, read_json, write_json
from eqr.progress import progress
from eqr.signals import deferred_interrupts
from eqr.tasks.base import PAD, Task, Tokens
from eqr.value import Value

BLANK = "<blank>"
"""Name of identity 0, which means that a puzzle has no identity."""

HEADER = "puzzles.json"
CHUNK = 512
"""Rows checked between two chances for Ctrl-C."""

FactName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,40}$")]


class Header(Value):
    """What `puzzles.json` says about the arrays beside it."""

    format: Literal["eqr-puzzles-1"] = "eqr-puzzles-1"
    task: str
    count: NonNegativeInt
    cells: NonNegativeInt
    content_digest: str
    facts: tuple[FactName, ...] = ()
    source_names: tuple[str, ...] = Field(min_length=1)
    identity_names: tuple[str, ...] = Field(min_length=1)
    metadata: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class PuzzleSet:
    """Puzzles of one task and their answers; row i of every array is about puzzle i."""

    task: str
    inputs: Tokens
    """(count, cells) uint8."""
    labels: Tokens
    """(count, cells) uint8; a label of 0 is a cell that neither loss nor accuracy counts."""
    groups: NDArray[np.int32]
    """(count,): rows of one group are variants of one puzzle; an epoch visits each group once."""
    identities: NDArray[np.int32]
    """(count,): index into `identity_names`; 0 is none."""
    ratings: NDArray[np.int32]
    sources: NDArray[np.int16]
    """(count,): index into `source_names`."""
    source_names: tuple[str, ...]
    identity_names: tuple[str, ...] = (BLANK,)
    facts: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    """Extra integers per puzzle by name, such as the number of shortest paths."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """How the set was made; not part of the digest."""

    @classmethod
    def of(
        cls,
        task: str,
        inputs: ArrayLike,
        labels: ArrayLike,
        *,
        groups: ArrayLike | None = None,
        identities: ArrayLike | None = None,
        ratings: ArrayLike | None = None,
        sources: ArrayLike | None = None,
        source_names: tuple[str, ...] = ("unknown",),
        identity_names: tuple[str, ...] = (BLANK,),
        facts: Mapping[str, ArrayLike] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Self:
        """Make a set from whatever arrays there are; by default each row is its own group."""
        inputs = np.asarray(inputs, np.uint8)
        count = len(inputs)
        none = np.zeros(count, np.int32)
        return cls(
            task=task,
            inputs=inputs,
            labels=np.asarray(labels, np.uint8),
            groups=np.arange(count, dtype=np.int32) if groups is None else np.asarray(groups, np.int32),
            identities=none if identities is None else np.asarray(identities, np.int32),
            ratings=none if ratings is None else np.asarray(ratings, np.int32),
            sources=np.asarray(none if sources is None else sources, np.int16),
            source_names=tuple(source_names),
            identity_names=tuple(identity_names),
            facts={name: np.asarray(values, np.int64) for name, values in (facts or {}).items()},
            metadata=dict(metadata or {}),
        )

    def __post_init__(self) -> None:
        count = len(self.inputs)
        if self.inputs.ndim != 2 or self.inputs.shape != self.labels.shape:
            raise UserError(
                f"inputs {self.inputs.shape} and labels {self.labels.shape} must both be (puzzles, cells)"
            )
        for name, array in self._arrays():
            if len(array) != count:
                raise UserError(f"{name} has {len(array)} entries for {count} puzzles")
        for name, array, names in (
            ("identities", self.identities, self.identity_names),
            ("sources", self.sources, self.source_names),
        ):
            if count and not 0 <= int(array.min()) <= int(array.max()) < len(names):
                raise UserError(f"{name} must lie in 0..{len(names) - 1}, found {array.min()}..{array.max()}")

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def cells(self) -> int:
        """Number of cells of each puzzle."""
        return int(self.inputs.shape[1])

    @cached_property
    def digest(self) -> str:
        """Content hash of the task, all arrays and names; equal for equal puzzles in equal order."""
        digest = hashlib.sha256(repr((self.task, self.source_names, self.identity_names)).encode())
        for name, array in self._arrays():
            digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()[:16]

    def take(self, indices: ArrayLike) -> "PuzzleSet":
        """Return the set of the given rows, in the given order."""
        rows = np.asarray(indices, np.intp)
        arrays: dict[str, Any] = {name: getattr(self, name)[rows] for name in _COLUMNS}
        facts = {name: array[rows] for name, array in self.facts.items()}
        return replace(self, **arrays, facts=facts)

    def with_metadata(self, **more: Any) -> "PuzzleSet":
        """Return the same puzzles with more said about how they were made."""
        return replace(self, metadata={**self.metadata, **more})

    def save(self, path: Path | str, *, overwrite: bool = False) -> None:
        """Write the set as a folder, all of it or nothing."""
        with new_folder(Path(path), replacing=HEADER if overwrite else None) as folder:
            self.write(folder)

    def write(self, folder: Path) -> None:
        """Write the set's files into a folder that the caller makes appear at once (see `new_folder`)."""
        folder.mkdir(exist_ok=True)
        for name, array in self._arrays():
            np.save(folder / f"{name}.npy", array)
        header = Header(
            task=self.task,
            count=len(self),
            cells=self.cells,
            content_digest=self.digest,
            facts=tuple(sorted(self.facts)),
            source_names=self.source_names,
            identity_names=self.identity_names,
            metadata=dict(self.metadata),
        )
        write_json(folder / HEADER, header.to_json())

    @classmethod
    def load(cls, path: Path | str, *, mmap: bool = True, verify: bool = True) -> Self:
        """Open a saved set; `verify` reads it once (a gigabyte a second) and compares its digest."""
        path = Path(path)
        header = Header.from_json(read_json(path / HEADER), where=str(path / HEADER))
        arrays = {name: _read(path, name, mmap=mmap) for name in _COLUMNS}
        facts = {name: _read(path, f"facts.{name}", mmap=mmap) for name in header.facts}
        try:
            puzzles = cls(
                task=header.task,
                **arrays,
                facts=facts,
                source_names=header.source_names,
                identity_names=header.identity_names,
                metadata=header.metadata,
            )
        except UserError as error:
            raise UserError(f"{path} is damaged: {error}; build or import it again") from None
        if (len(puzzles), puzzles.cells) != (header.count, header.cells):
            raise UserError(
                f"{path} is damaged: {HEADER} says {header.count} puzzles of {header.cells} cells, "
                f"the arrays hold {len(puzzles)} of {puzzles.cells}; build or import it again"
            )
        if verify and puzzles.digest != header.content_digest:
            raise UserError(
                f"{path} was changed after it was made: its digest is {puzzles.digest}, {HEADER} says "
                f"{header.content_digest}; build or import it again"
            )
        vars(puzzles)["digest"] = header.content_digest  # already known: no need to read every row again
        return puzzles

    def _arrays(self) -> Iterator[tuple[str, NDArray[Any]]]:
        for name in _COLUMNS:
            yield name, getattr(self, name)
        for name in sorted(self.facts):
            yield f"facts.{name}", self.facts[name]


_COLUMNS: dict[str, tuple[type[np.integer[Any]], int]] = {
    "inputs": (np.uint8, 2),
    "labels": (np.uint8, 2),
    "groups": (np.int32, 1),
    "identities": (np.int32, 1),
    "ratings": (np.int32, 1),
    "sources": (np.int16, 1),
}


def _read(folder: Path, name: str, *, mmap: bool) -> NDArray[Any]:
    dtype, dimensions = _COLUMNS.get(name, (np.int64, 1))
    array = read_integers(folder / f"{name}.npy", dimensions=dimensions, mmap=mmap)
    if array.dtype != dtype:
        raise UserError(
            f"{folder / name}.npy holds {array.dtype}, not {np.dtype(dtype)}; build the set again"
        )
    return array


def require_sound(
    task: Task, inputs: Tokens, labels: Tokens, where: Callable[[int], str], *, quiet: bool = True
) -> None:
    """Raise a `UserError` for a row that is ill-formed, wrongly labelled or, if one answer is due, ambiguous.

    `where(row)` names the row in its file. Rows with ignored cells (label 0) have no whole answer to judge.
    """
    with progress(f"checking {task.name}", len(inputs), unit="puzzles", quiet=quiet) as shown:
        for start in range(0, len(inputs), CHUNK):
            rows = np.arange(start, min(start + CHUNK, len(inputs)))
            with deferred_interrupts():
                _require_sound(task, inputs, labels, rows, where)
            shown.advance(len(rows))


def _require_sound(
    task: Task, inputs: Tokens, labels: Tokens, rows: NDArray[np.intp], where: Callable[[int], str]
) -> None:
    bad = _unsolved(task, inputs[rows], labels[rows])
    if bad.any():
        row = int(rows[np.argmax(bad)])
        raise UserError(f"{where(row)}: {_reason(task, inputs[row], labels[row])}")
    for row in rows.tolist():  # one by one: a search that gives up is about the row that it was at
        _require_one_answer(task, inputs[row], where(row))


def _unsolved(task: Task, inputs: Tokens, labels: Tokens) -> NDArray[np.bool_]:
    padded = (inputs == PAD).any(axis=1)
    whole = (labels != PAD).all(axis=1)
    bad: NDArray[np.bool_] = padded | (whole & ~task.check_many(inputs, labels))
    return bad


def _reason(task: Task, puzzle: Tokens, answer: Tokens) -> str:
    if (puzzle == PAD).any():
        return f"cell {int(np.argmax(puzzle == PAD)) + 1} of the puzzle is padding; every cell needs a symbol"
    posed = task.check_puzzle(puzzle)
    if not posed:
        return f"the puzzle is not well formed: {posed.reason}; correct or remove the row"
    wrong = task.check(puzzle, answer).reason
    return f"the answer does not solve its puzzle: {wrong}; correct or remove the row"


def _require_one_answer(task: Task, puzzle: Tokens, where: str) -> None:
    try:
        answers = task.count_answers(puzzle[None])
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    if answers is None or answers[0] == 1:
        return
    many, then = ("several answers", task.if_ambiguous) if answers[0] else ("no answer", "remove the row")
    raise UserError(f"{where}: the puzzle has {many}, {task.name} promises exactly one; {then}")
