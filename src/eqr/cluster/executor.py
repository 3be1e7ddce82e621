"""The executor of `eqr reproduce` and `eqr sweep` on a cluster: each job is a Ray task with its cores or GPU.

Ray decides where a task runs and begins it again elsewhere when its process or machine is lost; the job then
goes on from its last checkpoint in the store, a folder that every node sees. This side hands out, listens,
and asks tasks to stop.
"""

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from eqr.behaviour import described
from eqr.cluster.tasks import do_job
from eqr.errors import UserError
from eqr.paper.executor import GRACE, POLL, JobOutcome, Watcher
from eqr.paper.plan import Job
from eqr.paper.store import Store

RETRIES = 16
"""Times that a job is begun again after its process or machine was lost: one that kills it must end."""
ASK_EVERY = 2.0
"""Seconds until the store is asked again which jobs run where."""


class RayExecutor:
    """Does jobs as tasks of a cluster that `ray` is connected to."""

    def __init__(self, ray: Any) -> None:
        """Every node must see the store's folder."""
        self._ray = ray

    def run(
        self, jobs: Sequence[Job], store: Store, watcher: Watcher, *, until: float
    ) -> Iterator[JobOutcome]:
        """Hand all jobs to Ray and yield their outcomes as they come."""
        with self._marked(store) as marker:
            crew = _Crew(self._ray, store)
            try:
                for job in jobs:
                    crew.hand_out(job, marker)
                while crew.jobs:
                    if time.monotonic() > until:
                        crew.stop()
                    yield from crew.ended(POLL)
                    watcher(*crew.seen())
            finally:
                crew.stop()
                for _ in crew.rest():
                    pass

    @contextmanager
    def _marked(self, store: Store) -> Iterator[str]:
        """Leave a mark by which workers can tell that they see the same folder."""
        mark = store.folder.resolve() / f".seen-{uuid.uuid4().hex}"
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
        try:
            yield str(mark)
        finally:
            mark.unlink(missing_ok=True)


class _Crew:
    """The tasks that are out."""

    def __init__(self, ray: Any, store: Store) -> None:
        self._ray, self._store = ray, store
        self._task = ray.remote(do_job)
        self.jobs: dict[Any, Job] = {}
        self._running: list[Job] = []
        self._asked = 0.0
        self._stopping = False

    def hand_out(self, job: Job, marker: str) -> None:
        """Make a task of a job."""
        given = {
            "job": job.to_json(),
            "marker": marker,
            "eqr": described(),
            "folder": str(Path.cwd()),
        }
        # what was said by a worker that is gone
        self._store[job.key].forget_place()
        task = self._task.options(
            name=job.label, num_cpus=job.recipe.threads or 1, num_gpus=gpus(job), max_retries=RETRIES
        )
        self.jobs[task.remote(given)] = job

    def ended(self, seconds: float) -> Iterator[JobOutcome]:
        """Wait a moment and yield what has ended."""
        ready, _ = self._ray.wait(list(self.jobs), num_returns=len(self.jobs), timeout=seconds)
        for task in ready:
            yield self._outcome(task, self.jobs.pop(task))

    def _outcome(self, task: Any, job: Job) -> JobOutcome:
        errors = self._ray.exceptions
        try:
            said = self._ray.get(task)
        except errors.TaskCancelledError:
            said = {"stopped": True}
        except errors.RayTaskError as error:
            said = {"failed": str(error).strip().splitlines()[-1]}
        except errors.RayError as error:
            reason = str(error).strip().splitlines()[0]
            said = {"failed": f"lost {RETRIES + 1} times with its process or machine: {reason}"}
        if "refused" in said:
            raise UserError(said["refused"])
        return JobOutcome(job, failed=said.get("failed"), stopped="stopped" in said)

    def seen(self) -> tuple[list[Job], int]:
        """Return the jobs that some worker says it has, and how many are still to be begun."""
        now = time.monotonic()
        if now - self._asked > ASK_EVERY:
            self._asked = now
            self._running = [job for job in self.jobs.values() if self._store[job.key].place() is not None]
        out = {job.key for job in self.jobs.values()}
        running = [job for job in self._running if job.key in out]
        return running, len(out) - len(running)

    def stop(self) -> None:
        """Ask every task to write its checkpoint and end."""
        if not self._stopping:
            self._stopping = True
            for task in self.jobs:
                self._ray.cancel(task)

    def rest(self) -> Iterator[JobOutcome]:
        """Yield what ends within the grace, then let go."""
        deadline = time.monotonic() + GRACE
        while self.jobs and time.monotonic() < deadline:
            with suppress(UserError):  # the first node to refuse its job has been heard
                yield from self.ended(POLL)


def gpus(job: Job) -> int:
    """Return how many GPUs a job declares."""
    return int(job.recipe.device.startswith("cuda"))
