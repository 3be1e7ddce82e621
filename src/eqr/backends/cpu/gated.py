"""The gated MLP with its residual and normalisation on the cpu, R(h + W_down(silu(g) * u)): most of the time.

Both mixers are this one function, along the channels (`dim` 1) or along the tokens (`dim` 0) of a matrix.
Between its two products it sweeps over memory as seldom as it can, with a gradient that stores only the
projection and the result. Large weights are laid out once for a whole segment (`row_executor.packing`). Small
ones are worked through tile by tile (`eqr.backends.cpu.mlp`), where the projection is cheaper to compute
again than to store.

Tensors come here by address, so they must be contiguous float32 numbers (`is_float32`). A sweep runs on the
calling thread, which has a core to itself wherever a batch is cut (`RowExecutor`).
"""

import torch
from torch import Tensor

from eqr.backends.cpu.operators import Kernel, is_float32, register, small_enough
from eqr.backends.cpu.row_executor import product
from eqr.model import definitions
from eqr.model.definitions import EPSILON, gated_mlp


def gate(both: Tensor, dim: int) -> Tensor:
    """silu(g) * u for the two halves (gate first) of a projection."""
    from eqr.backends.cpu import kernels

    rows, columns = both.shape
    gated = both.new_empty((rows, columns // 2) if dim == 1 else (rows // 2, columns))
    kernels.gate(both.data_ptr(), gated.data_ptr(), *_halves(both, dim))
    return gated


def gate_gradient(both: Tensor, towards: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return the gradient of `both`, and silu(g) * u again; `towards` (of the latter) is overwritten."""
    from eqr.backends.cpu import kernels

    to_both, towards = torch.empty_like(both), towards.contiguous()
    rows, width = _halves(both, dim)
    kernels.gate_gradient(both.data_ptr(), towards.data_ptr(), to_both.data_ptr(), rows, width)
    return to_both, towards


def add_and_normalise_(h: Tensor, plus: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """R(h + plus) along `dim`, in place of h, and the factors that `normalise_gradient` needs."""
    from eqr.backends.cpu import kernels

    scale = h.new_empty((h.shape[0], 1) if dim == 1 else (1, h.shape[1]))
    sweep = kernels.add_and_normalise_rows if dim == 1 else kernels.add_and_normalise_columns
    sweep(h.data_ptr(), plus.data_ptr(), scale.data_ptr(), *h.shape, kernels.F4(EPSILON))
    return h, scale


def normalise_gradient(towards: Tensor, out: Tensor, scale: Tensor, dim: int) -> Tensor:
    """Return the gradient of h, given that of y = R(h): with y = h r it is r (dy - y mean(y dy))."""
    from eqr.backends.cpu import kernels

    inner, towards = torch.empty_like(out), towards.contiguous()
    sweep = kernels.normalise_rows_gradient if dim == 1 else kernels.normalise_columns_gradient
    sweep(towards.data_ptr(), out.data_ptr(), scale.data_ptr(), inner.data_ptr(), *out.shape)
    return inner


def _halves(both: Tensor, dim: int) -> tuple[int, int]:
    """Rows and width of the halves; halves on top of each other lie side by side in one long row."""
    rows, columns = both.shape
    return (rows, columns // 2) if dim == 1 else (1, rows * columns // 2)


register(definitions.gate, Kernel(takes=lambda both, _dim: is_float32(both) and small_enough(both), run=gate))


LARGEST_WEIGHTS = 1 << 16
"""Numbers in the weights of an MLP that are best worked through by tiles (width 64, 256 hidden). From width
96 on a library's products are faster, by 12 to 18% without a gradient."""


def is_small(up: Tensor, down: Tensor) -> bool:
    """Whether tiles are faster; larger weights are better multiplied by a library."""
    return up.numel() + down.numel() <= LARGEST_WEIGHTS


def mix(h: Tensor, up: Tensor, down: Tensor) -> tuple[Tensor, Tensor]:
    """R(h + MLP(h)) for a matrix h, and the factors that its gradient needs."""
    from eqr.backends.cpu import kernels, mlp

    out, scale = torch.empty_like(h), h.new_empty(h.shape[:-1])
    mlp.forward(
        *_place(h), up.data_ptr(), down.data_ptr(), down.shape[1],
        0, out.data_ptr(), scale.data_ptr(), kernels.F4(EPSILON),
    )  # fmt: skip
    return out, scale


def mix_gradient(
    towards: Tensor, h: Tensor, up: Tensor, down: Tensor, out: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of h, up and down, given that of R(h + MLP(h))."""
    from eqr.backends.cpu import mlp

    towards = towards.contiguous()
    to_h, to_up, to_down = torch.empty_like(h), torch.empty_like(up), torch.empty_like(down)
    mlp.gradient(
        *_place(h), up.data_ptr(), down.data_ptr(), down.shape[1], towards.data_ptr(),
        out.data_ptr(), scale.data_ptr(), to_h.data_ptr(), to_up.data_ptr(), to_down.data_ptr(),
    )  # fmt: skip
    return to_h, to_up, to_down


def _place(h: Tensor) -> tuple[int, int, int, int, int, int]:
    """Addresses and sizes of the input: h, no table of neighbours, one arm, places, rows, width."""
    places, width = h.shape
    return h.data_ptr(), 0, 1, places, 1, width


_Gradients = tuple[Tensor, Tensor, Tensor]


def _takes(h: Tensor, up: Tensor, down: Tensor, _dim: int) -> bool:
    return is_float32(h, up, down) and small_enough(h)


def _tiled(up: Tensor, down: Tensor, dim: int) -> bool:
    return dim == 1 and is_small(up, down)


def _run(h: Tensor, up: Tensor, down: Tensor, dim: int) -> Tensor:
    if _tiled(up, down, dim):
        return mix(h, up, down)[0]
    gated = gate(_project(h, up, dim), dim)
    return add_and_normalise_(_project(gated, down, dim), h, dim)[0]


def _forward(h: Tensor, up: Tensor, down: Tensor, dim: int) -> tuple[Tensor, tuple[Tensor, ...]]:
    if _tiled(up, down, dim):
        out, scale = mix(h, up, down)
        return out, (out, scale)
    both = _project(h, up, dim)
    out, scale = add_and_normalise_(_project(gate(both, dim), down, dim), h, dim)
    return out, (out, scale, both)


def _gradient(
    towards: Tensor, kept: tuple[Tensor, ...], h: Tensor, up: Tensor, down: Tensor, dim: int
) -> _Gradients:
    out, scale, *projection = kept
    if not projection:
        return mix_gradient(towards, h, up, down, out, scale)
    (both,) = projection
    inner = normalise_gradient(towards, out, scale, dim)
    to_gated = inner @ down if dim == 1 else down.t() @ inner
    to_both, gated = gate_gradient(both, to_gated, dim)
    if dim == 1:
        to_down, to_up = inner.t() @ gated, to_both.t() @ h
        return inner.addmm_(to_both, up), to_up, to_down
    to_down, to_up = inner @ gated.t(), to_both @ h.t()
    return inner.addmm_(up.t(), to_both), to_up, to_down


def _project(h: Tensor, weight: Tensor, dim: int) -> Tensor:
    return product(h, weight) if dim == 1 else weight @ h


register(gated_mlp, Kernel(takes=_takes, run=_run, forward=_forward, gradient=_gradient))
