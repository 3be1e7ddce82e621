"""Table 2: from a feedforward predictor to a TRM-like model, one ingredient at a time."""

from eqr.experiments.bases import FEW, FEW_WHY, ONCE, PAPER_TRM, SHORT, train_of
from eqr.experiments.experiment import Column, Experiment, Row
from eqr.experiments.looks import Shape

EVAL, TRAIN = "Eval", "Train"

EXPERIMENTS = (
    Experiment(
        item="T2",
        title="A clean construction path",
        question="Does each ingredient (tying, long segmented training, hierarchy, learned halting) add "
        "held-out accuracy?",
        lab=FEW,
        paper=PAPER_TRM,
        regime=FEW_WHY,
        rows=(
            Row(
                name="vanilla feedforward",
                variants=("01-feedforward",),
                look=ONCE,
                says={"tied": False, "states": 1},
                published={TRAIN: 93.8, EVAL: 2.6, "Parameters (M)": 105.6, "Layers": 42},
            ),
            Row(
                name="+ weight-tied",
                variants=("02-weight-tied",),
                look=ONCE,
                says={"tied": True, "states": 1, "schedule": "terminal-full", "segments": 1},
                published={TRAIN: 94.5, EVAL: 32.6, "Parameters (M)": 5.03, "Layers": 42},
            ),
            Row(
                name="+ SOT + depth",
                variants=("07-segmented",),
                says={"states": 1, "schedule": "segmented-online", "halting": "none", "truncated": False},
                published={TRAIN: 94.9, EVAL: 74.7, "Parameters (M)": 5.03, "Layers": 672},
            ),
            Row(
                name="+ hierarchical recurrence",
                variants=("10-two-level-truncated",),
                says={"states": 2, "schedule": "segmented-online", "halting": "none", "truncated": True},
                published={TRAIN: 99.3, EVAL: 76.5, "Parameters (M)": 5.03, "Layers": 672},
            ),
            Row(
                name="+ ACT training",
                variants=("12-learned-halting",),
                says={"states": 2, "schedule": "segmented-online", "halting": "learned", "truncated": True},
                published={TRAIN: 82.2, EVAL: 84.8, "Parameters (M)": 5.03, "Layers": 672},
            ),
        ),
        columns=(
            Column(name="Parameters (M)", metric="parameters (M)", look=Shape(), percent=False, digits=3),
            Column(name="Layers", metric="evaluated layers", look=Shape(), percent=False, digits=0),
            Column(name=TRAIN, look=train_of(SHORT)),
            Column(name=EVAL, look=SHORT),
        ),
        seeds=5,
        minutes=1,
        note="Train is measured like Eval, with the same weights on 500 of the training puzzles.",
    ),
)
