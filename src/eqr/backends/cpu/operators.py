"""What runs in place of the definitions of `eqr.model` for tensors that are only numbers: `MEANS`.

Accelerators, other precisions, autocast, compilers, exporters, tracers and function transforms (`torch.func`)
get the definition, and differentiate, cast or fuse it themselves. Of what is left a `Kernel` takes what it
was written for.

Most of the time goes to the gated MLP with its residual and normalisation, R(h + W_down(silu(g) * u)), along
the channels (`dim` 1) or along the tokens (`dim` 0) of a matrix. Between its two products it sweeps over
memory as seldom as it can. Large weights are laid out once for a whole segment (`packing`). Small ones are
worked through tile by tile (`eqr.backends.cpu.mlp`), where the projection is cheaper to compute again than to
store.

Tensors go to compiled code by address, so they must be contiguous (`is_plain`). A sweep runs on the calling
thread, which has a core to itself wherever a batch is cut (`RowExecutor`).
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from inspect import unwrap
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F

from eqr.backends.cpu import kernels, mlp
from eqr.model import definitions
from eqr.model.definitions import EPSILON, choose, gated_mlp, uniform
from eqr.model.operator import Application, Noise, Perturbation
from eqr.model.state import halt_scores, products, square_distances

LARGEST_SWEEP = 1 << 22
"""Values that one thread sweeps even where PyTorch would have more."""
LARGEST_WEIGHTS = 1 << 16
"""Numbers in the weights of an MLP that are best worked through by tiles (width 64, 256 hidden). From width
96 on a library's products are faster, by 12 to 18% without a gradient."""
SMALLEST_BYTES = 1 << 20
"""Weights below this fit a core's second-level cache, where packing gains little."""
_PLAIN = (Tensor, torch.nn.Parameter)
"""Subclasses have rules of their own, such as the fake tensors of compilers and exporters."""


@dataclass(frozen=True)
class Kernel:
    """Every function gets the definition's own arguments, tensors before numbers."""

    takes: Callable[..., bool]
    """Whether the kernel is meant for these arguments; the definition computes all others."""
    run: Callable[..., Tensor]
    """The result, where no graph is recorded."""
    forward: Callable[..., tuple[Tensor, tuple[Tensor, ...]]] | None = None
    """The result and what the gradient needs besides the arguments; None leaves graphs to the definition."""
    gradient: Callable[..., tuple[Tensor | None, ...]] | None = None
    """Gradients of the leading arguments, given that of the result, what was kept, and the arguments."""

    def of(self, definition: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """Return what takes the definition's place: this kernel where it can, the definition elsewhere."""
        plain: Callable[..., Tensor] = unwrap(definition)
        recorded = plain if self.forward is None else _recorded(plain, self)

        def call(*given: Any) -> Tensor:
            tensors = [value for value in given if isinstance(value, Tensor)]
            if not only_numbers(tensors) or not self.takes(*given):
                return plain(*given)
            if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
                return recorded(*given)
            return self.run(*given)

        return call


def only_numbers(tensors: Iterable[Tensor]) -> bool:
    """Whether tensors are nothing but numbers on the cpu; whoever would look inside makes this false."""
    if (
        torch.compiler.is_compiling()
        or torch.is_autocast_enabled("cpu")
        or torch._C._get_tracing_state() is not None
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack()
    ):
        return False
    forward = forward_ad._current_level >= 0
    return all(
        type(tensor) in _PLAIN and tensor.is_cpu and not (forward and _has_tangent(tensor))
        for tensor in tensors
    )


def _has_tangent(tensor: Tensor) -> bool:
    return forward_ad.unpack_dual(tensor).tangent is not None  # type: ignore[no-untyped-call]


def _recorded(definition: Callable[..., Tensor], kernel: Kernel) -> Callable[..., Tensor]:
    class Recorded(torch.autograd.Function):
        """The kernel with its own gradient, whose gradient in turn is that of the definition."""

        @staticmethod
        def forward(ctx: Any, *given: Any) -> Tensor:
            assert kernel.forward is not None
            out, kept = kernel.forward(*given)
            tensors = [value for value in given if isinstance(value, Tensor)]
            ctx.count, ctx.numbers = len(tensors), given[len(tensors) :]
            ctx.save_for_backward(*tensors, *kept)
            return out

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
            assert kernel.gradient is not None
            tensors, kept = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
            given = (*tensors, *ctx.numbers)
            if torch.is_grad_enabled():
                return gradients_of(definition(*given), given, ctx.needs_input_grad, gradients)
            to_tensors = kernel.gradient(gradients[0], kept, *given)
            return *to_tensors, *(None for _ in range(len(given) - len(to_tensors)))

    apply: Callable[..., Tensor] = Recorded.apply
    return apply


def gradients_of(
    ends: Any, given: Iterable[Any], needed: Iterable[bool], towards: Any
) -> tuple[Tensor | None, ...]:
    """Return gradients, None where not needed, that can be differentiated again."""
    wanted = [tensor if wish else None for tensor, wish in zip(given, needed, strict=True)]
    inputs = [tensor for tensor in wanted if tensor is not None]
    found = iter(torch.autograd.grad(ends, inputs, towards, create_graph=True, allow_unused=True))
    return tuple(None if tensor is None else next(found) for tensor in wanted)


def is_plain(*tensors: Tensor, dtype: torch.dtype = torch.float32) -> bool:
    """Whether tensors are contiguous numbers, float32 unless said otherwise."""
    return all(tensor.dtype is dtype and tensor.is_contiguous() for tensor in tensors)


def small_enough(h: Tensor) -> bool:
    """Whether the calling thread should sweep alone: a large batch that nobody cut is PyTorch's threads'."""
    return h.numel() <= LARGEST_SWEEP or torch.get_num_threads() == 1


def gate(both: Tensor, dim: int) -> Tensor:
    """silu(g) * u for the two halves (gate first) of a projection."""
    rows, columns = both.shape
    gated = both.new_empty((rows, columns // 2) if dim == 1 else (rows // 2, columns))
    kernels.gate(both.data_ptr(), gated.data_ptr(), *_halves(both, dim))
    return gated


def gate_gradient(both: Tensor, towards: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return the gradient of `both`, and silu(g) * u again; `towards` (of the latter) is overwritten."""
    to_both, towards = torch.empty_like(both), towards.contiguous()
    kernels.gate_gradient(both.data_ptr(), towards.data_ptr(), to_both.data_ptr(), *_halves(both, dim))
    return to_both, towards


def _halves(both: Tensor, dim: int) -> tuple[int, int]:
    """Rows and width of the halves; halves on top of each other lie side by side in one long row."""
    rows, columns = both.shape
    return (rows, columns // 2) if dim == 1 else (1, rows * columns // 2)


def add_and_normalise_(h: Tensor, plus: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """R(h + plus) along `dim`, in place of h, and the factors that `normalise_gradient` needs."""
    scale = h.new_empty((h.shape[0], 1) if dim == 1 else (1, h.shape[1]))
    sweep = kernels.add_and_normalise_rows if dim == 1 else kernels.add_and_normalise_columns
    sweep(h.data_ptr(), plus.data_ptr(), scale.data_ptr(), *h.shape, kernels.F4(EPSILON))
    return h, scale


def normalise_gradient(towards: Tensor, out: Tensor, scale: Tensor, dim: int) -> Tensor:
    """Return the gradient of h, given that of y = R(h): with y = h r it is r (dy - y mean(y dy))."""
    inner, towards = torch.empty_like(out), towards.contiguous()
    sweep = kernels.normalise_rows_gradient if dim == 1 else kernels.normalise_columns_gradient
    sweep(towards.data_ptr(), out.data_ptr(), scale.data_ptr(), inner.data_ptr(), *out.shape)
    return inner


def _is_tiled(up: Tensor, down: Tensor, dim: int) -> bool:
    return dim == 1 and up.numel() + down.numel() <= LARGEST_WEIGHTS


def _tiled_mlp(h: Tensor, up: Tensor, down: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    out, scale = torch.empty_like(h), h.new_empty(h.shape[:-1])
    mlp.forward(
        h.data_ptr(), 0, 1, h.shape[0], 1, h.shape[1], up.data_ptr(), down.data_ptr(), down.shape[1],
        0, out.data_ptr(), scale.data_ptr(), kernels.F4(EPSILON),
    )  # fmt: skip
    return out, (out, scale)


def _run_mlp(h: Tensor, up: Tensor, down: Tensor, dim: int) -> Tensor:
    if _is_tiled(up, down, dim):
        return _tiled_mlp(h, up, down)[0]
    gated = gate(_project(h, up, dim), dim)
    return add_and_normalise_(_project(gated, down, dim), h, dim)[0]


def _record_mlp(h: Tensor, up: Tensor, down: Tensor, dim: int) -> tuple[Tensor, tuple[Tensor, ...]]:
    if _is_tiled(up, down, dim):
        return _tiled_mlp(h, up, down)
    both = _project(h, up, dim)
    out, scale = add_and_normalise_(_project(gate(both, dim), down, dim), h, dim)
    return out, (out, scale, both)


def _mlp_gradient(
    towards: Tensor, kept: tuple[Tensor, ...], h: Tensor, up: Tensor, down: Tensor, dim: int
) -> tuple[Tensor, Tensor, Tensor]:
    out, scale, *projection = kept
    if not projection:
        towards = towards.contiguous()
        to_h, to_up, to_down = torch.empty_like(h), torch.empty_like(up), torch.empty_like(down)
        mlp.gradient(
            h.data_ptr(), 0, 1, h.shape[0], 1, h.shape[1], up.data_ptr(), down.data_ptr(), down.shape[1],
            towards.data_ptr(), out.data_ptr(), scale.data_ptr(),
            to_h.data_ptr(), to_up.data_ptr(), to_down.data_ptr(),
        )  # fmt: skip
        return to_h, to_up, to_down
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


_Copies = dict[tuple[int, int], tuple[Tensor, Tensor]]
_packed: ContextVar[_Copies | None] = ContextVar("packed", default=None)
"""Packed copies made so far, by weight and by rows of the matrix it multiplies."""
_packing = threading.Lock()


@contextmanager
def packing() -> Iterator[None]:
    """Pack the large weights of `product` while the context lasts; weights must not change inside.

    A thread shares the copies if it runs in a copy of this context.
    """
    token = _packed.set({} if can_pack() else None)
    try:
        yield
    finally:
        _packed.reset(token)


def product(h: Tensor, weight: Tensor) -> Tensor:
    """h @ weight.t() for float32 matrices of which no graph is recorded."""
    copies, rows = _packed.get(), h.shape[0]
    if copies is None or weight.nbytes < SMALLEST_BYTES:
        return F.linear(h, weight)
    with _packing:  # whoever comes second waits for the copy rather than make one too
        if (id(weight), rows) not in copies:
            copy = torch.ops.mkl._mkl_reorder_linear_weight(weight.detach(), rows)
            # held with its weight, lest another come to have the same identity
            copies[id(weight), rows] = weight, copy
        _, copy = copies[id(weight), rows]
    found: Tensor = torch.ops.mkl._mkl_linear(h, copy, weight, None, rows)
    return found


@cache
def can_pack() -> bool:
    """Whether PyTorch has MKL's packed products, which are private to it, hence asked for."""
    named = "_mkl_reorder_linear_weight", "_mkl_linear"
    available: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    return available and all(hasattr(torch.ops.mkl, name) for name in named)


def _uniform(keys: Tensor, tokens: int, width: int) -> Tensor:
    drawn = keys.new_empty(tokens, len(keys), width, dtype=torch.float32)
    kernels.uniform(keys.data_ptr(), drawn.data_ptr(), tokens, len(keys), width)
    return drawn


def _choose(keys: Tensor, applications: int, tokens: int, size: int) -> Tensor:
    chosen = keys.new_empty(applications, tokens, len(keys))
    kernels.choose(keys.data_ptr(), chosen.data_ptr(), applications, tokens, len(keys), size - 1)
    return chosen


def _square_distances(one: Tensor, other: Tensor) -> Tensor:
    squares = one.new_zeros(one.shape[1])
    kernels.square_distances(one.data_ptr(), other.data_ptr(), squares.data_ptr(), *one.shape)
    return squares


def _halt_scores(h: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    scores = h.new_empty(h.shape[1], len(bias))
    addresses = h.data_ptr(), weight.data_ptr(), bias.data_ptr(), scores.data_ptr()
    kernels.halt_scores(*addresses, *h.shape, len(bias))
    return scores


def _products(h: Tensor, weight: Tensor) -> Tensor:
    found = h.new_empty(*h.shape[:-1], len(weight))
    addresses = h.data_ptr(), weight.data_ptr(), found.data_ptr()
    kernels.products(*addresses, h.numel() // h.shape[-1], h.shape[-1], len(weight))
    return found


def _are_keys(keys: Tensor, *_: int) -> bool:
    return is_plain(keys, dtype=torch.int64)


def _takes_sweep(h: Tensor, *others: Tensor | int) -> bool:
    tensors = [other for other in others if isinstance(other, Tensor)]
    return is_plain(h, *tensors) and small_enough(h)


_KERNELS: Mapping[Callable[..., Tensor], Kernel] = {
    gated_mlp: Kernel(takes=_takes_sweep, run=_run_mlp, forward=_record_mlp, gradient=_mlp_gradient),
    definitions.gate: Kernel(takes=_takes_sweep, run=gate),
    uniform: Kernel(takes=_are_keys, run=_uniform),
    choose: Kernel(takes=_are_keys, run=_choose),
    square_distances: Kernel(takes=_takes_sweep, run=_square_distances),
    # a product of PyTorch's rounds by the size of its batch: a row's answer would depend on those beside it
    halt_scores: Kernel(takes=is_plain, run=_halt_scores),
    products: Kernel(takes=is_plain, run=_products),
}
MEANS = {definition: kernel.of(definition) for definition, kernel in _KERNELS.items()}
"""What computes a definition on a cpu."""


def _takes_damped(z: Tensor, moved: Tensor, vectors: Tensor, chosen: Tensor, *_: float) -> bool:
    return is_plain(z, moved, vectors) and is_plain(chosen, dtype=torch.int64) and small_enough(z)


def _damp_and_add_noise(
    z: Tensor, moved: Tensor, vectors: Tensor, chosen: Tensor, damping: float, scale: float
) -> Tensor:
    out, width = torch.empty_like(moved), moved.shape[2]
    kernels.damp_and_add_chosen(
        z.data_ptr(), moved.data_ptr(), kernels.F4(1.0 - damping), vectors.data_ptr(), chosen.data_ptr(),
        kernels.F4(scale), out.data_ptr(), moved.numel() // width, width,
    )  # fmt: skip
    return out


def _plainly_damp_and_add_noise(
    z: Tensor, moved: Tensor, vectors: Tensor, chosen: Tensor, damping: float, scale: float
) -> Tensor:
    damped = torch.lerp(z, moved, 1.0 - damping)
    return damped.add(F.embedding(chosen, vectors).to(damped.dtype), alpha=scale)


def _shares(towards: Tensor, damping: float) -> tuple[Tensor | None, Tensor]:
    return (towards * damping, towards * (1.0 - damping)) if damping else (None, towards)


damp_and_add_noise = Kernel(
    takes=_takes_damped,
    run=_damp_and_add_noise,
    forward=lambda *given: (_damp_and_add_noise(*given), ()),
    gradient=lambda towards, _, *given: _shares(towards, given[4]),
).of(_plainly_damp_and_add_noise)
"""z + (1 - damping)(moved - z) + scale * vectors[chosen]; z is (sites, rows, width), chosen (sites, rows)."""


class InOneGo(Perturbation):
    """The paper's damping and noise, in one sweep where the noise has a constant scale."""

    def around(self, application: Application, noise: Noise | None) -> Application:
        """Fuse `Noisy(Damped(...))`."""
        if noise is None or isinstance(noise.scale, Tensor):
            return super().around(application, noise)
        damping, vectors, every, scale = self.damping, noise.vectors, noise.chosen, noise.scale

        def perturbed(z: Tensor, condition: Tensor | None, index: int) -> Tensor:
            moved = application(z, condition, index)
            old = z if damping else moved  # with nothing kept of it, z may have another dtype
            return damp_and_add_noise(old, moved, vectors, every[index], damping, scale)

        return perturbed
