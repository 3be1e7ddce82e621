"""What random starts and path noise do to the trained landscape (T3, T10 to T14, T16, F4, F10)."""

from eqr.paper.experiment import Column, Experiment, Picture, Row
from eqr.paper.items.regimes import (
    CLUES,
    CLUES_WHY,
    DEEP,
    HALF_LEARNED,
    HALF_LEARNED_WHY,
    MAZE,
    MAZE_WHY,
    NINE,
    NINE_BROAD,
    NINE_WHY,
    PAPER_MAZE,
    PAPER_SUDOKU,
    SUDOKU,
    SUDOKU_WHY,
    TRAINED,
    train_of,
)
from eqr.paper.measurement import Curve, Decoding, Modes, Solve

T3 = Experiment(
    item="T3",
    title="Learning favorable attractor landscapes",
    question="Do randomised starts (RI), and then path noise (NI), raise accuracy without more compute?",
    lab=SUDOKU,
    regime=f"{SUDOKU_WHY} {NINE_WHY} {CLUES_WHY} {MAZE_WHY}",
    rows=(
        Row(
            name="baseline",
            variants=("trm",),
            says={"RI": False, "NI": False, "states": 2, "halting": "learned"},
            published={"Sudoku": 84.8, "Maze": 44.9},
        ),
        Row(
            name="+ RI",
            variants=("ri",),
            says={"RI": True, "NI": False, "states": 2, "halting": "learned"},
            published={"Sudoku": 86.0, "Maze": 68.6},
        ),
        Row(
            name="+ RI + NI (EqR)",
            says={"RI": True, "NI": True, "states": 2, "halting": "learned"},
            published={"Sudoku": 86.4, "Maze": 82.2},
        ),
    ),
    columns=(
        Column(name="Sudoku", measurement=TRAINED, lab=SUDOKU, paper=PAPER_SUDOKU, seeds=8),
        Column(name="Sudoku 9x9", measurement=TRAINED, lab=NINE, paper=PAPER_SUDOKU, seeds=5),
        Column(name="Sudoku 9x9, 32 clues", measurement=TRAINED, lab=CLUES, paper=PAPER_SUDOKU, seeds=8),
        Column(name="Maze", measurement=TRAINED, lab=MAZE, paper=PAPER_MAZE),
    ),
    note="Noise is each recipe's own: beta 0.01 as printed on Sudoku, 0.1 on mazes.",
    seeds=5,
    minutes=110,
)
SHARES = {60: "60% of the steps", 80: "80%", 100: "100%"}


def row(name: str, variant: str, printed: tuple[float, float, float], *, ri: bool, learned: bool) -> Row:
    """Return a row with its three printed checkpoints."""
    return Row(
        name=name,
        variants=(variant,),
        says={"RI": ri, "learned start": learned, "NI": False},
        published=dict(zip(SHARES.values(), printed, strict=True)),
    )


T10 = Experiment(
    item="T10",
    title="Learnable initialization",
    question="Does a start predicted from the puzzle do better than a random one, or than none?",
    lab=CLUES,
    paper=PAPER_SUDOKU,
    regime=f"{CLUES_WHY} Held-out accuracy at 60, 80 and 100% of the steps, for 30k, 40k and 50k.",
    rows=(
        row("TRM", "trm", (77.92, 82.65, 84.06), ri=False, learned=False),
        row("TRM + RI", "ri", (80.43, 84.20, 86.03), ri=True, learned=False),
        row("TRM + learnable start", "learned-start", (78.46, 82.59, 83.99), ri=False, learned=True),
    ),
    columns=tuple(
        Column(name=name, metric=f"validation at {share}%", measurement=Curve(), seeds=5)
        for share, name in SHARES.items()
    ),
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
    paper=PAPER_SUDOKU,
    regime=CLUES_WHY,
    rows=tuple(
        Row(
            name=f"sigma_H={high}, sigma_L={low}",
            variants=("ri",),
            changes={"model.start.answer": float(high), "model.start.scratch": float(low)},
            says={"sigma_H": float(high), "sigma_L": float(low), "NI": False},
            published={"Accuracy": printed},
        )
        for (high, low), printed in PRINTED_SCALES.items()
    ),
    columns=(Column(name="Accuracy", measurement=TRAINED, seeds=5),),
    minutes=70,
    note="A scale of 0 starts from zeros, as in the released code; the printed 0/0 is the fixed vector.",
)
AT = (16, 16)
STARTS = Solve(puzzles=100, depth=16, breadth=16)


T12 = Experiment(
    item="T12",
    title="Path independence",
    question="Do randomised starts, and noise, make the answer depend less on where a trajectory begins?",
    lab=CLUES,
    regime=f"{CLUES_WHY} {MAZE_WHY} The models of T3, D=16, 16 random starts.",
    rows=(
        Row(
            name="TRM",
            variants=("trm",),
            start="random",
            says={"RI": False, "NI": False},
            published={"Sudoku, of means": 3.58, "Maze, of means": 28.60},
        ),
        Row(
            name="+ RI",
            variants=("ri",),
            says={"RI": True, "NI": False},
            published={"Sudoku, of means": 0.10, "Maze, of means": 3.73},
        ),
        Row(
            name="+ RI + NI",
            says={"RI": True, "NI": True},
            published={"Sudoku, of means": 0.13, "Maze, of means": 1.33},
        ),
    ),
    columns=tuple(
        Column(name=f"{task}, {words}", metric=metric, measurement=measurement, at=AT, lab=lab, paper=paper)
        for task, measurement, lab, paper in (
            ("Sudoku", NINE_BROAD, CLUES, PAPER_SUDOKU),
            ("Maze", STARTS, MAZE, PAPER_MAZE),
        )
        for words, metric in (("per puzzle", "path per puzzle"), ("of means", "path of means"))
    ),
    seeds=5,
    minutes=25,
    note="Per puzzle is the paper's definition, E|Acc_B - Acc_1|; of means is the difference of the two "
    "accuracies, of which size the printed numbers are. Acc_1 of TRM is that of its own fixed start.",
)


def noisy(beta: float, evaluated: float, trained: float) -> Row:
    """Return a row of fixed noise."""
    return Row(
        name=f"beta={beta}",
        variants=("eqr",),
        changes={"model.path.noise": beta},
        says={"RI": True, "beta": beta, "learned noise": False},
        published={"Eval": evaluated, "Train": trained},
    )


LEARNED = Row(
    name="learned",
    variants=("learned-noise",),
    says={"RI": True, "NI": True, "learned noise": True},
    only=("Eval", "Train"),
    published={"Eval": 87.1, "Train": 85.3},
)
ROWS = (noisy(0.01, 86.4, 84.7), noisy(0.05, 85.9, 87.2), noisy(0.1, 86.3, 85.1), LEARNED)
DEPTHS = (16, 32, 64, 128, 256, 512, 1024)
PRINTED_NOISE = {
    "learned": (85.99, 89.99, 92.14, 93.75, 94.63, 95.61, 95.85),
    "beta=0.01": (84.28, 87.35, 90.77, 92.97, 94.63, 95.07, 96.09),
}


T13 = Experiment(
    item="T13",
    title="Noise scale",
    question="Does accuracy depend on the scale of path noise, and is a learned one better?",
    lab=SUDOKU,
    paper=PAPER_SUDOKU,
    regime=f"{SUDOKU_WHY} {CLUES_WHY} Learned noise has no fast path: 9x9 has fixed scales only.",
    rows=ROWS,
    columns=(
        Column(name="Eval", measurement=TRAINED),
        Column(name="Train", measurement=train_of(TRAINED)),
        Column(name="Eval, 9x9", measurement=TRAINED, lab=CLUES),
    ),
    seeds=5,
    minutes=30,
)


T14 = Experiment(
    item="T14",
    title="Learned against fixed noise over depth",
    question="Does learned noise win only when shallow, and fixed noise when deep?",
    lab=SUDOKU,
    paper=PAPER_SUDOKU,
    regime=f"{SUDOKU_WHY} Two models of T13, depth to 1,024 on 100 puzzles.",
    rows=tuple(
        row.replace(
            only=None,
            published={f"D={d}": value for d, value in zip(DEPTHS, PRINTED_NOISE[row.name], strict=True)},
        )
        for row in (LEARNED, ROWS[0])
    ),
    columns=tuple(Column(name=f"D={d}", measurement=DEEP, at=(d, 1)) for d in DEPTHS),
    seeds=5,
    minutes=5,
    picture=Picture(kind="lines", x_label="depth D", log_x=True),
    note="The paper calls this number S and describes it as restarts; its entries are those of depth.",
)


T16 = Experiment(
    item="T16",
    title="Seed stability",
    question="Is the gain at equal budget stable over seeds?",
    lab=CLUES,
    paper=PAPER_SUDOKU,
    regime=f"{CLUES_WHY} Beside it five seeds without a spare clue: {NINE_WHY} The runs of T3.",
    rows=(
        Row(
            name="baseline",
            variants=("trm",),
            says={"RI": False, "NI": False},
            published={"Accuracy": "84.33 ± 0.59"},
        ),
        Row(
            name="EqR",
            variants=("eqr",),
            says={"RI": True, "NI": True},
            published={"Accuracy": "86.18 ± 0.44"},
        ),
    ),
    columns=(
        Column(name="Accuracy", measurement=TRAINED, digits=2, seeds=8),
        Column(name="No spare clue", measurement=TRAINED, digits=2, lab=NINE, seeds=5),
    ),
    seeds=5,
    minutes=1,
    note="The printed spread is a standard deviation, ours half of a 95% interval of the mean.",
)
MANY_STARTS = Modes(puzzles=64, starts=64, depth=32)
MODES = {
    "a": "(a) no correct attractor",
    "b": "(b) correct and spurious",
    "c": "(c) narrow correct basin",
    "d": "(d) well aligned",
}


def columns(letter: str, name: str) -> tuple[Column, ...]:
    """Return a mode's share of puzzles and what breadth buys there beyond depth."""
    return (
        Column(name=f"{name}: share", metric=f"share {letter}", measurement=MANY_STARTS),
        Column(name=f"{name}: depth gain", metric=f"depth gain {letter}", measurement=MANY_STARTS),
        Column(name=f"{name}: breadth gain", metric=f"breadth gain {letter}", measurement=MANY_STARTS),
    )


F4 = Experiment(
    item="F4",
    title="Four attractor landscape modes",
    question="Which modes do puzzles have, and does the mode say whether depth or breadth helps?",
    lab=HALF_LEARNED,
    paper=PAPER_SUDOKU,
    regime=f"{HALF_LEARNED_WHY} 64 starts of 64 puzzles to depth 32; gains are from D=8 to 32 and from "
    "one start to the best settled of 64.",
    rows=(
        Row(name="EqR", variants=("eqr",), says={"RI": True, "NI": True}),
        Row(name="TRM + RI", variants=("ri",), says={"RI": True, "NI": False}),
    ),
    columns=tuple(column for letter, name in MODES.items() for column in columns(letter, name)),
    seeds=5,
    minutes=8,
    picture=Picture(kind="landscapes"),
    note="A gain is missing where no puzzle has the mode.",
)
DECODED = Decoding(depth=32)
METRICS = ("segments with a change", "cells that change more than once")


F10 = Experiment(
    item="F10",
    title="A reasoning trajectory",
    question="Does a trajectory erase and retry, or fill cells one by one?",
    lab=HALF_LEARNED,
    paper=PAPER_SUDOKU,
    regime=f"{HALF_LEARNED_WHY} The baseline on the first test puzzle, 32 segments.",
    rows=(Row(name="TRM", variants=("trm",), says={"RI": False, "NI": False}),),
    columns=tuple(
        Column(name=name.capitalize(), metric=name, measurement=DECODED, percent=False) for name in METRICS
    ),
    minutes=0.1,
    picture=Picture(kind="trajectory"),
)
