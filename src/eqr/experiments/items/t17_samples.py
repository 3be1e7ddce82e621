"""Table 17: a small sample of the test set against the whole of it."""

from eqr.experiments.bases import ATTENTIVE, ATTENTIVE_WHY, PAPER_SUDOKU, SUDOKU, SUDOKU_WHY, TRAINED
from eqr.experiments.experiment import Column, Experiment, Row

WHOLE, SAMPLE, HEAD = "Whole test set", "Sample of 100", "First 100"

EXPERIMENTS = (
    Experiment(
        item="T17",
        title="Test set and sample",
        question="Is a small sample of the test set as hard as the whole of it?",
        lab=SUDOKU,
        paper=PAPER_SUDOKU,
        regime=f"{SUDOKU_WHY} 500 test puzzles stand for Sudoku-Extreme, a seeded sample of 100 for "
        f"Sudoku-Lite; beside it the first 100 of the file. {ATTENTIVE_WHY}",
        rows=(
            Row(name="TRM", variants=("trm",), says={"RI": False}, published={WHOLE: 84.1, SAMPLE: 82.0}),
            Row(
                name="HRM",
                variants=("hrm",),
                lab_changes=ATTENTIVE,
                says={"separate stacks": True},
                published={WHOLE: 61.0, SAMPLE: 57.8},
            ),
            Row(name="EqR", variants=("eqr",), says={"RI": True}, published={WHOLE: 86.4, SAMPLE: 84.3}),
        ),
        columns=(
            Column(name=WHOLE, look=TRAINED),
            Column(name=SAMPLE, look=TRAINED.replace(puzzles=100)),
            Column(name=HEAD, look=TRAINED.replace(puzzles=100, first=True)),
        ),
        seeds=5,
        minutes=3,
    ),
)
