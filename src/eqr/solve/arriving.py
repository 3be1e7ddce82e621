"""Things that come as they please (a pipe, a socket), read on a thread of their own.

Whoever has other work meanwhile asks without waiting; whoever has none sleeps until the next one comes.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from queue import Empty, Queue
from threading import Event, Thread
from types import TracebackType
from typing import TypeVar

T = TypeVar("T")

AHEAD = 64
"""Things read before anybody asks for them."""


def arriving(things: Iterable[T], idle: Callable[[], bool]) -> Iterator[T | None]:
    """Yield what has come, and None when nothing has; while the caller is `idle`, wait instead.

    An error while reading is raised here, after all that was read before it.
    """
    read: Queue[tuple[T | None, BaseException | None]] = Queue(AHEAD)
    given_up = Event()

    def ended(
        _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        read.put((None, error or StopIteration()))
        return True

    def reader() -> None:
        with ExitStack() as stack:
            stack.push(ended)
            for thing in things:
                read.put((thing, None))
                if given_up.is_set():
                    return

    # a read of an open pipe cannot be broken off: the thread must not keep the process alive
    Thread(target=reader, name="arriving", daemon=True).start()
    try:
        while True:
            try:
                thing, error = read.get(block=idle())
            except Empty:
                yield None
                continue
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield thing
    finally:
        given_up.set()
        while not read.empty():  # lets a reader that waits for room see that it is not needed any more
            read.get_nowait()
