"""Handling Ctrl-C, SIGTERM and SIGHUP (a closed terminal), in the same way from the first moment on.

Outside of anything special a signal raises `Stopped`, which tidies up on its way out. Training notes it and
writes a checkpoint first (`noted`); compiled code, in which an exception can be lost or garbled, runs to its
end (`deferred_interrupts`).
"""

import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

Handler = Callable[[int, FrameType | None], None]

SIGNALS = tuple(
    signal.Signals(getattr(signal, name)) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""What asks a process to end; Windows has no SIGHUP."""


class Stopped(KeyboardInterrupt):
    """A signal has asked this process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = signal.Signals(number)


def farewell(error: KeyboardInterrupt) -> tuple[str, int]:
    """Return the line to say when an interrupt ends the process, and the exit code by custom of shells."""
    number = error.signal if isinstance(error, Stopped) else signal.SIGINT
    return "interrupted" if number == signal.SIGINT else f"stopped by {number.name}", 128 + number


@contextmanager
def stoppable() -> Iterator[None]:
    """Raise `Stopped` when a signal comes while the block runs."""
    with _handled(_strike):
        yield


class Requests:
    """Remembers the signal that asked this process to end, if one has."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None

    def __bool__(self) -> bool:
        return self.received is not None


@contextmanager
def noted() -> Iterator[Requests]:
    """Only note signals while the block runs; a second Ctrl-C acts as it would outside.

    Others do not: shells and service managers send SIGTERM and SIGHUP twice, or after one another.
    """
    with _noted() as (requests, _):
        yield requests


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Hold a signal back until the block ends; a second Ctrl-C strikes at once."""
    with _noted() as (requests, before):
        yield
    if requests.received is not None:
        before[requests.received](requests.received, None)


@contextmanager
def _noted() -> Iterator[tuple[Requests, dict[int, Handler]]]:
    requests = Requests()

    def note(number: int, frame: FrameType | None) -> None:
        if requests.received == number == signal.SIGINT:
            before[number](number, frame)
        requests.received = requests.received or signal.Signals(number)
        _let_go_of_the_terminal()

    with _handled(note) as before:
        yield requests, before


@contextmanager
def unheard_by_children() -> Iterator[None]:
    """Let no process that is begun in the block hear a signal: a whole group gets it, the parent decides."""
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _handled(handler: Handler) -> Iterator[dict[int, Handler]]:
    """Let `handler` take the signals; give what took them before.

    A signal that this process was started to ignore, as `nohup` does, stays ignored. Only the main thread may
    set handlers.
    """
    before: dict[int, Handler] = {}
    if threading.current_thread() is threading.main_thread():
        for number in map(int, SIGNALS):
            taken = signal.getsignal(number)
            if taken is signal.SIG_DFL:
                taken = _strike
            if callable(taken):
                before[number] = taken
    replaced = {number: signal.signal(number, handler) for number in before}
    try:
        yield before
    finally:
        for number, earlier in replaced.items():
            signal.signal(number, earlier)


def _strike(number: int, frame: FrameType | None) -> None:
    stopped = Stopped(number)
    _let_go_of_the_terminal()
    if _loses_exceptions(frame):
        # what is written is safe from a kill at any moment
        line, code = farewell(stopped)
        with suppress(OSError, RuntimeError):
            print(line, file=sys.stderr, flush=True)
        os._exit(code)
    raise stopped


def _loses_exceptions(frame: FrameType | None) -> bool:
    """Whether an exception would be lost or garbled: within an import, or called back by the compiler."""
    while frame is not None:
        importing = frame.f_code.co_filename.startswith("<frozen importlib")
        if importing or str(frame.f_globals.get("__name__")).startswith("llvmlite."):
            return True
        frame = frame.f_back
    return False


def _let_go_of_the_terminal() -> None:
    """Write to nowhere what would go to a terminal that is gone, where each write is an error."""
    for place in (1, 2):
        with suppress(OSError):
            if stat.S_ISCHR(os.fstat(place).st_mode) and not os.isatty(place):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, place)
                os.close(nowhere)
