"""`Batches`: an endless, shuffled, augmenting stream of training rows that resumes at the exact next row.

What comes at stream position p depends only on (seed, p, puzzle set): the cursor is one integer. Training by
segments refills a varying number of rows per step, hence `take(count)` rather than batches of one size; of
several processes each takes its own rows and skips those of the others, which costs nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eqr.data.puzzles import PuzzleSet
from eqr.errors import UserError
from eqr.tasks.base import Task, Tokens

BLOCK = 256
"""Positions whose rows are drawn and augmented together; part of what a seed means, so never change it."""

_ORDER, _SYMMETRY, _REVEAL = 0, 1, 2
"""First word of a generator's key after the seed: keeps the kinds of draws independent."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows of a stream; row i of every array belongs to position `positions[i]`."""

    inputs: Tokens
    """(rows, cells) uint8."""
    labels: Tokens
    """(rows, cells) uint8; 0 is a cell that is not counted."""
    identities: NDArray[np.int32]
    indices: NDArray[np.int64]
    """Row of the puzzle set that each row was made from; in a stream of fresh puzzles, the position."""
    positions: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.inputs)

    def rows(self, chosen: NDArray[np.int64] | slice) -> "Batch":
        """Return some of the rows."""
        return Batch(**{name: array[chosen] for name, array in vars(self).items()})

    @classmethod
    def joined(cls, parts: Sequence["Batch"]) -> "Batch":
        """Return the rows of several batches as one."""
        names = vars(parts[0])
        return cls(**{name: np.concatenate([vars(part)[name] for part in parts]) for name in names})


class Batches:
    """A stream over a puzzle set: each epoch takes a random member of each group once, in random order.

    `augment` turns every row by a fresh random symmetry of the task. A task with identities is never
    augmented on the fly: a turned puzzle would belong to another identity (its variants are made on import).
    `reveal` gives away up to so many answers of every row, from none on: a ladder up to puzzles that are out
    of reach as they are. It is for tasks whose input is an answer with blanks.
    """

    def __init__(self, puzzles: PuzzleSet, task: Task, *, seed: int, augment: bool, reveal: int = 0) -> None:
        if not len(puzzles):
            raise UserError("cannot draw batches from an empty puzzle set")
        if puzzles.task != task.name:
            raise UserError(f"these puzzles are {puzzles.task}, the task is {task.name}")
        if reveal and task.identities:
            raise UserError(f"data.reveal = {reveal}: the input of {task.name} is not an answer with blanks")
        task.require_tokens(puzzles.inputs)
        self.puzzles, self.task, self.seed = puzzles, task, seed
        self.augment, self.reveal = augment and not task.identities, reveal
        self._taken = 0
        self._rows_by_group = np.argsort(puzzles.groups, kind="stable")
        _, self._starts, self._sizes = np.unique(
            puzzles.groups[self._rows_by_group], return_index=True, return_counts=True
        )
        self._epoch = lru_cache(maxsize=2)(self._draw_epoch)
        self._block = lru_cache(maxsize=2)(self._draw_block)

    @property
    def rows_per_epoch(self) -> int:
        """Number of groups, each drawn from once in an epoch."""
        return len(self._sizes)

    def take(self, count: int) -> Batch:
        """Return the next `count` rows."""
        if count < 1:
            raise UserError(f"cannot take {count} rows")
        positions = np.arange(self._taken, self._taken + count, dtype=np.int64)
        self._taken += count
        blocks = positions // BLOCK
        parts = [
            self._block(int(block)).rows(positions[blocks == block] % BLOCK) for block in np.unique(blocks)
        ]
        return Batch.joined(parts)

    def skip(self, count: int) -> None:
        """Pass over the next `count` rows."""
        self._taken += count

    def state(self) -> dict[str, Any]:
        """Return the cursor as plain JSON data."""
        return {"taken": self._taken, "seed": self.seed, "puzzles": self.puzzles.digest}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on exactly where `state` was saved; another seed or puzzle set is an error."""
        require_same(state, self.state(), "data")
        self._taken = int(state["taken"])

    def _draw_epoch(self, epoch: int) -> NDArray[np.int64]:
        """Row numbers of one epoch, in order."""
        rng = np.random.default_rng([self.seed, _ORDER, epoch])
        order = rng.permutation(len(self._sizes))
        members = rng.integers(self._sizes[order])
        rows: NDArray[np.int64] = self._rows_by_group[self._starts[order] + members]
        return rows

    def _draw_block(self, block: int) -> Batch:
        positions = np.arange(block * BLOCK, (block + 1) * BLOCK, dtype=np.int64)
        epochs, offsets = np.divmod(positions, self.rows_per_epoch)
        indices = np.concatenate([self._epoch(int(e))[offsets[epochs == e]] for e in np.unique(epochs)])
        inputs, labels = self.puzzles.inputs[indices], self.puzzles.labels[indices]
        if self.augment:
            rng = np.random.default_rng([self.seed, _SYMMETRY, block])
            symmetries = self.task.draw_symmetries(rng, BLOCK)
            inputs, labels = symmetries.apply(inputs), symmetries.apply(labels)
        if self.reveal:
            rng = np.random.default_rng([self.seed, _REVEAL, block])
            inputs = revealed(rng, inputs, labels, most=self.reveal)
        identities = self.puzzles.identities[indices]
        return Batch(
            inputs=inputs, labels=labels, identities=identities, indices=indices, positions=positions
        )


def require_same(saved: dict[str, Any], mine: dict[str, Any], what: str) -> None:
    """Refuse to go on with another stream than the one whose cursor was saved."""
    for key in mine:
        if key != "taken" and saved.get(key) != mine[key]:
            raise UserError(
                f"cannot resume the {what} stream: it was saved with {key} {saved.get(key)!r}, "
                f"this run has {mine[key]!r}"
            )


def revealed(
    rng: np.random.Generator, inputs: Tokens, labels: Tokens, *, most: int, least: int = 0
) -> Tokens:
    """Return the inputs with `least` to `most` answers of each row given away."""
    hidden = (inputs != labels) & (labels != 0)
    order = np.argsort(np.where(hidden, rng.random(inputs.shape), 2.0), axis=1).argsort(axis=1)
    return np.where(hidden & (order < rng.integers(least, most + 1, size=(len(inputs), 1))), labels, inputs)


def in_order(puzzles: PuzzleSet, rows: int) -> Iterator[Batch]:
    """Yield the set once, in its own order, `rows` at a time; the last batch is short, never padded."""
    for start in range(0, len(puzzles), rows):
        indices = np.arange(start, min(start + rows, len(puzzles)), dtype=np.int64)
        part = slice(start, start + rows)
        yield Batch(
            inputs=np.array(puzzles.inputs[part]),
            labels=np.array(puzzles.labels[part]),
            identities=np.array(puzzles.identities[part]),
            indices=indices,
            positions=indices,
        )
