"""Systems, tasks, puzzles and hyper-parameters as published (T1, T15, T17 to T19, F3, F11 to F13)."""

from typing import Any

from eqr.paper.experiment import RATINGS, Experiment, Picture, Puzzles, Row, Setting, Shape, Solve, rated
from eqr.paper.items.regimes import (
    AMBIGUOUS,
    ATTENTIVE,
    ATTENTIVE_WHY,
    BROAD,
    HEAD,
    MAZE,
    NINE,
    NINE_FAR,
    ONCE,
    PAPER_MAZE,
    PAPER_SUDOKU,
    SUDOKU,
    TRAINED,
    column,
    number,
    row,
)

ACC, VOTE, TRIES = "Accuracy", "By vote of variants", "Two tries"


def on_both(sudoku: float, maze: float) -> dict[str, float]:
    """Return the numbers that T1 prints for a row."""
    return {"Sudoku": sudoku, "Maze": maze}


def feedforward(layers: int, paper_layers: int, sudoku: float) -> Row:
    """Return the row of a feedforward model of so many layers."""
    return row(
        f"{layers}-layer model",
        "01-feedforward",
        lab_changes={"model.blocks": layers},
        paper_changes={"model.blocks": paper_layers},
        measurement=ONCE,
        published=on_both(sudoku, 0.0),
    )


T1 = Experiment(
    item="T1",
    title="Weight-tied iteration is critical for generalization",
    question="Do models that iterate generalise where feedforward models of any depth do not?",
    lab=SUDOKU,
    regime=f"{SUDOKU.why} {MAZE.why} Feedforward models of 2, 6 and 12 layers stand for 4, 16 and 64; "
    "every system has the recipe's width and as many layers per segment as EqR. "
    f"{ATTENTIVE_WHY}",
    rows=(
        feedforward(2, 4, 1.8),
        feedforward(6, 16, 2.1),
        feedforward(12, 64, 2.6),
        row(
            "HRM",
            "hrm",
            lab_changes=ATTENTIVE,
            published=on_both(55.0, 0.3),
        ),
        row(
            "TRM",
            "trm",
            published=on_both(84.8, 44.9),
        ),
        row(
            "URM",
            "urm",
            lab_changes=ATTENTIVE,
            published=on_both(77.6, 51.4),
        ),
        row(
            "EqR",
            measurement=BROAD,
            metric="top",
            published=on_both(99.8, 93.0),
        ),
    ),
    columns=(
        column("Sudoku", TRAINED, lab=SUDOKU),
        column("Maze", TRAINED, lab=MAZE),
    ),
    minutes=100,
    note="EqR is run at D=64 from 32 starts, the lowest residual chosen; the others at D=16 from one, as "
    "printed. The 256-layer model of the paper ran out of memory and has no row.",
)
ARC_LAB = Setting(recipe="mini-arc", paper=Setting(recipe="mini-arc")).plus(
    {
        "steps": 10000,
        "rows": 32,
        "optimizer.rate": 0.002,
        "model.width": 64,
        "model.blocks": 1,
        "model.round_hidden_to": 32,
        "schedule.depth": 4,
        "data.validation": 64,
        "evaluation.every": 5000,
        "evaluation.puzzles": 64,
        "evaluation.depths": (1, 4),
        "evaluation.test_puzzles": 100,
    }
)
"""Four minutes of a core: half of the recipe's width, one block, and short trajectories, so that a step sees
more new pairs."""
ARC_TEST = Solve(puzzles=10_000, depth=16)
"""All variants of every puzzle, so that they can vote."""


def mini_arc(name: str, variant: str, printed: float) -> Row:
    """Return a Mini-ARC row."""
    return row(
        f"Mini-ARC, {name}",
        variant,
        lab=ARC_LAB,
        seeds=3,
        measurement=ARC_TEST,
        published={ACC: printed},
    )


def sudoku(mixer: str, trm: float, eqr: float, scaled: float) -> tuple[Row, ...]:
    """Return the three rows of a mixer on Sudoku."""
    lead, lab_changes = (("attention",), ATTENTIVE) if mixer == "attention" else ((), {})

    def arm(name: str, variant: str, printed: float, **more: Any) -> Row:
        shared = {"lab_changes": lab_changes, "only": (ACC,), "published": {ACC: printed}}
        return row(f"Sudoku ({mixer}), {name}", *lead, variant, **shared, **more)

    return (
        arm("baseline", "trm", trm),
        arm("+ training intervention", "eqr", eqr),
        arm("+ inference scaling", "eqr", scaled, measurement=BROAD, metric="top"),
    )


T15 = Experiment(
    item="T15",
    title="Generalization beyond the main setting",
    question="Do the interventions help on Mini-ARC, and with attention instead of the token mixer?",
    lab=SUDOKU,
    regime=f"{SUDOKU.why} {ATTENTIVE_WHY} Mini-ARC is the real one, imported with seven variants "
    "of each family to data/mini-arc (docs/data-guide.md): 4,224 pairs, 10,000 steps of 32 rows, "
    "width 64. That is a thousandth of the compute behind the printed numbers.",
    rows=(
        mini_arc("HRM", "hrm", 44.85),
        mini_arc("TRM", "trm", 48.35),
        mini_arc("EqR", "eqr", 55.28),
        *sudoku("tokens", 84.1, 86.4, 99.8),
        *sudoku("attention", 72.0, 74.7, 95.9),
    ),
    columns=(
        column(ACC, TRAINED),
        column(VOTE, ARC_TEST, "variants"),
        column(TRIES, ARC_TEST, "two tries"),
    ),
    minutes=90,
    note="The paper gives no protocol for Mini-ARC. Inference scaling is D=64 from 32 starts.",
)
WHOLE, SAMPLE = "Whole test set", "Sample of 100"

T17 = Experiment(
    item="T17",
    title="Test set and sample",
    question="Is a small sample of the test set as hard as the whole of it?",
    lab=SUDOKU,
    regime=f"{SUDOKU.why} 500 test puzzles stand for Sudoku-Extreme, a seeded sample of 100 for "
    f"Sudoku-Lite; beside it the first 100 of the file. {ATTENTIVE_WHY}",
    rows=(
        row("TRM", "trm", published={WHOLE: 84.1, SAMPLE: 82.0}),
        row(
            "HRM",
            "hrm",
            lab_changes=ATTENTIVE,
            published={WHOLE: 61.0, SAMPLE: 57.8},
        ),
        row("EqR", "eqr", published={WHOLE: 86.4, SAMPLE: 84.3}),
    ),
    columns=(
        column(WHOLE, TRAINED),
        column(SAMPLE, TRAINED.replace(puzzles=100)),
        column("First 100", TRAINED.replace(puzzles=100, first=True)),
    ),
    minutes=3,
)
COUNTS = {"data.train": 1000, "data.validation": 1, "data.test": 1000}


def generated(task: str) -> Setting:
    """Return a recipe that only has to name the task's generator."""
    return PAPER_MAZE.plus({"data.kind": "generated", "data.task": task, **COUNTS, "model.task": task})


T18 = Experiment(
    item="T18",
    title="Dataset statistics",
    question="Do the puzzles that we generate have the published sizes and path lengths?",
    lab=generated("maze-unique"),
    regime="Generated here at full size; nothing is trained.",
    rows=(
        row(
            "Maze-Unique",
            lab=generated("maze-unique"),
            published={"Train": 1000, "Test": 1000, "Side": 30, "Tokens": 6, "Mean path": 119.75},
        ),
        row("Maze-1k", lab=generated("maze-1k"), published={"Mean path": 113.79}),
        row(
            "Sudoku-Extreme",
            lab=Setting(recipe="sudoku-9x9", changes={"data.options": {}, **COUNTS}),
            only=("Train", "Test", "Side", "Tokens"),
            published={"Train": 1_001_000, "Test": 422_786, "Side": 9, "Tokens": 11},
        ),
    ),
    columns=(
        number("Train", Puzzles(), "train", 0),
        number("Test", Puzzles(), "test", 0),
        number("Side", Puzzles(), "rows", 0),
        number("Tokens", Puzzles(), "vocabulary", 0),
        number("Mean path", Puzzles(), "path length", 2),
        column("One shortest path", Puzzles(), "unique"),
    ),
    minutes=1,
    note="Sudoku rows are generated minimal puzzles; Sudoku-Extreme itself is imported "
    "(docs/data-guide.md), and its training set counts 1,000 variants of each of 1,000 puzzles. The "
    "published Maze-1k keeps only long paths; ours are as its generator draws them.",
)
SIZES = {
    "Blocks": "blocks",
    "Cycles": "cycles",
    "L-cycles": "scratch",
    "Outer loop": "segments",
    "Equivalent layers": "layers",
    "Hidden size": "width",
    "Parameters (M)": "parameters (M)",
    "Batch": "rows",
    "Steps": "steps",
}


def published(name: str, *printed: float | str) -> Row:
    """Return a system on a task by its published recipe."""
    system, task = name.split(", ")
    recipe = Setting(recipe=f"paper/{task}-{system}")
    return row(name, lab=recipe.replace(paper=recipe), published=dict(zip(SIZES, printed, strict=True)))


T19 = Experiment(
    item="T19",
    title="Hyper-parameters",
    question="Do our recipes have the published hyper-parameters?",
    lab=PAPER_SUDOKU,
    regime="Read off the recipes `paper/*`; nothing is trained.",
    rows=(
        published("trm, sudoku", 2, 3, 6, 16, 42, 512, 5.03, 768, 50_000),
        published("trm, maze", 1, 3, 4, 16, 15, 128, 2.64, 768, 100_000),
        published("hrm, sudoku", 4, 2, 2, 16, 12, 512, 27.28, 768, 50_000),
        published("hrm, maze", 1, 2, 2, 16, 6, 128, 5.26, 768, 100_000),
        published("urm, sudoku", 4, "12", "", 16, 24, 512, 13.67, 128, 50_000),
        published("urm, maze", 1, "12", "", 16, 12, 128, 2.65, 768, 100_000),
        published("eqr, sudoku", 2, 3, 6, 16, 42, 512, 5.03, 768, 50_000),
        published("eqr, maze", 1, 3, 4, 16, 15, 128, 2.64, 768, 100_000),
    ),
    columns=tuple(
        number(name, Shape(), metric, digits=3 if "(M)" in name else 0) for name, metric in SIZES.items()
    ),
    minutes=0.5,
    picture=Picture(kind="none"),
    note="URM's 12 are two cycles of six applications here. The printed parameter counts of mazes are "
    "ten times too large, the equivalent layers of HRM and URM on Sudoku half, and 5.03 M belongs to a "
    "mixer over 16 more tokens (docs/faithfulness.md).",
)
F3 = Experiment(
    item="F3",
    title="Datasets",
    question="What do the puzzles look like?",
    lab=SUDOKU,
    regime="Puzzles of the lab recipes; nothing is trained.",
    rows=tuple(row(name, lab=one.replace(paper=None)) for name, one in (("Sudoku", SUDOKU), ("Maze", MAZE))),
    columns=(number("Test puzzles", Puzzles(), "test", 0),),
    minutes=0.2,
    picture=Picture(kind="grids"),
)
DEEPER = BROAD.replace(breadth=1, puzzles=500)

F11 = Experiment(
    item="F11",
    title="Maze-1k and Maze-Unique",
    question="Does depth scaling break where a maze has several shortest paths but one label?",
    lab=MAZE,
    regime=f"{MAZE.why} The same recipe on mazes with one path and on open mazes with several.",
    rows=(
        row("Maze-1k", lab_changes=AMBIGUOUS, paper_changes={"data.path": "data/maze-1k"}),
        row("Maze-Unique"),
    ),
    columns=(
        column("D=16", DEEPER, at=(16, 1)),
        column("D=64", DEEPER, at=(64, 1)),
        column("Valid, D=64", DEEPER, "valid", at=(64, 1)),
        column("One shortest path", Puzzles(), "unique"),
    ),
    minutes=12,
    picture=Picture(kind="grids"),
    note="Valid counts every shortest path, the others only the labelled one.",
)
RATED = {f"rating {low}" + ("" if low == high else f"-{high or ''}"): (low, high) for low, high in RATINGS}
"""Ranges of ratings by the names of their columns."""

F12 = Experiment(
    item="F12",
    title="Distribution of difficulty ratings",
    question="How hard are the test puzzles for a search?",
    lab=NINE,
    regime="Generated 9x9 puzzles, 500 of each kind; ratings are backtracks of our own search.",
    rows=(
        row("32 clues", lab_changes={"data.train": 1, "data.options": {"clues": 32}}),
        row("without a spare clue", lab_changes={"data.train": 1}),
    ),
    columns=tuple(column(name, Puzzles(), rated("share", *bounds)) for name, bounds in RATED.items()),
    minutes=0.1,
)
AUROC, EASY = "Rating AUROC", "NFE of easy puzzles"
SOLVED = row("D=16", "eqr", measurement=NINE_FAR, at=(16, 1), only=tuple(RATED))

F13 = Experiment(
    item="F13",
    title="Accuracy against difficulty rating",
    question="Does a search's rating predict what the model solves, and are easy ones done early?",
    lab=NINE,
    regime=f"{NINE.why} 300 test puzzles.",
    rows=(
        SOLVED,
        SOLVED.replace(name="D=64", at=(64, 1)),
        SOLVED.replace(name="over puzzles, D=16", only=(AUROC,)),
        SOLVED.replace(
            name="halted by the head", measurement=NINE_FAR.replace(halt=HEAD), at=(64, 1), only=(EASY,)
        ),
    ),
    columns=(
        *(column(name, metric=rated("exact", *bounds)) for name, bounds in RATED.items()),
        number(AUROC, Solve(), "rating auroc", 2),
        number(EASY, Solve(), rated("nfe", *RATINGS[0])),
    ),
    minutes=1,
    picture=Picture(columns=tuple(RATED)),
    note="Rating AUROC: how often a puzzle that is solved has a lower rating than one that is not. Easy "
    "puzzles are those a search solves without a backtrack.",
)
