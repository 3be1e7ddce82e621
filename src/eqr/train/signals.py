"""Ending a run politely: Ctrl-C and SIGTERM ask for a checkpoint, a second one ends at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Requests:
    """Remembers the signal that asked this process to end, if one has."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None

    def __bool__(self) -> bool:
        return self.received is not None


@contextmanager
def polite() -> Iterator[Requests]:
    """Note the first Ctrl-C or SIGTERM while the block runs; the second acts as usual."""
    requests = Requests()
    if threading.current_thread() is not threading.main_thread():
        yield requests  # only the main thread may set handlers
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, _frame: FrameType | None) -> None:
        requests.received = signal.Signals(number)
        signal.signal(number, before[requests.received])

    for number in before:
        signal.signal(number, note)
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
