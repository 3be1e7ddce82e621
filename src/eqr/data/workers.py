"""Blocks of freshly generated puzzles, made in this process or ahead of time by background processes.

Block b depends on (task, options, seed, b) alone, so any number of workers gives the same blocks in the same
order. Worker k of w makes blocks k, k + w, ... and sends each down its own pipe; a full pipe makes it wait,
which bounds how far it runs ahead. A worker hears no signal, since those reach a whole group and the parent
decides; it ends when its parent closes it or is gone, however that ended.
"""

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from eqr.errors import UserError
from eqr.signals import deferred_interrupts, unheard_by_children
from eqr.tasks.base import Generate, Instance, Task, Tokens

ROWS = 16
"""Puzzles per block; part of what a seed means, so never change it."""
PATIENCE = 1000
"""Puzzles in a row that may all be held out before nothing else is expected to come."""


IDENTITY = "identity"

WORKERS_PER_CORE = 4
"""More of them than this only take memory and time from one another."""


@dataclass(frozen=True, kw_only=True)
class GeneratedBlock:
    """Freshly generated puzzles as arrays, one row each."""

    inputs: Tokens
    labels: Tokens
    ratings: NDArray[np.int32]
    identities: NDArray[np.int32]
    """The fact `identity` of a task with identities, 0 elsewhere."""
    facts: dict[str, NDArray[np.int64]]

    @classmethod
    def of(cls, instances: list[Instance]) -> Self:
        """Stack instances; all of one task carry the same facts."""
        return cls(
            inputs=np.stack([instance.puzzle for instance in instances]),
            labels=np.stack([instance.answer for instance in instances]),
            ratings=np.array([instance.rating for instance in instances], np.int32),
            identities=np.array([instance.facts.get(IDENTITY, 0) for instance in instances], np.int32),
            facts={
                name: np.array([instance.facts[name] for instance in instances], np.int64)
                for name in instances[0].facts
                if name != IDENTITY
            },
        )

    @classmethod
    def drawn(cls, instances: Iterator[Instance]) -> Self:
        """Take a block's worth from a generator."""
        return cls.of(_draw(instances, ROWS))

    def __len__(self) -> int:
        return len(self.inputs)


def _draw(instances: Iterator[Instance], count: int) -> list[Instance]:
    """Take puzzles from a generator, letting Ctrl-C in between two of them only."""
    taken = []
    for _ in range(count):
        with deferred_interrupts():
            taken.append(next(instances))
    return taken


Kinds = frozenset[bytes]


def kinds(task: Task, inputs: Tokens, identities: NDArray[np.int32]) -> list[bytes]:
    """Return a short hash for each puzzle (count, cells), equal for those alike up to cheap symmetries."""
    grids = task.canonical(inputs)
    return [
        blake2b(grid.tobytes() + identity.tobytes(), digest_size=16).digest()
        for grid, identity in zip(grids, identities, strict=True)
    ]


def make_block(
    task: Task, options: Generate | None, seed: int, held_out: Kinds, number: int
) -> GeneratedBlock:
    """Generate block `number` of a seed's endless sequence, without puzzles of the kinds held out."""
    instances = task.generate(np.random.default_rng([seed, number]), options)
    taken = _draw(instances, ROWS)
    refused = 0
    while held_out:
        block = GeneratedBlock.of(taken)
        alike = [kind in held_out for kind in kinds(task, block.inputs, block.identities)]
        if not any(alike):
            break
        refused = refused + sum(alike) if all(alike) else 0
        if refused > PATIENCE:
            raise UserError(
                f"every {task.name} puzzle drawn, the last {refused:,} of them, is one of the validation or "
                "test puzzles up to symmetry; hold out fewer (data.validation, data.test), loosen "
                "data.options, or train on a fixed set (data.endless=false)"
            )
        taken = [instance for instance, old in zip(taken, alike, strict=True) if not old]
        taken += _draw(instances, ROWS - len(taken))
    return GeneratedBlock.of(taken)


def require_workers(count: int) -> None:
    """Refuse a number of worker processes that this machine cannot serve."""
    cores = os.cpu_count() or 1
    most = WORKERS_PER_CORE * cores
    if not 0 <= count <= most:
        raise UserError(
            f"workers = {count}: choose 0 to {most}, {WORKERS_PER_CORE} for each of {cores} cores"
        )


class Blocks:
    """The blocks of a seed from `start` on; iterate, and `close` when done."""

    def __init__(
        self,
        task: Task,
        options: Generate | None,
        *,
        seed: int,
        workers: int = 0,
        held_out: Kinds = frozenset(),
        start: int = 0,
    ) -> None:
        self._job = (task, options, seed, held_out)
        self._next = start
        self._turn = 0
        require_workers(workers)
        self._workers = _start_workers(self._job, workers, start)

    def __iter__(self) -> Iterator[GeneratedBlock]:
        return self

    def __next__(self) -> GeneratedBlock:
        number = self._next
        self._next += 1
        if not self._workers:
            return make_block(*self._job, number)
        process, pipe = self._workers[self._turn]
        self._turn = (self._turn + 1) % len(self._workers)
        try:
            block = pipe.recv()
        except EOFError:
            process.join()
            self.close()
            raise RuntimeError(f"a puzzle worker died with exit code {process.exitcode}") from None
        if isinstance(block, UserError):
            self.close()
            raise block
        assert isinstance(block, GeneratedBlock)
        return block

    def close(self) -> None:
        """End the workers; harmless when already ended."""
        for process, pipe in self._workers:
            pipe.close()
            process.kill()
        for process, _ in self._workers:
            process.join()
        self._workers = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


Job = tuple[Task, Generate | None, int, Kinds]


def _start_workers(job: Job, count: int, start: int) -> list[tuple[SpawnProcess, Connection]]:
    context = multiprocessing.get_context("spawn")  # fork is unsafe once torch or numba run threads
    if count and os.name == "posix":
        resource_tracker.ensure_running()  # begun together with the first worker, it would unblock signals
    workers: list[tuple[SpawnProcess, Connection]] = []
    for turn in range(count):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(job, start + turn, count, theirs), daemon=True)
        try:
            with unheard_by_children():
                process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise UserError(
                f"task {job[0].name!r} cannot be sent to worker processes ({error}); use 0 workers, or "
                "define it in an importable module"
            ) from None
        finally:
            theirs.close()
        workers.append((process, ours))
    return workers


def _work(job: Job, number: int, stride: int, pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where signals cannot be blocked
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(BrokenPipeError, ConnectionResetError):
        try:
            while True:
                pipe.send(make_block(*job, number))
                number += stride
        except UserError as error:
            pipe.send(error)


def _end_with_parent() -> None:
    """End this process as soon as its parent is gone, in the midst of a puzzle too."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
