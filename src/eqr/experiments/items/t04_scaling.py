"""Table 4: what more depth, and then breadth, buy at test time."""

from eqr.experiments.bases import (
    BROAD,
    MAZE,
    MAZE_WHY,
    NINE,
    NINE_BROAD,
    NINE_WHY,
    PAPER_MAZE,
    PAPER_SUDOKU,
    SUDOKU,
    SUDOKU_WHY,
)
from eqr.experiments.experiment import Column, Experiment, Row

EQR = {"RI": True, "NI": True}

EXPERIMENTS = (
    Experiment(
        item="T4",
        title="Test-time compute scaling",
        question="Does a trained EqR gain from four times its depth, and more from many starts?",
        lab=SUDOKU,
        regime=f"{SUDOKU_WHY} {NINE_WHY} {MAZE_WHY} 100 puzzles and 32 starts for 128; 64 and 16 on 9x9.",
        rows=(
            Row(
                name="EqR, D=16, B=1",
                at=(16, 1),
                says=EQR,
                published={"Sudoku": 86.4, "Maze": 82.2},
            ),
            Row(
                name="+ depth, D=64, B=1",
                at=(64, 1),
                says=EQR,
                published={"Sudoku": 93.0, "Maze": 88.9},
            ),
            Row(
                name="+ breadth, D=64",
                metric="top",
                at=(64, 32),
                says=EQR,
                published={"Sudoku": 99.8, "Maze": 93.0},
            ),
        ),
        columns=(
            Column(name="Sudoku", look=BROAD, lab=SUDOKU, paper=PAPER_SUDOKU),
            Column(name="Sudoku 9x9", look=NINE_BROAD, lab=NINE, paper=PAPER_SUDOKU, seeds=5),
            Column(name="Maze", look=BROAD, lab=MAZE, paper=PAPER_MAZE),
        ),
        seeds=5,
        minutes=20,
        note="The printed breadth is 128. One start is the mean over all of them.",
    ),
)
