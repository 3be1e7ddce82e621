"""Figure 10: what a trajectory decodes to, segment by segment."""

from eqr.experiments.bases import HALF_LEARNED, HALF_LEARNED_WHY, PAPER_SUDOKU
from eqr.experiments.experiment import Column, Experiment, Picture, Row
from eqr.experiments.looks import Decoding

LOOK = Decoding(depth=32)
METRICS = ("segments with a change", "cells that change more than once")

EXPERIMENTS = (
    Experiment(
        item="F10",
        title="A reasoning trajectory",
        question="Does a trajectory erase and retry, or fill cells one by one?",
        lab=HALF_LEARNED,
        paper=PAPER_SUDOKU,
        regime=f"{HALF_LEARNED_WHY} The baseline on the first test puzzle, 32 segments.",
        rows=(Row(name="TRM", variants=("trm",), says={"RI": False, "NI": False}),),
        columns=tuple(
            Column(name=name.capitalize(), metric=name, look=LOOK, percent=False) for name in METRICS
        ),
        minutes=0.1,
        picture=Picture(kind="trajectory"),
    ),
)
