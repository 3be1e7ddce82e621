"""Table 7 and figure 8: where along a long trajectory losses sit, and where the trajectory has settled."""

from eqr.experiments.bases import FEW, FEW_WHY, PAPER_TRM, SHORT
from eqr.experiments.experiment import Column, Experiment, Picture, Row, Trait

ACC = "Accuracy"


def anchored(name: str, variant: str, schedule: str, first: int | None, published: float) -> Row:
    """Return a row with losses on segments from `first` on, of 8."""
    says: dict[str, Trait] = {"states": 1, "schedule": schedule}
    if first is not None:
        says["first anchor"] = first
    return Row(name=name, variants=(variant,), says=says, published={ACC: published})


ROWS = (
    anchored("terminal loss", "05-terminal-detached", "terminal-detached", None, 51.80),
    anchored("full anchors", "06-trajectory", "trajectory", 1, 47.10),
    anchored("late anchors, second half", "06-late-half", "trajectory", None, 51.36),
    anchored("late anchors, last quarter", "06-late-quarter", "trajectory", None, 57.50),
)
DEPTHS = (1, 2, 4, 8, 16, 32)

EXPERIMENTS = (
    Experiment(
        item="T7",
        title="Late-anchor supervision",
        question="On a detached trajectory, does anchoring every segment hurt, and do late anchors help?",
        lab=FEW,
        paper=PAPER_TRM,
        regime=f"{FEW_WHY} Anchors 1:8, 4:8 and 6:8 stand for 1:16, 8:16 and 12:16.",
        rows=ROWS,
        columns=(Column(name=ACC, look=SHORT),),
        seeds=5,
        minutes=40,
        note="One learning rate and one weight decay for all; the paper reports the best of four by three.",
    ),
    Experiment(
        item="F8",
        title="Residual diagnostic for late anchors",
        question="Has the trajectory of the terminal-loss model largely settled where late anchors sit?",
        lab=FEW,
        paper=PAPER_TRM,
        regime=f"{FEW_WHY} The runs of T7, run to four times their depth.",
        rows=tuple(row.replace(published={}) for row in ROWS),
        columns=tuple(
            Column(
                name=f"D={d}",
                metric="residual",
                look=SHORT.replace(depth=32, puzzles=200),
                at=(d, 1),
                percent=False,
                digits=3,
            )
            for d in DEPTHS
        ),
        seeds=5,
        minutes=1,
        picture=Picture(kind="lines", x_label="segment", y_label="residual (RMS per coordinate)", log_x=True),
    ),
)
