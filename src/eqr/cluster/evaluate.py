"""Filling a candidates table on a cluster: each missing part is a task, small enough that nobody waits long.

What a trajectory draws depends on seed, puzzle and start alone, and a worker cuts batches as this process
would, so a part has the same bits wherever it is run, on processors of one kind. Model and puzzles travel
once to each machine and finished parts come back, so no folder need be common. A part whose worker is
lost is run again by another.
"""

from typing import TYPE_CHECKING, Any

import torch

from eqr.behaviour import described
from eqr.cluster.tasks import run_part
from eqr.errors import UserError
from eqr.progress import progress

if TYPE_CHECKING:
    from eqr.data import PuzzleSet
    from eqr.model.reasoner import Reasoner
    from eqr.results.table import CandidateTable
    from eqr.train.distributed import World

AHEAD = 2
"""Parts handed out for each core or GPU of the cluster: one it works on, one that waits for it."""
RETRIES = 16
"""Times that a part is begun again after its worker was lost."""


class RayFiller:
    """Fills tables by tasks of the cluster that `ray` is connected to, each with `cores` cores or a GPU."""

    def __init__(self, ray: Any, *, cores: int = 1) -> None:
        self._ray, self._cores = ray, cores

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
            "threads": self._cores,
            "cores": torch.get_num_threads(),
            "device": device,
            "eqr": described(),
        }
        task = ray.remote(run_part).options(
            num_cpus=self._cores, num_gpus=int(device == "cuda"), max_retries=RETRIES
        )
        most = AHEAD * self._places(device)
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

    def _places(self, device: str) -> int:
        """Return how many parts the cluster can run at once."""
        there = self._ray.cluster_resources()
        return max(int(there.get("GPU", 0) if device == "cuda" else there.get("CPU", 0) // self._cores), 1)

    def _result(self, part: Any) -> tuple[Any, float, str]:
        errors = self._ray.exceptions
        try:
            found = self._ray.get(part)
        except errors.RayTaskError as error:
            raise UserError(f"a part failed on the cluster: {str(error).strip().splitlines()[-1]}") from None
        except errors.RayError as error:
            reason = str(error).strip().splitlines()[0]
            raise UserError(f"a part was lost {RETRIES + 1} times with its worker: {reason}") from None
        if isinstance(found, str):
            raise UserError(found)
        block, wall, where = found
        return block, float(wall), str(where)
