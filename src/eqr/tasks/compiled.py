"""`compiled`: numba's decorator the way our searches use it. Importing this module loads numba."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """Compile on first call, keep the result on disk, and let other threads run meanwhile."""
    return cast(_Function, njit(cache=True, nogil=True)(function))
