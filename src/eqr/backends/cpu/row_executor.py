"""Work on the rows of a batch: how many threads share it, and in which pieces.

Rows never look at one another, so a batch can be cut anywhere. Handing every core a few rows and letting it
run a whole segment on them, products and element-wise work alike, keeps the intermediates of a block in the
core's own cache and leaves nothing to synchronise; splitting each single product over all cores does neither
(benchmarks/speed_model.py measures both). PyTorch drops Python's lock while it computes, so threads are
enough, unless the computations are so short that passing the lock back and forth takes longer: such a batch
stays on the calling thread.

A weight that does not fit a core's cache is rearranged by every product it takes part in. The applications
of a segment share their weights, so `map` has them laid out once (`operators.packing`), at the first use: at
d=512 that is worth some 7 %. No copy outlives a call of `map`, so that whoever changes a weight between
segments never meets a stale one.

Accelerators schedule themselves: there a batch stays in one piece.
"""

import ctypes
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, nullcontext
from contextvars import Context, copy_context
from functools import cache
from itertools import pairwise
from typing import Self, TypeVar

import torch

from eqr.backends.cpu.operators import MEANS, packing
from eqr.model.config import ReasonerConfig
from eqr.model.definitions import computed_by

T = TypeVar("T")

CACHE_BYTES = 4 << 20
"""What a block's widest intermediate may take; smaller pieces pay more for calls than they save in cache."""
WORTH_PACKING = 16
"""Applications of single rows that packing weights must serve to pay."""
LEAST_OPERATIONS = 40e6
"""Operations of an application's larger half that a piece must have to be worth a thread."""
KEPT_BYTES = 256 << 20
"""Free memory at the end of the heap that is kept."""
_LARGEST_PIECE = 32 << 20  # the most that the library allows
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


@cache
def keep_freed_memory() -> bool:
    """Let the C library keep what is freed for the next arrays, once; say whether it does."""
    if not sys.platform.startswith("linux"):
        return False
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is None:
        return False
    return bool(set_option(_TRIM_THRESHOLD, KEPT_BYTES) and set_option(_MMAP_THRESHOLD, _LARGEST_PIECE))


@contextmanager
def one_thread() -> Iterator[None]:
    """Do small things on this thread alone.

    The executor keeps the cores busy; a second team of threads, woken for every small operation between two
    segments, would spin on the very cores that it needs.
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
    another_thread = _others.setdefault(os.getpid(), ThreadPoolExecutor(1))
    another_thread.submit(torch.set_num_threads, others).result()


_others: dict[int, ThreadPoolExecutor] = {}
"""By process: threads do not survive a fork. Their thread begins when it is first used."""


class RowExecutor:
    """Runs work on disjoint runs of rows, a thread per core, each with single-threaded products."""

    def __init__(
        self,
        workers: int | None = None,
        rows_per_cut: int | None = None,
        *,
        least_rows: int = 1,
        least_packed: int = 1,
        threads: int | None = None,
    ) -> None:
        """Use `workers` threads (None: one per core) on pieces of `least_rows` to `rows_per_cut` rows.

        Rows too few for two pieces stay on the calling thread; None sets no upper limit, which goes first.
        Large weights are packed for batches of at least `least_packed` rows. With other `threads` the pieces
        are still those of `workers`: products round by the rows they have.
        """
        keep_freed_memory()
        self.workers = workers or torch.get_num_threads()
        self.threads = threads or self.workers
        self.rows_per_cut, self.least_rows, self.least_packed = rows_per_cut, least_rows, least_packed
        self._threads: ThreadPoolExecutor | None = None
        self._owner = 0
        self._others = torch.get_num_threads()

    @classmethod
    def for_model(
        cls, config: ReasonerConfig, *, workers: int | None = None, rows_per_cut: int | None = None
    ) -> Self:
        """Return an executor whose threads each get enough of this model's rows to be worth it."""
        least, packed = least_rows(config), _least_packed(config)
        return cls(workers, rows_per_cut, least_rows=least, least_packed=packed)

    def cuts(self, rows: int) -> list[slice]:
        """Return the pieces: nearly equal, in order, none empty; as many for every worker if rows suffice."""
        pieces = -(-rows // (self.rows_per_cut or max(rows, 1)))
        pieces = min(-(-pieces // self.workers) * self.workers, max(rows // self.least_rows, pieces), rows)
        edges = [rows * piece // pieces for piece in range(pieces + 1)] if pieces else []
        return [slice(low, high) for low, high in pairwise(edges)]

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Do the small things between two calls of `map` on the calling thread alone, by the kernels."""
        with one_thread(), computed_by(MEANS):
            yield

    def map(self, work: Callable[[slice], T], rows: int) -> list[T]:
        """Run `work` on every piece and return the results in order of rows; weights must not change inside.

        The caller's grad mode, inference mode, autocast and context hold inside `work`.
        """
        cuts = self.cuts(rows)
        packed = packing() if rows >= self.least_packed else nullcontext()
        with packed, computed_by(MEANS):
            if self.threads > 1 and len(cuts) > 1:
                return self._map_on_threads(work, cuts)
            # all cores may share the products of one large row, not those of a few small ones
            with one_thread() if self.least_rows > 1 else self._together():
                return [work(cut) for cut in cuts]

    def _map_on_threads(self, work: Callable[[slice], T], cuts: list[slice]) -> list[T]:
        modes, waiting = _modes(), iter(enumerate(cuts))
        found: dict[int, T] = {}

        def take(context: Context) -> None:
            with modes():
                for place, cut in waiting:
                    found[place] = context.run(work, cut)

        # a context can only be inside one thread at a time, hence a copy for each; the caller works too:
        # a thread that sleeps takes long to wake, beside the pieces of a small model
        others = min(self.threads, len(cuts)) - 1
        busy = [self._pool().submit(take, copy_context()) for _ in range(others)]
        try:
            with one_thread():
                take(copy_context())
        finally:
            wait(busy)  # no piece is under way when an exception is seen
        for other in busy:
            other.result()
        return [found[place] for place in range(len(cuts))]

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Let all cores share each product, inside `alone` too."""
        if self.threads == 1 or torch.get_num_threads() > 1:
            yield
            return
        torch.set_num_threads(self.threads)
        try:
            yield
        finally:
            _stay_on_this_thread(self._others)

    def _pool(self) -> ThreadPoolExecutor:
        # threads do not survive a fork: a child process makes its own
        if self._threads is None or self._owner != os.getpid():
            self._threads = ThreadPoolExecutor(
                self.threads - 1,
                thread_name_prefix="rows",
                initializer=_stay_on_this_thread,
                initargs=(self._others,),
            )
            self._owner = os.getpid()
        return self._threads


def _modes() -> Callable[[], ExitStack]:
    """Return what puts another thread in this one's modes, which PyTorch keeps by thread."""
    inference, grad = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
    autocast, dtype = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

    def entered() -> ExitStack:
        stack = ExitStack()
        stack.enter_context(torch.inference_mode(inference))
        stack.enter_context(torch.set_grad_enabled(grad))
        stack.enter_context(torch.autocast("cpu", dtype=dtype, enabled=autocast))
        return stack

    return entered


def rows_per_cut(config: ReasonerConfig, *, training: bool = False) -> int:
    """Return how many rows of a model a core can work on within its cache.

    Training takes twice as many: every piece also sums gradients as large as the weights.
    """
    return max((2 if training else 1) * CACHE_BYTES // (4 * config.widest), 1)


def least_rows(config: ReasonerConfig) -> int:
    """Return how many rows of a model are worth a thread of their own."""
    return math.ceil(LEAST_OPERATIONS / (2 * config.multiply_adds))


def _least_packed(config: ReasonerConfig) -> int:
    return math.ceil(WORTH_PACKING / config.applications)


_shared = cache(RowExecutor)
_making = threading.Lock()


def shared_executor(config: ReasonerConfig, device: torch.device, workers: int | None = None) -> RowExecutor:
    """Return this process's executor for models of this size; elsewhere than on a cpu nothing is cut.

    With `workers` it gives the bits of that many threads, however many this process has.
    """
    with _making:
        if device.type != "cpu":
            return _shared(1)
        threads, least = torch.get_num_threads(), least_rows(config)
        if workers is not None:  # a lone row stays on one thread: several round by how many they are
            least = max(least, 2)
        sizes = {"least_rows": least, "least_packed": _least_packed(config), "threads": threads}
        return _shared(workers or threads, rows_per_cut(config), **sizes)
