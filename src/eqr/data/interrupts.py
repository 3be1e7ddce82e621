"""Ctrl-C and compiled code: an interrupt that strikes inside a numba function can be lost or garbled.

So it waits until the compiled call is over. Used around every stretch that generates or solves puzzles.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Hold a first Ctrl-C back until the block ends; a second one strikes at once."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    struck: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if struck:
            before(number, frame)
        struck.append(number)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if struck:
        before(signal.SIGINT, None)
