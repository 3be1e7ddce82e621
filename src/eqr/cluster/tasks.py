"""What a worker of the cluster does: plain functions of plain data, which import eqr only when they run.

A worker is another machine's process. It is told where the store is, checks that it sees it and has the same
code, and then does what a process on this machine would do.
"""

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eqr.model.reasoner import Reasoner
    from eqr.solve.candidates import CandidateBlock

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


def do_job(given: dict[str, Any]) -> dict[str, Any]:
    """Do one job of a sweep or of `eqr reproduce`; say how it ended, as local processes do."""
    os.environ.update(ONE_THREAD)  # before numba is loaded, as in the processes of the local executor
    if Path(given["folder"]).is_dir():
        os.chdir(given["folder"])  # relative paths of recipes mean what they mean where the command was given
    from eqr.behaviour import described
    from eqr.errors import UserError

    where = f"{socket.gethostname()}, process {os.getpid()}"
    if described() != given["eqr"]:
        return {"refused": f"{where} has eqr {described()}; the command {given['eqr']}; install the same"}
    try:
        return _done(given, where)
    except UserError as error:
        return {"failed": str(error)}


def _done(given: dict[str, Any], where: str) -> dict[str, Any]:
    import torch

    from eqr.paper.executor import Interrupted, run_job
    from eqr.paper.plan import Job
    from eqr.paper.store import Store
    from eqr.signals import Stopped

    torch.set_num_threads(1)
    job, marker = Job.from_json(given["job"]), Path(given["marker"])
    if not marker.is_file():
        return {
            "refused": f"{where} does not see {marker.parent}: name a folder that every node has (--store on "
            "NFS or the like)"
        }
    store = Store(marker.parent)
    with store[job.key].placed(where):
        try:
            run_job(job, store)
        except (Interrupted, Stopped, KeyboardInterrupt):
            return {"stopped": True}
    return {"done": True}


def run_part(given: dict[str, Any], number: int) -> "tuple[CandidateBlock, float, str] | str":
    """Run one part of a candidates table; return it, its seconds and its place, or what is wrong."""
    os.environ.update(ONE_THREAD)
    import time

    import ray
    import torch

    from eqr.behaviour import described
    from eqr.results.evaluate import run_parts
    from eqr.results.table import Manifest

    where = f"{socket.gethostname()}, process {os.getpid()}"
    if described() != given["eqr"]:
        return f"{where} has eqr {described()}; the command {given['eqr']}; install the same"
    torch.set_num_threads(given["threads"])
    began = time.perf_counter()
    reasoner = _model(given["model"], given["device"])
    manifest = Manifest.from_json(given["manifest"])
    puzzles = ray.get(given["puzzles"])
    parts = run_parts(manifest, [number], reasoner, puzzles, slots=given["slots"], cores=given["cores"])
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
