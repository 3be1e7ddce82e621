"""Figures 12 and 13: how hard the puzzles are by a search's measure, and whether models find them so."""

from eqr.experiments.bases import HEAD, NINE, NINE_FAR, NINE_WHY, PAPER_SUDOKU
from eqr.experiments.experiment import Column, Experiment, Picture, Row
from eqr.experiments.looks import RATINGS, Puzzles, rated

EQR = {"RI": True, "NI": True}
AUROC, EASY = "Rating AUROC", "NFE of easy puzzles"
NAMES = {(low, high): str(low) if low == high else f"{low}-{high or ''}" for low, high in RATINGS}
HALTED = NINE_FAR.replace(halt=HEAD)

EXPERIMENTS = (
    Experiment(
        item="F12",
        title="Distribution of difficulty ratings",
        question="How hard are the test puzzles for a search?",
        lab=NINE,
        paper=PAPER_SUDOKU,
        regime="Generated 9x9 puzzles, 500 of each kind; ratings are backtracks of our own search.",
        rows=(
            Row(name="32 clues", lab_changes=("data.train=1", 'data.options={"clues": 32}')),
            Row(name="without a spare clue", lab_changes=("data.train=1",)),
        ),
        columns=tuple(
            Column(name=f"rating {NAMES[bounds]}", metric=rated("share", *bounds), look=Puzzles())
            for bounds in RATINGS
        ),
        minutes=0.1,
    ),
    Experiment(
        item="F13",
        title="Accuracy against difficulty rating",
        question="Does a search's rating predict what the model solves, and are easy ones done early?",
        lab=NINE,
        paper=PAPER_SUDOKU,
        regime=f"{NINE_WHY} 300 test puzzles.",
        rows=(
            *(
                Row(
                    name=f"D={depth}",
                    variants=("eqr",),
                    look=NINE_FAR,
                    at=(depth, 1),
                    says=EQR,
                    only=tuple(f"rating {name}" for name in NAMES.values()),
                )
                for depth in (16, 64)
            ),
            Row(
                name="over puzzles, D=16",
                variants=("eqr",),
                look=NINE_FAR,
                at=(16, 1),
                says=EQR,
                only=(AUROC,),
            ),
            Row(
                name="halted by the head", variants=("eqr",), look=HALTED, at=(64, 1), says=EQR, only=(EASY,)
            ),
        ),
        columns=(
            *(Column(name=f"rating {NAMES[b]}", metric=rated("exact", *b)) for b in RATINGS),
            Column(name=AUROC, metric="rating auroc", percent=False, digits=2),
            Column(name=EASY, metric=rated("nfe", *RATINGS[0]), percent=False),
        ),
        seeds=5,
        minutes=1,
        picture=Picture(columns=tuple(f"rating {name}" for name in NAMES.values())),
        note="Rating AUROC: how often a puzzle that is solved has a lower rating than one that is not. Easy "
        "puzzles are those a search solves without a backtrack.",
    ),
)
