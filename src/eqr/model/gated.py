"""The gated MLP with its residual and normalisation, R(h + W_down(silu(g) * u)): where the time goes.

Both mixers are this one function, along the channels (`dim` 1) or along the tokens (`dim` 0) of a matrix.
Between its two products it sweeps over memory as seldom as it can: in place when no graph is recorded, with
a hand-written gradient, which stores only the projection and the result, when one is. Compilers, autocast and
function transforms (`torch.func`) get the plain composition, which they fuse, cast and transform themselves.
"""

from typing import Any

import torch
from torch import Tensor

from eqr.model.packed import product
from eqr.model.passes import (
    add_and_normalise_,
    gate,
    gate_,
    gate_gradient,
    normalise,
    normalise_gradient,
    transformed,
)
from eqr.model.tiled import fits, is_small, mix, mix_gradient


def gated_mlp(h: Tensor, up: Tensor, down: Tensor, dim: int) -> Tensor:
    """Mix the matrix h along `dim`; weights are (out, in)."""
    if (
        torch.is_autocast_enabled(h.device.type)
        or h.dtype.itemsize < 4
        or any(map(transformed, (h, up, down)))
    ):
        return _composed(h, up, down, dim)
    tiled = dim == 1 and is_small(up, down) and fits(h, (up, down))
    if torch.is_grad_enabled() and (h.requires_grad or up.requires_grad or down.requires_grad):
        mixed: Tensor = (_TiledMlp if tiled else _GatedMlp).apply(h, up, down, dim)  # type: ignore[no-untyped-call]  # PyTorch's own
        return mixed
    if tiled:
        return mix(h, up, down)[0]
    gated = gate_(_project(h, up, dim), dim)
    return add_and_normalise_(_project(gated, down, dim), h, dim)[0]


def _project(h: Tensor, weight: Tensor, dim: int) -> Tensor:
    return product(h, weight) if dim == 1 else weight @ h


def _composed(h: Tensor, up: Tensor, down: Tensor, dim: int) -> Tensor:
    gated = gate(_project(h, up, dim), dim)
    mixed = torch.addmm(h, gated, down.t()) if dim == 1 else torch.addmm(h, down, gated)
    return normalise(mixed, dim).to(h.dtype)


class _GatedMlp(torch.autograd.Function):
    """The same function with its gradient: four products and as few sweeps as possible."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, up: Tensor, down: Tensor, dim: int) -> Tensor:
        both = _project(h, up, dim)
        out, scale = add_and_normalise_(_project(gate(both, dim), down, dim), h, dim)
        ctx.save_for_backward(h, up, down, both, out, scale)
        ctx.dim = dim
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        h, up, down, both, out, scale = ctx.saved_tensors
        (towards,), dim = gradients, ctx.dim
        if torch.is_grad_enabled():  # the gradient is to be differentiated again
            return *_gradient_with_graph(ctx, h, up, down, towards), None
        inner = normalise_gradient(towards, out, scale, dim)
        to_gated = inner @ down if dim == 1 else down.t() @ inner
        to_both, gated = gate_gradient(both, to_gated, dim)
        if dim == 1:
            to_down, to_up = inner.t() @ gated, to_both.t() @ h
            return inner.addmm_(to_both, up), to_up, to_down, None
        to_down, to_up = inner @ gated.t(), to_both @ h.t()
        return inner.addmm_(up.t(), to_both), to_up, to_down, None


class _TiledMlp(torch.autograd.Function):
    """The same for small weights, whose projection is cheaper to compute again than to store."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, up: Tensor, down: Tensor, dim: int) -> Tensor:
        out, scale = mix(h, up, down)
        ctx.save_for_backward(h, up, down, out, scale)
        ctx.dim = dim
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        h, up, down, out, scale = ctx.saved_tensors
        if torch.is_grad_enabled():
            return *_gradient_with_graph(ctx, h, up, down, gradients[0]), None
        return *mix_gradient(gradients[0], h, up, down, out, scale), None


def _gradient_with_graph(
    ctx: Any, h: Tensor, up: Tensor, down: Tensor, towards: Tensor
) -> tuple[Tensor | None, ...]:
    inputs = (h, up, down)
    wanted = [tensor for tensor, needed in zip(inputs, ctx.needs_input_grad, strict=False) if needed]
    found = iter(torch.autograd.grad(_composed(*inputs, ctx.dim), wanted, towards, create_graph=True))
    return tuple(next(found) if needed else None for needed in ctx.needs_input_grad[:3])
