"""Table 10: a start predicted from the puzzle, against random and fixed ones."""

from eqr.experiments.bases import CLUES, CLUES_WHY, PAPER_SUDOKU
from eqr.experiments.experiment import Column, Experiment, Picture, Row
from eqr.experiments.looks import Curve

SHARES = {60: "60% of the steps", 80: "80%", 100: "100%"}


def row(name: str, variant: str, printed: tuple[float, float, float], *, ri: bool, learned: bool) -> Row:
    """Return a row with its three printed checkpoints."""
    return Row(
        name=name,
        variants=(variant,),
        says={"RI": ri, "learned start": learned, "NI": False},
        published=dict(zip(SHARES.values(), printed, strict=True)),
    )


EXPERIMENTS = (
    Experiment(
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
            Column(name=name, metric=f"validation at {share}%", look=Curve(), seeds=5)
            for share, name in SHARES.items()
        ),
        minutes=15,
        picture=Picture(kind="lines", x_label="share of the steps (%)"),
    ),
)
