"""What this side does: hands jobs and parts of tables to Ray as tasks, listens, and asks them to stop.

Ray decides where a task runs and begins it again elsewhere when its process or machine is lost. A job of
`eqr reproduce` or `eqr sweep` then goes on from its last checkpoint in the store, a folder that every node
sees. A part of a candidates table is small: model and puzzles travel once to each machine and finished parts
come back, so no folder need be common. What a trajectory draws depends on seed, puzzle and start alone, and a
worker cuts batches as this process would, so a part has the same bits wherever it is run, on processors of
one kind.
"""

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from eqr.behaviour import described
from eqr.cluster.tasks import do_job, run_part
from eqr.errors import UserError
from eqr.paper.executor import GRACE, POLL, JobOutcome, Watcher
from eqr.paper.plan import Job
from eqr.paper.store import Store
from eqr.progress import progress

if TYPE_CHECKING:
    from eqr.data import PuzzleSet
    from eqr.model.reasoner import Reasoner
    from eqr.results.table import CandidateTable
    from eqr.train.distributed import World

RETRIES = 16
"""Times that a task is begun again after its process or machine was lost: one that kills it must end."""
ASK_EVERY = 2.0
"""Seconds until the store is asked again which jobs run where."""
AHEAD = 2
"""Parts handed out for each core or GPU of the cluster: one it works on, one that waits for it."""


class RayExecutor:
    """Does jobs as tasks of a cluster that `ray` is connected to, each with its cores or GPU."""

    def __init__(self, ray: Any) -> None:
        """Every node must see the store's folder."""
        self._ray = ray

    def run(
        self, jobs: Sequence[Job], store: Store, watcher: Watcher, *, until: float
    ) -> Iterator[JobOutcome]:
        """Hand all jobs to Ray and yield their outcomes as they come."""
        out: dict[Any, Job] = {}
        running: list[Job] = []
        asked, stopping = 0.0, False
        with _marked(store) as marker:
            try:
                for job in jobs:
                    out[self._handed_out(job, store, marker)] = job
                while out:
                    if time.monotonic() > until and not stopping:
                        stopping = True
                        self._stop(out)
                    yield from self._ended(out)
                    if time.monotonic() - asked > ASK_EVERY:
                        asked = time.monotonic()
                        running = [job for job in out.values() if store[job.key].place() is not None]
                    left = {job.key for job in out.values()}
                    running = [job for job in running if job.key in left]
                    watcher(running, len(left) - len(running))
            finally:
                if not stopping:
                    self._stop(out)
                deadline = time.monotonic() + GRACE
                while out and time.monotonic() < deadline:
                    with suppress(UserError):  # the first refusal was raised already
                        list(self._ended(out))

    def _handed_out(self, job: Job, store: Store, marker: str) -> Any:
        given = {"job": job.to_json(), "marker": marker, "eqr": described(), "folder": str(Path.cwd())}
        # left by a worker that is gone
        store[job.key].forget_place()
        gpus = int(job.recipe.device.startswith("cuda"))
        cores = job.recipe.threads or 1
        task = self._ray.remote(do_job).options(
            name=job.label, num_cpus=cores, num_gpus=gpus, max_retries=RETRIES
        )
        return task.remote(given)

    def _stop(self, out: dict[Any, Job]) -> None:
        """Ask every task to write its checkpoint and end."""
        for task in out:
            self._ray.cancel(task)

    def _ended(self, out: dict[Any, Job]) -> Iterator[JobOutcome]:
        """Wait a moment, yield what has ended and forget it."""
        ready, _ = self._ray.wait(list(out), num_returns=len(out), timeout=POLL)
        for task in ready:
            job = out.pop(task)
            try:
                said = self._ray.get(task)
            except self._ray.exceptions.TaskCancelledError:
                said = {"stopped": True}
            except self._ray.exceptions.RayError as error:
                said = {"failed": _reason(self._ray, error)}
            if "refused" in said:
                raise UserError(said["refused"])
            yield JobOutcome(job, failed=said.get("failed"), stopped="stopped" in said)


@contextmanager
def _marked(store: Store) -> Iterator[str]:
    """Leave a mark by which workers can tell that they see the same folder."""
    mark = store.folder.resolve() / f".seen-{uuid.uuid4().hex}"
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()
    try:
        yield str(mark)
    finally:
        mark.unlink(missing_ok=True)


def _reason(ray: Any, error: Exception) -> str:
    """Say why a task failed, or that its worker was lost too often."""
    lines = str(error).strip().splitlines()
    if isinstance(error, ray.exceptions.RayTaskError):
        return lines[-1]
    return f"lost {RETRIES + 1} times with its process or machine: {lines[0]}"


class RayFiller:
    """Fills tables by tasks of the cluster that `ray` is connected to, each with a core or a GPU."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray

    def __call__(
        self,
        table: "CandidateTable",
        reasoner: "Reasoner",
        puzzles: "PuzzleSet",
        *,
        slots: int,
        world: "World | None" = None,
        quiet: bool = False,
    ) -> None:
        """Run what is missing, writing each part as it comes back."""
        ray, manifest = self._ray, table.manifest
        waiting = table.missing()[::-1]
        if not waiting:
            return
        device = next(reasoner.parameters()).device.type
        weights = {name: tensor.cpu() for name, tensor in reasoner.state_dict().items()}
        given = {
            "model": ray.put({"config": reasoner.config.to_json(), "weights": weights}),
            "puzzles": ray.put(puzzles),
            "manifest": manifest.to_json(),
            "slots": slots,
            "cores": torch.get_num_threads(),
            "device": device,
            "eqr": described(),
        }
        gpus = int(device == "cuda")
        task = ray.remote(run_part).options(num_cpus=1, num_gpus=gpus, max_retries=RETRIES)
        most = AHEAD * max(int(ray.cluster_resources().get("GPU" if gpus else "CPU", 0)), 1)
        out: list[Any] = []
        starts = sum(map(manifest.starts, waiting))
        with progress(f"{manifest.label}, on Ray", starts, unit="starts", quiet=quiet) as shown:
            while waiting or out:
                while waiting and len(out) < most:
                    out.append(task.remote(given, waiting.pop()))
                ready, out = ray.wait(out, timeout=1.0)
                for part in ready:
                    block, wall, where = self._result(part)
                    table.write(block, wall)
                    shown.advance(manifest.starts(block.first // manifest.part), note=f"last from {where}")

    def _result(self, part: Any) -> tuple[Any, float, str]:
        try:
            found = self._ray.get(part)
        except self._ray.exceptions.RayError as error:
            raise UserError(f"a part failed on the cluster: {_reason(self._ray, error)}") from None
        if isinstance(found, str):
            raise UserError(found)
        block, wall, where = found
        return block, float(wall), str(where)
