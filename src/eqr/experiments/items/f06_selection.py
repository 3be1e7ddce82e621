"""Figure 6: majority against Top-1 converged as starts are added."""

from eqr.experiments.bases import BROAD, BROAD_RANDOM, PAPER_SUDOKU, SUDOKU, SUDOKU_WHY
from eqr.experiments.experiment import Column, Experiment, Picture, Row
from eqr.experiments.looks import Solve

BREADTHS = (1, 2, 4, 8, 16, 32)


def rules(name: str, variant: str, look: Solve, *, ri: bool, ni: bool) -> tuple[Row, ...]:
    """Return a model's two selection rules."""
    row = Row(name=name, variants=(variant,), look=look, says={"RI": ri, "NI": ni})
    return (
        row.replace(name=f"{name}, Top-1 converged", metric="top"),
        row.replace(name=f"{name}, majority", metric="vote"),
    )


EXPERIMENTS = (
    Experiment(
        item="F6",
        title="Breadth-scaling efficiency of aggregation rules",
        question="Does the best settled start beat the majority once the landscape is shaped?",
        lab=SUDOKU,
        paper=PAPER_SUDOKU,
        regime=f"{SUDOKU_WHY} The models of T3 at D=16; TRM from random starts, which it was not trained on.",
        rows=(
            *rules("TRM", "trm", BROAD_RANDOM, ri=False, ni=False),
            *rules("TRM + RI", "ri", BROAD, ri=True, ni=False),
            *rules("EqR", "eqr", BROAD, ri=True, ni=True),
        ),
        columns=tuple(Column(name=f"B={b}", look=BROAD, at=(16, b)) for b in BREADTHS),
        minutes=0.1,
        picture=Picture(kind="lines", x_label="breadth B", log_x=True),
    ),
)
