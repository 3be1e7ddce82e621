"""The passes over memory between products: the gate, the normalisation and their gradients.

Each has two forms with the same meaning. Float32 on cpu is swept once, by a compiled kernel on the calling
thread, which has a core to itself wherever a batch is cut (see `eqr.model.cut`); everything else,
accelerators, compilers and float64 included, composes PyTorch's operations. `dim` is the axis that is mixed:
1 for the channels, 0 for the tokens of a matrix.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F

EPSILON = 1e-5
LARGEST_SWEEP = 1 << 22
"""Values that one thread sweeps even where PyTorch would have more."""


def normalise(h: Tensor, dim: int) -> Tensor:
    """R(h) = h / sqrt(mean(h^2) + eps) along `dim`, in at least float32, with neither gain nor bias."""
    wide = h.float() if h.dtype.itemsize < 4 else h
    return (wide * _scale(wide, dim)).to(h.dtype)


def gate(both: Tensor, dim: int) -> Tensor:
    """silu(g) * u for the two halves (gate first) of a projection."""
    if swept(both):
        return _sweep_gate(both, dim)
    g, u = both.chunk(2, dim=dim)
    return F.silu(g) * u


def gate_(both: Tensor, dim: int) -> Tensor:
    """The same; `both` may be overwritten."""
    if swept(both):
        return _sweep_gate(both, dim)
    g, u = both.chunk(2, dim=dim)
    return F.silu(g, inplace=True).mul_(u)


def gate_gradient(both: Tensor, towards: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return the gradient of `both`, and silu(g) * u again; `towards` (of the latter) is overwritten."""
    to_both = torch.empty_like(both)
    if swept(both) and swept(towards):
        from eqr.cpu import kernels

        rows, width = _halves(both, dim)
        kernels.gate_gradient(both.data_ptr(), towards.data_ptr(), to_both.data_ptr(), rows, width)
        return to_both, towards
    g, u = both.chunk(2, dim=dim)
    to_g, to_u = to_both.chunk(2, dim=dim)
    active = F.silu(g)
    torch.mul(towards, active, out=to_u)
    torch.ops.aten.silu_backward.grad_input(towards.mul_(u), g, grad_input=to_g)
    return to_both, active.mul_(u)


def add_and_normalise_(h: Tensor, plus: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """R(h + plus) along `dim`, in place of h, and the factors that `normalise_gradient` needs."""
    if swept(h):
        from eqr.cpu import kernels

        scale = h.new_empty((h.shape[0], 1) if dim == 1 else (1, h.shape[1]))
        plus = plus.contiguous()
        sweep = kernels.add_and_normalise_rows if dim == 1 else kernels.add_and_normalise_columns
        sweep(h.data_ptr(), plus.data_ptr(), scale.data_ptr(), *h.shape, kernels.F4(EPSILON))
        return h, scale
    scale = _scale(h.add_(plus), dim)
    return h.mul_(scale), scale


def normalise_gradient(towards: Tensor, out: Tensor, scale: Tensor, dim: int) -> Tensor:
    """Return the gradient of h, given that of y = R(h): with y = h r it is r (dy - y mean(y dy))."""
    if swept(out):
        from eqr.cpu import kernels

        inner, towards = torch.empty_like(out), towards.contiguous()
        sweep = kernels.normalise_rows_gradient if dim == 1 else kernels.normalise_columns_gradient
        sweep(towards.data_ptr(), out.data_ptr(), scale.data_ptr(), inner.data_ptr(), *out.shape)
        return inner
    overlap = (towards * out).mean(dim=dim, keepdim=True)
    return torch.addcmul(towards, out, overlap, value=-1.0).mul_(scale)


def add_chosen(h: Tensor, vectors: Tensor, chosen: Tensor, scale: float | Tensor) -> Tensor:
    """h + scale * vectors[chosen] for h (tokens, rows, width) and chosen (tokens, rows)."""
    if isinstance(scale, float) and swept(h) and swept(vectors) and is_plain(chosen, torch.int64):
        from eqr.cpu import kernels

        out, width = torch.empty_like(h), h.shape[2]
        addresses = h.data_ptr(), vectors.data_ptr(), chosen.data_ptr()
        kernels.add_chosen(*addresses, kernels.F4(scale), out.data_ptr(), h.numel() // width, width)
        return out
    picked = F.embedding(chosen, vectors).to(h.dtype)
    return h.add(picked, alpha=scale) if isinstance(scale, float) else torch.addcmul(h, picked, scale)


def damp_and_add_chosen(
    z: Tensor, moved: Tensor, damping: float, vectors: Tensor, chosen: Tensor, scale: float
) -> Tensor | None:
    """z + (1 - damping)(moved - z) + scale * vectors[chosen] in one sweep; None where there is none."""
    plain = all(swept(h, graph=True) for h in (z, moved, vectors)) and is_plain(chosen, torch.int64)
    if not plain:
        return None
    given = z, moved, damping, vectors, chosen, scale
    both: Tensor = _DampAndAddChosen.apply(*given)  # type: ignore[no-untyped-call]  # PyTorch's own
    return both


class _DampAndAddChosen(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, z: Tensor, moved: Tensor, damping: float, vectors: Tensor, chosen: Tensor, scale: float
    ) -> Tensor:
        from eqr.cpu import kernels

        ctx.damping = damping
        out, width = torch.empty_like(moved), moved.shape[2]
        kernels.damp_and_add_chosen(
            z.data_ptr(), moved.data_ptr(), kernels.F4(1.0 - damping), vectors.data_ptr(), chosen.data_ptr(),
            kernels.F4(scale), out.data_ptr(), moved.numel() // width, width,
        )  # fmt: skip
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (towards,), share = gradients, 1.0 - ctx.damping
        to_z = towards * ctx.damping if ctx.needs_input_grad[0] else None
        return to_z, towards * share if ctx.needs_input_grad[1] else None, None, None, None, None


def square_distances(one: Tensor, other: Tensor) -> Tensor:
    """Sum (one - other)^2 over the tokens and channels of each row; both (tokens, rows, width)."""
    if swept(one) and swept(other):
        from eqr.cpu import kernels

        squares = one.new_zeros(one.shape[1])
        kernels.square_distances(one.data_ptr(), other.data_ptr(), squares.data_ptr(), *one.shape)
        return squares
    return (one.float() - other.float()).square().sum(dim=(0, 2))


def _scale(h: Tensor, dim: int) -> Tensor:
    if dim == 0:
        return torch.rsqrt(h.square().mean(dim=0, keepdim=True) + EPSILON)
    # along contiguous memory the norm needs one pass and no square in memory; along tokens it is slow
    norm = torch.linalg.vector_norm(h, dim=dim, keepdim=True)
    return torch.rsqrt(norm.square() / h.shape[dim] + EPSILON)


def is_plain(tensor: Tensor, dtype: torch.dtype, *, graph: bool = False) -> bool:
    """Whether a tensor is nothing but contiguous numbers in memory, which a kernel may take by address.

    With `graph` it may take part in one, for whoever has a gradient of his own.
    """
    return (
        tensor.dtype is dtype
        and tensor.is_cpu
        and tensor.is_contiguous()
        and (graph or not (tensor.requires_grad and torch.is_grad_enabled()))
        and not transformed(tensor)
    )


def transformed(tensor: Tensor) -> bool:
    """Whether a tensor stands for more than its numbers: to a compiler, a tracer or a function transform."""
    return (
        torch.compiler.is_compiling()
        or type(tensor) not in (Tensor, torch.nn.Parameter)
        or forward_ad._current_level >= 0
        or torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        or torch._C._get_tracing_state() is not None
    )


def swept(h: Tensor, *, graph: bool = False) -> bool:
    """Whether the calling thread should sweep this tensor by a compiled kernel."""
    # a large batch that nobody cut is better left to PyTorch's threads
    return is_plain(h, torch.float32, graph=graph) and (
        h.numel() <= LARGEST_SWEEP or torch.get_num_threads() == 1
    )


def _halves(both: Tensor, dim: int) -> tuple[int, int]:
    """Rows and width of the halves; halves on top of each other lie side by side in one long row."""
    rows, columns = both.shape
    return (rows, columns // 2) if dim == 1 else (1, rows * columns // 2)


def _sweep_gate(both: Tensor, dim: int) -> Tensor:
    from eqr.cpu import kernels

    rows, columns = both.shape
    gated = both.new_empty((rows, columns // 2) if dim == 1 else (rows // 2, columns))
    kernels.gate(both.data_ptr(), gated.data_ptr(), *_halves(both, dim))
    return gated
