"""Table 16: the baseline and EqR over seeds."""

from eqr.experiments.bases import CLUES, CLUES_WHY, NINE, NINE_WHY, PAPER_SUDOKU, TRAINED
from eqr.experiments.experiment import Column, Experiment, Row

EXPERIMENTS = (
    Experiment(
        item="T16",
        title="Seed stability",
        question="Is the gain at equal budget stable over seeds?",
        lab=CLUES,
        paper=PAPER_SUDOKU,
        regime=f"{CLUES_WHY} Beside it five seeds without a spare clue: {NINE_WHY} The runs of T3.",
        rows=(
            Row(
                name="baseline",
                variants=("trm",),
                says={"RI": False, "NI": False},
                published={"Accuracy": "84.33 ± 0.59"},
            ),
            Row(
                name="EqR",
                variants=("eqr",),
                says={"RI": True, "NI": True},
                published={"Accuracy": "86.18 ± 0.44"},
            ),
        ),
        columns=(
            Column(name="Accuracy", look=TRAINED, digits=2, seeds=8),
            Column(name="No spare clue", look=TRAINED, digits=2, lab=NINE, seeds=5),
        ),
        seeds=5,
        minutes=1,
        note="The printed spread is a standard deviation, ours half of a 95% interval of the mean.",
    ),
)
