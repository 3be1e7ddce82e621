"""Table 20: learning rates of the feedforward baseline."""

from eqr.experiments.bases import FEW, FEW_WHY, ONCE, PAPER_TRM, train_of
from eqr.experiments.experiment import Column, Experiment, Row

LAYERS = {"2 layers": (2, 4), "6 layers": (6, 16)}
RATES = {"high": (4e-3, 5e-4), "middle": (2e-3, 1e-4), "low": (5e-4, 5e-5)}
"""Here and in the paper."""

EXPERIMENTS = (
    Experiment(
        item="T20",
        title="Learning rates of feedforward models",
        question="Does another learning rate make feedforward models generalise?",
        lab=FEW,
        paper=PAPER_TRM,
        regime=f"{FEW_WHY} 2 and 6 layers for 4 and 16; rates 4e-3, 2e-3 and 5e-4 for 5e-4, 1e-4 and 5e-5.",
        rows=tuple(
            Row(
                name=f"{size}, {level} rate",
                variants=("01-feedforward",),
                lab_changes=(f"model.blocks={layers[0]}", f"optimizer.rate={rate[0]}"),
                paper_changes=(f"model.blocks={layers[1]}", f"optimizer.rate={rate[1]}"),
                says={"tied": False, "segments": 1},
            )
            for size, layers in LAYERS.items()
            for level, rate in RATES.items()
        ),
        columns=(Column(name="Train", look=train_of(ONCE)), Column(name="Eval", look=ONCE)),
        seeds=5,
        minutes=8,
        note="The paper shows curves and prints no numbers here.",
    ),
)
