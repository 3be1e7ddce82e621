"""The first solve after an installation: eager answers, the kernels follow, nothing waits twice."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from eqr.backends import Eager
from eqr.solve import Budget, Solver, first_use, load
from eqr.tasks import task_named

PUZZLE = "1....2....3....4"


class Done:
    """A compiling process that is waited for at once."""

    waited = 0

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def wait(self) -> int:
        Done.waited += 1
        return 0


@pytest.fixture
def beside(monkeypatch):
    monkeypatch.setattr(first_use.subprocess, "Popen", Done)
    Done.waited = 0


def answered(model, backend):
    return Solver(model, budget=Budget(depth=6), backend=backend).solve(PUZZLE)


def test_it_is_eager_at_first_and_then_the_kernels(beside, monkeypatch):
    model = load("sudoku-4x4")
    eager = answered(model, Eager())
    first = answered(model, first_use.EagerFirst(model.config))
    assert Done.waited == 0
    assert (first.residual, first.halt) == (eager.residual, eager.halt)  # the same bits
    monkeypatch.setattr(first_use, "ROWS", 2)
    backend = first_use.EagerFirst(model.config)
    later = answered(model, backend)
    assert Done.waited == 1
    assert backend._then is not None
    np.testing.assert_array_equal(later.grid, eager.grid)
    assert later.residual == pytest.approx(eager.residual, rel=1e-2)


def test_kernels_are_ready_once_they_are_on_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(first_use, "_place", lambda: tmp_path)
    assert not first_use.ready()
    (tmp_path / "kernels.square_distances-1.py311.nbi").touch()
    assert first_use.ready()
    monkeypatch.setattr(first_use, "_place", lambda: None)  # nowhere to keep them: nothing to wait for
    assert first_use.ready()


def test_the_process_beside_leaves_what_a_first_solve_needs(tmp_path, monkeypatch):
    """What it runs is what a solve asks for: all kernels that one solve compiles are compiled by it."""
    from eqr.backends.cpu import kernels, segment

    monkeypatch.setattr(first_use, "_place", lambda: tmp_path)
    threads = torch.get_num_threads()
    first_use.compile_kernels()
    torch.set_num_threads(threads)
    known = [len(function.signatures) for function in (segment.forward, kernels.choose, kernels.products)]
    Solver("maze", task=task_named("maze-7x7"), budget=Budget(depth=1)).session()
    answered(load("sudoku-9x9-hard").for_task(task_named("sudoku-4x4")), None)
    assert known == [
        len(function.signatures) for function in (segment.forward, kernels.choose, kernels.products)
    ]
    assert known[0] == 1


def test_it_is_a_module_that_runs():
    code = "import eqr.solve.first_use as it; assert callable(it.compile_kernels)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
