"""Table 5: halting at test time, by the head alone as in the paper and by our stricter rule."""

from eqr.experiments.bases import HEAD, NINE, NINE_DEEP, NINE_FAR, NINE_WHY, PAPER_SUDOKU, SETTLED
from eqr.experiments.experiment import Column, Experiment, Picture, Row
from eqr.experiments.looks import Solve

ACC, NFE, SAVED = "Accuracy", "NFE", "Times fewer"
PRINTED = {
    (16, 1): (84.3, 84.0, 5.4),
    (64, 1): (90.9, 90.1, 10.9),
    (256, 1): (94.6, 93.7, 23.8),
    (1024, 1): (96.1, 95.3, 58.7),
}


def rows(depth: int, whole: Solve) -> tuple[Row, ...]:
    """Return a budget without halting, halted by the head, and halted once the answer stands too."""
    off, on, nfe = PRINTED[depth, 1]
    row = Row(
        name=f"D={depth}, B=1",
        variants=("eqr",),
        look=whole,
        at=(depth, 1),
        says={"RI": True, "NI": True, "halting": "learned"},
        published={ACC: off, NFE: float(depth)},
    )
    return (
        row,
        row.replace(name=f"{row.name}, head", look=whole.replace(halt=HEAD), published={ACC: on, NFE: nfe}),
        row.replace(name=f"{row.name}, head and answer", look=whole.replace(halt=SETTLED), published={}),
    )


EXPERIMENTS = (
    Experiment(
        item="T5",
        title="EqR with adaptive computation time",
        question="Does the halting head save most of the segments at no more than a point of accuracy?",
        lab=NINE,
        paper=PAPER_SUDOKU,
        regime=f"{NINE_WHY} Depth to 1,024 on 64 puzzles, the rest on 300.",
        rows=(
            *rows(16, NINE_FAR),
            *rows(64, NINE_FAR),
            *rows(256, NINE_DEEP),
            *rows(1024, NINE_DEEP),
        ),
        columns=(
            Column(name=ACC),
            Column(name=NFE, metric="nfe", percent=False),
            Column(name=SAVED, metric="saving", percent=False),
        ),
        seeds=5,
        minutes=50,
        picture=Picture(columns=(ACC, SAVED)),
        note="`head` is the paper's rule; `head and answer` (`--halt head+stable:1`) also asks that the "
        "decoded answer did not change in the last segment.",
    ),
)
