"""The default recipe of a puzzle that was declared by its rules: sizes follow from the number of candidates.

The model is told the rules (mixer `rules`), and only candidates that the givens leave are kept.
"""

from typing import Any

from eqr.model.structured import Rules
from eqr.puzzles import Puzzle
from eqr.recipes.lab import LIVE, candidates
from eqr.tasks import task_named
from eqr.tasks.rows import RowKind
from eqr.train.optimizer import Decay, Rate
from eqr.train.recipe import EvaluationPlan, Recipe

SMALL = 300
"""Candidates up to which a puzzle counts as small: 6x6 of six values has 216."""


def declared(name: str) -> Recipe:
    """Return what learns most declared puzzles of a size within minutes of one core."""
    puzzle = task_named(name)
    assert isinstance(puzzle, Puzzle)
    kinds = set(puzzle.rows.kinds.tolist()) - {RowKind.BARRED}
    if puzzle.cells * len(puzzle.values) <= SMALL:
        fields: dict[str, Any] = {
            "width": 24,
            "steps": 2500,
            "rows": 12,
            "data": {"train": 2000, "fewer": True},
        }
        model: dict[str, Any] = {}
    else:
        fields = {
            "width": 32,
            "steps": 6000,
            "rows": 12,
            "data": {"train": 4000, "validation": 128, "test": 500, "fewer": True},
            "rate": Rate(warmup=100, decay=Decay.LINEAR, decay_from=0.3),
            "evaluation": EvaluationPlan(every=1500, puzzles=128, depths=(4, 16, 64), test_puzzles=500),
        }
        model = {"cycles": 3, "scratch": 4}
    mixer = Rules(hidden=4 * fields["width"], knows=tuple(kind for kind in RowKind if kind in kinds))
    return candidates(name, model={"mixer": mixer, "sites": LIVE, **model}, **fields)
