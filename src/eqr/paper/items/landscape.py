"""What starts and noise do to the trained landscape, and what depth, breadth and halting then buy.

T3 to T5, T10 to T14, T16, F1, F2, F4 to F6 and F10.
"""

from eqr.paper.experiment import Curve, Decoding, Experiment, Modes, Picture, Row, Solve
from eqr.paper.items.regimes import (
    BROAD,
    CLUES,
    DEEP,
    HALF_LEARNED,
    HEAD,
    MAZE,
    NINE,
    NINE_BROAD,
    NINE_DEEP,
    NINE_FAR,
    SETTLED,
    SUDOKU,
    TRAINED,
    column,
    number,
    row,
    train_of,
)

ACC, NFE, SAVED, RESIDUAL, ERROR = "Accuracy", "NFE", "Times fewer", "Residual", "Error"
RANK, AUROC, REACH = "Rank correlation", "AUROC", "log2 NFE for 70%"

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
FAR = (16, 32, 64, 128, 256, 512, 1024)
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
        one.replace(only=None, published={f"D={d}": v for d, v in zip(FAR, printed, strict=True)})
        for one, printed in ((LEARNED, PRINTED_LEARNED), (FIXED, PRINTED_FIXED))
    ),
    columns=tuple(column(f"D={d}", DEEP, at=(d, 1)) for d in FAR),
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

T4 = Experiment(
    item="T4",
    title="Test-time compute scaling",
    question="Does a trained EqR gain from four times its depth, and more from many starts?",
    lab=SUDOKU,
    regime=f"{SUDOKU.why} {NINE.why} {MAZE.why} 100 puzzles and 32 starts for 128; 64 and 16 on 9x9.",
    rows=(
        row("EqR, D=16, B=1", at=(16, 1), published={"Sudoku": 86.4, "Maze": 82.2}),
        row("+ depth, D=64, B=1", at=(64, 1), published={"Sudoku": 93.0, "Maze": 88.9}),
        row("+ breadth, D=64", at=(64, 32), metric="top", published={"Sudoku": 99.8, "Maze": 93.0}),
    ),
    columns=(
        column("Sudoku", BROAD, lab=SUDOKU),
        column("Sudoku 9x9", NINE_BROAD, lab=NINE, seeds=5),
        column("Maze", BROAD, lab=MAZE),
    ),
    minutes=20,
    note="The printed breadth is 128. One start is the mean over all of them.",
)


def halted(depth: int, whole: Solve, off: float, on: float, nfe: float) -> tuple[Row, ...]:
    """Return a budget without halting, halted by the head, and halted once the answer stands too."""
    one = row(
        f"D={depth}, B=1",
        "eqr",
        measurement=whole,
        at=(depth, 1),
        published={ACC: off, NFE: float(depth)},
    )
    head, settled = (whole.replace(halt=rule) for rule in (HEAD, SETTLED))
    return (
        one,
        one.replace(name=f"{one.name}, head", measurement=head, published={ACC: on, NFE: nfe}),
        one.replace(name=f"{one.name}, head and answer", measurement=settled, published={}),
    )


T5 = Experiment(
    item="T5",
    title="EqR with adaptive computation time",
    question="Does the halting head save most of the segments at no more than a point of accuracy?",
    lab=NINE,
    regime=f"{NINE.why} Depth to 1,024 on 64 puzzles, the rest on 300.",
    rows=(
        *halted(16, NINE_FAR, 84.3, 84.0, 5.4),
        *halted(64, NINE_FAR, 90.9, 90.1, 10.9),
        *halted(256, NINE_DEEP, 94.6, 93.7, 23.8),
        *halted(1024, NINE_DEEP, 96.1, 95.3, 58.7),
    ),
    columns=(column(ACC), number(NFE, Solve(), "nfe"), number(SAVED, Solve(), "saving")),
    minutes=50,
    picture=Picture(columns=(ACC, SAVED)),
    note="`head` is the paper's rule; `head and answer` (`--halt head+stable:1`) also asks that the "
    "decoded answer did not change in the last segment.",
)
F1 = Experiment(
    item="F1",
    title="Accuracy against residual",
    question="Does accuracy rise far beyond the trained depth while the residual falls?",
    lab=NINE,
    regime=f"{NINE.why} Trained to depth 16, run to 1,024 on 64 puzzles.",
    rows=tuple(row(f"D={2**n}", "eqr", at=(2**n, 1)) for n in range(11)),
    columns=(column(ACC, NINE_DEEP), number(RESIDUAL, NINE_DEEP, "residual", 4)),
    minutes=0.1,
    picture=Picture(kind="points", x=RESIDUAL, y=ACC, log_x=True, x_label="residual (lower: more settled)"),
)
DEPTHS, BREADTHS = (1, 2, 4, 8, 16, 32, 64), (1, 2, 4, 8, 16)

F2 = Experiment(
    item="F2",
    title="Residual and error over depth and breadth",
    question="Do residual and error fall together, and does breadth need some depth to pay?",
    lab=NINE,
    regime=f"{NINE.why} 64 puzzles, to depth 64 and 16 starts; the run of T4.",
    rows=(
        *(row(f"D={d}, B={b}", "eqr", at=(d, b), only=(ERROR, RESIDUAL)) for d in DEPTHS for b in BREADTHS),
        row("over all budgets", "eqr", at=(64, 16), only=(RANK,)),
        row("over starts, D=16", "eqr", at=(16, 1), only=(AUROC,)),
        row("over starts, D=64", "eqr", at=(64, 1), only=(AUROC,)),
    ),
    columns=(
        number(RESIDUAL, NINE_BROAD, "chosen residual", 3),
        column(ERROR, NINE_BROAD, "top error"),
        number(RANK, NINE_BROAD, "tracking", 2),
        number(AUROC, NINE_BROAD, "auroc", 2),
    ),
    minutes=14,
    picture=Picture(kind="heat", columns=(RESIDUAL, ERROR)),
    note="Rank correlation of residual and error over the budgets; AUROC: how often a right start has "
    "settled better than a wrong one.",
)


def method(name: str, variant: str, measurement: Solve) -> tuple[Row, ...]:
    """Return a row for each depth and one for the cost of a target."""
    one = row(name, variant, measurement=measurement, series=name)
    return (
        *(one.replace(name=f"{name}, D={depth}", at=(depth, 1), only=(ACC, NFE)) for depth in DEPTHS),
        one.replace(only=(REACH,)),
    )


F5 = Experiment(
    item="F5",
    title="Depth-scaling efficiency",
    question="Does EqR reach an accuracy with fewer segments than the baseline, and halted still fewer?",
    lab=NINE,
    regime=f"{NINE.why} The target is 70% instead of the printed 92.99%.",
    rows=(
        *method("baseline", "trm", NINE_FAR),
        *method("EqR", "eqr", NINE_FAR),
        *method("EqR + ACT", "eqr", NINE_FAR.replace(halt=HEAD)),
    ),
    columns=(column(ACC), number(NFE, Solve(), "nfe"), number(REACH, Solve(), "log2 nfe for 70%", 2)),
    minutes=3,
    picture=Picture(kind="points", x=NFE, y=ACC, log_x=True, x_label="NFE: mean segments per puzzle"),
    note="One unit of log2 is a factor of two; the printed 3.76 and 11.34 times are 1.91 and 3.50. "
    "The target's cost is read off the curve, by linear interpolation in log2 of the NFE.",
)


def rules(one: Row) -> tuple[Row, Row]:
    """Return a model's two selection rules."""
    return (
        one.replace(name=f"{one.name}, Top-1 converged", metric="top"),
        one.replace(name=f"{one.name}, majority", metric="vote"),
    )


F6 = Experiment(
    item="F6",
    title="Breadth-scaling efficiency of aggregation rules",
    question="Does the best settled start beat the majority once the landscape is shaped?",
    lab=NINE,
    regime=f"{NINE.why} The models of T3 at D=16; TRM from random starts, which it was not trained on. "
    "Judged at B=4: with 16 starts either rule solves nearly everything.",
    rows=(
        *rules(row("TRM", "trm", start="random")),
        *rules(row("TRM + RI", "ri")),
        *rules(row("EqR", "eqr")),
    ),
    columns=tuple(column(f"B={b}", NINE_BROAD, at=(16, b)) for b in BREADTHS),
    minutes=45,
    picture=Picture(kind="lines", x_label="breadth B", log_x=True),
)
