"""Progress bars with rate and time left: live in a terminal, a line now and then in a log, silent in JSON.

One place decides, so that no command spams a log file with a thousand redraws of a bar.
"""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:  # rich loads on use
    from rich.progress import Progress as RichProgress
    from rich.progress import ProgressColumn, TaskID

LOG_SECONDS = 10.0
SPINNER = "|/-\\"
TURN = 0.1
"""Seconds between two pictures of the spinner."""
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
        self._live: tuple[RichProgress, TaskID] | None = None
        if not quiet and sys.stderr.isatty():
            self._live = _bar(label, total, unit, done)

    def advance(self, count: int = 1, note: str = "") -> None:
        """Say that `count` more units are done; `note` replaces the text behind the bar."""
        self.done += count
        if self._live is not None:
            bar, task = self._live
            bar.update(task, completed=self.done, note=note)
        elif not self._quiet and time.monotonic() - self._said > LOG_SECONDS:
            self._said = time.monotonic()
            print(self._line(note), file=sys.stderr, flush=True)

    def _line(self, note: str) -> str:
        seconds = max(time.monotonic() - self._started, 1e-9)
        rate = (self.done - self._before) / seconds
        text = f"{self.label}: {self.done:,}" + (f" of {self.total:,}" if self.total is not None else "")
        text += f" {self.unit}, {rate:,.1f}/s"
        if self.total is not None and rate > 0:
            text += f", {duration(max(self.total - self.done, 0) / rate)} left"
        return f"{text}  {note}".rstrip()

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live[0].stop()


@contextmanager
def progress(
    label: str, total: int | None, *, unit: str = "", done: int = 0, quiet: bool = False
) -> Iterator[Progress]:
    """Show progress on stderr while the block runs; `done` units were done before it."""
    with Progress(label, total, unit=unit, done=done, quiet=quiet) as shown:
        yield shown


class _Prepared:
    """Seconds spent on what is done once per installation, by whichever thread."""

    seconds = 0.0


def prepared() -> float:
    """Return the seconds that `preparing` has taken so far, which no answer took."""
    return _Prepared.seconds


@contextmanager
def preparing(label: str) -> Iterator[None]:
    """Show a spinner in a terminal while something is prepared once per installation."""
    began, over = time.monotonic(), threading.Event()

    def spin() -> None:
        pictures, wait = cycle(SPINNER), SOON
        while not over.wait(wait):
            wait = TURN
            line = f"{next(pictures)} {label} ({time.monotonic() - began:.0f} s)"
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
        _Prepared.seconds += time.monotonic() - began


def _bar(label: str, total: int | None, unit: str, done: int) -> "tuple[RichProgress, TaskID]":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as RichProgress

    rate_column, left_column, note_column = _columns()
    console = Console(stderr=True)
    bar = RichProgress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=_bar_width(console.width)),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        rate_column,
        left_column,
        note_column,
        console=console,
        transient=False,
    )
    return bar, bar.add_task(label, total=total, completed=done, unit=unit, note="", width=console.width)


def _bar_width(terminal: int) -> int:
    return 30 if terminal >= 120 else 10


def _columns() -> "tuple[ProgressColumn, ProgressColumn, ProgressColumn]":
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:,.1f}/s" if task.speed else "", style="cyan")

    class Left(ProgressColumn):
        max_refresh = 0.5

        def render(self, task: Task) -> Text:
            return Text("" if task.time_remaining is None else f"{duration(task.time_remaining)} left")

    class Note(ProgressColumn):
        """As much of the note as fits behind the rest, so that a bar stays one line."""

        def render(self, task: Task) -> Text:
            terminal = task.fields["width"]
            count = 2 * len(str(task.total)) + 1
            rest = len(task.description) + _bar_width(terminal) + count + len(task.fields["unit"]) + 26
            return Text(task.fields["note"][: max(terminal - rest, 0)])

    return Rate(), Left(), Note()
