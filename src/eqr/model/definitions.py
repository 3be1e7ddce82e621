"""Definitions: functions of the model that a backend may compute by other means.

    @definition
    def gate(both: Tensor, dim: int, /) -> Tensor: ...

A definition is plain PyTorch, and that is what runs. Inside `computed_by({gate: faster})` a call goes to
`faster` instead, in this thread and in those that run in a copy of its context. Compilers and exporters
always see the definition.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.autograd import forward_ad

F = TypeVar("F", bound=Callable[..., Tensor])
Means = Mapping[Callable[..., Tensor], Callable[..., Tensor]]
"""What computes a definition, by definition."""

_means: ContextVar[Means | None] = ContextVar("means", default=None)


def definition(function: F) -> F:
    """Mark a function whose arguments are positional."""

    @wraps(function)
    def call(*given: Any) -> Tensor:
        if not torch.compiler.is_compiling():
            means = _means.get()
            found = None if means is None else means.get(call)
            if found is not None:
                return found(*given)
        return function(*given)

    return cast(F, call)


def transformed() -> bool:
    """Whether a function transform (`torch.func`) or a forward derivative is under way."""
    if torch.compiler.is_compiling():
        return False
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


@contextmanager
def computed_by(means: Means) -> Iterator[None]:
    """Compute definitions by these means while the context lasts."""
    token = _means.set(means)
    try:
        yield
    finally:
        _means.reset(token)
