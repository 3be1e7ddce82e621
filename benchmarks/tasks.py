"""How fast tasks generate and augment, on one core after warm-up.

Run: python benchmarks/tasks.py [task ...]
"""

import sys
import time
from itertools import islice

import numpy as np

from eqr.tasks.base import Instance, Task
from eqr.tasks.registry import task_named

BATCH = 768
SECONDS = 2.0
TASKS = (
    "sudoku-4x4",
    "sudoku-6x6",
    "sudoku-9x9",
    "sudoku-16x16",
    "maze-11x11",
    "maze-unique",
    "maze-1k",
    "mini-arc",
)
"""Measured when none is named; every task with a generator and symmetries can be."""


def generated(task: Task) -> tuple[list[Instance], float]:
    """Generate for some seconds; return the puzzles and how many a second."""
    stream = task.generate(np.random.default_rng(0))
    next(stream)  # compiles, or loads what was compiled before
    instances = []
    started = time.perf_counter()
    while time.perf_counter() - started < SECONDS:
        instances.append(next(stream))
    return instances, len(instances) / (time.perf_counter() - started)


def augmented(task: Task, instances: list[Instance]) -> float:
    """Return the milliseconds to draw symmetries for a batch and apply them to puzzles and answers."""
    rows = [instances[row % len(instances)] for row in range(BATCH)]
    puzzles = np.stack([instance.puzzle for instance in rows])
    answers = np.stack([instance.answer for instance in rows])
    rng = np.random.default_rng(0)
    times = []
    for _ in range(20):
        started = time.perf_counter()
        symmetries = task.draw_symmetries(rng, BATCH)
        symmetries.apply(puzzles)
        symmetries.apply(answers)
        times.append(time.perf_counter() - started)
    return 1000 * float(np.median(times))


def line(task: Task) -> str:
    """Measure one task and return its line of the table."""
    instances, rate = generated(task)
    ratings = [instance.rating for instance in islice(instances, 10_000)]
    rating = f"{np.mean(ratings):,.1f} {task.rating_name}"
    return f"{task.name:<16}{rate:>14,.0f}{augmented(task, instances):>14.2f}   {rating}"


def main(names: list[str]) -> None:
    """Print the table."""
    print(f"{'task':<16}{'puzzles/s':>14}{f'ms per {BATCH}':>14}   mean rating")
    for name in names or TASKS:
        print(line(task_named(name)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
