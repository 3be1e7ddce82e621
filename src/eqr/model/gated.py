"""The gated MLP with its residual and normalisation, R(h + W_down(silu(g) * u)): where the time goes.

Both mixers are this one function, along the channels (`dim` 1) or along the tokens (`dim` 0) of a matrix.
Between its two products it makes as few passes over memory as it can: in place when no graph is recorded,
with a hand-written gradient, which stores only the projection and the result, when one is. Compilers and
autocast get the plain composition, which they fuse and cast themselves.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

EPSILON = 1e-5


def normalise(h: Tensor, dim: int) -> Tensor:
    """R(h) = h / sqrt(mean(h^2) + eps) along `dim`, in at least float32, with neither gain nor bias."""
    wide = h.float() if h.dtype.itemsize < 4 else h
    return (wide * _scale(wide, dim)).to(h.dtype)


def gate(both: Tensor, dim: int) -> Tensor:
    """silu(g) * u for the two halves (gate first) of a projection."""
    g, u = both.chunk(2, dim=dim)
    return F.silu(g) * u


def gated_mlp(h: Tensor, up: Tensor, down: Tensor, dim: int) -> Tensor:
    """Mix the matrix h along `dim`; weights are (out, in)."""
    if torch.compiler.is_compiling() or torch.is_autocast_enabled(h.device.type) or h.dtype.itemsize < 4:
        return _composed(h, up, down, dim)
    if torch.is_grad_enabled() and (h.requires_grad or up.requires_grad or down.requires_grad):
        mixed: Tensor = _GatedMlp.apply(h, up, down, dim)  # type: ignore[no-untyped-call]  # PyTorch's own
        return mixed
    gated, unit = _project(h, up, dim).chunk(2, dim=dim)
    return _normalise_(_close(h, F.silu(gated, inplace=True).mul_(unit), down, dim), dim)[0]


def _project(h: Tensor, up: Tensor, dim: int) -> Tensor:
    return h @ up.t() if dim == 1 else up @ h


def _close(h: Tensor, gated: Tensor, down: Tensor, dim: int) -> Tensor:
    return torch.addmm(h, gated, down.t()) if dim == 1 else torch.addmm(h, down, gated)


def _composed(h: Tensor, up: Tensor, down: Tensor, dim: int) -> Tensor:
    mixed = _close(h, gate(_project(h, up, dim), dim), down, dim)
    return normalise(mixed, dim).to(h.dtype)


def _scale(h: Tensor, dim: int) -> Tensor:
    if dim == 0:
        return torch.rsqrt(h.square().mean(dim=0, keepdim=True) + EPSILON)
    # along contiguous memory the norm needs one pass and no square in memory; along tokens it is slow
    norm = torch.linalg.vector_norm(h, dim=dim, keepdim=True)
    return torch.rsqrt(norm.square() / h.shape[dim] + EPSILON)


def _normalise_(h: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    scale = _scale(h, dim)
    return h.mul_(scale), scale


class _GatedMlp(torch.autograd.Function):
    """The same function with its gradient: four products and eight passes."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, up: Tensor, down: Tensor, dim: int) -> Tensor:
        both = _project(h, up, dim)
        out, scale = _normalise_(_close(h, _gate_once(both, dim), down, dim), dim)
        ctx.save_for_backward(h, up, down, both, out, scale)
        ctx.dim = dim
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        h, up, down, both, out, scale = ctx.saved_tensors
        (towards,), dim = gradients, ctx.dim
        if torch.is_grad_enabled():  # the gradient is to be differentiated again
            return *_gradient_with_graph(ctx, h, up, down, towards), None
        # R: with y = h r, the gradient of h is r (dy - y mean(y dy))
        overlap = (towards * out).mean(dim=dim, keepdim=True)
        inner = torch.addcmul(towards, out, overlap, value=-1.0).mul_(scale)
        g, u = both.chunk(2, dim=dim)
        to_both = torch.empty_like(both)
        to_g, to_u = to_both.chunk(2, dim=dim)
        active = F.silu(g)
        to_gated = inner @ down if dim == 1 else down.t() @ inner
        torch.mul(to_gated, active, out=to_u)
        torch.ops.aten.silu_backward.grad_input(to_gated.mul_(u), g, grad_input=to_g)
        gated = active.mul_(u)
        if dim == 1:
            to_down, to_up = inner.t() @ gated, to_both.t() @ h
            return inner.addmm_(to_both, up), to_up, to_down, None
        to_down, to_up = inner @ gated.t(), to_both @ h.t()
        return inner.addmm_(up.t(), to_both), to_up, to_down, None


def _gate_once(both: Tensor, dim: int) -> Tensor:
    g, u = both.chunk(2, dim=dim)
    return F.silu(g).mul_(u)


def _gradient_with_graph(
    ctx: Any, h: Tensor, up: Tensor, down: Tensor, towards: Tensor
) -> tuple[Tensor | None, ...]:
    inputs = (h, up, down)
    wanted = [tensor for tensor, needed in zip(inputs, ctx.needs_input_grad, strict=False) if needed]
    found = iter(torch.autograd.grad(_composed(*inputs, ctx.dim), wanted, towards, create_graph=True))
    return tuple(next(found) if needed else None for needed in ctx.needs_input_grad[:3])
