"""What several experiments share: rows and columns in one line, the lab's base recipes, and measurements."""

from typing import Any

from eqr.paper.experiment import NO_CHANGES, AnyMeasurement, Changes, Column, Row, Setting, Solve

HEAD, SETTLED = "head", "head+stable:1"
"""Halting by the head alone, which is the paper's rule, and once the answer stands too, which is ours."""


def row(name: str, *variants: str, **fields: Any) -> Row:
    """Return a row of some variants."""
    return Row(name=name, variants=variants, **fields)


def column(
    name: str, measurement: AnyMeasurement | None = None, metric: str = "exact", **fields: Any
) -> Column:
    """Return a column of percentages."""
    return Column(name=name, measurement=measurement or Solve(), metric=metric, **fields)


def number(name: str, measurement: AnyMeasurement, metric: str, digits: int = 1, **fields: Any) -> Column:
    """Return a column of numbers that are no percentages."""
    return column(name, measurement, metric, percent=False, digits=digits, **fields)


PAPER_SUDOKU, PAPER_MAZE, PAPER_TRM = (
    Setting(recipe=f"paper/{name}") for name in ("sudoku-eqr", "maze-eqr", "sudoku-trm")
)


def lab(
    recipe: str,
    steps: int,
    *,
    every: int,
    changes: Changes = NO_CHANGES,
    why: str,
    paper: Setting | None = PAPER_SUDOKU,
) -> Setting:
    """Return a recipe of so many steps, tested on 500 puzzles and validated `every` so many steps."""
    shared = {"steps": steps, "data.test": 500, "evaluation.puzzles": 128, "evaluation.test_puzzles": 100}
    changes = {**shared, "evaluation.every": every, **changes}
    return Setting(recipe=recipe, changes=changes, why=why, paper=paper)


FEW = lab(
    "sudoku-6x6-tokens",
    1200,
    every=200,
    changes={"augment": False, "schedule.depth": 8, "evaluation.depths": (1, 2, 4, 8)},
    why="6x6 Sudoku without a spare clue by the paper's token mixer, 1,000 fixed puzzles and no "
    "augmentation, so that memorising and generalising come apart; trajectories of 8 segments, 1,200 steps. "
    "A feedforward model reaches all of the training puzzles and none of the others here; augmented, "
    "everything saturates.",
    paper=PAPER_TRM,
)
"""The construction path's regime: 1,000 fixed puzzles, which a feedforward model learns by heart."""
HALF_LEARNED = lab(
    "sudoku-6x6-tokens",
    1500,
    every=300,
    why="6x6 Sudoku without a spare clue by the paper's token mixer, augmented, cut off after 1,500 steps: "
    "half learned, so that puzzles of every mode are there.",
)
SUDOKU = lab(
    "sudoku-6x6-tokens",
    2000,
    every=400,
    changes={"data.options": {"clues": 16}},
    why="6x6 Sudoku with 16 clues by the paper's token mixer, augmented, 2,000 steps, half a minute of a "
    "core: without a spare clue seeds differ by tens of points in when they learn, here by one or two in "
    "what.",
)
ATTENTIVE = {"steps": 3000, "model.positions": "rotary-2d"}
"""What attention needs there: more steps, and to be told the grid; by order alone it learns nothing."""
ATTENTIVE_WHY = (
    "Attention (HRM and URM have it too) gets 3,000 steps and rotary positions over the grid; with those "
    "over the order of cells, as published, it learns nothing in so short a run."
)
LONGER = {"evaluation.depths": (1, 4, 16), "evaluation.test_puzzles": 64}
NINE = lab(
    "sudoku-9x9-minimal",
    5000,
    every=1000,
    changes={"data.train": 20000, **LONGER},
    why="9x9 Sudoku without a spare clue by the mixer that knows rows, columns and boxes, live candidates "
    "only, 5,000 steps, a quarter of the recipe's: seeds lie a few points apart, and much is left for depth "
    "and breadth to gain. The token mixer takes hours of a core for it.",
)
CLUES = lab(
    "sudoku-9x9",
    4000,
    every=800,
    changes=LONGER,
    why="9x9 Sudoku with 32 clues by the mixer that knows rows, columns and boxes, live candidates only, "
    "4,000 steps: a minute or two of a core, so there can be many seeds; they lie a few points apart, and a "
    "few points are left to gain.",
)
MAZE = lab(
    "maze-11x11",
    3000,
    every=1000,
    why="11x11 mazes with one path by the mixer that hears its neighbours, 3,000 steps: attention does not "
    "learn them on two cores.",
    paper=PAPER_MAZE,
)
AMBIGUOUS = {"data.task": "maze-1k-11x11", "model.task": "maze-1k-11x11"}
"""The same on mazes with several shortest paths."""

TRAINED = Solve(puzzles=500, depth=16)
"""At the depth of training, one start."""
SHORT = Solve(puzzles=500, depth=8)
"""The same for trajectories of 8 segments."""
ONCE = Solve(puzzles=500, depth=1)
"""A single segment."""
BROAD = Solve(puzzles=100, depth=64, breadth=32)
"""Four times the trained depth, from many starts."""
NINE_BROAD = Solve(puzzles=64, depth=64, breadth=16)
"""The same where a segment costs more."""
NINE_FAR = Solve(puzzles=300, depth=64)
"""Four times the trained depth, one start."""
NINE_DEEP = Solve(puzzles=64, depth=1024)
DEEP = Solve(puzzles=100, depth=1024)


def train_of(measurement: Solve) -> Solve:
    """Return the same measurement on training puzzles."""
    return measurement.replace(split="train")
