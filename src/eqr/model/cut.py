"""Cutting a batch into runs of rows, a core each, so that a core's working set stays in its cache.

Rows never look at one another, so a batch can be cut anywhere. Handing every core a few rows and letting it
run a whole segment on them, products and element-wise work alike, keeps the intermediates of a block in the
core's own cache and leaves nothing to synchronise; splitting each single product over all cores does neither
(benchmarks/model.py measures both). PyTorch drops Python's lock while it computes, so threads are enough,
unless the computations are so short that passing the lock back and forth takes longer: such a batch stays on
the calling thread.

Accelerators schedule themselves: there a batch stays in one piece.
"""

import math
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import Context, copy_context
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TypeVar

import torch

from eqr.cpu.memory import keep_freed_memory
from eqr.errors import UserError
from eqr.model.config import Path, ReasonerConfig
from eqr.model.packed import packed
from eqr.model.reasoner import Reasoner
from eqr.model.state import Reading, State

T = TypeVar("T")

CACHE_BYTES = 4 << 20
"""What a block's widest intermediate may take; smaller pieces pay more for calls than they save in cache."""
WORTH_PACKING = 16
"""Applications of single rows that packing weights must serve to pay."""
LEAST_OPERATIONS = 40e6
"""Operations of an application's larger half that a piece must have to be worth a thread."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Do small things on this thread alone.

    The pool keeps the cores busy; a second team of threads, woken for every small operation between two
    segments, would spin on the very cores that the pool needs.
    """
    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    _stay_on_this_thread(threads)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _stay_on_this_thread(others: int) -> None:
    """Give this thread's operations one thread, and those of threads yet to begin `others`.

    PyTorch hands whatever number was set last, by any thread, to each new thread for good; so another thread
    sets it again.
    """
    torch.get_num_threads()  # a new thread takes the common number now, or it would after getting its own
    torch.set_num_threads(1)
    another_thread = _executors.setdefault(os.getpid(), ThreadPoolExecutor(1))
    another_thread.submit(torch.set_num_threads, others).result()


_executors: dict[int, ThreadPoolExecutor] = {}
"""By process: threads do not survive a fork. Their thread begins when it is first used."""


class RowPool:
    """Runs work on disjoint runs of rows, a thread per core, each with single-threaded products."""

    def __init__(
        self,
        workers: int | None = None,
        rows_per_cut: int | None = None,
        *,
        least_rows: int = 1,
        threads: int | None = None,
    ) -> None:
        """Use `workers` threads (None: one per core) on pieces of `least_rows` to `rows_per_cut` rows.

        Rows too few for two pieces stay on the calling thread; None sets no upper limit, which goes first.
        With other `threads` the pieces are still those of `workers`: products round by the rows they have.
        """
        if workers is not None and workers < 1:
            raise UserError(f"workers = {workers}: a pool needs at least 1")
        if rows_per_cut is not None and rows_per_cut < 1:
            raise UserError(f"rows_per_cut = {rows_per_cut}: a piece needs at least 1 row")
        keep_freed_memory()
        self.workers = workers or torch.get_num_threads()
        self.threads = threads or self.workers
        self.rows_per_cut, self.least_rows = rows_per_cut, least_rows
        self._threads: ThreadPoolExecutor | None = None
        self._owner = 0
        self._others = torch.get_num_threads()

    def cuts(self, rows: int) -> list[slice]:
        """Return the pieces: nearly equal, in order, none empty; as many for every worker if rows suffice."""
        pieces = -(-rows // (self.rows_per_cut or max(rows, 1)))
        pieces = min(-(-pieces // self.workers) * self.workers, max(rows // self.least_rows, pieces), rows)
        edges = [rows * piece // pieces for piece in range(pieces + 1)] if pieces else []
        return [slice(low, high) for low, high in pairwise(edges)]

    def packed(self, reasoner: Reasoner, rows: int) -> AbstractContextManager[None]:
        """Pack the model's large weights for the pieces of `rows` rows; weights must not change inside."""
        if rows * reasoner.config.applications < WORTH_PACKING:
            return nullcontext()
        return packed(reasoner, (reasoner.config.tokens * (cut.stop - cut.start) for cut in self.cuts(rows)))

    def map(self, work: Callable[[slice], T], rows: int) -> list[T]:
        """Run `work` on every piece and return the results in order of rows.

        The caller's grad mode, inference mode, autocast and context hold inside `work`. The first piece that
        raises decides the exception.
        """
        cuts = self.cuts(rows)
        if self.threads == 1 or len(cuts) < 2:
            # all cores may share the products of one large row, not those of a few small ones
            with one_thread() if self.least_rows > 1 else nullcontext():
                return [work(cut) for cut in cuts]
        modes = _Modes.here()

        def inside(context: Context, cut: slice) -> T:
            with modes.entered():
                return context.run(work, cut)

        # a context can only be inside one thread at a time, hence a copy for each
        return list(self._executor().map(inside, [copy_context() for _ in cuts], cuts))

    def _executor(self) -> ThreadPoolExecutor:
        # threads do not survive a fork: a child process makes its own
        if self._threads is None or self._owner != os.getpid():
            self._threads = ThreadPoolExecutor(
                self.threads,
                thread_name_prefix="rows",
                initializer=_stay_on_this_thread,
                initargs=(self._others,),
            )
            self._owner = os.getpid()
        return self._threads


@dataclass(frozen=True)
class _Modes:
    """PyTorch's modes, which belong to a thread, so that another thread can be put in the same ones."""

    grad: bool
    inference: bool
    autocast: bool
    autocast_dtype: torch.dtype

    @classmethod
    def here(cls) -> "_Modes":
        return cls(
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.is_autocast_enabled("cpu"),
            torch.get_autocast_dtype("cpu"),
        )

    def entered(self) -> ExitStack:
        stack = ExitStack()
        stack.enter_context(torch.inference_mode(self.inference))
        stack.enter_context(torch.set_grad_enabled(self.grad))
        stack.enter_context(torch.autocast("cpu", dtype=self.autocast_dtype, enabled=self.autocast))
        return stack


def rows_per_cut(config: ReasonerConfig, *, training: bool = False) -> int:
    """Return how many rows of this model a core can work on within its cache.

    Training takes twice as many: every piece also sums gradients as large as the weights.
    """
    widest = max(config.tokens * 2 * config.hidden(config.width), config.mixer.widest(config))
    return max((2 if training else 1) * CACHE_BYTES // (4 * widest), 1)


def least_rows(config: ReasonerConfig) -> int:
    """Return how many rows of this model are worth a thread of their own."""
    channels = 3 * config.tokens * config.width * config.hidden(config.width)
    by_row = 2 * config.blocks * max(channels, config.mixer.multiply_adds(config))
    return math.ceil(LEAST_OPERATIONS / by_row)


@cache
def _pool(workers: int, rows: int | None, least: int, threads: int | None = None) -> RowPool:
    return RowPool(workers, rows, least_rows=least, threads=threads)


_making = threading.Lock()


def default_pool(config: ReasonerConfig, device: torch.device) -> RowPool:
    """Return the shared pool for a model: cuts that fit a core's cache on cpu, one piece elsewhere."""
    with _making:
        if device.type != "cpu":
            return _pool(1, None, 1)
        return _pool(torch.get_num_threads(), rows_per_cut(config), least_rows(config))


def repeatable_pool(config: ReasonerConfig, device: torch.device, workers: int) -> RowPool:
    """Return a pool that gives the same bits as one of `workers` threads, however many this process has."""
    if device.type != "cpu":
        return default_pool(config, device)
    # a lone row stays on one thread: what several make of a product depends on how many they are
    least = max(least_rows(config), 2)
    with _making:
        return _pool(workers, rows_per_cut(config), least, torch.get_num_threads())


def segment_and_read(
    reasoner: Reasoner,
    pool: RowPool,
    state: State,
    x: torch.Tensor,
    keys: torch.Tensor,
    depths: torch.Tensor,
    *,
    path: Path | None = None,
    into: State | None = None,
) -> tuple[State, Reading]:
    """Advance every row by one segment and read it, cut by `pool`; no graph is recorded.

    The new state is written to `into`, which may be `state` itself; None makes a new one.
    """
    into = into or State(*(torch.empty_like(latent) for latent in state.tensors()))

    def work(rows: slice) -> Reading:
        before = state.chunk(rows)
        after = reasoner.segment(before, x[:, rows], keys[rows], depths[rows], path=path)
        reading = reasoner.read(after, before)
        for old, new in zip(into.chunk(rows).tensors(), after.tensors(), strict=True):
            old.copy_(new)
        return reading

    with torch.no_grad(), pool.packed(reasoner, state.rows):
        readings = pool.map(work, state.rows)
    if len(readings) == 1:
        return into, readings[0]
    return into, Reading(
        *(
            torch.cat([getattr(reading, name) for reading in readings])
            for name in ("logits", "halt", "go_on", "residual")
        )
    )
