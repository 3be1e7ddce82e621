"""Table 5: halting at test time, by the head alone as in the paper and by our stricter rule."""

from eqr.experiments.bases import (
    BROAD,
    DEEP,
    HEAD,
    HEAD_DEEP,
    PAPER_SUDOKU,
    SETTLED,
    SUDOKU,
    SUDOKU_WHY,
)
from eqr.experiments.experiment import Column, Experiment, Picture, Row
from eqr.experiments.looks import Solve

ACC, NFE, SAVED = "Accuracy", "NFE", "Times fewer"
PRINTED = {
    (16, 1): (84.3, 84.0, 5.4),
    (64, 1): (90.9, 90.1, 10.9),
    (256, 1): (94.6, 93.7, 23.8),
    (1024, 1): (96.1, 95.3, 58.7),
}


def rows(depth: int, whole: Solve, head: Solve, settled: Solve) -> tuple[Row, ...]:
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
        row.replace(name=f"{row.name}, head", look=head, published={ACC: on, NFE: nfe}),
        row.replace(name=f"{row.name}, head and answer", look=settled, published={}),
    )


EXPERIMENTS = (
    Experiment(
        item="T5",
        title="EqR with adaptive computation time",
        question="Does the halting head save most of the segments at no more than a point of accuracy?",
        lab=SUDOKU,
        paper=PAPER_SUDOKU,
        regime=f"{SUDOKU_WHY} Depth to 1,024 on 100 puzzles, the rest on 500.",
        rows=(
            *rows(
                16,
                BROAD.replace(breadth=1, puzzles=500),
                HEAD.replace(breadth=1, puzzles=500),
                SETTLED.replace(breadth=1, puzzles=500),
            ),
            *rows(
                64,
                BROAD.replace(breadth=1, puzzles=500),
                HEAD.replace(breadth=1, puzzles=500),
                SETTLED.replace(breadth=1, puzzles=500),
            ),
            *rows(256, DEEP, HEAD_DEEP, HEAD_DEEP.replace(halt=SETTLED.halt)),
            *rows(1024, DEEP, HEAD_DEEP, HEAD_DEEP.replace(halt=SETTLED.halt)),
        ),
        columns=(
            Column(name=ACC),
            Column(name=NFE, metric="nfe", percent=False),
            Column(name=SAVED, metric="saving", percent=False),
        ),
        minutes=10,
        picture=Picture(columns=(ACC, SAVED)),
        note="`head` is the paper's rule; `head and answer` (`--halt head+stable:1`) also asks that the "
        "decoded answer did not change in the last segment.",
    ),
)
