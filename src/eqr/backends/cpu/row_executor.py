"""Work on the rows of a batch: how many threads share it, in which pieces, with which weights packed.

Rows never look at one another, so a batch can be cut anywhere. Handing every core a few rows and letting it
run a whole segment on them, products and element-wise work alike, keeps the intermediates of a block in the
core's own cache and leaves nothing to synchronise; splitting each single product over all cores does neither
(benchmarks/speed_model.py measures both). PyTorch drops Python's lock while it computes, so threads are
enough, unless the computations are so short that passing the lock back and forth takes longer: such a batch
stays on the calling thread.

A weight that does not fit a core's cache is rearranged by every product it takes part in. The applications
of a segment share their weights, so they are laid out once, at the first use, where a few rows use them: at
d=512 that is worth some 7 %. The packed copies live only inside `packing`, so that whoever changes a weight
between segments never meets a stale one. Where PyTorch has no MKL nothing is packed.

Accelerators schedule themselves: there a batch stays in one piece.
"""

import ctypes
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from types import TracebackType
from typing import NamedTuple, Protocol, Self, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from eqr.backends.cpu.operators import MEANS
from eqr.errors import UserError
from eqr.model.definitions import computed_by

KEPT_BYTES = 256 << 20
"""Free memory at the end of the heap that is kept."""
_LARGEST_PIECE = 32 << 20  # the most that the library allows
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


@cache
def keep_freed_memory() -> bool:
    """Set both, once, and say whether the library took them."""
    if not sys.platform.startswith("linux"):
        return False
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is None:
        return False
    return bool(set_option(_TRIM_THRESHOLD, KEPT_BYTES) and set_option(_MMAP_THRESHOLD, _LARGEST_PIECE))


T = TypeVar("T")

CACHE_BYTES = 4 << 20
"""What a block's widest intermediate may take; smaller pieces pay more for calls than they save in cache."""
WORTH_PACKING = 16
"""Applications of single rows that packing weights must serve to pay."""
LEAST_OPERATIONS = 40e6
"""Operations of an application's larger half that a piece must have to be worth a thread."""


class RowCosts(Protocol):
    """What a row of a model asks of a core."""

    @property
    def widest(self) -> int:
        """Numbers in the widest intermediate."""

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of the larger half of an application."""

    @property
    def applications(self) -> int:
        """Applications of a segment."""


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


class _Postponed(NamedTuple):
    """Keeps what a piece raises until all threads are done with theirs."""

    failed: dict[int, BaseException]
    place: int

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is not None:
            self.failed[self.place] = error
        return True


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
        if workers is not None and workers < 1:
            raise UserError(f"workers = {workers}: an executor needs at least 1")
        if rows_per_cut is not None and rows_per_cut < 1:
            raise UserError(f"rows_per_cut = {rows_per_cut}: a piece needs at least 1 row")
        keep_freed_memory()
        self.workers = workers or torch.get_num_threads()
        self.threads = threads or self.workers
        self.rows_per_cut, self.least_rows, self.least_packed = rows_per_cut, least_rows, least_packed
        self._threads: ThreadPoolExecutor | None = None
        self._owner = 0
        self._others = torch.get_num_threads()

    @classmethod
    def for_model(
        cls, costs: RowCosts, *, workers: int | None = None, rows_per_cut: int | None = None
    ) -> Self:
        """Return an executor whose threads each get enough of this model's rows to be worth it."""
        return cls(
            workers,
            rows_per_cut,
            least_rows=least_rows(costs),
            least_packed=_least_packed(costs),
        )

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

        The caller's grad mode, inference mode, autocast and context hold inside `work`. The first piece that
        raises decides the exception.
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
        modes, waiting = _Modes.here(), iter(enumerate(cuts))
        found: dict[int, T] = {}
        failed: dict[int, BaseException] = {}

        def take(context: Context) -> None:
            with modes.entered():
                for place, cut in waiting:
                    with _Postponed(failed, place):
                        found[place] = context.run(work, cut)

        # a context can only be inside one thread at a time, hence a copy for each; the caller works too:
        # a thread that sleeps takes long to wake, beside the pieces of a small model
        others = min(self.threads, len(cuts)) - 1
        busy = [self._pool().submit(take, copy_context()) for _ in range(others)]
        with one_thread():
            take(copy_context())
        for other in busy:
            other.result()
        if failed:
            raise failed[min(failed)]
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


SMALLEST_BYTES = 1 << 20
"""Weights below this fit a core's second-level cache, where packing gains little."""


class _Packed:
    """The packed copies made so far, by weight and by rows of the matrix it multiplies."""

    def __init__(self) -> None:
        self._copies: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        self._packing = threading.Lock()

    def copy(self, weight: Tensor, rows: int) -> Tensor:
        with self._packing:  # whoever comes second waits for the copy rather than make one too
            _, found = self._copies.get((id(weight), rows), (None, None))
            if found is None:
                found = torch.ops.mkl._mkl_reorder_linear_weight(weight.detach(), rows)
                # held with its weight, lest another come to have the same identity
                self._copies[id(weight), rows] = weight, found
            return found


_packed: ContextVar[_Packed | None] = ContextVar("packed", default=None)


@contextmanager
def packing() -> Iterator[None]:
    """Pack the large weights of `product` while the context lasts; weights must not change inside.

    A thread shares the copies if it runs in a copy of this context.
    """
    token = _packed.set(_Packed() if _supported() else None)
    try:
        yield
    finally:
        _packed.reset(token)


def product(h: Tensor, weight: Tensor) -> Tensor:
    """h @ weight.t() for float32 matrices of which no graph is recorded."""
    packed = _packed.get()
    if packed is None or weight.nbytes < SMALLEST_BYTES:
        return F.linear(h, weight)
    rows = h.shape[0]
    found: Tensor = torch.ops.mkl._mkl_linear(h, packed.copy(weight, rows), weight, None, rows)
    return found


@cache
def _supported() -> bool:
    # private to PyTorch, hence asked for rather than assumed
    named = "_mkl_reorder_linear_weight", "_mkl_linear"
    available: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    return available and all(hasattr(torch.ops.mkl, name) for name in named)


def rows_per_cut(costs: RowCosts, *, training: bool = False) -> int:
    """Return how many rows of a model a core can work on within its cache.

    Training takes twice as many: every piece also sums gradients as large as the weights.
    """
    return max((2 if training else 1) * CACHE_BYTES // (4 * costs.widest), 1)


def least_rows(costs: RowCosts) -> int:
    """Return how many rows of a model are worth a thread of their own."""
    return math.ceil(LEAST_OPERATIONS / (2 * costs.multiply_adds))


def _least_packed(costs: RowCosts) -> int:
    return math.ceil(WORTH_PACKING / costs.applications)


@cache
def _shared(
    workers: int, rows: int | None, least: int, packed: int, threads: int | None = None
) -> RowExecutor:
    return RowExecutor(workers, rows, least_rows=least, least_packed=packed, threads=threads)


_making = threading.Lock()


def shared_executor(costs: RowCosts, device: torch.device) -> RowExecutor:
    """Return this process's executor for a model: pieces that fit a core's cache, all in one elsewhere."""
    with _making:
        if device.type != "cpu":
            return _shared(1, None, 1, 1)
        return _shared(torch.get_num_threads(), rows_per_cut(costs), least_rows(costs), _least_packed(costs))


def repeatable_executor(costs: RowCosts, device: torch.device, workers: int) -> RowExecutor:
    """Return one that gives the same bits as one of `workers` threads, however many this process has."""
    if device.type != "cpu":
        return shared_executor(costs, device)
    # a lone row stays on one thread: what several make of a product depends on how many they are
    least = max(least_rows(costs), 2)
    with _making:
        return _shared(workers, rows_per_cut(costs), least, _least_packed(costs), torch.get_num_threads())
