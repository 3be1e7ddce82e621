"""The engine: the rollout's rules with slots and a queue, so that the batch stays full while rows halt.

A ticket asks for some starts of one puzzle: one start, or in a race a gang that runs abreast. A row that
ends leaves at once and the next ticket takes its slot; when the queue is empty the batch shrinks. Whatever
the depth, the breadth and the number of puzzles, memory is that of the slots. Puzzles come from any iterator
and candidates go out as they finish.
"""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from eqr.errors import UserError
from eqr.model.counters import row_key
from eqr.model.cut import one_thread
from eqr.model.reasoner import Reasoner
from eqr.solve.budget import Budget
from eqr.solve.candidates import WINDOW, Candidates, Status
from eqr.solve.rollout import Advanced, Dynamics, Rows
from eqr.tasks.base import Tokens

SLOTS = 64


@dataclass(frozen=True)
class Puzzle:
    """A puzzle in the queue; `index` is its owner's number for it."""

    index: int
    tokens: Tokens
    identity: int = 0


@dataclass(frozen=True)
class Ticket:
    """Starts `first` to `first + count - 1` of a puzzle, which enter together."""

    puzzle: Puzzle
    first: int
    count: int


@dataclass(frozen=True, kw_only=True)
class Finished:
    """Some rows that ended, or (`passing`) that reached one of the noted depths and go on."""

    puzzles: NDArray[np.int64]
    """Index of each row's puzzle."""
    restarts: NDArray[np.int64]
    candidates: Candidates
    passing: bool = False


@dataclass
class Usage:
    """What a run has done so far."""

    segments: int = 0
    """Row-segments advanced, probes not included."""
    full: int = 0
    """Row-segments advanced while tickets were waiting."""
    offered: int = 0
    """Slots times turns while tickets were waiting."""

    @property
    def utilisation(self) -> float:
        """Share of the slots at work until the queue drained."""
        return self.full / self.offered if self.offered else 1.0


class Engine:
    """Advances puzzles through a fixed number of slots; one `run` at a time."""

    def __init__(
        self,
        reasoner: Reasoner,
        budget: Budget | None = None,
        *,
        slots: int = SLOTS,
        noted: Iterable[int] = (),
        window: int = WINDOW,
    ) -> None:
        """Use `slots` rows at once; also yield candidates as they pass the `noted` depths."""
        self.budget = budget or Budget()
        if slots < 1:
            raise UserError(f"slots = {slots}: the engine needs at least 1")
        gang = self.budget.gang
        self.slots = max(slots // gang, 1) * gang
        self.dynamics = Dynamics(reasoner, self.budget, window=window)
        self.usage = Usage()
        self._noted = sorted({depth for depth in noted if depth < self.budget.depth})

    @torch.inference_mode()
    def run(self, puzzles: Iterable[Puzzle]) -> Iterator[Finished]:
        """Yield candidates, a batch at a time, in the order in which they finish."""
        self.usage = Usage()
        queue = _Queue(puzzles, self.budget)
        seats = _Seats()
        rows = self._admit(queue, seats, self.slots)
        while rows is not None:
            self._count(len(rows), waiting=queue.waiting)
            step = self.dynamics.advance(rows)
            halted, done = step.halted.cpu().numpy(), step.done.cpu().numpy()
            if self.budget.race:
                done = done | np.isin(seats.puzzles, seats.puzzles[halted])
            yield from self._passing(step, seats, done)
            rows = step.rows
            if done.any():
                leaving = np.flatnonzero(done)
                finished = self._finished(step, seats, leaving)
                queue.settle(finished)
                rows = self._refill(queue, seats, rows, leaving)
                yield finished

    def _count(self, rows: int, *, waiting: bool) -> None:
        self.usage.segments += rows
        if waiting:
            self.usage.full += rows
            self.usage.offered += self.slots

    def _passing(self, step: Advanced, seats: "_Seats", done: NDArray[np.bool_]) -> Iterator[Finished]:
        if not self._noted:
            return
        passing = np.flatnonzero(np.isin(step.rows.depths.cpu().numpy(), self._noted) & ~done)
        if len(passing):
            yield seats.finished(passing, self._candidates(step, seats, passing), passing=True)

    def _finished(self, step: Advanced, seats: "_Seats", leaving: NDArray[np.intp]) -> Finished:
        candidates = self._candidates(step, seats, leaving)
        early = (candidates.status == Status.RAN_OUT) & (candidates.depth < self.budget.depth)
        candidates.status[early] = Status.CANCELLED
        return seats.finished(leaving, candidates)

    def _candidates(self, step: Advanced, seats: "_Seats", chosen: NDArray[np.intp]) -> Candidates:
        index = torch.as_tensor(chosen, device=self.dynamics.device)
        with one_thread():
            return self.dynamics.candidates(step, index, seats.began[chosen])

    def _refill(self, queue: "_Queue", seats: "_Seats", rows: Rows, leaving: NDArray[np.intp]) -> Rows | None:
        """Give the freed slots (and any idle ones) to waiting tickets; without tickets, shrink."""
        fresh_seats = _Seats()
        # the queue's owner may take its time, or use threads of its own: nothing is held while it is asked
        fresh = self._admit(queue, fresh_seats, self.slots - len(rows) + len(leaving))
        with one_thread():
            return self._seat(seats, rows, leaving, fresh, fresh_seats)

    def _seat(
        self,
        seats: "_Seats",
        rows: Rows,
        leaving: NDArray[np.intp],
        fresh: Rows | None,
        fresh_seats: "_Seats",
    ) -> Rows | None:
        if fresh is not None and len(fresh) == len(leaving):
            rows.put(torch.as_tensor(leaving, device=self.dynamics.device), fresh)
            seats.put(leaving, fresh_seats)
            return rows
        staying = np.delete(np.arange(len(rows)), leaving)
        seats.keep(staying)
        seats.join(fresh_seats)
        kept = rows.take(torch.as_tensor(staying, device=self.dynamics.device)) if len(staying) else None
        if kept is None or fresh is None:
            return kept or fresh
        return Rows.joined([kept, fresh])

    def _admit(self, queue: "_Queue", seats: "_Seats", free: int) -> Rows | None:
        """Begin as many tickets as fit into the free slots, seating their rows in order."""
        tickets = list(queue.draw(free))
        if not tickets:
            return None
        owners = [(t.puzzle, restart) for t in tickets for restart in range(t.first, t.first + t.count)]
        seats.puzzles = np.array([puzzle.index for puzzle, _ in owners], np.int64)
        seats.restarts = np.array([restart for _, restart in owners], np.int64)
        seats.began = np.full(len(owners), time.perf_counter())
        seed = self.budget.seed
        return self.dynamics.begin(
            np.stack([puzzle.tokens for puzzle, _ in owners]),
            [row_key(seed, puzzle.tokens.tobytes(), restart) for puzzle, restart in owners],
            np.array([puzzle.identity for puzzle, _ in owners], np.int32),
        )


class _Seats:
    """Who sits in each row."""

    def __init__(self) -> None:
        self.puzzles = np.zeros(0, np.int64)
        self.restarts = np.zeros(0, np.int64)
        self.began = np.zeros(0)

    def put(self, rows: NDArray[np.intp], other: "_Seats") -> None:
        self.puzzles[rows], self.restarts[rows] = other.puzzles, other.restarts
        self.began[rows] = other.began

    def keep(self, rows: NDArray[np.intp]) -> None:
        self.puzzles, self.restarts, self.began = self.puzzles[rows], self.restarts[rows], self.began[rows]

    def join(self, other: "_Seats") -> None:
        self.puzzles = np.concatenate((self.puzzles, other.puzzles))
        self.restarts = np.concatenate((self.restarts, other.restarts))
        self.began = np.concatenate((self.began, other.began))

    def finished(self, rows: NDArray[np.intp], candidates: Candidates, *, passing: bool = False) -> Finished:
        return Finished(
            puzzles=self.puzzles[rows], restarts=self.restarts[rows], candidates=candidates, passing=passing
        )


class _Queue:
    """Tickets in order of puzzles; in a race, a puzzle's next gang comes first once the last has run out."""

    def __init__(self, puzzles: Iterable[Puzzle], budget: Budget) -> None:
        self._puzzles, self._budget = iter(puzzles), budget
        self._next: deque[Ticket] = deque()
        self._racing: dict[int, tuple[Puzzle, int]] = {}
        """Of each race under way, the puzzle and its first start that has not begun."""
        self._dry = False

    @property
    def waiting(self) -> bool:
        """Whether there may be tickets left."""
        return bool(self._next) or not self._dry

    def draw(self, free: int) -> Iterator[Ticket]:
        """Give out tickets as long as they fit."""
        while free > 0:
            if not self._next and not self._fetch():
                return
            if self._next[0].count > free:
                return
            ticket = self._next.popleft()
            free -= ticket.count
            yield ticket

    def settle(self, finished: Finished) -> None:
        """End the races that were won; let the next starts of those that ran out begin."""
        if not self._racing:
            return
        won = set(finished.puzzles[finished.candidates.status == Status.HALTED].tolist())
        for index in dict.fromkeys(finished.puzzles.tolist()):
            race = self._racing.pop(index, None)
            if race is not None and index not in won:
                self._gang(*race)

    def _fetch(self) -> bool:
        puzzle = None if self._dry else next(self._puzzles, None)
        if puzzle is None:
            self._dry = True
            return False
        if self._budget.race:
            self._gang(puzzle, 0)
        else:
            self._next.extend(Ticket(puzzle, restart, 1) for restart in range(self._budget.breadth))
        return True

    def _gang(self, puzzle: Puzzle, first: int) -> None:
        count = min(self._budget.gang, self._budget.breadth - first)
        self._next.append(Ticket(puzzle, first, count))
        if first + count < self._budget.breadth:
            self._racing[puzzle.index] = (puzzle, first + count)
