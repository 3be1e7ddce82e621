"""Figures 12 and 13: how hard the puzzles are by a search's measure, and whether models find them so."""

from eqr.experiments.bases import HARD, HARD_WHY, PAPER_SUDOKU
from eqr.experiments.experiment import Column, Experiment, Picture, Row
from eqr.experiments.looks import RATINGS, Puzzles, Solve, rated

EQR = {"RI": True, "NI": True}
AUROC, EASY = "Rating AUROC", "NFE of easy puzzles"
NAMES = {(low, high): str(low) if low == high else f"{low}-{high or ''}" for low, high in RATINGS}
MINIMAL = ("options={}", "train=1", "validation=1", "test=300")
WHOLE = Solve(puzzles=300, depth=64, data=MINIMAL)
HALTED = WHOLE.replace(halt="head")

EXPERIMENTS = (
    Experiment(
        item="F12",
        title="Distribution of difficulty ratings",
        question="How hard are the test puzzles for a search?",
        lab=HARD,
        paper=PAPER_SUDOKU,
        regime="Generated 9x9 puzzles, 500 of each kind; ratings are backtracks of our own search.",
        rows=(
            Row(name="32 clues", lab_changes=("data.train=1",)),
            Row(name="without a spare clue", lab_changes=("data.train=1", "data.options={}")),
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
        lab=HARD,
        paper=PAPER_SUDOKU,
        regime=f"{HARD_WHY} Tested on 300 puzzles without a spare clue (24 clues on average), which it was "
        "not trained on, so that ratings vary and much is unsolved.",
        rows=(
            *(
                Row(
                    name=f"D={depth}",
                    variants=("eqr",),
                    look=WHOLE,
                    at=(depth, 1),
                    says=EQR,
                    only=tuple(f"rating {name}" for name in NAMES.values()),
                )
                for depth in (16, 64)
            ),
            Row(
                name="over puzzles, D=16", variants=("eqr",), look=WHOLE, at=(16, 1), says=EQR, only=(AUROC,)
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
        minutes=0.5,
        picture=Picture(columns=tuple(f"rating {name}" for name in NAMES.values())),
        note="Rating AUROC: how often a puzzle that is solved has a lower rating than one that is not. Easy "
        "puzzles are those a search solves without a backtrack.",
    ),
)
