"""Table 12: how much the answer depends on the start."""

from eqr.experiments.bases import (
    CLUES,
    CLUES_WHY,
    MAZE,
    MAZE_WHY,
    NINE_BROAD,
    PAPER_MAZE,
    PAPER_SUDOKU,
)
from eqr.experiments.experiment import Column, Experiment, Row
from eqr.experiments.looks import Solve

AT = (16, 16)
STARTS = Solve(puzzles=100, depth=16, breadth=16)

EXPERIMENTS = (
    Experiment(
        item="T12",
        title="Path independence",
        question="Do randomised starts, and noise, make the answer depend less on where a trajectory begins?",
        lab=CLUES,
        regime=f"{CLUES_WHY} {MAZE_WHY} The models of T3, D=16, 16 random starts.",
        rows=(
            Row(
                name="TRM",
                variants=("trm",),
                start="random",
                says={"RI": False, "NI": False},
                published={"Sudoku, of means": 3.58, "Maze, of means": 28.60},
            ),
            Row(
                name="+ RI",
                variants=("ri",),
                says={"RI": True, "NI": False},
                published={"Sudoku, of means": 0.10, "Maze, of means": 3.73},
            ),
            Row(
                name="+ RI + NI",
                says={"RI": True, "NI": True},
                published={"Sudoku, of means": 0.13, "Maze, of means": 1.33},
            ),
        ),
        columns=tuple(
            Column(name=f"{task}, {words}", metric=metric, look=look, at=AT, lab=lab, paper=paper)
            for task, look, lab, paper in (
                ("Sudoku", NINE_BROAD, CLUES, PAPER_SUDOKU),
                ("Maze", STARTS, MAZE, PAPER_MAZE),
            )
            for words, metric in (("per puzzle", "path per puzzle"), ("of means", "path of means"))
        ),
        seeds=5,
        minutes=25,
        note="Per puzzle is the paper's definition, E|Acc_B - Acc_1|; of means is the difference of the two "
        "accuracies, of which size the printed numbers are. Acc_1 of TRM is that of its own fixed start.",
    ),
)
