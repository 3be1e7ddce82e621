"""Putting finished rows back together: blocks of consecutive puzzles, each handed out once it is complete.

The solver gathers blocks of one puzzle, the table on disk a few hundred at a time. Memory is that of the
blocks still open.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eqr.solve.budget import Budget
from eqr.solve.candidates import WINDOW, Candidates, Status
from eqr.solve.cohort import Finished


@dataclass(frozen=True)
class Block:
    """All candidates of puzzles `first`, `first + 1`, ...; shape (puzzles, starts, depths)."""

    first: int
    candidates: Candidates


class Gather:
    """Collects candidates by puzzle, start and noted depth (the last one being the budget's)."""

    def __init__(
        self,
        budget: Budget,
        *,
        cells: int,
        window: int = WINDOW,
        noted: Iterable[int] = (),
        size: int = 1,
        total: int | None = None,
    ) -> None:
        """Open blocks of `size` puzzles; given the `total` number of puzzles, the last block is shorter."""
        self.depths = sorted({*(depth for depth in noted if depth < budget.depth), budget.depth})
        self._budget, self._cells, self._window = budget, cells, min(window, budget.depth)
        self._size, self._total = size, total
        self._open: dict[int, Candidates] = {}
        self._left: dict[int, int] = {}
        self.ended = 0
        """Starts that need no more waiting for, those that a race never began included."""

    def add(self, finished: Finished) -> Iterator[Block]:
        """Take in finished rows and yield the blocks they complete."""
        numbers = finished.puzzles // self._size
        for number in dict.fromkeys(numbers.tolist()):
            rows = np.flatnonzero(numbers == number)
            block = self._open.get(number)
            if block is None:
                block = self._open[number] = self._new(number)
            self._write(block, finished, rows, number * self._size)
            if not finished.passing:
                ended = self._ended(finished, rows)
                self.ended += ended
                self._left[number] -= ended
                if self._left[number] == 0:
                    del self._left[number]
                    yield Block(number * self._size, self._open.pop(number))

    def _new(self, number: int) -> Candidates:
        first = number * self._size
        count = self._size if self._total is None else min(self._size, self._total - first)
        self._left[number] = count * self._budget.breadth
        shape = (count, self._budget.breadth, len(self.depths))
        return Candidates.empty(*shape, cells=self._cells, window=self._window)

    def _write(self, block: Candidates, finished: Finished, rows: NDArray[np.intp], first: int) -> None:
        """A row that ended at depth d is the answer at every noted depth from d on."""
        part = finished.candidates[rows]
        puzzles, restarts = finished.puzzles[rows] - first, finished.restarts[rows]
        for column, depth in enumerate(self.depths):
            holds = part.depth == depth if finished.passing else part.depth <= depth
            block.put((puzzles[holds], restarts[holds], column), part[holds])

    def _ended(self, finished: Finished, rows: NDArray[np.intp]) -> int:
        """Count the starts that need no more waiting for: in a won race, those that never began too."""
        if not self._budget.race:
            return len(rows)
        puzzles, restarts = finished.puzzles[rows], finished.restarts[rows]
        won = puzzles[finished.candidates.status[rows] == Status.HALTED]
        ended = len(rows)
        for puzzle in set(won.tolist()):
            ended += self._budget.breadth - 1 - int(restarts[puzzles == puzzle].max())
        return ended
