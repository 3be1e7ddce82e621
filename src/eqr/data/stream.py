"""`GeneratedStream`: an endless stream of fresh puzzles, with the interface of `Batches`.

For models that need more than a fixed set. Background processes generate ahead while the model trains; what
comes at a position depends only on the seed and on the puzzles held out, not on how many processes there are
or when it was resumed. A small task repeats itself; what is held out for judging never comes.
"""

import hashlib
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

import numpy as np

from eqr.data.batches import Batch
from eqr.data.puzzles import PuzzleSet
from eqr.data.workers import ROWS, Blocks, GeneratedBlock, kinds, require_workers
from eqr.errors import UserError
from eqr.tasks.base import Generate, Task

FIRST = 1 << 40
"""Number of the stream's first block: a set built with the same seed takes blocks from 0 on."""


class GeneratedStream:
    """Fresh puzzles without end: the seed's sequence of blocks, row by row.

    With `workers`, scripts need the usual `if __name__ == "__main__":` guard of spawned processes. Call
    `close`, or use it in a `with` block; workers end with their reader in any case.
    """

    def __init__(
        self,
        task: Task,
        options: Generate | None = None,
        *,
        seed: int,
        held_out: Iterable[PuzzleSet] = (),
        workers: int = 0,
    ) -> None:
        """Leave out whatever equals a puzzle of the sets `held_out` up to the task's cheap symmetries."""
        require_workers(workers)
        self.task, self.options, self.seed, self.workers = task, options, seed, workers
        self._held_out = frozenset(
            kind
            for puzzles in held_out
            for kind in kinds(task, np.asarray(puzzles.inputs), puzzles.identities)
        )
        self._taken = 0
        self._blocks: Blocks | None = None
        self._held: Batch | None = None
        """Rows of the current block that are not taken yet."""

    def take(self, count: int) -> Batch:
        """Return the next `count` rows."""
        if count < 1:
            raise UserError(f"cannot take {count} rows")
        parts = []
        while count:
            rows = self._held if self._held is not None else self._next_rows()
            part, rest = rows.rows(slice(count)), rows.rows(slice(count, None))
            self._held = rest if len(rest) else None
            self._taken += len(part)
            count -= len(part)
            parts.append(part)
        return Batch.joined(parts)

    def skip(self, count: int) -> None:
        """Pass over the next `count` rows; puzzles are made in blocks, of which none is left out."""
        if count:
            self.take(count)

    def state(self) -> dict[str, Any]:
        """Return the cursor as plain JSON data."""
        options = None if self.options is None else self.options.digest()
        held_out = hashlib.sha256(b"".join(sorted(self._held_out))).hexdigest()[:16]
        return {
            "taken": self._taken,
            "seed": self.seed,
            "task": self.task.name,
            "options": options,
            "held_out": held_out if self._held_out else None,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on exactly where `state` was saved; another seed, task, option or set held out is an error."""
        mine = self.state()
        for key in ("seed", "task", "options", "held_out"):
            if state.get(key) != mine[key]:
                raise UserError(
                    f"cannot resume the puzzle stream: it was saved with {key} {state.get(key)!r}, "
                    f"this run has {mine[key]!r}"
                )
        self.close()
        self._taken = int(state["taken"])

    def close(self) -> None:
        """End the background processes; a later `take` starts them again."""
        if self._blocks is not None:
            self._blocks.close()
        self._blocks = self._held = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _next_rows(self) -> Batch:
        """The untaken rows of the block that the cursor stands in."""
        number, offset = divmod(self._taken, ROWS)
        if self._blocks is None:
            self._blocks = Blocks(
                self.task,
                self.options,
                seed=self.seed,
                workers=self.workers,
                held_out=self._held_out,
                start=FIRST + number,
            )
        return _batch(next(self._blocks), number).rows(slice(offset, None))


def _batch(block: GeneratedBlock, number: int) -> Batch:
    positions = np.arange(number * ROWS, number * ROWS + len(block), dtype=np.int64)
    return Batch(
        inputs=block.inputs,
        labels=block.labels,
        identities=block.identities,
        indices=positions,
        positions=positions,
    )
