"""A sweep on a simulated cluster of three nodes gives what one process gives, whatever is lost on the way."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'eqr[cluster]'")


from eqr.cluster.connect import connected
from eqr.cluster.executor import RayExecutor
from eqr.errors import UserError
from eqr.paper.executor import JobOutcome, Tally, counted, run_job
from eqr.paper.store import Store
from eqr.paper.sweep import MEASURED, gathered, make_sweep, run_sweep
from eqr.recipes import recipe_named

SETTINGS = [
    "rows=4", "data.train=24", "data.validation=4", "data.test=8", "evaluation.every=10",
    "evaluation.puzzles=4", "evaluation.test_puzzles=4", "evaluation.depths=[1,2]",
    "saving.checkpoint_every=2", "saving.log_every=1", "schedule.depth=2",
    "model.width=16", "model.blocks=1", "steps=10",
]  # fmt: skip
RECIPE = recipe_named("sudoku-4x4").with_settings(SETTINGS)
TWELVE = make_sweep(RECIPE, ["seed=0..5", "optimizer.rate=1e-3,2e-3"])


class Here:
    """An executor without processes."""

    def run(self, jobs, store, watcher, *, until):
        for job in jobs:
            run_job(job, store)
            yield JobOutcome(job)


@pytest.fixture(scope="module")
def locally(tmp_path_factory) -> Store:
    store = Store(tmp_path_factory.mktemp("local"))
    run_sweep(TWELVE, Here(), store=store, out=store.folder / "out", quiet=True)
    return store


def weights(store: Store) -> dict[str, bytes]:
    keys = [point.job.key for point in TWELVE.points]
    return {key: (store[key].run.last / "model.safetensors").read_bytes() for key in keys}


def test_twelve_runs_and_a_lost_node_end_as_on_one_machine(cluster, locally, tmp_path):
    import ray

    store, tally = Store(tmp_path / "store"), Tally()
    jobs, lost = TWELVE.plan().jobs, None
    for _ in counted(jobs, RayExecutor(ray), store, tally, quiet=True):
        if lost is None:  # with two more nodes at work on others
            lost = cluster.worker_nodes.copy().pop()
            cluster.remove_node(lost, allow_graceful=False)
    cluster.add_node(num_cpus=1, object_store_memory=80_000_000)
    assert lost is not None
    assert (tally.done, tally.failed, tally.stopped) == (12, {}, 0)
    assert weights(store) == weights(locally)
    assert gathered(TWELVE, store) == gathered(TWELVE, locally)


def test_a_killed_worker_goes_on_from_its_checkpoint(cluster, tmp_path, monkeypatch):
    import ray

    from eqr.cluster import executor as module

    monkeypatch.setattr(module, "ASK_EVERY", 0.0)
    long = make_sweep(RECIPE.replace(steps=400), ["seed=0"])
    job = long.points[0].job
    expected, store = Store(tmp_path / "expected"), Store(tmp_path / "store")
    run_job(job, expected)
    steps = []

    class Kill:
        def __call__(self, running, waiting) -> None:
            there = [path.stem for path in store[job.key].folder.rglob("step-*.safetensors")]
            last = max((int(name.removeprefix("step-")) for name in there), default=0)
            if last and not steps and store[job.key].place():
                steps.append(last)
                os.kill(int(store[job.key].place().rpartition(" ")[2]), signal.SIGKILL)

    executor = RayExecutor(ray)
    (outcome,) = executor.run([job], store, Kill(), until=float("inf"))
    assert (outcome.failed, outcome.stopped) == (None, False)
    assert steps
    assert 0 < steps[0] < 400
    name = "model.safetensors"
    assert (store[job.key].run.last / name).read_bytes() == (expected[job.key].run.last / name).read_bytes()
    assert store[job.key].output(MEASURED).numbers == expected[job.key].output(MEASURED).numbers


DRIVER = """
import os, signal, sys
from pathlib import Path
from test_sweep_on_ray import *
store = Store(Path(sys.argv[1]))
with connected("ray") as ray:
    for outcome in RayExecutor(ray).run(TWELVE.plan().jobs, store, Kept(), until=float("inf")):
        os.kill(os.getpid(), signal.SIGKILL)  # with a run done, others under way and more to begin
"""


def test_a_killed_driver_goes_on(cluster, locally, tmp_path):
    import ray

    store = Store(tmp_path / "store")
    place = str(Path(__file__).parent)
    driver = subprocess.run(
        [sys.executable, "-c", DRIVER, str(store.folder)],
        env={**os.environ, "PYTHONPATH": f"{place}:{os.environ.get('PYTHONPATH', '')}"},
        check=False,
    )
    assert driver.returncode == -signal.SIGKILL
    assert 0 < len(TWELVE.plan().missing(store)) < 12
    tally = run_sweep(TWELVE, RayExecutor(ray), store=store, out=tmp_path / "out", quiet=True)
    assert (tally.done, tally.failed, tally.stopped) == (12, {}, 0)
    assert weights(store) == weights(locally)


def test_nodes_that_do_not_see_the_store_are_told(cluster, tmp_path, monkeypatch):
    import ray

    from eqr.cluster import executor

    monkeypatch.setattr(executor.Path, "touch", lambda self: None)
    with pytest.raises(UserError, match=r"does not see .*--store"):
        list(RayExecutor(ray).run(TWELVE.plan().jobs[:1], Store(tmp_path), Kept(), until=float("inf")))


class Kept:
    """A watcher that keeps what it is told."""

    def __init__(self) -> None:
        self.places: set[str] = set()

    def __call__(self, running, waiting) -> None:
        self.places |= {job.label for job in running}


def test_another_code_on_a_node_is_told(cluster, tmp_path, monkeypatch):
    import ray

    from eqr.cluster import executor

    monkeypatch.setattr(executor, "described", lambda: "0+other")
    with pytest.raises(UserError, match=r"has eqr .*0\+other; install the same"):
        list(RayExecutor(ray).run(TWELVE.plan().jobs[:1], Store(tmp_path), Kept(), until=float("inf")))


@pytest.mark.parametrize(("on", "named"), [("ray://127.0.0.1:9", None), ("ray", "127.0.0.1:9")])
def test_an_address_without_a_cluster_is_told_at_once(on, named, monkeypatch):
    import ray

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    if named is not None:
        monkeypatch.setenv("RAY_ADDRESS", named)
    with pytest.raises(UserError, match=r"no Ray cluster answers at (ray://)?127\.0\.0\.1:9: .*ray status"):
        connected(on).__enter__()


def test_what_ray_says_of_an_address_is_told(monkeypatch):
    import ray

    def refused(**_):
        raise ConnectionError("ray client connection timeout")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refused)
    with somebody() as there, pytest.raises(UserError, match=f"answers at {there}: ray client connection"):
        connected(there).__enter__()


@contextmanager
def somebody():
    """The address of somebody who listens, and is no cluster."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield f"ray://127.0.0.1:{found.getsockname()[1]}"


def test_another_version_of_ray_is_told(monkeypatch):
    import ray

    def refused(**_):
        raise RuntimeError(
            "Version mismatch: The cluster was started with:\n    Ray: 2.9.0\n    Python: 3.9.1\nThis process"
        )

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refused)
    with somebody() as there, pytest.raises(UserError, match=r"another version.*Ray 2\.9\.0"):
        connected(there).__enter__()


def test_a_signal_is_ours_while_connected(cluster):
    """Ray takes SIGTERM to itself; a command that is asked to stop must still tell its tasks."""
    asked = "import os, signal; from eqr.cluster.connect import connected\nwith connected('ray'):"
    done = subprocess.run(
        [sys.executable, "-c", f"{asked} os.kill(os.getpid(), signal.SIGTERM)"],
        capture_output=True,
        text=True,
    )
    assert done.stderr.strip().splitlines()[-1].startswith("eqr.signals.Stopped")
