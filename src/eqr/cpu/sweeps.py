"""The passes over memory between products, a compiled sweep each: the gate and the normalisation.

Tensors come here by address, so they must be contiguous float32 numbers (`is_float32`). A sweep runs on the
calling thread, which has a core to itself wherever a batch is cut (`RowExecutor`). `dim` is the axis
that is mixed: 1 for the channels, 0 for the tokens of a matrix.
"""

import torch
from torch import Tensor

from eqr.cpu.operators import Kernel

EPSILON = 1e-5
LARGEST_SWEEP = 1 << 22
"""Values that one thread sweeps even where PyTorch would have more."""


def is_float32(*tensors: Tensor) -> bool:
    """Whether tensors are contiguous float32 numbers."""
    return all(tensor.dtype is torch.float32 and tensor.is_contiguous() for tensor in tensors)


def small_enough(h: Tensor) -> bool:
    """Whether the calling thread should sweep alone: a large batch that nobody cut is PyTorch's threads'."""
    return h.numel() <= LARGEST_SWEEP or torch.get_num_threads() == 1


def gate(both: Tensor, dim: int) -> Tensor:
    """silu(g) * u for the two halves (gate first) of a projection."""
    from eqr.cpu import kernels

    rows, columns = both.shape
    gated = both.new_empty((rows, columns // 2) if dim == 1 else (rows // 2, columns))
    kernels.gate(both.data_ptr(), gated.data_ptr(), *_halves(both, dim))
    return gated


def gate_gradient(both: Tensor, towards: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return the gradient of `both`, and silu(g) * u again; `towards` (of the latter) is overwritten."""
    from eqr.cpu import kernels

    to_both, towards = torch.empty_like(both), towards.contiguous()
    rows, width = _halves(both, dim)
    kernels.gate_gradient(both.data_ptr(), towards.data_ptr(), to_both.data_ptr(), rows, width)
    return to_both, towards


def add_and_normalise_(h: Tensor, plus: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """R(h + plus) along `dim`, in place of h, and the factors that `normalise_gradient` needs."""
    from eqr.cpu import kernels

    scale = h.new_empty((h.shape[0], 1) if dim == 1 else (1, h.shape[1]))
    sweep = kernels.add_and_normalise_rows if dim == 1 else kernels.add_and_normalise_columns
    sweep(h.data_ptr(), plus.data_ptr(), scale.data_ptr(), *h.shape, kernels.F4(EPSILON))
    return h, scale


def normalise_gradient(towards: Tensor, out: Tensor, scale: Tensor, dim: int) -> Tensor:
    """Return the gradient of h, given that of y = R(h): with y = h r it is r (dy - y mean(y dy))."""
    from eqr.cpu import kernels

    inner, towards = torch.empty_like(out), towards.contiguous()
    sweep = kernels.normalise_rows_gradient if dim == 1 else kernels.normalise_columns_gradient
    sweep(towards.data_ptr(), out.data_ptr(), scale.data_ptr(), inner.data_ptr(), *out.shape)
    return inner


def _halves(both: Tensor, dim: int) -> tuple[int, int]:
    """Rows and width of the halves; halves on top of each other lie side by side in one long row."""
    rows, columns = both.shape
    return (rows, columns // 2) if dim == 1 else (1, rows * columns // 2)


GATE = Kernel(takes=lambda both, _dim: is_float32(both) and small_enough(both), run=gate)
