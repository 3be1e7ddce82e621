"""The gated MLP with its residual and normalisation on the cpu, R(h + W_down(silu(g) * u)): most of the time.

Both mixers are this one function, along the channels (`dim` 1) or along the tokens (`dim` 0) of a matrix.
Between its two products it sweeps over memory as seldom as it can, with a gradient that stores only the
projection and the result. Small weights are worked through tile by tile, where the projection is cheaper to
compute again than to store.
"""

from torch import Tensor

from eqr.cpu.operators import Kernel
from eqr.cpu.packing import product
from eqr.cpu.sweeps import (
    add_and_normalise_,
    gate,
    gate_gradient,
    is_float32,
    normalise_gradient,
    small_enough,
)
from eqr.cpu.tiled import is_small, mix, mix_gradient

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


GATED_MLP = Kernel(takes=_takes, run=_run, forward=_forward, gradient=_gradient)
