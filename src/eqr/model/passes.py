"""The passes over memory between products: the gate, the normalisation and their gradients.

Each has two forms with the same meaning. Float32 on cpu is swept once, by a compiled kernel on the calling
thread, which has a core to itself wherever a batch is cut (see `eqr.model.cut`); everything else,
accelerators, compilers and float64 included, composes PyTorch's operations. `dim` is the axis that is mixed:
1 for the channels, 0 for the tokens of a matrix.
"""

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

EPSILON = 1e-5


def normalise(h: Tensor, dim: int) -> Tensor:
    """R(h) = h / sqrt(mean(h^2) + eps) along `dim`, in at least float32, with neither gain nor bias."""
    wide = h.float() if h.dtype.itemsize < 4 else h
    return (wide * _scale(wide, dim)).to(h.dtype)


def gate(both: Tensor, dim: int) -> Tensor:
    """silu(g) * u for the two halves (gate first) of a projection."""
    if _swept(both):
        return _sweep_gate(both, dim)
    g, u = both.chunk(2, dim=dim)
    return F.silu(g) * u


def gate_(both: Tensor, dim: int) -> Tensor:
    """The same; `both` may be overwritten."""
    if _swept(both):
        return _sweep_gate(both, dim)
    g, u = both.chunk(2, dim=dim)
    return F.silu(g, inplace=True).mul_(u)


def gate_gradient(both: Tensor, towards: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return the gradient of `both`, and silu(g) * u again; `towards` (of the latter) is overwritten."""
    to_both = torch.empty_like(both)
    if _swept(both) and _swept(towards):
        from eqr.model import kernels

        flat = towards.view(1, -1) if dim == 0 else towards
        kernels.gate_gradient(_halves(both, dim), _array(flat), _halves(to_both, dim))
        return to_both, towards
    g, u = both.chunk(2, dim=dim)
    to_g, to_u = to_both.chunk(2, dim=dim)
    active = F.silu(g)
    torch.mul(towards, active, out=to_u)
    torch.ops.aten.silu_backward.grad_input(towards.mul_(u), g, grad_input=to_g)
    return to_both, active.mul_(u)


def normalise_(h: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Normalise in place; also return the factors."""
    if _swept(h):
        from eqr.model import kernels

        scale = h.new_empty((h.shape[0], 1) if dim == 1 else (1, h.shape[1]))
        sweep = kernels.normalise_rows if dim == 1 else kernels.normalise_columns
        sweep(_array(h), _array(scale.view(-1)), kernels.F4(EPSILON))
        return h, scale
    scale = _scale(h, dim)
    return h.mul_(scale), scale


def normalise_gradient(towards: Tensor, out: Tensor, scale: Tensor, dim: int) -> Tensor:
    """Return the gradient of h, given that of y = R(h): with y = h r it is r (dy - y mean(y dy))."""
    if _swept(out):
        from eqr.model import kernels

        inner = torch.empty_like(out)
        sweep = kernels.normalise_rows_gradient if dim == 1 else kernels.normalise_columns_gradient
        sweep(_array(towards.contiguous()), _array(out), _array(scale.view(-1)), _array(inner))
        return inner
    overlap = (towards * out).mean(dim=dim, keepdim=True)
    return torch.addcmul(towards, out, overlap, value=-1.0).mul_(scale)


def add_chosen(h: Tensor, vectors: Tensor, chosen: Tensor, scale: float | Tensor) -> Tensor:
    """h + scale * vectors[chosen] for h (tokens, rows, width) and chosen (tokens, rows)."""
    if isinstance(scale, float) and h.is_contiguous() and _swept(flat := h.flatten(0, 1)):
        from eqr.model import kernels

        out = torch.empty_like(h)
        indices = _array(chosen.flatten())
        kernels.add_chosen(
            _array(flat), _array(vectors), indices, kernels.F4(scale), _array(out.view_as(flat))
        )
        return out
    picked = F.embedding(chosen, vectors).to(h.dtype)
    return h.add(picked, alpha=scale) if isinstance(scale, float) else torch.addcmul(h, picked, scale)


def _scale(h: Tensor, dim: int) -> Tensor:
    if dim == 0:
        return torch.rsqrt(h.square().mean(dim=0, keepdim=True) + EPSILON)
    # along contiguous memory the norm needs one pass and no square in memory; along tokens it is slow
    norm = torch.linalg.vector_norm(h, dim=dim, keepdim=True)
    return torch.rsqrt(norm.square() / h.shape[dim] + EPSILON)


def _swept(h: Tensor) -> bool:
    return (
        not torch.compiler.is_compiling()
        and h.dtype is torch.float32
        and h.is_cpu
        and h.dim() == 2
        and h.is_contiguous()
        and not (torch.is_grad_enabled() and h.requires_grad)
    )


def _sweep_gate(both: Tensor, dim: int) -> Tensor:
    from eqr.model import kernels

    rows, columns = both.shape
    gated = both.new_empty((rows, columns // 2) if dim == 1 else (rows // 2, columns))
    kernels.gate(_halves(both, dim), _array(gated if dim == 1 else gated.view(1, -1)))
    return gated


def _halves(both: Tensor, dim: int) -> NDArray[Any]:
    # halves on top of each other are halves side by side of one long row
    return _array(both if dim == 1 else both.view(1, -1))


def _array(tensor: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = tensor.detach().numpy()
    return array
