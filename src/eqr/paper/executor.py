"""Doing jobs: training and measuring one, and the executor that does many on this machine's cores.

An executor takes jobs and yields an outcome for each as it ends, in any order; a cluster's is in
`eqr.cluster`. Here several one-thread processes do jobs one after another (`python -m eqr.paper.executor
STORE`): each reads jobs as lines of JSON and answers each with one line. When its input closes, because
whoever started it is gone or asks it to stop, it sends itself SIGTERM; a training then writes a checkpoint
first. A mistake of the program ends the process, and the reason is read from what it left on stderr.
"""

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from eqr.behaviour import ANSWERS, TRAINING
from eqr.errors import UserError
from eqr.files import require_own
from eqr.paper.plan import Job
from eqr.paper.store import OUTPUTS, RUN, TABLES, WHOLE_RUN, Entry, Store
from eqr.progress import progress
from eqr.runs import DATA
from eqr.signals import Stopped, stoppable

POLL = 0.5
"""Seconds between two reports of what is running."""
GRACE = 60.0
"""Seconds that a process asked to stop may take to write its checkpoint."""
TAIL = 4096
"""Bytes at the end of a journal that surely hold its last line."""


class Interrupted(Exception):
    """The job was asked to stop; what it has is in the store."""


def run_job(job: Job, store: Store) -> None:
    """Train and measure, leaving out what the store has; what fails is a `UserError` with the reason."""
    entry = store[job.key]
    for part in (RUN, OUTPUTS, TABLES):
        require_own(store.folder, job.key, part)
    with store.alone(job.key):
        if job.lacks_training(entry):
            entry.begin_again()
        made = {"recipe": job.recipe.to_json(), "label": job.label, "smoke": job.smoke}
        entry.begin({**made, "training": TRAINING, "machine": machine(), "core_seconds": 0.0})
        store.share_puzzles(entry)
        reasons = _attempt(job, entry, store)
        if reasons:
            with suppress(UserError):  # a full disk takes no note of it
                entry.fail(reasons)
            raise UserError("; ".join(dict.fromkeys(reasons.values())))
        entry.succeed()


def _attempt(job: Job, entry: Entry, store: Store) -> dict[str, str]:
    """Do what is missing; return the reasons of what failed, which stops nothing but what builds on it."""
    from eqr.paper.measure import Subject, measure
    from eqr.train.sources import load_data

    try:
        if job.lacks_training(entry):
            with store.alone(DATA):  # generated once, by whoever is first
                load_data(job.recipe.data, entry.run, quiet=True)
            _train(job, entry)
    except UserError as error:
        return {WHOLE_RUN: str(error)}
    reasons = {}
    for measurement in job.left(entry):
        began = time.process_time()
        subject = Subject(job.recipe, entry.run, entry.folder / TABLES / measurement.digest())
        try:
            output = measure(measurement, subject)
            seconds = time.process_time() - began
            entry.keep(measurement, output.replace(answers=ANSWERS, core_seconds=seconds))
        except UserError as error:
            reasons[measurement.digest()] = str(error)
            continue
        shutil.rmtree(subject.scratch, ignore_errors=True)
    return reasons


def _train(job: Job, entry: Entry) -> None:
    from eqr.train.run import train

    began, before = time.process_time(), float((entry.made() or {}).get("core_seconds", 0.0))
    outcome = train(job.recipe, entry.run.path, resume=entry.run.begun, quiet=True)
    spent: dict[str, Any] = {"core_seconds": before + time.process_time() - began}
    if outcome.interrupted is not None:
        entry.note(**spent)
        raise Interrupted
    summary = outcome.summary
    entry.note(trained=True, steps=summary.steps, parameters=summary.parameters, **spent)
    entry.run.clear_folder(entry.run.checkpoints)  # the run is over: nothing goes on from them


@cache
def machine() -> dict[str, Any]:
    """Return what a number of seconds depends on."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "numpy")},
    }


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


@dataclass(frozen=True)
class JobOutcome:
    """How a job ended."""

    job: Job
    failed: str | None = None
    """The reason, if it did."""
    stopped: bool = False
    """Whether it was asked to stop; then it goes on next time."""


Watcher = Callable[[Sequence[Job], int], None]
"""Is told, often enough to show it live, the jobs that run now and how many wait."""


class Executor(Protocol):
    """Does jobs."""

    def run(
        self, jobs: Sequence[Job], store: Store, watcher: Watcher, *, until: float
    ) -> Iterator[JobOutcome]:
        """Yield an outcome for each job; after `until` (`time.monotonic`) none begins and all stop."""


@dataclass(kw_only=True)
class Tally:
    """How many runs came to what."""

    done: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    """Reason by label of the run."""
    stopped: int = 0
    """Runs that were not reached, or were asked to stop, and go on next time."""


def counted(
    jobs: Sequence[Job],
    executor: Executor,
    store: Store,
    tally: Tally,
    *,
    time_limit: float | None = None,
    quiet: bool = False,
) -> Iterator[JobOutcome]:
    """Get jobs done while a bar shows them, and yield each outcome once it is counted."""
    until = time.monotonic() + (time_limit if time_limit is not None else float("inf"))
    with progress("runs", len(jobs), unit="runs", quiet=quiet or not jobs) as bar:

        def show(running: Sequence[Job], waiting: int) -> None:
            bar.advance(
                0, note="; ".join([*(under_way(job, store) for job in running), f"{waiting} waiting"])
            )

        for outcome in executor.run(jobs, store, show, until=until):
            bar.advance(note=outcome.job.label)
            if outcome.failed is not None:
                if not quiet:
                    print(f"failed: {outcome.job.label}: {outcome.failed}", file=sys.stderr, flush=True)
                tally.failed[outcome.job.label] = outcome.failed
            elif outcome.stopped:
                tally.stopped += 1
            else:
                tally.done += 1
            yield outcome


def under_way(job: Job, store: Store) -> str:
    """Say how far a running job is and where, by what any executor leaves in the store."""
    entry = store[job.key]
    place, step = entry.place(), None if entry.trained() else last_step(entry.run.metrics)
    now = "" if step is None else f" at step {step:,} of {job.recipe.steps:,}"
    return f"{job.label}{now}{f' on {place}' if place else ''}"


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


class LocalExecutor:
    """Several one-thread processes side by side on this machine."""

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or os.cpu_count() or 1

    def run(
        self, jobs: Sequence[Job], store: Store, watcher: Watcher, *, until: float
    ) -> Iterator[JobOutcome]:
        """Keep every process busy until the jobs or the time are over."""
        waiting, answers = deque(jobs), SimpleQueue[_Answer]()
        crew = [_Worker(store.folder, answers) for _ in range(min(self.workers, len(jobs)))]
        try:
            while waiting or any(worker.job for worker in crew):
                if time.monotonic() > until:
                    for worker in crew:
                        worker.stop()
                    yield from (JobOutcome(job, stopped=True) for job in waiting)
                    waiting.clear()
                for worker in crew:
                    if waiting and worker.job is None:
                        worker.begin(waiting.popleft())
                with suppress(Empty):
                    worker, process, line = answers.get(timeout=POLL)
                    if worker.job is not None and worker.process is process:
                        yield worker.outcome(line)
                watcher([worker.job for worker in crew if worker.job], len(waiting))
        finally:
            for worker in crew:
                worker.stop()
            for worker in crew:
                worker.end()


class _Worker:
    """A process that does jobs, begun with its first and begun anew if it was lost."""

    def __init__(self, store: Path, answers: "SimpleQueue[_Answer]") -> None:
        self.job: Job | None = None
        self.process: subprocess.Popen[str] | None = None
        self._store, self._answers = store, answers
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - as long as we

    def begin(self, job: Job) -> None:
        """Hand over a job."""
        if self.process is None or self.process.poll() is not None:
            self.process = self._start()
        self.job = job
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # a process that is gone is noticed when it is listened to
            self.process.stdin.write(json.dumps(job.to_json()) + "\n")
            self.process.stdin.flush()

    def _start(self) -> "subprocess.Popen[str]":
        self._errors.seek(0)
        self._errors.truncate()
        process = subprocess.Popen(
            [sys.executable, "-m", "eqr.paper.executor", str(self._store)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **dict.fromkeys(ONE_THREAD, "1")},
            text=True,
            start_new_session=True,  # Ctrl-C is for us; we then ask the workers
        )

        def listen() -> None:
            assert process.stdout is not None
            with process.stdout as lines:
                for line in lines:
                    self._answers.put((self, process, line))
            self._answers.put((self, process, ""))

        threading.Thread(target=listen, daemon=True).start()
        return process

    def outcome(self, line: str) -> JobOutcome:
        """Return how the job ended by the answer of its process; an end without an answer is a failure."""
        assert self.job is not None
        assert self.process is not None
        job, self.job = self.job, None
        if line:
            answer: dict[str, Any] = json.loads(line)
            return JobOutcome(job, failed=answer.get("failed"), stopped="stopped" in answer)
        code = self.process.wait()
        if code == 0:
            return JobOutcome(job, stopped=True)
        self._errors.seek(0)
        words = [line.strip() for line in self._errors.read().splitlines() if line.strip()]
        how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        return JobOutcome(job, failed=f"its process {how}" + (f": {words[-1]}" if words else ""))

    def stop(self) -> None:
        """Close the input: the process finishes what it must and ends."""
        if self.process is not None and self.process.stdin is not None:
            with suppress(BrokenPipeError):
                self.process.stdin.close()

    def end(self) -> None:
        """Wait until the process has ended."""
        if self.process is not None:
            try:
                self.process.wait(GRACE)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self._errors.close()


_Answer = tuple[_Worker, "subprocess.Popen[str]", str]
"""Who answers, by which of its processes, and what; nothing where that has ended."""
ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def work(folder: str) -> None:
    """Do jobs until the input closes."""
    import torch

    torch.set_num_threads(1)
    store, lines = Store(Path(folder)), SimpleQueue[str | None]()
    threading.Thread(target=_listen, args=(lines,), daemon=True).start()
    while (line := lines.get()) is not None:
        job = Job.from_json(json.loads(line))
        try:
            run_job(job, store)
        except UserError as error:
            _answer({"failed": str(error)})
        except (Interrupted, Stopped):
            _answer({"stopped": True})
            return
        else:
            _answer({"done": True})


def _listen(lines: "SimpleQueue[str | None]") -> None:
    for line in sys.stdin:
        lines.put(line)
    lines.put(None)
    os.kill(os.getpid(), signal.SIGTERM)


def _answer(record: dict[str, Any]) -> None:
    print(json.dumps(record), flush=True)


if __name__ == "__main__":
    with stoppable(), suppress(Stopped):
        work(sys.argv[1])
