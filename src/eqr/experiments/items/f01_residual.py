"""Figures 1 and 2: accuracy and residual as depth and breadth grow."""

from eqr.experiments.bases import NINE, NINE_BROAD, NINE_DEEP, NINE_WHY, PAPER_SUDOKU
from eqr.experiments.experiment import Column, Experiment, Picture, Row

EQR = {"RI": True, "NI": True}
DEPTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
EXACT, RESIDUAL, RANK, AUROC = "Accuracy", "Residual", "Rank correlation", "AUROC"
ERROR = "Error"
GRID = [(depth, breadth) for depth in (1, 2, 4, 8, 16, 32, 64) for breadth in (1, 2, 4, 8, 16)]

EXPERIMENTS = (
    Experiment(
        item="F1",
        title="Accuracy against residual",
        question="Does accuracy rise far beyond the trained depth while the residual falls?",
        lab=NINE,
        paper=PAPER_SUDOKU,
        regime=f"{NINE_WHY} Trained to depth 16, run to 1,024 on 64 puzzles.",
        rows=tuple(Row(name=f"D={depth}", variants=("eqr",), at=(depth, 1), says=EQR) for depth in DEPTHS),
        columns=(
            Column(name=EXACT, look=NINE_DEEP),
            Column(name=RESIDUAL, metric="residual", look=NINE_DEEP, percent=False, digits=4),
        ),
        seeds=5,
        minutes=0.1,
        picture=Picture(
            kind="points", x=RESIDUAL, y=EXACT, log_x=True, x_label="residual (lower: more settled)"
        ),
    ),
    Experiment(
        item="F2",
        title="Residual and error over depth and breadth",
        question="Do residual and error fall together, and does breadth need some depth to pay?",
        lab=NINE,
        paper=PAPER_SUDOKU,
        regime=f"{NINE_WHY} 64 puzzles, to depth 64 and 16 starts; the run of T4.",
        rows=(
            *(
                Row(name=f"D={d}, B={b}", variants=("eqr",), at=(d, b), says=EQR, only=(ERROR, RESIDUAL))
                for d, b in GRID
            ),
            Row(name="over all budgets", variants=("eqr",), at=(64, 16), says=EQR, only=(RANK,)),
            Row(name="over starts, D=16", variants=("eqr",), at=(16, 1), says=EQR, only=(AUROC,)),
            Row(name="over starts, D=64", variants=("eqr",), at=(64, 1), says=EQR, only=(AUROC,)),
        ),
        columns=(
            Column(name=RESIDUAL, metric="chosen residual", look=NINE_BROAD, percent=False, digits=3),
            Column(name=ERROR, metric="top error", look=NINE_BROAD),
            Column(name=RANK, metric="tracking", look=NINE_BROAD, percent=False, digits=2),
            Column(name=AUROC, metric="auroc", look=NINE_BROAD, percent=False, digits=2),
        ),
        seeds=5,
        minutes=14,
        picture=Picture(kind="heat", columns=(RESIDUAL, ERROR)),
        note="Rank correlation of residual and error over the budgets; AUROC: how often a right start has "
        "settled better than a wrong one.",
    ),
)
