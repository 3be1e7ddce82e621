"""The engine: the rollout's rules with slots and a line before them, so that the batch stays full.

A row that ends leaves at once and the next start in line takes its slot; when nobody waits the batch
shrinks. Whatever the depth, the breadth and the number of puzzles, memory is that of the slots. What a row
does depends on its puzzle, its budget and its number alone, whatever runs beside it; where starts are told
anew, on the other starts of its puzzle too, which enter with it and advance in step.

There is one loop, a turn at a time: cancelled rows leave, waiting starts take the free slots, every row
advances by a segment, and what there is to report is returned. Who drives it?

Offline, `run` draws puzzles from an iterable as slots fall free, and ends when all are done:

    for finished in Engine(reasoner, Budget(depth=64)).run(Puzzle(i, grid) for i, grid in enumerate(grids)):
        ...  # finished.puzzles, finished.restarts, finished.candidates: some rows that ended

A server lets one thread `serve`, and adds to it from any other:

    engine = Engine(reasoner, Budget(depth=64), slots=64)

    def work():                                  # in a thread of its own
        for event in engine.serve():             # sleeps while there is nothing to do
            ...  # `Finished` rows, and a `Glimpse` per watched row and segment

    engine.add(Puzzle(7, tokens, budget=Budget(depth=32, breadth=4, seed=1), watch=True))
    engine.cancel(7)                             # its rows leave before the next segment, unreported
    engine.close()                               # `serve` ends once all that was added is done

Puzzles may bring budgets of their own: rows that iterate alike share a batch, all share the slots. Nothing
waits for a puzzle while rows are live. `Session` (`eqr.solve.session`) is the same one floor higher: it
reads puzzles and gives answers.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from eqr.cpu.row_executor import RowExecutor, shared_executor
from eqr.errors import UserError
from eqr.model.reasoner import Reasoner
from eqr.solve.budget import Budget
from eqr.solve.candidates import WINDOW
from eqr.solve.cohort import Cohort, Finished, Glimpse
from eqr.solve.line import Line, Puzzle, Ticket
from eqr.solve.rollout import Dynamics
from eqr.tasks.base import Task

SLOTS = 64


@dataclass
class Usage:
    """What an engine has done so far."""

    segments: int = 0
    """Row-segments advanced, probes not included."""
    full: int = 0
    """Row-segments advanced while starts were waiting."""
    offered: int = 0
    """Slots times turns while starts were waiting."""

    @property
    def utilisation(self) -> float:
        """Share of the slots at work until nobody waited any more."""
        return self.full / self.offered if self.offered else 1.0


class Engine:
    """Advances puzzles through a fixed number of slots."""

    def __init__(
        self,
        reasoner: Reasoner,
        budget: Budget | None = None,
        *,
        slots: int = SLOTS,
        noted: Iterable[int] = (),
        window: int = WINDOW,
        task: Task | None = None,
        executor: RowExecutor | None = None,
    ) -> None:
        """Use `slots` rows at once; also report candidates as they pass the `noted` depths.

        `task` judges answers where a budget asks for that; None is the model's own. `executor` works on the
        rows; None is the one that all models of this size share.
        """
        self.budget = budget or Budget()
        if slots < 1:
            raise UserError(f"slots = {slots}: the engine needs at least 1")
        heat = self.budget.heat_size
        self.slots = max(slots // heat, 1) * heat
        self.usage = Usage()
        self._reasoner, self._window, self._task = reasoner, window, task
        self.executor = executor or shared_executor(reasoner.config, reasoner.embedding.device)
        """Works on the rows."""
        self._noted = np.array(sorted(set(noted)), np.int64)
        self._line = Line(self.budget)
        self._cohorts: dict[Budget, Cohort] = {}
        self._live = 0
        self._more = False
        """Whether `run` has not seen the end of its puzzles."""

    @property
    def live(self) -> int:
        """Rows in the slots."""
        return self._live

    @property
    def waiting(self) -> int:
        """Starts that wait for a slot."""
        return self._line.starts

    @property
    def full(self) -> bool:
        """Whether those who wait can fill every slot."""
        return self.waiting >= self.slots - self.live

    def add(self, puzzle: Puzzle) -> None:
        """Let a puzzle wait for slots; from any thread."""
        self._line.add(puzzle)

    def cancel(self, index: int) -> None:
        """Take a puzzle back; from any thread. From the next turn on nothing is reported of it."""
        self._line.cancel(index)

    def close(self) -> None:
        """Take no more puzzles; from any thread."""
        self._line.close()

    def serve(self) -> Iterator[Finished | Glimpse]:
        """Take turn after turn, sleeping while there is nothing to do, until closed and done."""
        while self.live or self._line.wait():
            yield from self.turn()

    def run(self, puzzles: Iterable[Puzzle]) -> Iterator[Finished]:
        """Yield candidates, a batch at a time, in the order in which they finish."""
        self.usage = Usage()
        self._more = True
        try:
            for puzzle in puzzles:
                self.add(puzzle)
                while self.full:
                    yield from self._finished()
            self._more = False
            while self.live or self.waiting:
                yield from self._finished()
        finally:  # a run that is given up must not haunt the next one
            self._cohorts.clear()
            self._line, self._live, self._more = Line(self.budget), 0, False

    def _finished(self) -> Iterator[Finished]:
        return (event for event in self.turn() if isinstance(event, Finished))

    @torch.inference_mode()
    def turn(self) -> list[Finished | Glimpse]:
        """Let the cancelled leave and the waiting enter, advance every row, and report."""
        with self.executor.alone():
            return self._turn()

    def _turn(self) -> list[Finished | Glimpse]:
        self._leave()
        self._admit()
        self._count()
        events: list[Finished | Glimpse] = []
        for cohort in self._cohorts.values():
            finished, glimpses = cohort.advance()
            events += glimpses
            for report in finished:
                events.append(report)
                if not report.passing:
                    self._line.settle(report.puzzles[report.won].tolist(), report.puzzles.tolist())
        self._live = self._seated()
        return events

    def _leave(self) -> None:
        gone = self._line.leaving()
        if gone:
            for cohort in self._cohorts.values():
                cohort.drop(np.array(list(gone), np.int64))
            self._live = self._seated()

    def _admit(self) -> None:
        """Give the free slots to those who wait; a cohort that nobody is in any more goes."""
        drawn: dict[Budget, list[Ticket]] = {rules: [] for rules in self._cohorts}
        for ticket in self._line.draw(self.slots - self._live, idle=not self._live):
            drawn.setdefault(_iterates(ticket.budget), []).append(ticket)
        for rules, tickets in drawn.items():
            if rules not in self._cohorts:
                dynamics = Dynamics(
                    self._reasoner, rules, window=self._window, task=self._task, executor=self.executor
                )
                self._cohorts[rules] = Cohort(dynamics, self._noted)
            self._cohorts[rules].admit(tickets)
            if not len(self._cohorts[rules]):
                del self._cohorts[rules]
        self._live = self._seated()

    def _seated(self) -> int:
        return sum(len(cohort) for cohort in self._cohorts.values())

    def _count(self) -> None:
        self.usage.segments += self._live
        if self._more or self.waiting:
            self.usage.full += self._live
            self.usage.offered += self.slots


@lru_cache(maxsize=256)
def _iterates(budget: Budget) -> Budget:
    """Return what decides how a row moves and ends, so that rows of equal budgets can share a batch."""
    return budget.replace(breadth=1, race=False, until_verified=False, abreast=1, seed=0)
