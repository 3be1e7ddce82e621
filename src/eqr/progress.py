"""Progress bars with rate and time left: live in a terminal, a line now and then in a log, silent in JSON.

One place decides, so that no command spams a log file with a thousand redraws of a bar.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:  # rich loads on use
    from rich.progress import Progress as RichProgress
    from rich.progress import ProgressColumn, TaskID

LOG_SECONDS = 10.0


class Progress:
    """Counts work done; `advance` is cheap enough for an inner loop."""

    def __init__(self, label: str, total: int | None, *, unit: str = "", quiet: bool = False) -> None:
        self.label, self.total, self.unit = label, total, unit
        self.done = 0
        self._quiet = quiet
        self._started = self._said = time.monotonic()
        self._live: tuple[RichProgress, TaskID] | None = None
        if not quiet and sys.stderr.isatty():
            self._live = _bar(label, total, unit)

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
        rate = self.done / seconds
        text = f"{self.label}: {self.done:,}" + (f" of {self.total:,}" if self.total is not None else "")
        text += f" {self.unit}, {rate:,.1f}/s"
        if self.total is not None and rate > 0:
            text += f", {max(self.total - self.done, 0) / rate:,.0f} s left"
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
def progress(label: str, total: int | None, *, unit: str = "", quiet: bool = False) -> Iterator[Progress]:
    """Show progress on stderr while the block runs."""
    with Progress(label, total, unit=unit, quiet=quiet) as shown:
        yield shown


def _bar(label: str, total: int | None, unit: str) -> "tuple[RichProgress, TaskID]":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress
    from rich.table import Column

    bar = RichProgress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        _rate_column(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", table_column=Column()),  # in a narrow terminal only the note wraps
        console=Console(stderr=True),
        transient=False,
    )
    return bar, bar.add_task(label, total=total, unit=unit, note="")


def _rate_column() -> "ProgressColumn":
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class RateColumn(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:,.1f}/s" if task.speed else "", style="cyan")

    return RateColumn()
