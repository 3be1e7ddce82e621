"""Large weights laid out once, for a whole segment, in the order in which MKL's products read them.

A weight that does not fit a core's cache is rearranged by every product it takes part in. The applications
of a segment share their weights, so rearranging them at the first use pays once a few rows use them: at d=512
it is worth some 7 % (benchmarks/model.py). The packed copies live only inside `packing`, so that whoever
changes a weight between segments never meets a stale one. Where PyTorch has no MKL nothing is packed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from threading import Lock

import torch
from torch import Tensor
from torch.nn import functional as F

SMALLEST_BYTES = 1 << 20
"""Weights below this fit a core's second-level cache, where packing gains little."""


class _Packed:
    """The packed copies made so far, by weight and by rows of the matrix it multiplies."""

    def __init__(self) -> None:
        self._copies: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        self._packing = Lock()

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
