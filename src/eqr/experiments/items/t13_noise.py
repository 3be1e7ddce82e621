"""Tables 13 and 14: the scale of path noise, fixed and learned, and what either gains from depth."""

from eqr.experiments.bases import (
    CLUES,
    CLUES_WHY,
    DEEP,
    PAPER_SUDOKU,
    SUDOKU,
    SUDOKU_WHY,
    TRAINED,
    train_of,
)
from eqr.experiments.experiment import Column, Experiment, Picture, Row


def noisy(beta: float, evaluated: float, trained: float) -> Row:
    """Return a row of fixed noise."""
    return Row(
        name=f"beta={beta}",
        variants=("eqr",),
        changes=(f"model.path.noise={beta}",),
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
PRINTED = {
    "learned": (85.99, 89.99, 92.14, 93.75, 94.63, 95.61, 95.85),
    "beta=0.01": (84.28, 87.35, 90.77, 92.97, 94.63, 95.07, 96.09),
}

EXPERIMENTS = (
    Experiment(
        item="T13",
        title="Noise scale",
        question="Does accuracy depend on the scale of path noise, and is a learned one better?",
        lab=SUDOKU,
        paper=PAPER_SUDOKU,
        regime=f"{SUDOKU_WHY} {CLUES_WHY} Learned noise has no fast path: 9x9 has fixed scales only.",
        rows=ROWS,
        columns=(
            Column(name="Eval", look=TRAINED),
            Column(name="Train", look=train_of(TRAINED)),
            Column(name="Eval, 9x9", look=TRAINED, lab=CLUES),
        ),
        seeds=5,
        minutes=30,
    ),
    Experiment(
        item="T14",
        title="Learned against fixed noise over depth",
        question="Does learned noise win only when shallow, and fixed noise when deep?",
        lab=SUDOKU,
        paper=PAPER_SUDOKU,
        regime=f"{SUDOKU_WHY} Two models of T13, depth to 1,024 on 100 puzzles.",
        rows=tuple(
            row.replace(
                only=None,
                published={f"D={d}": value for d, value in zip(DEPTHS, PRINTED[row.name], strict=True)},
            )
            for row in (LEARNED, ROWS[0])
        ),
        columns=tuple(Column(name=f"D={d}", look=DEEP, at=(d, 1)) for d in DEPTHS),
        seeds=5,
        minutes=5,
        picture=Picture(kind="lines", x_label="depth D", log_x=True),
        note="The paper calls this number S and describes it as restarts; its entries are those of depth.",
    ),
)
