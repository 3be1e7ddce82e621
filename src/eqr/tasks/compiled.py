"""`compiled`: numba's decorator the way we use it. Importing this module loads numba."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, TypeVar, cast

from numba import njit
from numba.core import event

from eqr.progress import preparing

COMPILING = "compiling for this processor, once per installation"

_Function = TypeVar("_Function", bound=Callable[..., Any])


class _Said(event.Listener):
    """Says that numba compiles: the outermost function for all that it calls. What is on disk is no event."""

    def __init__(self) -> None:
        self._depth, self._shown = 0, ExitStack()

    def on_start(self, event: Any) -> None:
        """Begin, unless within another; numba compiles under a lock of its own."""
        if not self._depth:
            self._shown.enter_context(preparing(COMPILING))
        self._depth += 1

    def on_end(self, event: Any) -> None:
        """End with the outermost."""
        self._depth -= 1
        if not self._depth:
            self._shown.close()


event.register("numba:compile", _Said())  # type: ignore[no-untyped-call]  # numba's


def compiled(function: _Function, **options: Any) -> _Function:
    """Compile on first call, keep the result on disk if there is a place, let other threads run meanwhile."""
    try:
        return cast(_Function, njit(cache=True, nogil=True, **options)(function))
    except RuntimeError:  # neither beside the source nor in the user's cache may anything be written
        return cast(_Function, njit(nogil=True, **options)(function))
