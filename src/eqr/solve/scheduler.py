"""Who waits for a slot and who is in which: a schedule of starts that never touches a tensor.

    plan = slots.schedule(queue.draw(...))   # who leaves, who enters
    output = batch.apply(plan)               # one segment on every row (eqr.solve.engine)
    events = slots.update(output)            # who has ended, who has won, what is reported

Slots are shared fairly among clients. Of those that wait, the one whose rows hold the fewest slots gets
the next; puzzles of one client go in order of arrival. Some slots are kept for clients that hold none, so
that a small request begins at once however much others have asked for. Puzzles without a client (a file,
a notebook) may use every slot. A row that ends leaves its slot at once; the next rows to enter take it
over, or the batch shrinks.

The queue may be used from several threads: one draws from it (the engine), any may add, cancel and close. A
puzzle waits as one entry whatever its breadth, so a queue takes no more room than the puzzles in it.
"""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from threading import Condition
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from eqr.solve.answers import Snapshot
from eqr.solve.budget import Budget
from eqr.solve.candidates import Candidates, Finished, Status
from eqr.tasks.base import Tokens


@dataclass(frozen=True)
class Puzzle:
    """A puzzle to be run; `index` is its owner's number for it, no other puzzle under way has the same."""

    index: int
    tokens: Tokens
    identity: int = 0
    budget: Budget | None = None
    """What it may spend and how it iterates; None is what the engine was made with."""
    watch: bool = False
    """Whether every segment of its rows is reported."""
    client: str | None = None
    """Who asks for it, where several share the slots."""


@dataclass(frozen=True)
class Entrants:
    """Starts `first` to `first + count - 1` of a puzzle, which enter together."""

    puzzle: Puzzle
    budget: Budget
    first: int
    count: int

    @property
    def starts(self) -> range:
        """Their numbers."""
        return range(self.first, self.first + self.count)


@dataclass
class _Entry:
    puzzle: Puzzle
    budget: Budget
    next: int
    """The first start that has not begun."""
    end: int
    """The starts before this one may begin now: in a race those of one round, which begin together."""
    running: int = 0
    """Starts of the round under way."""

    @property
    def starts(self) -> int:
        return self.end - self.next


@dataclass
class _Client:
    name: str | None
    waiting: deque[_Entry] = field(default_factory=deque)
    held: int = 0
    """Slots that its rows are in."""


@dataclass
class _Running:
    client: _Client
    rows: int = 0


class Queue:
    """Puzzles that wait; in a race, a puzzle's next round joins the end once the last has run out."""

    def __init__(self, budget: Budget, *, kept: int = 0) -> None:
        """`budget` is that of puzzles without one; `kept` slots are for clients that hold none."""
        self._budget, self._kept = budget, kept
        self._changed = Condition()
        self._clients: dict[str | None, _Client] = {}
        """Those that wait or hold slots, the one that was served last at the end."""
        self._running: dict[int, _Running] = {}
        self._racing: dict[int, _Entry] = {}
        self._leaving: set[int] = set()
        self._closed = False
        self._starts = 0

    @property
    def starts(self) -> int:
        """Starts that wait and may begin."""
        return self._starts

    def add(self, puzzle: Puzzle) -> None:
        """Let a puzzle wait for slots."""
        budget = puzzle.budget or self._budget
        with self._changed:
            if self._closed:
                raise RuntimeError("the engine was closed: it takes no more puzzles")
            self._join(_Entry(puzzle, budget, 0, budget.round_size if budget.competes else budget.breadth))
            self._changed.notify_all()

    def cancel(self, index: int) -> None:
        """Take a puzzle back: what waits is forgotten, what runs leaves its slots."""
        with self._changed:
            self._racing.pop(index, None)
            for client in list(self._clients.values()):
                for entry in [entry for entry in client.waiting if entry.puzzle.index == index]:
                    client.waiting.remove(entry)
                    self._starts -= entry.starts
                self._forget_if_done(client)
            self._leaving.add(index)
            self._changed.notify_all()

    def close(self) -> None:
        """Take no more puzzles; those that wait or run are still finished."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def leaving(self) -> set[int]:
        """Return, once, the puzzles that were cancelled, whose rows leave their slots."""
        with self._changed:
            gone, self._leaving = self._leaving, set()
            for index in gone & self._running.keys():
                self._end_rows(index, self._running[index].rows)
            return gone

    def draw(self, free: int, *, idle: bool) -> list[Entrants]:
        """Let starts enter as long as they fit; if the slots are idle, a round too large for them as well."""
        drawn: dict[int, Entrants] = {}
        with self._changed:
            while free > 0:
                waiting = [client for client in self._clients.values() if client.waiting]
                if not waiting:
                    break
                client = min(waiting, key=lambda one: one.held)
                entry = client.waiting[0]
                room = free if client.name is None or not client.held else free - self._kept
                count = entry.starts
                if not entry.budget.competes:  # one by one, so that who holds fewer may come between
                    count = min(room, count) if len(waiting) == 1 and client.name is None else 1
                if count > room and (drawn or not idle):
                    break
                self._start(client, entry, count, drawn)
                free -= count
        return list(drawn.values())

    def settle(self, won: Iterable[int], ended: Iterable[int]) -> None:
        """Free slots and end the races that were won; if a round ended without a winner, the next one waits.

        `ended` names the puzzle of every row that ended.
        """
        with self._changed:
            for index in won:
                self._racing.pop(index, None)
            for index in ended:
                if index not in self._running:  # cancelled, and so counted, or not drawn from here
                    continue
                entry = self._racing.get(index)
                if entry is not None:
                    entry.running -= 1
                    if not entry.running:
                        del self._racing[index]
                        entry.end = min(entry.next + entry.budget.round_size, entry.budget.breadth)
                        self._join(entry)
                self._end_rows(index, 1)

    def wait(self) -> bool:
        """Sleep until a puzzle waits or the queue is closed; return whether there is anything to do."""
        with self._changed:
            self._changed.wait_for(lambda: self._starts or self._closed)
            return bool(self._starts)

    def _join(self, entry: _Entry) -> None:
        name = entry.puzzle.client
        self._clients.setdefault(name, _Client(name)).waiting.append(entry)
        self._starts += entry.starts

    def _start(self, client: _Client, entry: _Entry, count: int, drawn: dict[int, Entrants]) -> None:
        """Note that `count` starts of an entry begin; in one turn those of a puzzle enter together."""
        puzzle = entry.puzzle
        before = drawn.get(puzzle.index)
        drawn[puzzle.index] = (
            Entrants(puzzle, entry.budget, entry.next, count)
            if before is None
            else replace(before, count=before.count + count)
        )
        entry.next += count
        self._starts -= count
        client.held += count
        self._running.setdefault(puzzle.index, _Running(client)).rows += count
        self._clients[client.name] = self._clients.pop(client.name)
        if not entry.starts:
            client.waiting.popleft()
            if entry.budget.competes and entry.next < entry.budget.breadth:
                entry.running = count
                self._racing[puzzle.index] = entry

    def _end_rows(self, index: int, count: int) -> None:
        running = self._running[index]
        running.rows -= count
        running.client.held -= count
        if not running.rows:
            del self._running[index]
        self._forget_if_done(running.client)

    def _forget_if_done(self, client: _Client) -> None:
        if not client.waiting and not client.held:
            self._clients.pop(client.name, None)


Places = NDArray[np.intp]
SLOT = np.dtype(
    [
        ("puzzle", "i8"),  # index of its puzzle
        ("restart", "i8"),  # number of the start among those of its puzzle
        ("began", "f8"),  # time.perf_counter on entering
        ("racing", "?"),  # whether the first start that halts ends the others
        ("verifying", "?"),  # whether the first accepted answer does
        ("watched", "?"),  # whether every segment is reported
    ]
)
"""One record for each row, so that NumPy picks, overwrites and joins them."""


@dataclass(frozen=True)
class Plan:
    """What happens to rows before they advance."""

    enter: list[Entrants]
    vacant: Places
    """Slots that are free: those who enter take them first; the rest are closed up."""
    verifying: NDArray[np.bool_]
    """Rows, after entering, whose answer is checked when they end."""


class Output(Protocol):
    """Rows after a segment, as plain numbers; what is expensive is computed when asked for."""

    @property
    def depths(self) -> NDArray[np.int64]:
        """Segments behind each row."""

    @property
    def halted(self) -> NDArray[np.bool_]:
        """Which rows the halting rule stops."""

    @property
    def done(self) -> NDArray[np.bool_]:
        """Which rows end, by the rule or for lack of depth."""

    @property
    def verified(self) -> NDArray[np.bool_]:
        """Which rows that were to be checked end with an accepted answer."""

    def candidates(self, rows: Places, began: NDArray[np.float64]) -> Candidates:
        """Read off some rows."""

    def snapshots(self, rows: Places, slots: NDArray[np.void]) -> list[Snapshot]:
        """Read off some rows what a person may watch."""


class Slots:
    """The slots of rows that iterate alike; breadth, seed and race are their entrants'."""

    def __init__(self, depth: int, noted: NDArray[np.int64]) -> None:
        """`depth` is the greatest; rows are also reported as they pass the `noted` depths."""
        self._depth, self._noted = depth, noted
        self._slots, self._vacant = np.zeros(0, SLOT), np.zeros(0, np.intp)

    def __len__(self) -> int:
        return len(self._slots) - len(self._vacant)

    def drop(self, puzzles: NDArray[np.int64]) -> None:
        """Let the rows of some puzzles leave without a word."""
        gone = np.flatnonzero(np.isin(self._slots["puzzle"], puzzles))
        self._vacant = np.union1d(self._vacant, gone)

    def schedule(self, entrants: list[Entrants]) -> Plan:
        """Give those who enter the vacant slots first, close up the others, and put the rest behind."""
        fresh, vacant = _occupants(entrants), self._vacant
        here = min(len(fresh), len(vacant))
        self._slots[vacant[:here]] = fresh[:here]
        if here < max(len(fresh), len(vacant)):
            self._slots = np.concatenate((np.delete(self._slots, vacant[here:]), fresh[here:]))
        self._vacant = np.zeros(0, np.intp)
        return Plan(entrants, vacant, self._slots["verifying"])

    def update(self, output: Output) -> Iterator[Finished | Snapshot]:
        """Free the slots of those who ended and report them."""
        slots, done = self._slots, output.done
        won = (slots["racing"] & output.halted) | output.verified
        if won.any():
            done = done | np.isin(slots["puzzle"], slots["puzzle"][won])
        if slots["watched"].any():
            watched = np.flatnonzero(slots["watched"])
            for snapshot, ends in zip(output.snapshots(watched, slots[watched]), done[watched], strict=True):
                lost = bool(ends) and snapshot.status is None
                yield replace(snapshot, status=Status.CANCELLED) if lost else snapshot
        if len(self._noted):
            passing = np.flatnonzero(np.isin(output.depths, self._noted) & ~done)
            if len(passing):
                yield self._report(output, passing, won, passing=True)
        self._vacant = np.flatnonzero(done)
        if len(self._vacant):
            yield self._report(output, self._vacant, won, passing=False)

    def _report(self, output: Output, rows: Places, won: NDArray[np.bool_], *, passing: bool) -> Finished:
        slots = self._slots[rows]
        candidates = output.candidates(rows, slots["began"])
        if not passing:
            short = candidates.depth < self._depth
            candidates.status[(candidates.status == Status.RAN_OUT) & short] = Status.CANCELLED
        return Finished(
            puzzles=slots["puzzle"],
            restarts=slots["restart"],
            candidates=candidates,
            won=won[rows],
            passing=passing,
        )


def _occupants(entrants: list[Entrants]) -> NDArray[np.void]:
    """Return the records of the starts of some entrants, in order."""
    now = time.perf_counter()
    records = [
        (t.puzzle.index, start, now, t.budget.race, t.budget.until_verified, t.puzzle.watch)
        for t in entrants
        for start in t.starts
    ]
    return np.array(records, SLOT)
