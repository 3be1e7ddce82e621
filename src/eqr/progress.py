"""Progress bars with rate and time left: live in a terminal, a line now and then in a log, silent in JSON."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # rich loads on use
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

LOG_SECONDS = 10.0
SPINNER = "|/-\\"
TURN = 0.1
"""Seconds between two pictures of the spinner, or two changes of a bar's text."""
SOON = 0.3
"""Seconds of preparation about which nothing is said."""


def duration(seconds: float) -> str:
    """Write seconds as people say them."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    for most, size, unit in ((7200, 60, "min"), (86_400, 3600, "h")):
        if seconds < most:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 86_400:.1f} days"


class Progress:
    """Counts work done; `advance` is cheap enough for an inner loop."""

    def __init__(
        self, label: str, total: int | None, *, unit: str = "", done: int = 0, quiet: bool = False
    ) -> None:
        """Begin with `done` units that were done before and do not count in the rate."""
        self.label, self.total, self.unit = label, total, unit
        self.done = self._before = done
        self._quiet = quiet
        self._started = self._said = time.monotonic()
        self._live: tuple[Bar, TaskID] | None = None

    def advance(self, count: int = 1, note: str = "") -> None:
        """Say that `count` more units are done; `note` replaces the text at the end."""
        self.done += count
        now = time.monotonic()
        if self._quiet or now - self._said < (LOG_SECONDS if self._live is None else TURN):
            return
        self._said = now
        if self._live is None:
            print(f"{self.label}: {self._line(note)}", file=sys.stderr, flush=True)
        else:
            bar, task = self._live
            bar.update(task, completed=self.done, said=self._line(note))

    def _line(self, note: str = "") -> str:
        seconds = max(time.monotonic() - self._started, 1e-9)
        rate = (self.done - self._before) / seconds
        text = f"{self.done:,}" + (f" of {self.total:,}" if self.total is not None else "")
        text += f" {self.unit}, {rate:,.1f}/s"
        if self.total is not None and rate > 0:
            text += f", {duration(max(self.total - self.done, 0) / rate)} left"
        return f"{text}  {note}".rstrip()

    def _bar(self) -> "tuple[Bar, TaskID]":
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        console = Console(stderr=True)
        said = TextColumn("{task.fields[said]}", markup=False, table_column=Column(no_wrap=True))
        width = 30 if console.width >= 120 else 10
        bar = Progress(TextColumn("{task.description}"), BarColumn(width), said, console=console)
        return bar, bar.add_task(self.label, total=self.total, completed=self.done, said=self._line())


@contextmanager
def progress(
    label: str, total: int | None, *, unit: str = "", done: int = 0, quiet: bool = False
) -> Iterator[Progress]:
    """Show progress on stderr while the block runs; `done` units were done before it."""
    shown = Progress(label, total, unit=unit, done=done, quiet=quiet)
    if quiet or not sys.stderr.isatty():
        yield shown
        return
    shown._live = bar, task = shown._bar()
    with bar:
        try:
            yield shown
        finally:
            bar.update(task, completed=shown.done)


_preparing = [0.0]
"""Seconds that `preparing` has taken so far, by whichever thread."""


def computing() -> float:
    """Read a clock that stands still while something is prepared once per installation."""
    return time.perf_counter() - _preparing[0]


@contextmanager
def preparing(label: str) -> Iterator[None]:
    """Show a spinner in a terminal while something is prepared once per installation."""
    began, over = time.perf_counter(), threading.Event()

    def spin() -> None:
        pictures, wait = cycle(SPINNER), SOON
        while not over.wait(wait):
            wait = TURN
            line = f"{next(pictures)} {label} ({time.perf_counter() - began:.0f} s)"
            print(f"\r{line}\x1b[K", end="", file=sys.stderr, flush=True)
        if wait == TURN:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    spinner = threading.Thread(target=spin, name="spinner", daemon=True) if sys.stderr.isatty() else None
    if spinner is not None:
        spinner.start()
    try:
        yield
    finally:
        over.set()
        if spinner is not None:
            spinner.join()
        _preparing[0] += time.perf_counter() - began
