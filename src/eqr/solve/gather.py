"""Putting finished rows back together: blocks of consecutive puzzles, each handed out once it is complete.

The solver gathers blocks of one puzzle, the table on disk a few hundred at a time. Memory is that of the
blocks still open.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eqr.solve.budget import Budget
from eqr.solve.candidates import WINDOW, Candidates
from eqr.solve.cohort import Finished

AT_FIRST = 256
"""Starts of a puzzle that a block has room for before it grows."""


@dataclass(frozen=True)
class CandidateBlock:
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
        """Open blocks of `size` puzzles; given the `total` number of puzzles, the last block is shorter.

        Without a total, a block need not hold all of the starts that never began because a race was won.
        """
        self.depths = sorted({*(depth for depth in noted if depth < budget.depth), budget.depth})
        self._budget, self._cells, self._window = budget, cells, min(window, budget.depth)
        self._size, self._total = size, total
        self._open: dict[int, Candidates] = {}
        self._left: dict[int, int] = {}
        self.ended = 0
        """Starts that need no more waiting for, those that a race never began included."""

    def add(self, finished: Finished) -> Iterator[CandidateBlock]:
        """Take in finished rows and yield the blocks they complete."""
        numbers = finished.puzzles // self._size
        for number in dict.fromkeys(numbers.tolist()):
            rows = np.flatnonzero(numbers == number)
            block = self._roomy(number, finished.restarts[rows])
            self._write(block, finished, rows, number * self._size)
            if not finished.passing:
                ended = self._ended(finished, rows)
                self.ended += ended
                self._left[number] -= ended
                if self._left[number] == 0:
                    del self._left[number]
                    yield CandidateBlock(number * self._size, self._open.pop(number))

    def _new(self, number: int) -> Candidates:
        first = number * self._size
        count = self._size if self._total is None else min(self._size, self._total - first)
        self._left[number] = count * self._budget.breadth
        breadth = self._budget.breadth
        return self._empty(count, breadth if self._total is not None else min(breadth, AT_FIRST))

    def _empty(self, puzzles: int, starts: int) -> Candidates:
        return Candidates.empty(puzzles, starts, len(self.depths), cells=self._cells, window=self._window)

    def _roomy(self, number: int, restarts: NDArray[np.int64]) -> Candidates:
        """Return the block, with room for these starts: it grows by doubling."""
        block = self._open.get(number)
        if block is None:
            block = self._open[number] = self._new(number)
        puzzles, starts = block.status.shape[:2]
        needed = int(restarts.max()) + 1
        if needed > starts:
            grown = self._empty(puzzles, min(max(2 * starts, needed), self._budget.breadth))
            grown.put((slice(None), slice(None, starts)), block)
            block = self._open[number] = grown
        return block

    def _write(self, block: Candidates, finished: Finished, rows: NDArray[np.intp], first: int) -> None:
        """A row that ended at depth d is the answer at every noted depth from d on."""
        part = finished.candidates[rows]
        puzzles, restarts = finished.puzzles[rows] - first, finished.restarts[rows]
        for column, depth in enumerate(self.depths):
            holds = part.depth == depth if finished.passing else part.depth <= depth
            block.put((puzzles[holds], restarts[holds], column), part[holds])

    def _ended(self, finished: Finished, rows: NDArray[np.intp]) -> int:
        """Count the starts that need no more waiting for: in a won race, those that never began too."""
        won = rows[finished.won[rows]]
        winners: dict[int, int] = dict(
            zip(finished.puzzles[won].tolist(), finished.restarts[won].tolist(), strict=True)
        )
        heat, breadth = self._budget.heat_size, self._budget.breadth
        begun = ((start // heat + 1) * heat for start in winners.values())
        return len(rows) + sum(max(breadth - count, 0) for count in begun)
