"""Large weights laid out once, for a whole segment, in the order in which MKL's products read them.

A weight that does not fit a core's cache is rearranged by every product it takes part in. The applications
of a segment share their weights, so rearranging them beforehand pays once a few rows use them: at d=512 it is
worth some 7 % (benchmarks/model.py). The packed copies live only inside `packed`, so that whoever changes a
weight between segments never meets a stale one. Where PyTorch has no MKL nothing is packed.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SMALLEST_BYTES = 1 << 20
"""Weights below this fit a core's second-level cache, where packing gains little."""

_Packing = dict[tuple[int, int], tuple[Tensor, Tensor]]
"""(identity of a weight, rows of the matrix it multiplies) -> the weight itself and its packed copy."""

_packing: ContextVar[_Packing | None] = ContextVar("packing", default=None)


@contextmanager
def packed(model: nn.Module, row_counts: Iterable[int]) -> Iterator[None]:
    """Pack the large weights of `model` for products with `row_counts` rows while the context lasts.

    Weights must not change inside. A thread sees the packing if it runs in a copy of this context.
    """
    found: _Packing = {}
    if _supported():
        weights = [weight for layer in model.modules() for weight in _weights(layer)]
        for count in set(row_counts):
            for weight in weights:
                copy = torch.ops.mkl._mkl_reorder_linear_weight(weight.detach(), count)
                found[id(weight), count] = weight, copy
    token = _packing.set(found or None)
    try:
        yield
    finally:
        _packing.reset(token)


def product(h: Tensor, weight: Tensor) -> Tensor:
    """h @ weight.t() for a matrix h, with the packed weight if there is one and autograd does not look."""
    packing = None if torch.compiler.is_compiling() else _packing.get()
    if packing is not None and h.dtype is torch.float32 and not _differentiated_or_cast():
        original, copy = packing.get((id(weight), h.shape[0]), (None, None))
        if original is weight:
            found: Tensor = torch.ops.mkl._mkl_linear(h, copy, weight, None, h.shape[0])
            return found
    return F.linear(h, weight)


def _differentiated_or_cast() -> bool:
    return torch.is_grad_enabled() or torch.is_autocast_enabled("cpu")


def _weights(layer: nn.Module) -> list[Tensor]:
    """The large weights of a layer that multiply a matrix of tokens from the right."""
    named = (getattr(layer, name) for name in getattr(layer, "PER_TOKEN", ()))
    return [
        weight
        for weight in named
        if weight.dtype is torch.float32 and weight.is_cpu and weight.nbytes >= SMALLEST_BYTES
    ]


@cache
def _supported() -> bool:
    # private to PyTorch, hence asked for rather than assumed
    named = "_mkl_reorder_linear_weight", "_mkl_linear"
    available: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    return available and all(hasattr(torch.ops.mkl, name) for name in named)
