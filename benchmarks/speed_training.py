"""How long a training step takes and what share of it is not the model (it should be below 10%).

Run: python benchmarks/speed_training.py [RECIPE...]
"""

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import torch

from eqr.backends import Cpu
from eqr.recipes import recipe_named
from eqr.runs import RunFolder
from eqr.train.journal import Journal, Meter
from eqr.train.recipe import Recipe
from eqr.train.sources import load_data, open_stream
from eqr.train.trainer import Trainer

T = TypeVar("T")


@dataclass(frozen=True)
class StepCost:
    """Median times of a step, in milliseconds."""

    step: float
    """All of it: refill, forward and backward, optimizer, averaging, statistics, log."""
    model: float
    """Forward and backward, losses and halting included."""
    outside: float
    """Share of the step that is not the model's."""
    steps_per_second: float
    rows: int
    threads: int

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return asdict(self)


class _Timed(Cpu):
    """A backend that notes how long its work takes, which in a step is forward and backward."""

    seconds = 0.0

    def map(self, work: Callable[[slice], T], rows: int) -> list[T]:
        began = time.perf_counter()
        results = super().map(work, rows)
        self.seconds += time.perf_counter() - began
        return results


def step_cost(recipe: Recipe, *, steps: int = 200, warmup: int = 20) -> StepCost:
    """Train a recipe for some steps on cpu, with its data, optimizer and log, and time each step."""
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder(Path(folder))
        splits = load_data(recipe.data, run, quiet=True)
        timed = _Timed.training(
            recipe.model, torch.device("cpu"), workers=recipe.threads, rows_per_cut=recipe.rows_per_cut
        )
        trainer = Trainer(recipe, open_stream(recipe, splits), backend=timed)
        journal, meter = Journal(run, recipe, step=0), Meter()
        whole, inside = [], []
        for _ in range(warmup + steps):
            began, timed.seconds = time.perf_counter(), 0.0
            meter.add(trainer.step().stats, recipe.rows)
            if trainer.step_number % recipe.saving.log_every == 0:
                journal.write("train", trainer.step_number, meter.flush())
            whole.append(time.perf_counter() - began)
            inside.append(timed.seconds)
    outside = [1.0 - inner / outer for inner, outer in zip(inside, whole, strict=True)][warmup:]
    step = median(whole[warmup:])
    return StepCost(
        step=1e3 * step,
        model=1e3 * median(inside[warmup:]),
        outside=median(outside),
        steps_per_second=1.0 / step,
        rows=recipe.rows,
        threads=timed.executor.workers,
    )


def main() -> None:
    """Print a line for each recipe."""
    print(f"{'recipe':<28} {'step':>9} {'model':>9} {'outside':>8} {'steps/s':>8}  threads")
    for name in sys.argv[1:] or ["sudoku-4x4", "sudoku-6x6"]:
        cost = step_cost(recipe_named(name), steps=100)
        print(
            f"{name:<28} {cost.step:>6.1f} ms {cost.model:>6.1f} ms {cost.outside:>8.1%} "
            f"{cost.steps_per_second:>8.1f}  {cost.threads}",
            flush=True,
        )


if __name__ == "__main__":
    main()
