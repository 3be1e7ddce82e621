"""The line before the slots: puzzles in order of arrival, whose starts begin as slots fall free.

A line may be used from several threads: one draws from it (the engine), any may add, cancel and close. A
puzzle waits as one entry whatever its breadth, so a line takes no more room than the puzzles in it.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Ticket:
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
    """The starts before this one may begin now: in a race those of one heat, which begin together."""
    running: int = 0
    """Starts of the heat under way."""

    @property
    def starts(self) -> int:
        return self.end - self.next


class Line:
    """Puzzles that wait; in a race, a puzzle's next heat joins the end once the last has run out."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._changed = Condition()
        self._entries: deque[_Entry] = deque()
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
            self._join(_Entry(puzzle, budget, 0, budget.heat_size if budget.together else budget.breadth))
            self._changed.notify_all()

    def cancel(self, index: int) -> None:
        """Take a puzzle back: what waits is forgotten, what runs leaves its slots."""
        with self._changed:
            self._racing.pop(index, None)
            gone = [entry for entry in self._entries if entry.puzzle.index == index]
            for entry in gone:
                self._entries.remove(entry)
                self._starts -= entry.starts
            self._leaving.add(index)
            self._changed.notify_all()

    def close(self) -> None:
        """Take no more puzzles; those that wait or run are still finished."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def leaving(self) -> set[int]:
        """Return, once, the puzzles that were cancelled."""
        with self._changed:
            gone, self._leaving = self._leaving, set()
            return gone

    def draw(self, free: int, *, idle: bool) -> list[Ticket]:
        """Give out tickets as long as they fit; if the slots are idle, a heat too large for them as well."""
        drawn: list[Ticket] = []
        with self._changed:
            while free > 0 and self._entries:
                entry = self._entries[0]
                count = entry.starts if entry.budget.together else min(free, entry.starts)
                if count > free and (drawn or not idle):
                    break
                drawn.append(Ticket(entry.puzzle, entry.budget, entry.next, count))
                entry.next += count
                self._starts -= count
                free -= count
                if not entry.starts:
                    self._entries.popleft()
                    if entry.budget.competes and entry.next < entry.budget.breadth:
                        entry.running = count
                        self._racing[entry.puzzle.index] = entry
        return drawn

    def settle(self, won: Iterable[int], ended: Iterable[int]) -> None:
        """End the races that were won; where a heat has ended without a winner, let the next one wait.

        `ended` names the puzzle of every row that ended.
        """
        with self._changed:
            if not self._racing:
                return
            for index in won:
                self._racing.pop(index, None)
            for index in ended:
                entry = self._racing.get(index)
                if entry is None:
                    continue
                entry.running -= 1
                if not entry.running:
                    del self._racing[index]
                    entry.end = min(entry.next + entry.budget.heat_size, entry.budget.breadth)
                    self._join(entry)

    def wait(self) -> bool:
        """Sleep until a puzzle waits or the line is closed; return whether there is anything to do."""
        with self._changed:
            self._changed.wait_for(lambda: self._entries or self._closed)
            return bool(self._entries)

    def _join(self, entry: _Entry) -> None:
        self._entries.append(entry)
        self._starts += entry.starts
