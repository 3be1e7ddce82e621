"""What random starts and path noise do to the trained landscape (T3, T10 to T14, T16, F4, F10)."""

from eqr.paper.experiment import Experiment, Picture, Row
from eqr.paper.items.regimes import (
    CLUES,
    DEEP,
    HALF_LEARNED,
    MAZE,
    NINE,
    NINE_BROAD,
    SUDOKU,
    TRAINED,
    column,
    number,
    row,
    train_of,
)
from eqr.paper.measurement import Curve, Decoding, Modes, Solve

ACC = "Accuracy"

T3 = Experiment(
    item="T3",
    title="Learning favorable attractor landscapes",
    question="Do randomised starts (RI), and then path noise (NI), raise accuracy without more compute?",
    lab=SUDOKU,
    regime=f"{SUDOKU.why} {NINE.why} {CLUES.why} {MAZE.why}",
    rows=(
        row("baseline", "trm", published={"Sudoku": 84.8, "Maze": 44.9}),
        row("+ RI", "ri", published={"Sudoku": 86.0, "Maze": 68.6}),
        row("+ RI + NI (EqR)", published={"Sudoku": 86.4, "Maze": 82.2}),
    ),
    columns=(
        column("Sudoku", TRAINED, lab=SUDOKU, seeds=8),
        column("Sudoku 9x9", TRAINED, lab=NINE, seeds=5),
        column("Sudoku 9x9, 32 clues", TRAINED, lab=CLUES, seeds=8),
        column("Maze", TRAINED, lab=MAZE),
    ),
    note="Noise is each recipe's own: beta 0.01 as printed on Sudoku, 0.1 on mazes.",
    minutes=110,
)
SHARES = {60: "60% of the steps", 80: "80%", 100: "100%"}


def over_training(name: str, variant: str, *printed: float) -> Row:
    """Return a row with its three printed checkpoints."""
    return row(name, variant, published=dict(zip(SHARES.values(), printed, strict=True)))


T10 = Experiment(
    item="T10",
    title="Learnable initialization",
    question="Does a start predicted from the puzzle do better than a random one, or than none?",
    lab=CLUES,
    regime=f"{CLUES.why} Held-out accuracy at 60, 80 and 100% of the steps, for 30k, 40k and 50k.",
    rows=(
        over_training("TRM", "trm", 77.92, 82.65, 84.06),
        over_training("TRM + RI", "ri", 80.43, 84.20, 86.03),
        over_training("TRM + learnable start", "learned-start", 78.46, 82.59, 83.99),
    ),
    columns=tuple(
        column(name, Curve(), f"validation at {share}%", seeds=5) for share, name in SHARES.items()
    ),
    seeds=3,
    minutes=15,
    picture=Picture(kind="lines", x_label="share of the steps (%)"),
)
PRINTED_SCALES = {
    (0, 0): 84.06, (1, 0): 86.29, (0, 1): 86.25, (1, 1): 86.03, (1, 4): 86.83, (1, 8): 87.30, (1, 16): 86.85,
    (4, 1): 86.38, (8, 1): 86.08, (16, 1): 86.29,
}  # fmt: skip
"""By sigma_H and sigma_L."""

T11 = Experiment(
    item="T11",
    title="Scale of the random starts",
    question="Does accuracy depend on the standard deviations of the two random starts?",
    lab=CLUES,
    regime=CLUES.why,
    rows=tuple(
        row(
            f"sigma_H={high}, sigma_L={low}",
            "ri",
            changes={"model.start.answer": float(high), "model.start.scratch": float(low)},
            published={ACC: printed},
        )
        for (high, low), printed in PRINTED_SCALES.items()
    ),
    columns=(column(ACC, TRAINED, seeds=5),),
    seeds=3,
    minutes=70,
    note="A scale of 0 starts from zeros, as in the released code; the printed 0/0 is the fixed vector.",
)
STARTS = Solve(puzzles=100, depth=16, breadth=16)


def of_means(sudoku: float, maze: float) -> dict[str, float]:
    """Return the numbers that T12 prints for a row."""
    return {"Sudoku, of means": sudoku, "Maze, of means": maze}


T12 = Experiment(
    item="T12",
    title="Path independence",
    question="Do randomised starts, and noise, make the answer depend less on where a trajectory begins?",
    lab=CLUES,
    regime=f"{CLUES.why} {MAZE.why} The models of T3, D=16, 16 random starts.",
    rows=(
        row("TRM", "trm", start="random", published=of_means(3.58, 28.60)),
        row("+ RI", "ri", published=of_means(0.10, 3.73)),
        row("+ RI + NI", published=of_means(0.13, 1.33)),
    ),
    columns=tuple(
        column(f"{task}, {words}", measurement, f"path {words}", at=(16, 16), lab=lab)
        for task, measurement, lab in (("Sudoku", NINE_BROAD, CLUES), ("Maze", STARTS, MAZE))
        for words in ("per puzzle", "of means")
    ),
    minutes=25,
    note="Per puzzle is the paper's definition, E|Acc_B - Acc_1|; of means is the difference of the two "
    "accuracies, of which size the printed numbers are. Acc_1 of TRM is that of its own fixed start.",
)


def noisy(beta: float, evaluated: float, trained: float) -> Row:
    """Return a row of fixed noise."""
    return row(
        f"beta={beta}",
        "eqr",
        changes={"model.path.noise": beta},
        published={"Eval": evaluated, "Train": trained},
    )


LEARNED = row(
    "learned",
    "learned-noise",
    only=("Eval", "Train"),
    published={"Eval": 87.1, "Train": 85.3},
)
FIXED = noisy(0.01, 86.4, 84.7)
DEPTHS = (16, 32, 64, 128, 256, 512, 1024)
PRINTED_LEARNED = (85.99, 89.99, 92.14, 93.75, 94.63, 95.61, 95.85)
PRINTED_FIXED = (84.28, 87.35, 90.77, 92.97, 94.63, 95.07, 96.09)

T13 = Experiment(
    item="T13",
    title="Noise scale",
    question="Does accuracy depend on the scale of path noise, and is a learned one better?",
    lab=SUDOKU,
    regime=f"{SUDOKU.why} {CLUES.why} Learned noise has no fast path: 9x9 has fixed scales only.",
    rows=(FIXED, noisy(0.05, 85.9, 87.2), noisy(0.1, 86.3, 85.1), LEARNED),
    columns=(
        column("Eval", TRAINED),
        column("Train", train_of(TRAINED)),
        column("Eval, 9x9", TRAINED, lab=CLUES),
    ),
    minutes=30,
)
T14 = Experiment(
    item="T14",
    title="Learned against fixed noise over depth",
    question="Does learned noise win only when shallow, and fixed noise when deep?",
    lab=SUDOKU,
    regime=f"{SUDOKU.why} Two models of T13, depth to 1,024 on 100 puzzles.",
    rows=tuple(
        one.replace(only=None, published={f"D={d}": v for d, v in zip(DEPTHS, printed, strict=True)})
        for one, printed in ((LEARNED, PRINTED_LEARNED), (FIXED, PRINTED_FIXED))
    ),
    columns=tuple(column(f"D={d}", DEEP, at=(d, 1)) for d in DEPTHS),
    minutes=5,
    picture=Picture(kind="lines", x_label="depth D", log_x=True),
    note="The paper calls this number S and describes it as restarts; its entries are those of depth.",
)
T16 = Experiment(
    item="T16",
    title="Seed stability",
    question="Is the gain at equal budget stable over seeds?",
    lab=CLUES,
    regime=f"{CLUES.why} Beside it five seeds without a spare clue: {NINE.why} The runs of T3.",
    rows=(
        row("baseline", "trm", published={ACC: "84.33 ± 0.59"}),
        row("EqR", "eqr", published={ACC: "86.18 ± 0.44"}),
    ),
    columns=(
        column(ACC, TRAINED, digits=2, seeds=8),
        column("No spare clue", TRAINED, digits=2, lab=NINE, seeds=5),
    ),
    minutes=1,
    note="The printed spread is a standard deviation, ours half of a 95% interval of the mean.",
)
MODES = {
    "a": "(a) no correct attractor",
    "b": "(b) correct and spurious",
    "c": "(c) narrow correct basin",
    "d": "(d) well aligned",
}

F4 = Experiment(
    item="F4",
    title="Four attractor landscape modes",
    question="Which modes do puzzles have, and does the mode say whether depth or breadth helps?",
    lab=HALF_LEARNED,
    regime=f"{HALF_LEARNED.why} 64 starts of 64 puzzles to depth 32; gains are from D=8 to 32 and from "
    "one start to the best settled of 64.",
    rows=(row("EqR", "eqr"), row("TRM + RI", "ri")),
    columns=tuple(
        column(f"{name}: {metric}", Modes(), f"{metric} {letter}")
        for letter, name in MODES.items()
        for metric in ("share", "depth gain", "breadth gain")
    ),
    minutes=8,
    picture=Picture(kind="landscapes"),
    note="A gain is missing where no puzzle has the mode.",
)
F10 = Experiment(
    item="F10",
    title="A reasoning trajectory",
    question="Does a trajectory erase and retry, or fill cells one by one?",
    lab=HALF_LEARNED,
    regime=f"{HALF_LEARNED.why} The baseline on the first test puzzle, 32 segments.",
    rows=(row("TRM", "trm"),),
    columns=tuple(
        number(name.capitalize(), Decoding(), name)
        for name in ("segments with a change", "cells that change more than once")
    ),
    seeds=3,
    minutes=0.1,
    picture=Picture(kind="trajectory"),
)
