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

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eqr.backends import Backend, default_backend
from eqr.dynamics.iterate import Rows, Turn
from eqr.dynamics.rows import join, put, take
from eqr.errors import UserError
from eqr.model.definitions import row_key
from eqr.model.reasoner import Reasoner
from eqr.solve.budget import Budget
from eqr.solve.candidates import WINDOW, Finished, Snapshot, Status
from eqr.solve.queue import Entrants, Puzzle, Queue
from eqr.solve.rollout import Inference
from eqr.tasks.base import Task

SLOTS = 64
Places = NDArray[np.intp]


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


class _Batch:
    """Rows that iterate alike, and the slots they are in."""

    def __init__(self, inference: Inference, noted: NDArray[np.int64]) -> None:
        self._inference, self._noted = inference, noted
        self._slots, self._vacant = np.zeros(0, SLOT), np.zeros(0, np.intp)
        self._rows: Rows | None = None

    def __len__(self) -> int:
        return len(self._slots) - len(self._vacant)

    def drop(self, puzzles: NDArray[np.int64]) -> None:
        """Let the rows of some puzzles leave without a word."""
        gone = np.flatnonzero(np.isin(self._slots["puzzle"], puzzles))
        self._vacant = np.union1d(self._vacant, gone)

    def enter(self, entrants: list[Entrants]) -> None:
        """Begin rows in the vacant slots first and behind the others then; close up what stays vacant."""
        now = time.perf_counter()
        starts = [(t, start) for t in entrants for start in range(t.first, t.first + t.count)]
        fresh = self._begin(starts) if starts else None
        slots = np.array(
            [
                (t.puzzle.index, start, now, t.budget.race, t.budget.until_verified, t.puzzle.watch)
                for t, start in starts
            ],
            SLOT,
        )
        rows, vacant, device = self._rows, self._vacant, self._inference.device
        here = min(len(starts), len(vacant))
        self._slots[vacant[:here]] = slots[:here]
        if here < max(len(starts), len(vacant)):
            self._slots = np.concatenate((np.delete(self._slots, vacant[here:]), slots[here:]))
        self._vacant = np.zeros(0, np.intp)
        if rows is not None and fresh is not None and here:
            # into the vacant slots as far as they go: to close a gap is to copy the latents of every row
            whole, order = here == len(fresh), torch.arange(len(fresh), device=device)
            put(rows, self._index(vacant[:here]), fresh if whole else take(fresh, order[:here]))
            fresh = None if whole else take(fresh, order[here:])
        if rows is not None and len(vacant) > here:
            staying = np.delete(np.arange(len(rows)), vacant[here:])
            rows = take(rows, self._index(staying)) if len(staying) else None
        if fresh is not None:
            rows = fresh if rows is None else join((rows, fresh))
        self._rows = rows

    def _begin(self, starts: list[tuple[Entrants, int]]) -> Rows:
        puzzles = [entrants.puzzle for entrants, _ in starts]
        keys = [row_key(t.budget.seed, t.puzzle.tokens, start, t.puzzle.identity) for t, start in starts]
        identities = np.array([puzzle.identity for puzzle in puzzles], np.int32)
        return self._inference.begin(np.stack([puzzle.tokens for puzzle in puzzles]), keys, identities)

    def advance(self) -> Iterator[Finished | Snapshot]:
        """Run a segment on every row; free the slots of those that ended and report them."""
        assert self._rows is not None
        turn, slots = self._inference.advance(self._rows), self._slots
        self._rows = turn.rows
        done = turn.done.cpu().numpy()
        won = (slots["racing"] & turn.halted.cpu().numpy()) | self._verified(turn, slots["verifying"] & done)
        if won.any():
            done = done | np.isin(slots["puzzle"], slots["puzzle"][won])
        if slots["watched"].any():
            watched = np.flatnonzero(slots["watched"])
            seen, index = slots[watched], self._index(watched)
            snapshots = self._inference.snapshots(turn, index, seen["puzzle"], seen["restart"])
            for snapshot, ends in zip(snapshots, done[watched], strict=True):
                lost = bool(ends) and snapshot.status is None
                yield replace(snapshot, status=Status.CANCELLED) if lost else snapshot
        if len(self._noted):
            passing = np.flatnonzero(np.isin(turn.depths.cpu().numpy(), self._noted) & ~done)
            if len(passing):
                yield self._report(turn, passing, won, passing=True)
        self._vacant = np.flatnonzero(done)
        if len(self._vacant):
            yield self._report(turn, self._vacant, won, passing=False)

    def _verified(self, turn: Turn, ended: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which of the rows that ended, and were to be checked, have an accepted answer."""
        if ended.any():
            index = self._index(np.flatnonzero(ended))
            answers = turn.reading.tokens[index]
            ended[ended] = self._inference.accepts(turn.rows.x.puzzles[index], answers).cpu().numpy()
        return ended

    def _report(self, turn: Turn, rows: Places, won: NDArray[np.bool_], *, passing: bool) -> Finished:
        slots = self._slots[rows]
        candidates = self._inference.candidates(turn, self._index(rows), slots["began"])
        if not passing:
            short = candidates.depth < self._inference.budget.depth
            candidates.status[(candidates.status == Status.RAN_OUT) & short] = Status.CANCELLED
        return Finished(
            puzzles=slots["puzzle"],
            restarts=slots["restart"],
            candidates=candidates,
            won=won[rows],
            passing=passing,
        )

    def _index(self, rows: Places) -> Tensor:
        return torch.as_tensor(rows, device=self._inference.device)


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
        return sum(len(batch) for batch in self._batches.values())

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
            self._schedule()
            events = [event for batch in self._batches.values() for event in batch.advance()]
        for event in events:
            if isinstance(event, Finished) and not event.passing:
                self._queue.settle(event.puzzles[event.won].tolist(), event.puzzles.tolist())
        return events

    def _schedule(self) -> None:
        """Give the free slots to those who wait; a batch that nobody is in any more goes."""
        if gone := self._queue.leaving():
            for batch in self._batches.values():
                batch.drop(np.array(list(gone), np.int64))
        live = self.live
        drawn: dict[Budget, list[Entrants]] = {rules: [] for rules in self._batches}
        for entering in self._queue.draw(self.slots - live, idle=not live):
            drawn.setdefault(_iterates(entering.budget), []).append(entering)
        for rules, entrants in drawn.items():
            batch = self._batches.get(rules) or self._batch(rules)
            if entrants or len(batch):
                batch.enter(entrants)
                self._batches[rules] = batch
            else:
                del self._batches[rules]
        live = self.live
        self.usage.segments += live
        if self._more or self.waiting:
            self.usage.full += live
            self.usage.offered += self.slots

    def _batch(self, rules: Budget) -> _Batch:
        inference = Inference(
            self._reasoner, rules, window=self._window, task=self._task, backend=self.backend
        )
        return _Batch(inference, self._noted)


@lru_cache(maxsize=256)
def _iterates(budget: Budget) -> Budget:
    """Return what decides how a row moves and ends, so that rows of equal budgets can share a batch."""
    return budget.replace(breadth=1, race=False, until_verified=False, abreast=1, seed=0)
