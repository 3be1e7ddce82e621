"""Tables 13 and 14: the scale of path noise, fixed and learned, and what either gains from depth."""

from eqr.experiments.bases import NINE_DEEP, NINE_SHORT, NINE_SHORT_WHY, PAPER_SUDOKU, TRAINED, train_of
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
        lab=NINE_SHORT,
        paper=PAPER_SUDOKU,
        regime=NINE_SHORT_WHY,
        rows=ROWS,
        columns=(Column(name="Eval", look=TRAINED), Column(name="Train", look=train_of(TRAINED))),
        minutes=15,
    ),
    Experiment(
        item="T14",
        title="Learned against fixed noise over depth",
        question="Does learned noise win only when shallow, and fixed noise when deep?",
        lab=NINE_SHORT,
        paper=PAPER_SUDOKU,
        regime=f"{NINE_SHORT_WHY} Two models of T13, depth to 1,024 on 64 puzzles.",
        rows=tuple(
            row.replace(
                published={f"D={d}": value for d, value in zip(DEPTHS, PRINTED[row.name], strict=True)}
            )
            for row in (LEARNED, ROWS[0])
        ),
        columns=tuple(Column(name=f"D={d}", look=NINE_DEEP, at=(d, 1)) for d in DEPTHS),
        minutes=5,
        picture=Picture(kind="lines", x_label="depth D", log_x=True),
        note="The paper calls this number S and describes it as restarts; its entries are those of depth.",
    ),
)
