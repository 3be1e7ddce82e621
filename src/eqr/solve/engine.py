"""The engine: rows under the rollout's rules in a fixed number of slots that are refilled from a queue.

A row that ends leaves at once and the next start in the queue takes its slot; when nobody waits the batch
shrinks. Whatever the depth, the breadth and the number of puzzles, memory is that of the slots. What a row
does depends on its puzzle, its budget and its number alone, whatever runs beside it.

Offline, `run` draws puzzles from an iterable as slots fall free, and ends when all are done:

    for finished in Engine(reasoner, Budget(depth=64)).run(Puzzle(i, grid) for i, grid in enumerate(grids)):
        ...  # finished.puzzles, finished.restarts, finished.candidates: some rows that ended

A server lets one thread `serve`, and adds to it from any other:

    engine = Engine(reasoner, Budget(depth=64), slots=64)

    def work():                                  # in a thread of its own
        for event in engine.serve():             # sleeps while there is nothing to do
            ...  # `Finished` rows, and a `Snapshot` per watched row and segment

    engine.add(Puzzle(7, tokens, budget=Budget(depth=32, breadth=4, seed=1), watch=True))
    engine.cancel(7)                             # its rows leave before the next segment, unreported
    engine.close()                               # `serve` ends once all that was added is done

Puzzles may bring budgets of their own: rows that iterate alike share a batch, all share the slots. `Session`
(`eqr.solve.solver`) is the same one floor higher: it reads puzzles and gives answers.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eqr.backends import Backend, default_backend
from eqr.dynamics.iterate import Turn
from eqr.dynamics.rows import Rows, join, put, take
from eqr.errors import UserError
from eqr.model.counters import row_key
from eqr.model.reasoner import Reasoner
from eqr.solve.answers import Snapshot
from eqr.solve.budget import Budget
from eqr.solve.candidates import WINDOW, Candidates, Finished
from eqr.solve.rollout import Inference
from eqr.solve.scheduler import Entrants, Places, Plan, Puzzle, Queue, Slots
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


@dataclass(frozen=True)
class _Output:
    """A turn as the slots see it (`eqr.solve.scheduler.Output`)."""

    inference: Inference
    turn: Turn
    verifying: NDArray[np.bool_]

    @cached_property
    def depths(self) -> NDArray[np.int64]:
        return self.turn.depths.cpu().numpy()

    @cached_property
    def halted(self) -> NDArray[np.bool_]:
        return self.turn.halted.cpu().numpy()

    @cached_property
    def done(self) -> NDArray[np.bool_]:
        return self.turn.done.cpu().numpy()

    @cached_property
    def verified(self) -> NDArray[np.bool_]:
        ended = self.verifying & self.done
        if ended.any():
            index = self._index(np.flatnonzero(ended))
            puzzles, answers = self.turn.rows.x.puzzles[index], self.turn.reading.tokens[index]
            ended[ended] = self.inference.accepts(puzzles, answers).cpu().numpy()
        return ended

    def candidates(self, rows: Places, began: NDArray[np.float64]) -> Candidates:
        return self.inference.candidates(self.turn, self._index(rows), began)

    def snapshots(self, rows: Places, slots: NDArray[np.void]) -> list[Snapshot]:
        return self.inference.snapshots(self.turn, self._index(rows), slots["puzzle"], slots["restart"])

    def _index(self, rows: Places) -> Tensor:
        return torch.as_tensor(rows, device=self.turn.halted.device)


class _Batch:
    """Rows that iterate alike, and the slots they are in."""

    def __init__(self, inference: Inference, noted: NDArray[np.int64]) -> None:
        self.slots = Slots(inference.budget.depth, noted)
        self._inference = inference
        self._rows: Rows | None = None

    def apply(self, plan: Plan) -> _Output:
        """Let rows leave and enter, and advance all by a segment."""
        self._seat(self._begin(plan.enter) if plan.enter else None, plan.vacant)
        assert self._rows is not None
        turn = self._inference.advance(self._rows)
        self._rows = turn.rows
        return _Output(self._inference, turn, plan.verifying)

    def _begin(self, entrants: list[Entrants]) -> Rows:
        starts = [(t.puzzle, restart, t.budget.seed) for t in entrants for restart in t.starts]
        return self._inference.begin(
            np.stack([puzzle.tokens for puzzle, _, _ in starts]),
            [row_key(seed, puzzle.tokens, restart, puzzle.identity) for puzzle, restart, seed in starts],
            np.array([puzzle.identity for puzzle, _, _ in starts], np.int32),
        )

    def _seat(self, fresh: Rows | None, vacant: Places) -> None:
        rows, device = self._rows, self._inference.device
        here = min(len(vacant), 0 if fresh is None else len(fresh))
        if rows is not None and fresh is not None and here:
            # into the vacant slots as far as they go: to close a gap is to copy the latents of every row
            whole, order = here == len(fresh), torch.arange(len(fresh), device=device)
            entering = fresh if whole else take(fresh, order[:here])
            put(rows, torch.as_tensor(vacant[:here], device=device), entering)
            fresh = None if whole else take(fresh, order[here:])
        if rows is not None and len(vacant) > here:
            staying = np.delete(np.arange(len(rows)), vacant[here:])
            rows = take(rows, torch.as_tensor(staying, device=device)) if len(staying) else None
        if fresh is not None:
            rows = fresh if rows is None else join((rows, fresh))
        self._rows = rows


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
        backend: Backend | None = None,
    ) -> None:
        """Use `slots` rows at once, of which a race fills whole rounds, or one if it is larger.

        `budget` is that of puzzles that bring none of their own. Candidates are also reported, `passing`, as
        they pass the `noted` depths; each keeps residuals of its last `window` segments. `task` judges
        answers on the way where a budget asks for that, by default the model's own. `backend` computes the
        segments; None is the fast one.
        """
        self.budget = budget or Budget()
        if slots < 1:
            raise UserError(f"slots = {slots}: the engine needs at least 1")
        together = self.budget.round_size
        self.slots = max(slots // together, 1) * together
        self.usage = Usage()
        self.backend = backend or default_backend(reasoner.config, reasoner.embedding.device)
        self._reasoner, self._task, self._window = reasoner, task, window
        self._noted = np.array(sorted(set(noted)), np.int64)
        self._reset()

    def _reset(self) -> None:
        self._queue = Queue(self.budget, kept=self.slots // 8)
        self._batches: dict[Budget, _Batch] = {}
        self._more = False
        """Whether `run` has not seen the end of its puzzles."""

    @property
    def live(self) -> int:
        """Rows in the slots."""
        return sum(len(batch.slots) for batch in self._batches.values())

    @property
    def waiting(self) -> int:
        """Starts that wait for a slot."""
        return self._queue.starts

    @property
    def full(self) -> bool:
        """Whether those who wait can fill every slot."""
        return self.waiting >= self.slots - self.live

    def add(self, puzzle: Puzzle) -> None:
        """Let a puzzle wait for slots; from any thread."""
        self._queue.add(puzzle)

    def cancel(self, index: int) -> None:
        """Take a puzzle back; from any thread. From the next turn on nothing is reported of it."""
        self._queue.cancel(index)

    def close(self) -> None:
        """Take no more puzzles; from any thread."""
        self._queue.close()

    def serve(self) -> Iterator[Finished | Snapshot]:
        """Take turn after turn, sleeping while there is nothing to do, until closed and done."""
        while self.live or self._queue.wait():
            yield from self.turn()

    def run(self, puzzles: Iterable[Puzzle]) -> Iterator[Finished]:
        """Yield candidates, a batch at a time, in the order in which they finish."""
        self.usage, self._more = Usage(), True
        try:
            for puzzle in puzzles:
                self.add(puzzle)
                while self.full:
                    yield from self._finished()
            self._more = False
            while self.live or self.waiting:
                yield from self._finished()
        finally:  # a run that is given up must not haunt the next one
            self._reset()

    def _finished(self) -> Iterator[Finished]:
        return (event for event in self.turn() if isinstance(event, Finished))

    @torch.inference_mode()
    def turn(self) -> list[Finished | Snapshot]:
        """Let the cancelled leave and the waiting enter, advance every row, and report."""
        with self.backend.alone():
            planned = self._schedule()
            events = [event for batch, plan in planned for event in batch.slots.update(batch.apply(plan))]
        for event in events:
            if isinstance(event, Finished) and not event.passing:
                self._queue.settle(event.puzzles[event.won].tolist(), event.puzzles.tolist())
        return events

    def _schedule(self) -> list[tuple[_Batch, Plan]]:
        """Give the free slots to those who wait; a batch that nobody is in any more goes."""
        if gone := self._queue.leaving():
            for batch in self._batches.values():
                batch.slots.drop(np.array(list(gone), np.int64))
        live = self.live
        drawn: dict[Budget, list[Entrants]] = {rules: [] for rules in self._batches}
        for entering in self._queue.draw(self.slots - live, idle=not live):
            drawn.setdefault(_iterates(entering.budget), []).append(entering)
        planned: dict[Budget, tuple[_Batch, Plan]] = {}
        for rules, entrants in drawn.items():
            batch = self._batches.get(rules) or self._batch(rules)
            plan = batch.slots.schedule(entrants)
            if len(batch.slots):
                planned[rules] = batch, plan
        self._batches = {rules: batch for rules, (batch, _) in planned.items()}
        self._count()
        return list(planned.values())

    def _batch(self, rules: Budget) -> _Batch:
        inference = Inference(
            self._reasoner, rules, window=self._window, task=self._task, backend=self.backend
        )
        return _Batch(inference, self._noted)

    def _count(self) -> None:
        live = self.live
        self.usage.segments += live
        if self._more or self.waiting:
            self.usage.full += live
            self.usage.offered += self.slots


@lru_cache(maxsize=256)
def _iterates(budget: Budget) -> Budget:
    """Return what decides how a row moves and ends, so that rows of equal budgets can share a batch."""
    return budget.replace(breadth=1, race=False, until_verified=False, abreast=1, seed=0)
