"""What comes of a run: `Candidates` of all starts, the `Answer` chosen of them, a `Snapshot` on the way.

Candidates are columns of any leading shape, usually (puzzles, starts). The engine yields them in batches as
rows finish (`Finished`), the solver and the table on disk gather them by puzzle (`Gather`). Answers and
snapshots have one plain form, the same on the command line and over the wire.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eqr.dynamics.halting import Halting
from eqr.solve.budget import Budget
from eqr.tasks.base import Task, Tokens

AT_FIRST = 256
"""Starts of a puzzle that a block has room for before it grows."""
WINDOW = 64
"""Residuals kept of each trajectory unless asked for more: its last ones, at the usual depths all of them."""


class Status(IntEnum):
    """How a trajectory ended, and so the answer that was chosen of it."""

    NOT_RUN = 0  # its race was over before it began
    RAN_OUT = 1  # reached the greatest depth
    HALTED = 2  # stopped by the halting rule
    CANCELLED = 3  # a sibling won the race first
    SETTLED = 4  # as people read it: halted by a rule that waits until state or answer stays as it is
    REFUSED = 5  # of a puzzle: it was not tried

    @property
    def word(self) -> str:
        """What people and programs read."""
        return "out of segments" if self is Status.RAN_OUT else self.name.lower().replace("_", " ")


def stopped_by(rule: Halting | None) -> Status:
    """Return how a row that this halting rule stops has ended."""
    return Status.SETTLED if rule is not None and rule.settles else Status.HALTED


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Final readings; every array has the same leading shape."""

    tokens: Tokens
    """(..., cells): decoded grids."""
    status: NDArray[np.uint8]
    depth: NDArray[np.int32]
    """Segments run."""
    halt: NDArray[np.float32]
    """Halt score of the last reading."""
    residuals: NDArray[np.float32]
    """(..., window): change of the latents in each of the last segments, the latest last; NaN before."""
    logit_residuals: NDArray[np.float32]
    """(..., window): mean over cells of the L2 change of the logits, likewise."""
    probe: NDArray[np.float32]
    """Change of the latents in a further segment without noise; NaN where not asked for."""
    seconds: NDArray[np.float32]
    """From entering a slot to leaving it."""

    @classmethod
    def empty(cls, *shape: int, cells: int, window: int) -> "Candidates":
        """Return candidates none of which has run."""
        return cls(
            tokens=np.zeros((*shape, cells), np.uint8),
            status=np.zeros(shape, np.uint8),
            depth=np.zeros(shape, np.int32),
            halt=np.full(shape, np.nan, np.float32),
            residuals=np.full((*shape, window), np.nan, np.float32),
            logit_residuals=np.full((*shape, window), np.nan, np.float32),
            probe=np.full(shape, np.nan, np.float32),
            seconds=np.zeros(shape, np.float32),
        )

    @classmethod
    def joined(cls, parts: Sequence["Candidates"]) -> "Candidates":
        """Put candidates behind each other along their first axis."""
        names = [field.name for field in fields(cls)]
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})

    def __len__(self) -> int:
        return len(self.status)

    def __getitem__(self, index: Any) -> "Candidates":
        """Index the leading axes of every column alike."""
        return Candidates(**{name: array[index] for name, array in self.columns().items()})

    def put(self, index: Any, other: "Candidates") -> None:
        """Overwrite some rows in place."""
        for name, array in self.columns().items():
            array[index] = getattr(other, name)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def complete(self) -> NDArray[np.bool_]:
        """Which rows ran to an end of their own: those a selection may choose."""
        return np.isin(self.status, (Status.HALTED, Status.RAN_OUT))

    @property
    def nfe(self) -> NDArray[np.int64]:
        """Segments paid for, probes included."""
        return self.depth.astype(np.int64) + np.isfinite(self.probe)


@dataclass(frozen=True, kw_only=True)
class Finished:
    """Some rows that ended, or (`passing`) that reached one of the noted depths and go on."""

    puzzles: NDArray[np.int64]
    """Index of each row's puzzle."""
    restarts: NDArray[np.int64]
    candidates: Candidates
    won: NDArray[np.bool_]
    """Which rows end the search of their puzzle: the others are cancelled, those that wait never begin."""
    passing: bool = False

    def of(self, puzzle: int) -> "Finished":
        """Return the rows of one puzzle."""
        rows = np.flatnonzero(self.puzzles == puzzle)
        return Finished(
            puzzles=self.puzzles[rows],
            restarts=self.restarts[rows],
            candidates=self.candidates[rows],
            won=self.won[rows],
            passing=self.passing,
        )


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
        together, breadth = self._budget.round_size, self._budget.breadth
        begun = ((start // together + 1) * together for start in winners.values())
        return len(rows) + sum(max(breadth - count, 0) for count in begun)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the model says about one puzzle."""

    index: int
    """Number of the puzzle among those given, from 0."""
    puzzle: Tokens
    grid: Tokens
    """The chosen start's answer."""
    valid: bool
    """Whether the task's `check` accepts it."""
    reason: str
    """Why not, if not."""
    start: int
    """Which start was chosen."""
    depth: int
    """Segments the chosen start ran."""
    nfe: int
    """Segments all starts ran, probes included."""
    status: Status
    """How its trajectory ended: settled, halted or out of segments."""
    residual: float
    """Change of the latents in its last segment, root mean square per coordinate."""
    halt: float
    """Its halt score, a logit."""
    seconds: float
    """From being handed in to the answer."""
    task: Task = field(repr=False, compare=False)
    """What kind of puzzle it is, so that the answer can be shown."""

    @cached_property
    def note(self) -> str:
        """What is to be known of the puzzle besides: that it has several answers, or is unlike others."""
        return self.task.caution(self.puzzle, solved=self.valid)

    def examine(self) -> None:
        """Look at the puzzle now for what `note` says of it, instead of when it is asked for."""
        _ = self.note

    def to_json(self, number: int) -> dict[str, Any]:
        """Return plain data; `number` is what its owner calls the puzzle."""
        return {
            "puzzle": number,
            "answer": text_of(self.task, self.grid),
            "valid": self.valid,
            "reason": self.reason,
            "note": self.note,
            "start": self.start,
            "depth": self.depth,
            "nfe": self.nfe,
            "status": self.status.word,
            "residual": finite(self.residual),
            "halt": finite(self.halt),
            "seconds": self.seconds,
        }

    def __str__(self) -> str:
        """Draw the grid and say what is thought of it."""
        return f"{self.task.render(self.grid, puzzle=self.puzzle)}\n{self._verdict()}"

    def _repr_html_(self) -> str:
        """Draw the grid for a notebook, with what was given in bold."""
        rows, columns = self.task.shape
        cells = [
            f"<b>{escape(self._symbol(token))}</b>" if token == given else escape(self._symbol(token))
            for token, given in zip(self.grid.tolist(), self.puzzle.tolist(), strict=True)
        ]
        lines = (
            "".join(f"<td>{cell}</td>" for cell in cells[row * columns :][:columns]) for row in range(rows)
        )
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        return f"<table>{body}</table><p>{escape(self._verdict())}</p>"

    def _symbol(self, token: int) -> str:
        return self.task.symbols[token - 1] if token else "?"

    def _verdict(self) -> str:
        found = "valid" if self.valid else f"not valid: {self.reason}"
        return (
            f"{found}; depth {self.depth} ({self.status.word}), NFE {self.nfe}, residual {self.residual:.4f}"
        )


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A puzzle that was not tried, and why."""

    index: int
    reason: str

    def to_json(self, number: int) -> dict[str, Any]:
        """Return plain data; `number` is what its owner calls the puzzle."""
        return {"puzzle": number, "status": Status.REFUSED.word, "reason": self.reason}


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One start after one segment."""

    puzzle: int
    """Index of its puzzle."""
    start: int
    """Number of the start among those of its puzzle."""
    segment: int
    """Segments run, this one included."""
    grid: Tokens
    """(cells,): the decoded grid."""
    confidence: NDArray[np.float32]
    """(cells,): the probability that the model gives each token of the grid."""
    residual: float
    """Change of the latents in this segment, root mean square per coordinate."""
    logit_residual: float
    halt: float
    """Halt score, a logit."""
    status: Status | None
    """How it ends here; None if it goes on."""

    def to_json(self, task: Task, number: int) -> dict[str, Any]:
        """Return plain data; confidence in percent keeps a large grid's event small."""
        return {
            "puzzle": number,
            "start": self.start,
            "segment": self.segment,
            "grid": text_of(task, self.grid),
            "confidence": [round(100 * share) if share == share else 0 for share in self.confidence.tolist()],
            "residual": finite(self.residual),
            "halt": finite(self.halt),
            "done": self.status is not None,
            "status": self.status.word if self.status is not None else None,
        }


def changes(puzzle: Tokens, snapshots: Iterable[Snapshot]) -> list[list[int]]:
    """Return which cells each segment changed, the first compared with the puzzle."""
    before, found = puzzle, []
    for snapshot in snapshots:
        found.append(np.flatnonzero(snapshot.grid != before).tolist())
        before = snapshot.grid
    return found


def text_of(task: Task, grid: Tokens) -> str:
    """Write a grid, a character a cell, `?` for padding."""
    return "".join(task.symbols[token - 1] if token else "?" for token in grid.tolist())


def finite(number: float) -> float | None:
    """JSON has no NaN: a state that blew up has no residual."""
    return number if math.isfinite(number) else None
