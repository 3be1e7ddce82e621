"""What runs in place of a definition of `eqr.model` for tensors that are only numbers: `Kernel`, and some.

Accelerators, other precisions, autocast, compilers, exporters, tracers and function transforms (`torch.func`)
get the definition, and differentiate, cast or fuse it themselves. Of what is left a kernel takes what it was
written for. The kernels here draw, perturb, compare and read whole states, a compiled sweep each.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from inspect import unwrap
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F

from eqr.model.definitions import choose, uniform
from eqr.model.operator import Application, Noise, Perturbation
from eqr.model.state import halt_scores, products, square_distances


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


MEANS: dict[Callable[..., Tensor], Callable[..., Tensor]] = {}
"""What computes a definition on a cpu."""


def register(definition: Callable[..., Tensor], kernel: Kernel) -> None:
    """Let a kernel take a definition's place."""
    MEANS[definition] = kernel.of(definition)


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


_PLAIN = (Tensor, torch.nn.Parameter)
"""Subclasses have rules of their own, such as the fake tensors of compilers and exporters."""


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
            if torch.is_grad_enabled():  # the gradient is to be differentiated again
                wanted = [t for t, needed in zip(tensors, ctx.needs_input_grad, strict=False) if needed]
                found = iter(torch.autograd.grad(definition(*given), wanted, gradients, create_graph=True))
                return tuple(next(found) if needed else None for needed in ctx.needs_input_grad)
            to_tensors = kernel.gradient(gradients[0], kept, *given)
            return *to_tensors, *(None for _ in range(len(given) - len(to_tensors)))

    apply: Callable[..., Tensor] = Recorded.apply
    return apply


LARGEST_SWEEP = 1 << 22
"""Values that one thread sweeps even where PyTorch would have more."""


def is_float32(*tensors: Tensor) -> bool:
    """Whether tensors are contiguous float32 numbers."""
    return all(tensor.dtype is torch.float32 and tensor.is_contiguous() for tensor in tensors)


def small_enough(h: Tensor) -> bool:
    """Whether the calling thread should sweep alone: a large batch that nobody cut is PyTorch's threads'."""
    return h.numel() <= LARGEST_SWEEP or torch.get_num_threads() == 1


def _is_int64(tensor: Tensor) -> bool:
    return tensor.dtype is torch.int64 and tensor.is_contiguous()


def _uniform(keys: Tensor, tokens: int, width: int) -> Tensor:
    from eqr.backends.cpu import kernels

    drawn = keys.new_empty(tokens, len(keys), width, dtype=torch.float32)
    kernels.uniform(keys.data_ptr(), drawn.data_ptr(), tokens, len(keys), width)
    return drawn


register(uniform, Kernel(takes=lambda keys, *_: _is_int64(keys), run=_uniform))


def _choose(keys: Tensor, applications: int, tokens: int, size: int) -> Tensor:
    from eqr.backends.cpu import kernels

    chosen = keys.new_empty(applications, tokens, len(keys))
    kernels.choose(keys.data_ptr(), chosen.data_ptr(), applications, tokens, len(keys), size - 1)
    return chosen


register(choose, Kernel(takes=lambda keys, *_: _is_int64(keys), run=_choose))


def _takes_noise(h: Tensor, vectors: Tensor, chosen: Tensor, _scale: float) -> bool:
    return is_float32(h, vectors) and _is_int64(chosen) and small_enough(h)


def _add_noise(h: Tensor, vectors: Tensor, chosen: Tensor, scale: float) -> Tensor:
    from eqr.backends.cpu import kernels

    out, width = torch.empty_like(h), h.shape[2]
    addresses = h.data_ptr(), vectors.data_ptr(), chosen.data_ptr()
    kernels.add_chosen(*addresses, kernels.F4(scale), out.data_ptr(), h.numel() // width, width)
    return out


@partial(Kernel.of, Kernel(takes=_takes_noise, run=_add_noise))
def add_noise(h: Tensor, vectors: Tensor, chosen: Tensor, scale: float) -> Tensor:
    """h + scale * vectors[chosen] for h (sites, rows, width) and chosen (sites, rows)."""
    return h.add(F.embedding(chosen, vectors).to(h.dtype), alpha=scale)


def _takes_damped(z: Tensor, moved: Tensor, vectors: Tensor, chosen: Tensor, *_: float) -> bool:
    return is_float32(z, moved, vectors) and _is_int64(chosen) and small_enough(z)


def _damp_and_add_noise(
    z: Tensor, moved: Tensor, vectors: Tensor, chosen: Tensor, damping: float, scale: float
) -> Tensor:
    from eqr.backends.cpu import kernels

    out, width = torch.empty_like(moved), moved.shape[2]
    kernels.damp_and_add_chosen(
        z.data_ptr(), moved.data_ptr(), kernels.F4(1.0 - damping), vectors.data_ptr(), chosen.data_ptr(),
        kernels.F4(scale), out.data_ptr(), moved.numel() // width, width,
    )  # fmt: skip
    return out


def _damped_gradient(
    towards: Tensor, _kept: tuple[Tensor, ...], *given: Tensor | float
) -> tuple[Tensor | None, ...]:
    damping = given[4]
    return towards * damping, towards * (1.0 - damping)


@partial(
    Kernel.of,
    Kernel(
        takes=_takes_damped,
        run=_damp_and_add_noise,
        forward=lambda *given: (_damp_and_add_noise(*given), ()),
        gradient=_damped_gradient,
    ),
)
def damp_and_add_noise(
    z: Tensor, moved: Tensor, vectors: Tensor, chosen: Tensor, damping: float, scale: float
) -> Tensor:
    """z + (1 - damping)(moved - z) + scale * vectors[chosen]."""
    return add_noise(torch.lerp(z, moved, 1.0 - damping), vectors, chosen, scale)


def _square_distances(one: Tensor, other: Tensor) -> Tensor:
    from eqr.backends.cpu import kernels

    squares = one.new_zeros(one.shape[1])
    kernels.square_distances(one.data_ptr(), other.data_ptr(), squares.data_ptr(), *one.shape)
    return squares


register(
    square_distances,
    Kernel(takes=lambda one, other: is_float32(one, other) and small_enough(one), run=_square_distances),
)


def _halt_scores(h: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    from eqr.backends.cpu import kernels

    tokens, rows, width = h.shape
    scores = h.new_empty(rows, len(bias))
    addresses = h.data_ptr(), weight.data_ptr(), bias.data_ptr(), scores.data_ptr()
    kernels.halt_scores(*addresses, tokens, rows, width, len(bias))
    return scores


def _products(h: Tensor, weight: Tensor) -> Tensor:
    from eqr.backends.cpu import kernels

    found = h.new_empty(*h.shape[:-1], len(weight))
    addresses = h.data_ptr(), weight.data_ptr(), found.data_ptr()
    kernels.products(*addresses, h.numel() // h.shape[-1], h.shape[-1], len(weight))
    return found


# a product of PyTorch's rounds by the size of its batch: a row's answer would depend on those beside it
register(halt_scores, Kernel(takes=is_float32, run=_halt_scores))
register(products, Kernel(takes=is_float32, run=_products))


class InOneGo(Perturbation):
    """The paper's damping and noise, in one sweep where the noise has a constant scale."""

    def around(self, application: Application, noise: Noise | None) -> Application:
        """Fuse `Noisy(Damped(...))`."""
        if noise is None or isinstance(noise.scale, Tensor):
            return super().around(application, noise)
        return DampedNoisy(application, self.damping, noise.vectors, noise.chosen, noise.scale)


@dataclass(frozen=True)
class DampedNoisy:
    """Keeps a share of the old state, if any, and perturbs."""

    application: Application
    damping: float
    vectors: Tensor
    chosen: Tensor
    scale: float

    def __call__(self, z: Tensor, condition: Tensor | None, index: int) -> Tensor:
        """Apply."""
        moved, chosen = self.application(z, condition, index), self.chosen[index]
        if not self.damping:
            return add_noise(moved, self.vectors, chosen, self.scale)
        return damp_and_add_noise(z, moved, self.vectors, chosen, self.damping, self.scale)
