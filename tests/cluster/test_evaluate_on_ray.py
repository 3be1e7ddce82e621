"""Parts of a candidates table that a cluster runs are those that one process runs, lost workers or not."""

import os
import signal

import numpy as np
import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'eqr[cluster]'")

from eqr.cluster import evaluate as on_ray
from eqr.data.generated import generate
from eqr.measure import evaluate as module
from eqr.measure.evaluate import Sweep, evaluate
from eqr.measure.table import WALL
from eqr.tasks import task_named
from serve_running import small_reasoner

SWEEP = Sweep.asked([2, 4], [1, 3], halt="stable:1", select=["majority"])


@pytest.fixture(scope="module")
def puzzles():
    task = task_named("sudoku-4x4")
    return generate(task, {"test": 40}, seed=1, options=task.options({}), quiet=True)["test"]


def parts(folder):
    found = {}
    for path in sorted(folder.rglob("part-*.npz")):
        with np.load(path) as part:
            found[path.name] = {name: part[name] for name in part.files if name != WALL}
    return found


def assert_same(one, other):
    """Whatever is counted is equal; a float may round otherwise, as products of other batch sizes do."""
    assert one.keys() == other.keys()
    for name in one:
        for key, mine in one[name].items():
            theirs = other[name][key]
            if mine.dtype.kind == "f":
                np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-4, err_msg=f"{name} {key}")
            else:
                np.testing.assert_array_equal(mine, theirs, err_msg=f"{name} {key}")


def scores(said):
    return [(row["depth"], row["breadth"], row["exact"], row["nfe"]) for row in said["budgets"]]


def test_a_table_is_the_same_with_a_worker_killed(cluster, puzzles, tmp_path, monkeypatch):
    import ray

    monkeypatch.setattr(module, "PART", 4)
    reasoner = small_reasoner()
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
    assert len(parts(tmp_path / "here")) == 10
    assert_same(parts(tmp_path / "here"), parts(tmp_path / "there"))
    assert scores(there) == scores(here)
