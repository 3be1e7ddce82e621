"""Table 6 and figure 7: the same number of layers as ever more iterations of ever fewer blocks."""

from eqr.experiments.bases import FEW, FEW_WHY, ONCE, PAPER_TRM, train_of
from eqr.experiments.experiment import Column, Experiment, Picture, Row
from eqr.experiments.looks import Curve


def iterated(name: str, blocks: int, iterations: int, paper_blocks: int, paper_iterations: int) -> Row:
    """Return a tied model of one segment: `blocks` distinct ones, applied `iterations` times."""
    sizes = "model.blocks={}", "model.recurrence.cycles=1", "model.recurrence.applications={}"
    return Row(
        name=name,
        variants=("02-weight-tied",),
        lab_changes=(sizes[0].format(blocks), sizes[1], sizes[2].format(iterations)),
        paper_changes=(sizes[0].format(paper_blocks), sizes[1], sizes[2].format(paper_iterations)),
        says={"tied": True, "states": 1, "schedule": "terminal-full", "segments": 1},
    )


FLAT = Row(name="feedforward", variants=("01-feedforward",), says={"tied": False, "segments": 1})
ITERATED = (
    iterated("2 iterations", 3, 2, 21, 2),
    iterated("3 iterations", 2, 3, 6, 7),
    iterated("6 iterations", 1, 6, 2, 21),
)
PRINTED = {"feedforward": (97.4, 6.2), "2 iterations": (96.7, 1.8), "3 iterations": (95.2, 3.6),
           "6 iterations": (67.4, 3.8)}  # fmt: skip
EVAL, TRAIN = "Eval error", "Train error"
SHARES = range(20, 101, 20)

EXPERIMENTS = (
    Experiment(
        item="T6",
        title="Training error at the best evaluation accuracy",
        question="At equal layers, do more iterations raise training error and lower held-out error?",
        lab=FEW,
        paper=PAPER_TRM,
        regime=f"{FEW_WHY} Six layers: 1x6, 2x3, 3x2 and 6x1 instead of 1x42, 2x21, 7x6 and 21x2.",
        rows=tuple(
            row.replace(published=dict(zip((EVAL, TRAIN), PRINTED[row.name], strict=True)))
            for row in (FLAT, *ITERATED)
        ),
        columns=(
            Column(name=EVAL, metric="error", look=ONCE),
            Column(name=TRAIN, metric="error", look=train_of(ONCE)),
        ),
        seeds=5,
        minutes=6,
    ),
    Experiment(
        item="F7",
        title="Iterative depth improves generalization under a matched budget",
        question="How do training and held-out accuracy move over training for each of these models?",
        lab=FEW,
        paper=PAPER_TRM,
        regime=f"{FEW_WHY} The runs of T6.",
        rows=(FLAT, *ITERATED),
        columns=(
            *(Column(name=f"Eval at {s}%", metric=f"validation at {s}%", look=Curve()) for s in SHARES),
            *(Column(name=f"Train at {s}%", metric=f"train at {s}%", look=Curve()) for s in SHARES),
            *(Column(name=f"Gap at {s}%", metric=f"gap at {s}%", look=Curve()) for s in SHARES),
        ),
        seeds=5,
        minutes=0.1,
        picture=Picture(
            kind="lines", x_label="share of the steps (%)", columns=tuple(f"Eval at {s}%" for s in SHARES)
        ),
        note="Columns are shares of the training steps. Train is the share of right rows in the batches "
        "since the log record before.",
    ),
)
