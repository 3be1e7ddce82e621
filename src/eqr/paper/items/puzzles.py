"""Puzzles: what they look like, how hard they are, and samples of them (F3, F11 to F13, T17, T18)."""

from eqr.paper.experiment import Column, Experiment, Picture, Row, Setting
from eqr.paper.items.regimes import (
    ATTENTIVE,
    ATTENTIVE_WHY,
    BROAD,
    HEAD,
    MAZE,
    MAZE_WHY,
    NINE,
    NINE_FAR,
    NINE_WHY,
    PAPER_MAZE,
    PAPER_SUDOKU,
    SUDOKU,
    SUDOKU_WHY,
    TRAINED,
)
from eqr.paper.measurement import RATINGS, Puzzles, rated

AMBIGUOUS = {"data.task": "maze-1k-11x11", "model.task": "maze-1k-11x11"}
DEEPER = BROAD.replace(breadth=1, puzzles=500)


F3 = Experiment(
    item="F3",
    title="Datasets",
    question="What do the puzzles look like?",
    lab=SUDOKU,
    regime="Puzzles of the lab recipes; nothing is trained.",
    rows=(Row(name="Sudoku", lab=SUDOKU), Row(name="Maze", lab=MAZE)),
    columns=(Column(name="Test puzzles", metric="test", measurement=Puzzles(), percent=False, digits=0),),
    minutes=0.2,
    picture=Picture(kind="grids"),
)


F11 = Experiment(
    item="F11",
    title="Maze-1k and Maze-Unique",
    question="Does depth scaling break where a maze has several shortest paths but one label?",
    lab=MAZE,
    paper=PAPER_MAZE,
    regime=f"{MAZE_WHY} The same recipe on mazes with one path and on open mazes with several.",
    rows=(
        Row(name="Maze-1k", lab_changes=AMBIGUOUS, paper_changes={"data.path": "data/maze-1k"}),
        Row(name="Maze-Unique"),
    ),
    columns=(
        Column(name="D=16", measurement=DEEPER, at=(16, 1)),
        Column(name="D=64", measurement=DEEPER, at=(64, 1)),
        Column(name="Valid, D=64", metric="valid", measurement=DEEPER, at=(64, 1)),
        Column(name="One shortest path", metric="unique", measurement=Puzzles()),
    ),
    seeds=5,
    minutes=12,
    picture=Picture(kind="grids"),
    note="Valid counts every shortest path, the others only the labelled one.",
)
EQR = {"RI": True, "NI": True}
AUROC, EASY = "Rating AUROC", "NFE of easy puzzles"
NAMES = {(low, high): str(low) if low == high else f"{low}-{high or ''}" for low, high in RATINGS}
HALTED = NINE_FAR.replace(halt=HEAD)


F12 = Experiment(
    item="F12",
    title="Distribution of difficulty ratings",
    question="How hard are the test puzzles for a search?",
    lab=NINE,
    paper=PAPER_SUDOKU,
    regime="Generated 9x9 puzzles, 500 of each kind; ratings are backtracks of our own search.",
    rows=(
        Row(name="32 clues", lab_changes={"data.train": 1, "data.options": {"clues": 32}}),
        Row(name="without a spare clue", lab_changes={"data.train": 1}),
    ),
    columns=tuple(
        Column(name=f"rating {NAMES[bounds]}", metric=rated("share", *bounds), measurement=Puzzles())
        for bounds in RATINGS
    ),
    minutes=0.1,
)


F13 = Experiment(
    item="F13",
    title="Accuracy against difficulty rating",
    question="Does a search's rating predict what the model solves, and are easy ones done early?",
    lab=NINE,
    paper=PAPER_SUDOKU,
    regime=f"{NINE_WHY} 300 test puzzles.",
    rows=(
        *(
            Row(
                name=f"D={depth}",
                variants=("eqr",),
                measurement=NINE_FAR,
                at=(depth, 1),
                says=EQR,
                only=tuple(f"rating {name}" for name in NAMES.values()),
            )
            for depth in (16, 64)
        ),
        Row(
            name="over puzzles, D=16",
            variants=("eqr",),
            measurement=NINE_FAR,
            at=(16, 1),
            says=EQR,
            only=(AUROC,),
        ),
        Row(
            name="halted by the head",
            variants=("eqr",),
            measurement=HALTED,
            at=(64, 1),
            says=EQR,
            only=(EASY,),
        ),
    ),
    columns=(
        *(Column(name=f"rating {NAMES[b]}", metric=rated("exact", *b)) for b in RATINGS),
        Column(name=AUROC, metric="rating auroc", percent=False, digits=2),
        Column(name=EASY, metric=rated("nfe", *RATINGS[0]), percent=False),
    ),
    seeds=5,
    minutes=1,
    picture=Picture(columns=tuple(f"rating {name}" for name in NAMES.values())),
    note="Rating AUROC: how often a puzzle that is solved has a lower rating than one that is not. Easy "
    "puzzles are those a search solves without a backtrack.",
)
WHOLE, SAMPLE, FIRST = "Whole test set", "Sample of 100", "First 100"


T17 = Experiment(
    item="T17",
    title="Test set and sample",
    question="Is a small sample of the test set as hard as the whole of it?",
    lab=SUDOKU,
    paper=PAPER_SUDOKU,
    regime=f"{SUDOKU_WHY} 500 test puzzles stand for Sudoku-Extreme, a seeded sample of 100 for "
    f"Sudoku-Lite; beside it the first 100 of the file. {ATTENTIVE_WHY}",
    rows=(
        Row(name="TRM", variants=("trm",), says={"RI": False}, published={WHOLE: 84.1, SAMPLE: 82.0}),
        Row(
            name="HRM",
            variants=("hrm",),
            lab_changes=ATTENTIVE,
            says={"separate stacks": True},
            published={WHOLE: 61.0, SAMPLE: 57.8},
        ),
        Row(name="EqR", variants=("eqr",), says={"RI": True}, published={WHOLE: 86.4, SAMPLE: 84.3}),
    ),
    columns=(
        Column(name=WHOLE, measurement=TRAINED),
        Column(name=SAMPLE, measurement=TRAINED.replace(puzzles=100)),
        Column(name=FIRST, measurement=TRAINED.replace(puzzles=100, first=True)),
    ),
    seeds=5,
    minutes=3,
)
MAZES = Setting(recipe="paper/maze-eqr")
COUNTS = {"data.train": 1000, "data.validation": 1, "data.test": 1000}


def generated(task: str) -> Setting:
    """Return a recipe that only has to name the task's generator."""
    return MAZES.plus({"data.kind": "generated", "data.task": task, **COUNTS, "model.task": task})


T18 = Experiment(
    item="T18",
    title="Dataset statistics",
    question="Do the puzzles that we generate have the published sizes and path lengths?",
    lab=generated("maze-unique"),
    regime="Generated here at full size; nothing is trained.",
    rows=(
        Row(
            name="Maze-Unique",
            lab=generated("maze-unique"),
            published={"Train": 1000, "Test": 1000, "Side": 30, "Tokens": 6, "Mean path": 119.75},
        ),
        Row(name="Maze-1k", lab=generated("maze-1k"), published={"Mean path": 113.79}),
        Row(
            name="Sudoku-Extreme",
            lab=Setting(recipe="sudoku-9x9", changes={"data.options": {}, **COUNTS}),
            only=("Train", "Test", "Side", "Tokens"),
            published={"Train": 1_001_000, "Test": 422_786, "Side": 9, "Tokens": 11},
        ),
    ),
    columns=(
        Column(name="Train", metric="train", measurement=Puzzles(), percent=False, digits=0),
        Column(name="Test", metric="test", measurement=Puzzles(), percent=False, digits=0),
        Column(name="Side", metric="rows", measurement=Puzzles(), percent=False, digits=0),
        Column(name="Tokens", metric="vocabulary", measurement=Puzzles(), percent=False, digits=0),
        Column(name="Mean path", metric="path length", measurement=Puzzles(), percent=False, digits=2),
        Column(name="One shortest path", metric="unique", measurement=Puzzles()),
    ),
    minutes=1,
    note="Sudoku rows are generated minimal puzzles; Sudoku-Extreme itself is imported "
    "(docs/data-guide.md), and its training set counts 1,000 variants of each of 1,000 puzzles. The "
    "published Maze-1k keeps only long paths; ours are as its generator draws them.",
)
