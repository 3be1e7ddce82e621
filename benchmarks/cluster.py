"""How the rate of work grows with workers: the same runs by one Ray worker and by two, in turns.

    python benchmarks/cluster.py [--runs 4] [--steps 400] [--rounds 3]

All go through the executor of `eqr sweep --on ray`, on one cluster of two cores whose second core is taken
away for every other turn, so that a machine that is busy with other things is so for both. Workers have had a
run each before the first turn: starting processes and importing torch does not count.

Where others use the cores too, the ratio of the rates says what they left. The load is printed beside it, and
what a run costs in core-seconds with one worker and with two: as long as these are the same, two free cores
do twice the work.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from eqr.cluster.connect import imported_ray
from eqr.cluster.executor import RayExecutor
from eqr.paper.plan import Job
from eqr.paper.store import Store
from eqr.paper.sweep import make_sweep
from eqr.recipes import recipe_named


def silent(running: object, waiting: int) -> None:
    """Show nothing."""


class Idle:
    """Holds a core and does nothing with it."""

    def here(self) -> None:
        """Return once the core is held."""


class Bench:
    """Runs that differ in their seeds, on a cluster of two cores."""

    def __init__(self, ray: Any, steps: int, folder: Path) -> None:
        self._ray, self._executor, self._store = ray, RayExecutor(ray), Store(folder)
        self._recipe = recipe_named("sudoku-4x4").with_settings([f"steps={steps}", "data.test=64"])
        self._seed = 0

    def turn(self, workers: int, runs: int) -> tuple[float, float]:
        """Return runs a second of one worker or of two, and the core-seconds of a run."""
        idle = self._ray.remote(Idle).options(num_cpus=1).remote() if workers == 1 else None
        if idle is not None:
            self._ray.get(idle.here.remote())
        jobs = self._jobs(runs)
        began = time.perf_counter()
        outcomes = list(self._executor.run(jobs, self._store, silent, until=float("inf")))
        seconds = time.perf_counter() - began
        failed = [outcome.failed for outcome in outcomes if outcome.failed]
        if failed:
            raise SystemExit(failed[0])
        if idle is not None:
            self._ray.kill(idle)
        return runs / seconds, sum(self._store[job.key].made()["core_seconds"] for job in jobs) / runs

    def _jobs(self, runs: int) -> list[Job]:
        first, self._seed = self._seed, self._seed + runs
        return make_sweep(self._recipe, [f"seed={first}..{self._seed - 1}"]).plan().jobs


def main() -> None:
    """Measure one worker and two in turns, and print the rates with their ratio."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--runs", type=int, default=4, help="of each turn; an even number")
    options.add_argument("--steps", type=int, default=400)
    options.add_argument("--rounds", type=int, default=3)
    asked = options.parse_args()
    load = os.getloadavg()[0]
    ray = imported_ray()
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(ray, asked.steps, Path(folder))
            bench.turn(2, 2)
            turns = [(bench.turn(1, asked.runs), bench.turn(2, asked.runs)) for _ in range(asked.rounds)]
    finally:
        ray.shutdown()
    ones, twos = zip(*turns, strict=True)
    found = {
        "runs_per_second": {"1": [rate for rate, _ in ones], "2": [rate for rate, _ in twos]},
        "ratio": median(two / one for (one, _), (two, _) in turns),
        "core_seconds_per_run": {
            "1": median(cost for _, cost in ones),
            "2": median(cost for _, cost in twos),
        },
        "load_before": load,
        "load_after": os.getloadavg()[0],
        "cores": os.cpu_count(),
    }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
