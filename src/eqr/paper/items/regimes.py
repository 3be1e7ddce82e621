"""What several experiments share: the lab's base recipes and the measurements of their models."""

from eqr.paper.experiment import Setting
from eqr.paper.measurement import Solve

FEW = Setting(
    recipe="sudoku-6x6-tokens",
    changes={
        "augment": False,
        "steps": 1200,
        "schedule.depth": 8,
        "data.test": 500,
        "evaluation.every": 200,
        "evaluation.puzzles": 128,
        "evaluation.test_puzzles": 100,
        "evaluation.depths": (1, 2, 4, 8),
    },
)
"""The construction path's regime: 1,000 fixed puzzles, which a feedforward model learns by heart."""
FEW_WHY = (
    "6x6 Sudoku without a spare clue by the paper's token mixer, 1,000 fixed puzzles and no augmentation, so "
    "that memorising and generalising come apart; trajectories of 8 segments, 1,200 steps. A feedforward "
    "model reaches all of the training puzzles and none of the others here; augmented, everything saturates."
)

HALF_LEARNED = Setting(
    recipe="sudoku-6x6-tokens",
    changes={
        "steps": 1500,
        "data.test": 500,
        "evaluation.every": 300,
        "evaluation.puzzles": 128,
        "evaluation.test_puzzles": 100,
    },
)
HALF_LEARNED_WHY = (
    "6x6 Sudoku without a spare clue by the paper's token mixer, augmented, cut off after 1,500 steps: half "
    "learned, so that puzzles of every mode are there."
)

SUDOKU = Setting(
    recipe="sudoku-6x6-tokens",
    changes={
        "data.options": {"clues": 16},
        "steps": 2000,
        "data.test": 500,
        "evaluation.every": 400,
        "evaluation.puzzles": 128,
        "evaluation.test_puzzles": 100,
    },
)
SUDOKU_WHY = (
    "6x6 Sudoku with 16 clues by the paper's token mixer, augmented, 2,000 steps, half a minute of a core: "
    "without a spare clue seeds differ by tens of points in when they learn, here by one or two in what."
)
ATTENTIVE = {"steps": 3000, "model.positions": "rotary-2d"}
"""What attention needs there: more steps, and to be told the grid; by order alone it learns nothing."""
ATTENTIVE_WHY = (
    "Attention (HRM and URM have it too) gets 3,000 steps and rotary positions over the grid; with those "
    "over the order of cells, as published, it learns nothing in so short a run."
)

NINE = Setting(
    recipe="sudoku-9x9-minimal",
    changes={
        "steps": 5000,
        "data.train": 20000,
        "data.test": 500,
        "evaluation.every": 1000,
        "evaluation.puzzles": 128,
        "evaluation.depths": (1, 4, 16),
        "evaluation.test_puzzles": 64,
    },
)
NINE_WHY = (
    "9x9 Sudoku without a spare clue by the mixer that knows rows, columns and boxes, live candidates only, "
    "5,000 steps, a quarter of the recipe's: seeds lie a few points apart, and much is left for depth and "
    "breadth to gain. The token mixer takes hours of a core for it."
)

CLUES = Setting(
    recipe="sudoku-9x9",
    changes={
        "steps": 4000,
        "data.test": 500,
        "evaluation.every": 800,
        "evaluation.puzzles": 128,
        "evaluation.depths": (1, 4, 16),
        "evaluation.test_puzzles": 64,
    },
)
CLUES_WHY = (
    "9x9 Sudoku with 32 clues by the mixer that knows rows, columns and boxes, live candidates only, 4,000 "
    "steps: a minute or two of a core, so there can be many seeds; they lie a few points apart, and a few "
    "points are left to gain."
)

MAZE = Setting(
    recipe="maze-11x11",
    changes={
        "steps": 3000,
        "data.test": 500,
        "evaluation.every": 1000,
        "evaluation.puzzles": 128,
        "evaluation.test_puzzles": 100,
    },
)
MAZE_WHY = (
    "11x11 mazes with one path by the mixer that hears its neighbours, 3,000 steps: attention does not learn "
    "them on two cores."
)

PAPER_SUDOKU, PAPER_MAZE = Setting(recipe="paper/sudoku-eqr"), Setting(recipe="paper/maze-eqr")
PAPER_TRM = Setting(recipe="paper/sudoku-trm")

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
HEAD, SETTLED = "head", "head+stable:1"
"""Halting by the head alone, which is the paper's rule, and once the answer stands too, which is ours."""


def train_of(measurement: Solve) -> Solve:
    """Return the same measurement on training puzzles."""
    return measurement.replace(split="train")
