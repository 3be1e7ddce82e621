"""What runs, how fast, and when it will be over: a live table in a terminal, a line now and then in a log."""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from eqr.experiments.executor import Executor, JobOutcome
from eqr.experiments.jobs import Job
from eqr.experiments.store import Store
from eqr.progress import LOG_SECONDS

TAIL = 4096
"""Bytes at the end of a journal that surely hold its last line."""


@dataclass(kw_only=True)
class Tally:
    """How many runs came to what."""

    done: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    """Reason by label of the run."""
    stopped: int = 0
    """Runs that were not reached, or were asked to stop, and go on next time."""

    def add(self, outcome: JobOutcome) -> None:
        """Count one that ended."""
        if outcome.failed is not None:
            self.failed[outcome.job.label] = outcome.failed
        elif outcome.stopped:
            self.stopped += 1
        else:
            self.done += 1


def watched(
    jobs: Sequence[Job],
    executor: Executor,
    store: Store,
    tally: Tally,
    *,
    time_limit: float | None = None,
    quiet: bool = False,
) -> Iterator[JobOutcome]:
    """Get jobs done while a board shows them, and yield each outcome once it is counted."""
    until = time.monotonic() + (time_limit if time_limit is not None else float("inf"))
    with Board(store, len(jobs), quiet=quiet) as board:
        for outcome in executor.run(jobs, store, board, until=until):
            board.end(outcome)
            tally.add(outcome)
            yield outcome


class Board:
    """Shows running jobs by their journals in the store, which any executor leaves behind."""

    def __init__(self, store: Store, total: int, *, quiet: bool = False) -> None:
        self.store, self.total, self.quiet = store, total, quiet
        self.ended: list[JobOutcome] = []
        self._began = self._said = time.monotonic()
        self._first: dict[str, tuple[float, int]] = {}
        self._live: Any = None

    def __enter__(self) -> Self:
        if not self.quiet and self.total and sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), refresh_per_second=2)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def end(self, outcome: JobOutcome) -> None:
        """Take note of a job that ended; say at once if it failed."""
        self.ended.append(outcome)
        if outcome.failed is not None and not self.quiet:
            print(f"failed: {outcome.job.label}: {outcome.failed}", file=sys.stderr, flush=True)

    def update(self, running: Sequence[Job], waiting: int) -> None:
        """Show what runs now."""
        if self._live is not None:
            self._live.update(self._table(running, waiting))
        elif not self.quiet and time.monotonic() - self._said > LOG_SECONDS:
            self._said = time.monotonic()
            lines = "; ".join(self._line(job) for job in running)
            print(f"{self._head(waiting)}  {lines}", file=sys.stderr, flush=True)

    def _head(self, waiting: int) -> str:
        spent = time.monotonic() - self._began
        ended = len(self.ended)
        left = f", about {spent / ended * (self.total - ended) / 60:,.0f} min left" if ended > 1 else ""
        return f"{ended} of {self.total} runs done, {waiting} waiting{left}"

    def _table(self, running: Sequence[Job], waiting: int) -> Any:
        from rich.table import Table

        table = Table(title=self._head(waiting), title_justify="left", box=None)
        places = {job.key: self.store[job.key].place() for job in running}
        names = (
            ("run", "on", "now", "rate", "left") if any(places.values()) else ("run", "now", "rate", "left")
        )
        for name in names:
            table.add_column(name, justify="left" if name in ("run", "on") else "right", overflow="fold")
        for job in running:
            where = [places[job.key] or ""] if "on" in names else []
            table.add_row(job.label, *where, *self._state(job))
        return table

    def _line(self, job: Job) -> str:
        (now, rate, left), place = self._state(job), self.store[job.key].place()
        where = f" on {place}" if place else ""
        return f"{job.label}{where}: {now}" + (f", {rate}, {left} left" if rate else "")

    def _state(self, job: Job) -> tuple[str, str, str]:
        """Return where a job is, its rate and what is left, from its journal."""
        entry = self.store[job.key]
        if not job.trains or entry.trained():
            return "looking", "", ""
        step = last_step(entry.run.metrics)
        if step is None:
            return "starting", "", ""
        began, first = self._first.setdefault(job.key, (time.monotonic(), step))
        seconds, steps = time.monotonic() - began, step - first
        now = f"step {step:,} of {job.recipe.steps:,}"
        if not steps:
            return now, "", ""
        return now, f"{steps / seconds:.1f}/s", f"{(job.recipe.steps - step) * seconds / steps:,.0f} s"


def last_step(journal: Path) -> int | None:
    """Return the step of a journal's last whole record."""
    try:
        with journal.open("rb") as file:
            file.seek(max(journal.stat().st_size - TAIL, 0))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        try:
            return int(json.loads(line)["step"])
        except (json.JSONDecodeError, KeyError, TypeError):
            continue  # cut short, by the end of the file or by the beginning of the tail
    return None
