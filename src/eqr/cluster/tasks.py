"""What a worker of the cluster does: plain functions of plain data, which import eqr only when they run.

A worker is another machine's process. It is told where the shared place is, checks that it sees it and has
the same code, and then does what a process on this machine would do.
"""

import os
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eqr.model.reasoner import Reasoner
    from eqr.solve.gather import CandidateBlock

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


def do_job(asked: dict[str, Any]) -> dict[str, Any]:
    """Do one job of a sweep or of `eqr reproduce`; say how it ended, as `eqr.experiments.worker` does."""
    os.environ.update(ONE_THREAD)  # before numba is loaded, as in the processes of the local executor
    if Path(asked["folder"]).is_dir():
        os.chdir(asked["folder"])  # relative paths of recipes mean what they mean where the command was given
    from eqr.errors import UserError
    from eqr.experiments.versions import code_version

    where = f"{socket.gethostname()}, process {os.getpid()}"
    if code_version() != asked["code"]:
        return {"refused": f"{where} has eqr {code_version()}, the command {asked['code']}; install the same"}
    try:
        return _done(asked, where)
    except UserError as error:
        return {"failed": str(error)}


def _done(asked: dict[str, Any], where: str) -> dict[str, Any]:
    import torch

    from eqr.cluster.shared import SharedPlace
    from eqr.experiments.jobs import Interrupted, Job, run_job
    from eqr.experiments.store import Store
    from eqr.signals import Stopped

    torch.set_num_threads(1)
    job = Job.from_json(asked["job"])
    with ExitStack() as stack:
        if asked["shared"] is None:
            marker = Path(asked["marker"])
            if not marker.is_file():
                return {"refused": unshared(where, str(marker.parent))}
            store = Store(marker.parent)
        else:
            place = SharedPlace(asked["shared"])
            if not place.has(asked["marker"]):
                return {"refused": unshared(where, asked["shared"])}
            store = stack.enter_context(place.working_copy(job.key))
        stack.enter_context(store[job.key].placed(where))
        try:
            run_job(job, store)
        except (Interrupted, Stopped, KeyboardInterrupt):
            return {"stopped": True}
    return {"done": True}


def unshared(where: str, place: str) -> str:
    """Say that a worker does not see what the command sees."""
    return (
        f"{where} does not see {place}: name a folder that every node has (--store on NFS or the like) "
        "or an address that every node reaches (--shared s3://bucket/folder)"
    )


def run_part(told: dict[str, Any], number: int) -> "tuple[CandidateBlock, float, str] | str":
    """Run one part of a candidates table; return it, its seconds and its place, or what is wrong."""
    os.environ.update(ONE_THREAD)
    import time

    import ray
    import torch

    from eqr.measure.code import code_digest
    from eqr.measure.evaluate import run_parts
    from eqr.measure.table import Manifest

    where = f"{socket.gethostname()}, process {os.getpid()}"
    if code_digest() != told["code"]:
        return f"{where} has eqr code {code_digest()}, the command {told['code']}; install the same"
    torch.set_num_threads(told["threads"])
    began = time.perf_counter()
    reasoner = _model(told["model"], told["device"])
    manifest = Manifest.from_json(told["manifest"])
    puzzles = ray.get(told["puzzles"])
    parts = run_parts(manifest, [number], reasoner, puzzles, slots=told["slots"], cores=told["cores"])
    (block,) = [block for block, _ in parts if block is not None]
    return block, time.perf_counter() - began, where


_models: "dict[Any, Reasoner]" = {}
"""The model that this worker has opened, by the object it came in: parts of one table share it."""


def _model(there: Any, device: str) -> "Reasoner":
    import ray

    from eqr.model.config import ReasonerConfig
    from eqr.model.reasoner import Reasoner

    if there not in _models:
        found = ray.get(there)
        reasoner = Reasoner(ReasonerConfig.from_json(found["config"]))
        reasoner.load_state_dict(found["weights"])
        _models.clear()
        _models[there] = reasoner.to(device).requires_grad_(False)
    return _models[there]
