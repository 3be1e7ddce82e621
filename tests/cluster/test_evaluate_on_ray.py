"""Parts of a candidates table that a cluster runs are those that one process runs, lost workers or not."""

import os
import signal

import numpy as np
import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'eqr[cluster]'")

from eqr.cluster import executor as on_ray
from eqr.data.generated import generate
from eqr.results import evaluate as module
from eqr.results.evaluate import BudgetSweep, evaluate
from eqr.results.table import WALL
from eqr.solve import load
from eqr.tasks import task_named

SWEEP = BudgetSweep.asked([2, 4], [1, 3], halt="stable:1", select=["majority"])
TIMES = (WALL, "seconds")


@pytest.fixture(scope="module")
def puzzles():
    task = task_named("sudoku-9x9")
    return generate(task, {"test": 40}, seed=1, options=task.options({}), quiet=True)["test"]


def parts(folder):
    """Every part of a table by name: each column's bytes, but for the seconds it took."""
    found = {}
    for path in sorted(folder.rglob("part-*.npz")):
        with np.load(path) as part:
            found[path.name] = {name: part[name].tobytes() for name in part.files if name not in TIMES}
    return found


def without_times(said):
    return [row for row in said.rows if row.metric != "seconds"]


def test_a_table_is_the_same_bit_for_bit_with_a_worker_killed(cluster, puzzles, tmp_path, monkeypatch):
    import ray

    monkeypatch.setattr(module, "part_size", lambda breadth: 8)
    reasoner = load("sudoku-9x9", device="cpu")  # large enough to be cut over threads
    here = evaluate(reasoner, puzzles, SWEEP, tmp_path / "here", quiet=True)
    killed = []

    class Killing(on_ray.RayFiller):
        def _result(self, part):
            found = super()._result(part)
            if not killed:
                killed.append(int(found[2].rpartition(" ")[2]))
                os.kill(killed[0], signal.SIGKILL)
            return found

    there = evaluate(reasoner, puzzles, SWEEP, tmp_path / "there", filler=Killing(ray), quiet=True)
    assert killed
    assert len(parts(tmp_path / "here")) == 5
    assert parts(tmp_path / "there") == parts(tmp_path / "here")
    assert without_times(there) == without_times(here)
