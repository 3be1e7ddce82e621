"""`compiled`: numba's decorator the way we use it. Importing this module loads numba."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function, **options: Any) -> _Function:
    """Compile on first call, keep the result on disk if there is a place, let other threads run meanwhile."""
    try:
        return cast(_Function, njit(cache=True, nogil=True, **options)(function))
    except RuntimeError:  # neither beside the source nor in the user's cache may anything be written
        return cast(_Function, njit(nogil=True, **options)(function))
