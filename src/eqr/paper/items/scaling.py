"""What depth, breadth and halting buy at test time (T4, T5, F1, F2, F5, F6)."""

from eqr.paper.experiment import Experiment, Picture, Row
from eqr.paper.items.regimes import (
    BROAD,
    HEAD,
    MAZE,
    NINE,
    NINE_BROAD,
    NINE_DEEP,
    NINE_FAR,
    SETTLED,
    SUDOKU,
    column,
    number,
    row,
)
from eqr.paper.measurement import Solve

ACC, NFE, SAVED, RESIDUAL, ERROR = "Accuracy", "NFE", "Times fewer", "Residual", "Error"
RANK, AUROC, REACH = "Rank correlation", "AUROC", "log2 NFE for 70%"

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
