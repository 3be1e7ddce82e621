"""Freshly generated puzzles: sets whose splits share none, and endless streams for training.

Puzzles are made in blocks, here or ahead of time by background processes. Block b depends on (task, options,
seed, b) alone, so any number of workers gives the same blocks in the same order. Worker k of w makes blocks
k, k + w, ... and sends each down its own pipe; a full pipe makes it wait, which bounds how far it runs ahead.
A worker hears no signal, since those reach a whole group and the parent decides; it ends when its parent
closes it or is gone, however that ended.
"""

import hashlib
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Self

import numpy as np

from eqr.data.batches import Batch, require_same
from eqr.data.puzzles import BLANK, PuzzleSet
from eqr.data.splits import Splits, keys
from eqr.errors import UserError
from eqr.progress import progress
from eqr.signals import deferred_interrupts, unheard_by_children
from eqr.tasks.base import Generate, Instance, Task

ROWS = 16
"""Puzzles per block; part of what a seed means, so never change it."""
FIRST = 1 << 40
"""Number of a stream's first block: a set built with the same seed takes blocks from 0 on."""
PATIENCE = 1000
"""Puzzles in a row that are repeats, or held out, before nothing else is expected to come.

By then some 99.5% of all there are have been found."""
FEWEST = 16
"""Puzzles that each split must have where fewer than asked for will do."""
IDENTITY = "identity"
"""The fact that is a puzzle's identity in tasks with identities."""
WORKERS_PER_CORE = 4
"""More of them than this only take memory and time from one another."""

Kinds = frozenset[bytes]
Job = tuple[Task, Generate | None, int, Kinds]


def puzzle_set(task: Task, instances: Sequence[Instance], *, families: int | None = None) -> PuzzleSet:
    """Stack instances, which carry the same facts; identities are named up to `families`."""
    identities = [instance.facts.get(IDENTITY, 0) for instance in instances]
    families = max(identities) if families is None else families
    return PuzzleSet.of(
        task.name,
        np.stack([instance.puzzle for instance in instances]),
        np.stack([instance.answer for instance in instances]),
        ratings=[instance.rating for instance in instances],
        identities=identities,
        identity_names=(BLANK, *(f"family-{number}" for number in range(1, families + 1))),
        source_names=("generated",),
        facts={
            name: [instance.facts[name] for instance in instances]
            for name in instances[0].facts
            if name != IDENTITY
        },
    )


def _draw(instances: Iterator[Instance], count: int) -> list[Instance]:
    """Take puzzles from a generator, letting Ctrl-C in between two of them only."""
    taken = []
    for _ in range(count):
        with deferred_interrupts():
            taken.append(next(instances))
    return taken


def _kinds(task: Task, puzzles: PuzzleSet) -> list[bytes]:
    """Return a short hash for each puzzle, equal for those alike up to cheap symmetries."""
    return [blake2b(key, digest_size=16).digest() for key in keys(puzzles, task)]


def _make_block(
    task: Task, options: Generate | None, seed: int, held_out: Kinds, number: int
) -> list[Instance]:
    """Generate block `number` of a seed's endless sequence, without puzzles of the kinds held out."""
    instances = task.generate(np.random.default_rng([seed, number]), options)
    taken = _draw(instances, ROWS)
    refused = 0
    while held_out:
        alike = [kind in held_out for kind in _kinds(task, puzzle_set(task, taken))]
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
    return taken


def _require_workers(count: int) -> None:
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
        self._start = self._next = start
        _require_workers(workers)
        self._workers = _start_workers(self._job, workers, start)

    def __iter__(self) -> Iterator[list[Instance]]:
        return self

    def __next__(self) -> list[Instance]:
        number = self._next
        self._next += 1
        if not self._workers:
            return _make_block(*self._job, number)
        process, pipe = self._workers[(number - self._start) % len(self._workers)]
        try:
            block: list[Instance] | UserError = pipe.recv()
        except EOFError:
            process.join()
            self.close()
            raise RuntimeError(f"a puzzle worker died with exit code {process.exitcode}") from None
        if isinstance(block, UserError):
            self.close()
            raise block
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

    def __exit__(self, *_: object) -> None:
        self.close()


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
                pipe.send(_make_block(*job, number))
                number += stride
        except UserError as error:
            pipe.send(error)


def _end_with_parent() -> None:
    """End this process as soon as its parent is gone, in the midst of a puzzle too."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


class GeneratedStream:
    """Fresh puzzles without end, with the interface of `Batches`: the seed's sequence of blocks, row by row.

    What comes at a position depends only on the seed and on the puzzles held out. With `workers`, scripts
    need the usual `if __name__ == "__main__":` guard of spawned processes. Call `close`, or use it in a
    `with` block; workers end with their reader in any case.
    """

    def __init__(
        self,
        task: Task,
        options: Generate | None = None,
        *,
        seed: int,
        held_out: Iterable[PuzzleSet] = (),
        workers: int = 0,
    ) -> None:
        """Leave out whatever equals a puzzle of the sets `held_out` up to the task's cheap symmetries."""
        _require_workers(workers)
        self.task, self.options, self.seed, self.workers = task, options, seed, workers
        self._held_out = frozenset(kind for puzzles in held_out for kind in _kinds(task, puzzles))
        self._taken = 0
        self._blocks: Blocks | None = None
        self._held: Batch | None = None
        """Rows of the current block that are not taken yet."""

    def take(self, count: int) -> Batch:
        """Return the next `count` rows."""
        if count < 1:
            raise UserError(f"cannot take {count} rows")
        parts = []
        while count:
            rows = self._held if self._held is not None else self._next_rows()
            part, rest = rows.rows(slice(count)), rows.rows(slice(count, None))
            self._held = rest if len(rest) else None
            self._taken += len(part)
            count -= len(part)
            parts.append(part)
        return Batch.joined(parts)

    def skip(self, count: int) -> None:
        """Pass over the next `count` rows; puzzles are made in blocks, of which none is left out."""
        if count:
            self.take(count)

    def state(self) -> dict[str, Any]:
        """Return the cursor as plain JSON data."""
        held_out = hashlib.sha256(b"".join(sorted(self._held_out))).hexdigest()[:16]
        return {
            "taken": self._taken,
            "seed": self.seed,
            "task": self.task.name,
            "options": None if self.options is None else self.options.digest(),
            "held_out": held_out if self._held_out else None,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on exactly where `state` was saved; another seed, task, option or set held out is an error."""
        require_same(state, self.state(), "puzzle")
        self.close()
        self._taken = int(state["taken"])

    def close(self) -> None:
        """End the background processes; a later `take` starts them again."""
        if self._blocks is not None:
            self._blocks.close()
        self._blocks = self._held = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next_rows(self) -> Batch:
        """The untaken rows of the block that the cursor stands in."""
        number, offset = divmod(self._taken, ROWS)
        if self._blocks is None:
            self._blocks = Blocks(
                self.task,
                self.options,
                seed=self.seed,
                workers=self.workers,
                held_out=self._held_out,
                start=FIRST + number,
            )
        block = puzzle_set(self.task, next(self._blocks))
        positions = np.arange(number * ROWS, (number + 1) * ROWS, dtype=np.int64)
        return Batch(
            inputs=block.inputs,
            labels=block.labels,
            identities=block.identities,
            indices=positions,
            positions=positions,
        ).rows(slice(offset, None))


def generate(
    task: Task,
    sizes: dict[str, int],
    *,
    seed: int,
    options: Generate | None = None,
    workers: int = 0,
    one_stream: bool = False,
    fewer: bool = False,
    quiet: bool = False,
) -> Splits:
    """Generate distinct puzzles for each split; the result depends on (task, sizes, seed, options) alone.

    No input occurs twice, and no two splits share a puzzle up to the task's cheap symmetries. Splits grow in
    proportion; `one_stream` instead fills them one after the other, in the order of `sizes`, from one
    `default_rng(seed)`, as the builders of published sets do, and therefore without workers. Where there are
    not so many distinct puzzles (4x4 Sudoku has few thousand), it is an error, or with `fewer` splits are
    smaller.
    """
    sizes = {name: count for name, count in sizes.items() if count}
    if not sizes or min(sizes.values()) < 0:
        raise UserError("ask for at least one puzzle: --count must be positive")
    if one_stream and workers:
        raise UserError("one stream cannot be shared by workers; leave out --workers")
    sorter = _Sorter(task, sizes, in_turn=one_stream, fewer=fewer)
    with (
        Blocks(task, options, seed=seed, workers=workers) as blocks,
        progress(f"generating {task.name}", sum(sizes.values()), unit="puzzles", quiet=quiet) as shown,
    ):
        for block in _one_stream(task, options, seed) if one_stream else blocks:
            shown.advance(sorter.add(block))
            if sorter.done:
                break
    made = {
        "made_by": "eqr data build",
        "seed": seed,
        "options": {} if options is None else options.to_json(),
        "one_stream": one_stream,
    }
    splits = Splits({name: puzzles.with_metadata(**made) for name, puzzles in sorter.sets().items()})
    for name, puzzles in splits:
        _require_solved(task, puzzles, name)
    return splits


def _one_stream(task: Task, options: Generate | None, seed: int) -> Iterator[list[Instance]]:
    instances = task.generate(np.random.default_rng(seed), options)
    while True:
        yield _draw(instances, ROWS)


def _require_solved(task: Task, puzzles: PuzzleSet, split: str) -> None:
    """Refuse a generator whose answers the task itself rejects: a model would learn them all the same."""
    wrong = np.flatnonzero(~task.check_many(puzzles.inputs, puzzles.labels))
    if len(wrong):
        first = int(wrong[0])
        reason = task.check(puzzles.inputs[first], puzzles.labels[first]).reason
        raise UserError(
            f"{task.name}.generate made {len(wrong):,} {split} answers that {task.name}.check rejects, the "
            f"first because {reason or 'it is invalid'}; mend generate or check"
        )


class _Sorter:
    """Puts each new puzzle where its kind (its canonical form) belongs, and gives up when none is new."""

    def __init__(self, task: Task, sizes: dict[str, int], *, in_turn: bool, fewer: bool) -> None:
        self._task, self._sizes, self._in_turn, self._fewer = task, sizes, in_turn, fewer
        self._run_out = False
        self._kept: dict[str, list[Instance]] = {name: [] for name in sizes}
        self._home: dict[bytes, str] = {}
        self._kinds = dict.fromkeys(sizes, 0)
        self._inputs: set[bytes] = set()
        self._repeats = 0

    @property
    def done(self) -> bool:
        """Whether every split is full, or no more puzzles are to be had."""
        return self._run_out or all(len(kept) == self._sizes[name] for name, kept in self._kept.items())

    def _home_of_new(self) -> str:
        """The split a new kind goes to: the first with room, or the one with fewest kinds for its size.

        Where kinds are few (4x4), counting kinds rather than puzzles gives each split several of them.
        """
        roomy = [name for name, kept in self._kept.items() if len(kept) < self._sizes[name]]
        if self._in_turn:
            return roomy[0]
        return min(roomy, key=lambda name: (self._kinds[name] / self._sizes[name], -self._sizes[name]))

    def add(self, block: list[Instance]) -> int:
        """Keep what is new in a block and return how many that was."""
        added = 0
        puzzles = puzzle_set(self._task, block)
        known = zip(block, keys(puzzles, None), keys(puzzles, self._task), strict=True)
        for instance, key, kind in known:
            if self.done:
                break
            if self._keep(instance, key, kind):
                added += 1
                self._repeats = 0
            else:
                self._give_up_when_stuck()
        return added

    def _keep(self, instance: Instance, key: bytes, kind: bytes) -> bool:
        home = self._home.get(kind) or self._home_of_new()
        if key in self._inputs or len(self._kept[home]) >= self._sizes[home]:
            return False
        self._inputs.add(key)
        if kind not in self._home:
            self._home[kind] = home
            self._kinds[home] += 1
        self._kept[home].append(instance)
        return True

    def _give_up_when_stuck(self) -> None:
        self._repeats += 1
        if self._repeats < PATIENCE:
            return
        self._run_out = self._fewer and min(map(len, self._kept.values())) >= FEWEST
        if not self._run_out:
            raise UserError(
                f"found only {len(self._inputs):,} distinct puzzles of the {sum(self._sizes.values()):,} "
                f"asked for: the last {self._repeats:,} drawn were repeats. Lower --count, --validation or "
                "--test, or loosen the options"
            )

    def sets(self) -> dict[str, PuzzleSet]:
        """Return the set of each split."""
        every = (one.facts.get(IDENTITY, 0) for kept in self._kept.values() for one in kept)
        families = max(every)
        return {name: puzzle_set(self._task, kept, families=families) for name, kept in self._kept.items()}
