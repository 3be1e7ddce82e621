"""The first use after an installation: eager computes while another process compiles the kernels.

Compiling takes ten seconds of a core, once; `eqr solve` need not wait for it. `python -m eqr.solve.first_use`
is the process beside it, which outlives it and leaves compiled kernels on disk for the next.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from filelock import FileLock

from eqr.backends import Backend, Eager, Segment, default_backend
from eqr.backends.cpu import kernels
from eqr.backends.cpu.row_executor import one_thread
from eqr.model.config import ReasonerConfig
from eqr.model.state import State
from eqr.progress import preparing
from eqr.tasks.compiled import COMPILING

ROWS = 64
"""Segments of rows that eager computes, seconds of work, before the kernels are waited for. They are counted,
so that the answer does not depend on how fast the kernels come."""


def ready() -> bool:
    """Say whether compiled kernels are on disk, or cannot be kept there."""
    place = _place()
    return place is None or any(place.glob("kernels.square_distances-*.nbi"))  # the last one of a first solve


def _place() -> Path | None:
    path = kernels.square_distances.stats.cache_path
    return None if path is None else Path(path)


class EagerFirst(Backend):
    """Computes as `eager` does while another process compiles the kernels, then as the default backend."""

    name = "eager-first"

    def __init__(self, config: ReasonerConfig) -> None:
        """Begin to compile, for models of this config."""
        self._config, self._rows, self._eager = config, 0, Eager()
        self._then: Backend | None = None
        self._beside = subprocess.Popen(
            [sys.executable, "-m", "eqr.solve.first_use"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is not for it
        )  # fmt: skip

    def compute(self, segment: Segment) -> State:
        """Ask eager, and from some segments on the kernels."""
        self._rows += segment.state.rows
        if self._then is None and self._rows > ROWS:
            with preparing(COMPILING):
                self._beside.wait()
            self._then = default_backend(self._config)
        return (self._then or self._eager).compute(segment)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Stay on the calling thread: small tensors are slower on several."""
        with one_thread(), (self._then or self._eager).alone():
            yield


def compile_kernels() -> None:
    """Run what a first solve runs, once for all who ask at the same time."""
    from eqr.solve import Budget, load, rollout
    from eqr.tasks.sudoku import Sudoku

    place = _place()
    if place is None:
        return
    place.mkdir(parents=True, exist_ok=True)
    with FileLock(place / "eqr-compiling.lock"):
        task = Sudoku(2, 2)
        puzzle = task.parse("1" + "." * 15)
        torch.set_num_threads(1)
        rollout(load("sudoku-4x4", device="cpu"), puzzle[None], Budget(depth=1))
        task.solve(puzzle)


if __name__ == "__main__":
    compile_kernels()
