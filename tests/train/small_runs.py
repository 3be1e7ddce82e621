"""A recipe that trains in a second, shared by the tests of this folder."""

from typing import Any

from eqr.model import systems
from eqr.tasks import task_named
from eqr.train.optimizer import AdamAtan2, Averaging, Rate
from eqr.train.recipe import EvaluationPlan, Generated, Recipe, Saving
from eqr.train.schedule import SegmentedOnline


def small_recipe(*, model: dict[str, Any] | None = None, **fields: Any) -> Recipe:
    """A 4x4 Sudoku reasoner of a few thousand weights."""
    task = task_named("sudoku-4x4")
    sizes = {"cycles": 2, "scratch": 1, "width": 16, "blocks": 1, "round_hidden_to": 16}
    standard: dict[str, Any] = {
        "name": "small",
        "data": Generated(task=task.name, train=40, validation=16, test=16, options={"clues": 8}),
        "model": systems.eqr(task, **{**sizes, **(model or {})}),
        "schedule": SegmentedOnline(tracked=2, depth=4),
        "optimizer": AdamAtan2(rate=3e-3, weight_decay=0.1),
        "rate": Rate(warmup=5),
        "averaging": Averaging(decay=0.9, warm_start=True),
        "rows": 6,
        "steps": 30,
        "evaluation": EvaluationPlan(every=10, depths=(1, 4), puzzles=16, test_puzzles=16),
        "saving": Saving(checkpoint_every=7, log_every=5),
        "threads": 1,
        "device": "cpu",
    }
    return Recipe(**{**standard, **fields})
