"""How the rate of work grows with workers: the same runs by one Ray worker, then by two.

    python benchmarks/cluster.py [--runs 8] [--steps 200]

Both go through the executor of `eqr sweep --on ray`. Each is timed once its workers have had a run to
warm up, so that starting processes and importing torch hardly counts. Only an idle machine with two free
cores tells anything; the load is printed beside the numbers.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

from eqr.cluster.connect import imported_ray
from eqr.cluster.executor import RayExecutor
from eqr.experiments.store import Store
from eqr.experiments.sweep import make_sweep
from eqr.recipes import recipe_named


class Silent:
    """Shows nothing."""

    def update(self, running: object, waiting: int) -> None:
        """Take it and say nothing."""


def rate(workers: int, runs: int, steps: int, folder: Path) -> float:
    """Return runs a second of so many workers, each warmed up by a run of its own."""
    ray = imported_ray()
    ray.init(address="local", num_cpus=workers, include_dashboard=False, log_to_driver=False)
    try:
        recipe = recipe_named("sudoku-4x4").with_settings([f"steps={steps}", "data.test=64"])
        executor, store = RayExecutor(ray), Store(folder)
        warm = make_sweep(recipe, [f"seed=1000..{999 + workers}"]).plan().jobs
        jobs = make_sweep(recipe, [f"seed=0..{runs - 1}"]).plan().jobs
        for some in (warm, jobs):
            began = time.perf_counter()
            failed = [
                one.failed for one in executor.run(some, store, Silent(), until=float("inf")) if one.failed
            ]
            if failed:
                raise SystemExit(failed[0])
        return len(jobs) / (time.perf_counter() - began)
    finally:
        ray.shutdown()


def main() -> None:
    """Measure one worker and two, and print both with their ratio."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--runs", type=int, default=8)
    options.add_argument("--steps", type=int, default=200)
    asked = options.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        one, two = (rate(count, asked.runs, asked.steps, Path(folder, str(count))) for count in (1, 2))
    found = {"runs_per_second": {"1": one, "2": two}, "ratio": two / one, "load_before": load}
    print(json.dumps({**found, "cores": os.cpu_count()}, indent=2))


if __name__ == "__main__":
    main()
