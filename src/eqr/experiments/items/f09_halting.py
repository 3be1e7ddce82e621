"""Figure 9: accuracy and mean depth of training under each halting rule."""

from eqr.experiments.bases import FEW, FEW_WHY, PAPER_TRM, SHORT
from eqr.experiments.experiment import Column, Experiment, Row
from eqr.experiments.looks import Curve

RULES = {
    "no early halt": ("10-two-level-truncated", "none"),
    "head trained, no early halt": ("12-unused-halting", "learned-unused"),
    "learned halting": ("12-learned-halting", "learned"),
    "oracle halting": ("11-oracle-halting", "oracle"),
}

EXPERIMENTS = (
    Experiment(
        item="F9",
        title="ACT halting mechanisms",
        question="What do halting rules do to accuracy and to the depth that rows are trained at?",
        lab=FEW,
        paper=PAPER_TRM,
        regime=f"{FEW_WHY} The runs of T8.",
        rows=tuple(
            Row(name=name, variants=(variant,), says={"halting": halting, "states": 2})
            for name, (variant, halting) in RULES.items()
        ),
        columns=(
            Column(name="Accuracy", look=SHORT),
            Column(
                name="Mean depth at the end",
                metric="halt depth at the end",
                look=Curve(),
                percent=False,
            ),
        ),
        seeds=5,
        minutes=0.1,
    ),
)
