"""What a worker of the cluster does: plain functions of plain data, which import eqr only when they run.

A worker is another machine's process. It is given the store's folder, checks that it sees it and has the same
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


def _begun(given: dict[str, Any]) -> tuple[str, str | None]:
    """Return where this is, and what is wrong if its code is not that of the command."""
    os.environ.update(ONE_THREAD)  # before numba is loaded, as in the processes of the local executor
    import torch

    from eqr.behaviour import described

    torch.set_num_threads(1)
    where, mine = f"{socket.gethostname()}, process {os.getpid()}", described()
    same = mine == given["eqr"]
    return where, None if same else f"{where} has eqr {mine}; the command {given['eqr']}; install the same"


def do_job(given: dict[str, Any]) -> dict[str, Any]:
    """Do one job of a sweep or of `eqr reproduce`; say how it ended, as local processes do."""
    if Path(given["folder"]).is_dir():
        os.chdir(given["folder"])  # relative paths of recipes mean what they mean where the command was given
    where, other = _begun(given)
    if other is not None:
        return {"refused": other}
    from eqr.errors import UserError
    from eqr.paper.executor import Interrupted, run_job
    from eqr.paper.plan import Job
    from eqr.paper.store import Store

    marker = Path(given["marker"])
    if not marker.is_file():
        return {
            "refused": f"{where} does not see {marker.parent}: name a folder that every node has (--store on "
            "NFS or the like)"
        }
    try:
        job, store = Job.from_json(given["job"]), Store(marker.parent)
        with store[job.key].placed(where):
            run_job(job, store)
    except UserError as error:
        return {"failed": str(error)}
    except (Interrupted, KeyboardInterrupt):  # eqr's `Stopped` is one
        return {"stopped": True}
    return {"done": True}


def run_part(given: dict[str, Any], number: int) -> "tuple[CandidateBlock, float, str] | str":
    """Run one part of a candidates table; return it, its seconds and its place, or what is wrong."""
    where, other = _begun(given)
    if other is not None:
        return other
    import time

    import ray

    from eqr.results.evaluate import run_parts
    from eqr.results.table import Manifest

    began = time.perf_counter()
    reasoner, manifest = _model(given["model"], given["device"]), Manifest.from_json(given["manifest"])
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
