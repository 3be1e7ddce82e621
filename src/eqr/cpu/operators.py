"""Operators for PyTorch's dispatcher: each has a definition in plain PyTorch, and a kernel on the cpu.

`@operator` makes one of a function, which stays its meaning everywhere. The dispatcher chooses: accelerators,
compilers, exporters, tracers, autocast and function transforms (`torch.func`) all see the definition and
differentiate, cast or fuse it themselves. Only tensors that are nothing but numbers on the cpu come to the
kernel, and of these it takes what it was written for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.autograd import forward_ad

F = TypeVar("F", bound=Callable[..., Tensor])

LIBRARY: Any = torch.library.Library("eqr", "FRAGMENT")  # type: ignore[no-untyped-call]  # PyTorch's own

_LOOKS_INSIDE = ("AutocastCPU", "Tracer", "PythonTLSSnapshot")
"""Dispatch keys of whoever must see what an operator is made of: autocast, `torch.jit.trace`, and tensors
with dispatch rules of their own, such as the fake ones of compilers and exporters."""


@dataclass(frozen=True)
class Kernel:
    """What the cpu runs in place of a definition; every function gets the operator's own arguments."""

    takes: Callable[..., bool]
    """Whether the kernel is meant for these arguments; the definition computes all others."""
    run: Callable[..., Tensor]
    """The result, where no graph is recorded."""
    forward: Callable[..., tuple[Tensor, tuple[Tensor, ...]]] | None = None
    """The result and what the gradient needs besides the arguments; None leaves graphs to the definition."""
    gradient: Callable[..., tuple[Tensor | None, ...]] | None = None
    """Gradients of the leading arguments, given that of the result, what was kept, and the arguments."""


def operator(
    *, cpu: Kernel | None = None, transformed: Callable[..., Tensor] | None = None
) -> Callable[[F], F]:
    """Make an operator `eqr::<name>` of a typed function whose tensors come before its numbers.

    `transformed` stands in for the definition in function transforms and forward derivatives.
    """

    def register(definition: F) -> F:
        name = definition.__name__
        LIBRARY.define(name + torch.library.infer_schema(definition, mutates_args=()))
        LIBRARY.impl(name, definition, "CompositeImplicitAutograd")
        inside = transformed or definition
        for key in _LOOKS_INSIDE:
            LIBRARY.impl(name, definition, key)
        LIBRARY.impl(name, inside, "FuncTorchDynamicLayerFrontMode")
        if cpu is not None:
            LIBRARY.impl(name, _unrecorded(definition, cpu), "CPU")
        LIBRARY.impl(name, _recorded(definition, inside, cpu), "AutogradCPU")
        return cast(F, getattr(torch.ops.eqr, name).default)

    return register


def only_numbers(tensors: Sequence[Tensor]) -> bool:
    """Ask the dispatcher whether tensors are nothing but numbers on the cpu, so that a kernel may have them.

    For what is too large to be an operator; everybody who would look inside one makes this false.
    """
    if torch.compiler.is_compiling():
        return False
    answer: bool = torch.ops.eqr.only_numbers.default(list(tensors))
    return answer


def _register_only_numbers() -> None:
    LIBRARY.define("only_numbers(Tensor[] tensors) -> bool")
    for key in ("CompositeImplicitAutograd", *_LOOKS_INSIDE, "FuncTorchDynamicLayerFrontMode"):
        LIBRARY.impl("only_numbers", lambda _: False, key)
    LIBRARY.impl("only_numbers", lambda _: True, "CPU")
    LIBRARY.impl("only_numbers", lambda tensors: not any(map(_has_tangent, tensors)), "AutogradCPU")


def _unrecorded(definition: Callable[..., Tensor], kernel: Kernel) -> Callable[..., Tensor]:
    def run(*given: Any) -> Tensor:
        return kernel.run(*given) if kernel.takes(*given) else definition(*given)

    return run


def _recorded(
    definition: Callable[..., Tensor], inside: Callable[..., Tensor], kernel: Kernel | None
) -> Callable[..., Tensor]:
    """Return what runs wherever a derivative might be asked for."""
    function = None if kernel is None or kernel.forward is None else _function(definition, kernel)

    def run(*given: Any) -> Tensor:
        flat = _flat(given)
        tensors = [value for value in flat if isinstance(value, Tensor)]
        if any(map(_has_tangent, tensors)):
            return inside(*given)
        if kernel is None or not kernel.takes(*given):
            return definition(*given)
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            return definition(*given) if function is None else function(_layout(given), *flat)
        return kernel.run(*given)

    return run


def _has_tangent(tensor: Tensor) -> bool:
    return forward_ad.unpack_dual(tensor).tangent is not None  # type: ignore[no-untyped-call]


def _function(definition: Callable[..., Tensor], kernel: Kernel) -> Callable[..., Tensor]:
    class Recorded(torch.autograd.Function):
        """The kernel with its own gradient, whose gradient in turn is that of the definition."""

        @staticmethod
        def forward(ctx: Any, layout: _Layout, *flat: Any) -> Tensor:
            assert kernel.forward is not None
            out, kept = kernel.forward(*_nested(layout, flat))
            tensors = [value for value in flat if isinstance(value, Tensor)]
            ctx.layout, ctx.count, ctx.numbers = layout, len(tensors), flat[len(tensors) :]
            ctx.save_for_backward(*tensors, *kept)
            return out

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
            assert kernel.gradient is not None
            tensors, kept = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
            given = _nested(ctx.layout, (*tensors, *ctx.numbers))
            if torch.is_grad_enabled():  # the gradient is to be differentiated again
                wanted = [t for t, needed in zip(tensors, ctx.needs_input_grad[1:], strict=False) if needed]
                found = iter(torch.autograd.grad(definition(*given), wanted, gradients, create_graph=True))
                return None, *(next(found) if needed else None for needed in ctx.needs_input_grad[1:])
            to_tensors = _flat(kernel.gradient(gradients[0], kept, *given))
            return None, *to_tensors, *(None for _ in range(len(ctx.needs_input_grad) - 1 - len(to_tensors)))

    apply: Callable[..., Tensor] = Recorded.apply
    return apply


_Layout = tuple[int | None, ...]
"""How many values each argument is; None for one that is no list."""


def _layout(given: Sequence[Any]) -> _Layout:
    return tuple(len(value) if isinstance(value, list | tuple) else None for value in given)


def _flat(given: Sequence[Any]) -> list[Any]:
    flat: list[Any] = []
    for value in given:
        flat.extend(value) if isinstance(value, list | tuple) else flat.append(value)
    return flat


def _nested(layout: _Layout, flat: Sequence[Any]) -> list[Any]:
    values = iter(flat)
    return [next(values) if count is None else list(islice(values, count)) for count in layout]


_register_only_numbers()
