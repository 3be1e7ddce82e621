"""Ctrl-C inside compiled code: numba hands it on wrapped in a `SystemError`; here it is unwrapped."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def plain_interrupts() -> Iterator[None]:
    """Let a `KeyboardInterrupt` that struck in a compiled function arrive as one."""
    try:
        yield
    except SystemError as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise
