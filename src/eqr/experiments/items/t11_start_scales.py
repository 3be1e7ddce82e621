"""Table 11: how far the random starts are spread."""

from eqr.experiments.bases import CLUES, CLUES_WHY, PAPER_SUDOKU, TRAINED
from eqr.experiments.experiment import Column, Experiment, Row

PRINTED = {
    (0, 0): 84.06, (1, 0): 86.29, (0, 1): 86.25, (1, 1): 86.03, (1, 4): 86.83, (1, 8): 87.30, (1, 16): 86.85,
    (4, 1): 86.38, (8, 1): 86.08, (16, 1): 86.29,
}  # fmt: skip
"""By sigma_H and sigma_L."""

EXPERIMENTS = (
    Experiment(
        item="T11",
        title="Scale of the random starts",
        question="Does accuracy depend on the standard deviations of the two random starts?",
        lab=CLUES,
        paper=PAPER_SUDOKU,
        regime=CLUES_WHY,
        rows=tuple(
            Row(
                name=f"sigma_H={high}, sigma_L={low}",
                variants=("ri",),
                changes=(f"model.start.answer={high:.1f}", f"model.start.scratch={low:.1f}"),
                says={"sigma_H": float(high), "sigma_L": float(low), "NI": False},
                published={"Accuracy": printed},
            )
            for (high, low), printed in PRINTED.items()
        ),
        columns=(Column(name="Accuracy", look=TRAINED, seeds=5),),
        minutes=70,
        note="A scale of 0 starts from zeros, as in the released code; the printed 0/0 is the fixed vector.",
    ),
)
