"""Table 3: what randomised starts and path noise do to accuracy at the depth of training."""

from eqr.experiments.bases import (
    CLUES,
    CLUES_WHY,
    MAZE,
    MAZE_WHY,
    NINE,
    NINE_WHY,
    PAPER_MAZE,
    PAPER_SUDOKU,
    SUDOKU,
    SUDOKU_WHY,
    TRAINED,
)
from eqr.experiments.experiment import Column, Experiment, Row

EXPERIMENTS = (
    Experiment(
        item="T3",
        title="Learning favorable attractor landscapes",
        question="Do randomised starts (RI), and then path noise (NI), raise accuracy without more compute?",
        lab=SUDOKU,
        regime=f"{SUDOKU_WHY} {NINE_WHY} {CLUES_WHY} {MAZE_WHY}",
        rows=(
            Row(
                name="baseline",
                variants=("trm",),
                says={"RI": False, "NI": False, "states": 2, "halting": "learned"},
                published={"Sudoku": 84.8, "Maze": 44.9},
            ),
            Row(
                name="+ RI",
                variants=("ri",),
                says={"RI": True, "NI": False, "states": 2, "halting": "learned"},
                published={"Sudoku": 86.0, "Maze": 68.6},
            ),
            Row(
                name="+ RI + NI (EqR)",
                says={"RI": True, "NI": True, "states": 2, "halting": "learned"},
                published={"Sudoku": 86.4, "Maze": 82.2},
            ),
        ),
        columns=(
            Column(name="Sudoku", look=TRAINED, lab=SUDOKU, paper=PAPER_SUDOKU, seeds=8),
            Column(name="Sudoku 9x9", look=TRAINED, lab=NINE, paper=PAPER_SUDOKU, seeds=5),
            Column(name="Sudoku 9x9, 32 clues", look=TRAINED, lab=CLUES, paper=PAPER_SUDOKU, seeds=8),
            Column(name="Maze", look=TRAINED, lab=MAZE, paper=PAPER_MAZE),
        ),
        note="Noise is each recipe's own: beta 0.01 as printed on Sudoku, 0.1 on mazes.",
        seeds=5,
        minutes=110,
    ),
)
