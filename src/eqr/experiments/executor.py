"""Getting independent jobs done: one interface, and the executor that uses this machine's cores.

An executor takes jobs and yields an outcome for each as it ends, in any order. It knows nothing of tables;
jobs know nothing of it. A cluster is another class with the same method.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Any, Protocol

from eqr.experiments.jobs import Job
from eqr.experiments.store import Store

POLL = 0.5
"""Seconds between two looks at what is running."""
GRACE = 60.0
"""Seconds that a worker asked to stop may take to write its checkpoint."""


@dataclass(frozen=True)
class JobOutcome:
    """How a job ended."""

    job: Job
    failed: str | None = None
    """The reason, if it did."""
    stopped: bool = False
    """Whether it was asked to stop; then it goes on next time."""
    seconds: float = 0.0


class Watcher(Protocol):
    """Is told what is going on, often enough to show it live."""

    def update(self, running: Sequence[Job], waiting: int) -> None:
        """Take the jobs that run now and the number of those that wait."""


class Executor(Protocol):
    """Does jobs."""

    def run(
        self, jobs: Sequence[Job], store: Store, watcher: Watcher, *, until: float
    ) -> Iterator[JobOutcome]:
        """Yield an outcome for each job; after `until` (`time.monotonic`) none begins and all stop."""


class LocalExecutor:
    """Several one-thread processes side by side on this machine."""

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or os.cpu_count() or 1

    def run(
        self, jobs: Sequence[Job], store: Store, watcher: Watcher, *, until: float
    ) -> Iterator[JobOutcome]:
        """Keep every worker busy until the jobs or the time are over."""
        waiting = deque(jobs)
        crew: list[_Worker] = []
        lines: Lines = SimpleQueue()
        try:
            while waiting or any(worker.job for worker in crew):
                if time.monotonic() > until:
                    yield from _stopped(waiting)
                    waiting.clear()
                    for worker in crew:
                        worker.stop()
                while waiting and (free := _free(crew, self.workers, store, lines)) is not None:
                    free.begin(waiting.popleft())
                watcher.update([worker.job for worker in crew if worker.job], len(waiting))
                yield from _heard(lines)
                crew = [worker for worker in crew if worker.alive()]
        finally:
            _end(crew)


def _stopped(jobs: Sequence[Job]) -> Iterator[JobOutcome]:
    return (JobOutcome(job, stopped=True) for job in list(jobs))


def _free(crew: "list[_Worker]", most: int, store: Store, lines: "Lines") -> "_Worker | None":
    """Return a worker without a job, a new one if there may be more."""
    for worker in crew:
        if worker.job is None and not worker.stopping:
            return worker
    if len(crew) >= most:
        return None
    crew.append(_Worker(store.folder, lines))
    return crew[-1]


def _heard(lines: "Lines") -> Iterator[JobOutcome]:
    """Wait a moment for a worker to say something, and return the outcome if it is one."""
    try:
        worker, line = lines.get(timeout=POLL)
    except Empty:
        return
    outcome = worker.hear(line)
    if outcome is not None:
        yield outcome


def _end(crew: "list[_Worker]") -> None:
    """Ask every worker to stop and wait until it has."""
    for worker in crew:
        worker.stop()
    for worker in crew:
        try:
            worker.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            worker.process.kill()
        worker.close()


@dataclass(eq=False)
class _Worker:
    """A process and the job it has."""

    store: Path
    lines: "Lines"
    """Where it puts what the process says; None is its end."""
    job: Job | None = None
    stopping: bool = False
    began: float = 0.0
    process: "subprocess.Popen[str]" = field(init=False)
    _errors: IO[str] = field(init=False)

    def __post_init__(self) -> None:
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - lives with the process
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "eqr.experiments.worker", str(self.store)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **threads},
            text=True,
            start_new_session=True,  # Ctrl-C is for us; we then ask the workers
        )

        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put((self, line))
        self.lines.put((self, None))

    def begin(self, job: Job) -> None:
        """Hand over a job."""
        self.job, self.began = job, time.monotonic()
        with suppress(BrokenPipeError):  # a process that is gone is noticed when it is listened to
            assert self.process.stdin is not None
            self.process.stdin.write(json.dumps(job.to_json()) + "\n")
            self.process.stdin.flush()

    def hear(self, line: str | None) -> JobOutcome | None:
        """Take a line; its end without an answer is a failure of the job it had."""
        said: dict[str, Any] = {"failed": self._last_words()} if line is None else json.loads(line)
        self.stopping |= line is None
        if "ready" in said or self.job is None:
            return None
        job, self.job = self.job, None
        stopped = bool(said.get("stopped")) or (line is None and self.process.returncode == 0)
        reason = None if stopped else said.get("failed")
        return JobOutcome(job, failed=reason, stopped=stopped, seconds=time.monotonic() - self.began)

    def stop(self) -> None:
        """Close the input: the process finishes what it must and ends."""
        if not self.stopping and self.process.stdin is not None:
            self.stopping = True
            with suppress(BrokenPipeError):
                self.process.stdin.close()

    def alive(self) -> bool:
        """Whether it may still say something."""
        if self.job is None and self.process.poll() is not None:
            self.close()
            return False
        return True

    def close(self) -> None:
        """Let go of its pipes and files."""
        for stream in (self.process.stdin, self.process.stdout, self._errors):
            with suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()

    def _last_words(self) -> str:
        self.process.wait()
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().splitlines() if line.strip()]
        code = self.process.returncode
        how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        return f"its process {how}" + (f": {lines[-1]}" if lines else "")


Lines = SimpleQueue[tuple[_Worker, str | None]]
