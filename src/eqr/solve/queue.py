"""The queue of starts waiting for a free slot.

Slots are shared fairly among clients: of those that wait, the one whose rows hold the fewest slots gets the
next; puzzles of one client go in order of arrival. Some slots are kept for clients that hold none, so that a
small request begins at once however much others have asked for. Puzzles without a client (a file, a notebook)
may use every slot. A puzzle waits as one entry whatever its breadth.

One thread draws from the queue (the engine); any may add, cancel and close.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from threading import Condition

from eqr.solve.budget import Budget
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
