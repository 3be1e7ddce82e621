"""Figure 6: majority against Top-1 converged as starts are added."""

from eqr.experiments.bases import NINE, NINE_BROAD, NINE_WHY, PAPER_SUDOKU
from eqr.experiments.experiment import Column, Experiment, Picture, Row

BREADTHS = (1, 2, 4, 8, 16)


def rules(name: str, variant: str, *, ri: bool, ni: bool, start: str | None = None) -> tuple[Row, ...]:
    """Return a model's two selection rules."""
    row = Row(name=name, variants=(variant,), start=start, says={"RI": ri, "NI": ni})
    return (
        row.replace(name=f"{name}, Top-1 converged", metric="top"),
        row.replace(name=f"{name}, majority", metric="vote"),
    )


EXPERIMENTS = (
    Experiment(
        item="F6",
        title="Breadth-scaling efficiency of aggregation rules",
        question="Does the best settled start beat the majority once the landscape is shaped?",
        lab=NINE,
        paper=PAPER_SUDOKU,
        regime=f"{NINE_WHY} The models of T3 at D=16; TRM from random starts, which it was not trained on. "
        "Judged at B=4: with 16 starts either rule solves nearly everything.",
        rows=(
            *rules("TRM", "trm", ri=False, ni=False, start="random"),
            *rules("TRM + RI", "ri", ri=True, ni=False),
            *rules("EqR", "eqr", ri=True, ni=True),
        ),
        columns=tuple(Column(name=f"B={b}", look=NINE_BROAD, at=(16, b)) for b in BREADTHS),
        seeds=5,
        minutes=45,
        picture=Picture(kind="lines", x_label="breadth B", log_x=True),
    ),
)
