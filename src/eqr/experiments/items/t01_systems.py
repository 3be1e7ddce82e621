"""Table 1: feedforward against weight-tied iterative models, on Sudoku and mazes."""

from eqr.experiments.bases import (
    ATTENTIVE,
    ATTENTIVE_WHY,
    BROAD,
    MAZE,
    MAZE_WHY,
    ONCE,
    PAPER_MAZE,
    PAPER_SUDOKU,
    SUDOKU,
    SUDOKU_WHY,
    TRAINED,
)
from eqr.experiments.experiment import Column, Experiment, Row


def feedforward(name: str, lab: int, paper: int, sudoku: float) -> Row:
    """Return the row of a feedforward model of so many layers."""
    return Row(
        name=name,
        variants=("01-feedforward",),
        lab_changes=(f"model.blocks={lab}",),
        paper_changes=(f"model.blocks={paper}",),
        look=ONCE,
        says={"tied": False, "iterations": 1, "segments": 1},
        published={"Sudoku": sudoku, "Maze": 0.0},
    )


EXPERIMENTS = (
    Experiment(
        item="T1",
        title="Weight-tied iteration is critical for generalization",
        question="Do models that iterate generalise where feedforward models of any depth do not?",
        lab=SUDOKU,
        regime=f"{SUDOKU_WHY} {MAZE_WHY} Feedforward models of 2, 6 and 12 layers stand for 4, 16 and 64; "
        "every system has the recipe's width and as many layers per segment as EqR. "
        f"{ATTENTIVE_WHY}",
        rows=(
            feedforward("2-layer model", 2, 4, 1.8),
            feedforward("6-layer model", 6, 16, 2.1),
            feedforward("12-layer model", 12, 64, 2.6),
            Row(
                name="HRM",
                variants=("hrm",),
                lab_changes=ATTENTIVE,
                says={"separate stacks": True, "halting": "q-learning", "RI": False},
                published={"Sudoku": 55.0, "Maze": 0.3},
            ),
            Row(
                name="TRM",
                variants=("trm",),
                says={"states": 2, "RI": False, "NI": False, "halting": "learned"},
                published={"Sudoku": 84.8, "Maze": 44.9},
            ),
            Row(
                name="URM",
                variants=("urm",),
                lab_changes=ATTENTIVE,
                says={"states": 1, "convolution": True, "RI": False},
                published={"Sudoku": 77.6, "Maze": 51.4},
            ),
            Row(
                name="EqR",
                look=BROAD,
                metric="top",
                says={"states": 2, "RI": True, "NI": True, "damped": True},
                published={"Sudoku": 99.8, "Maze": 93.0},
            ),
        ),
        columns=(
            Column(name="Sudoku", look=TRAINED, lab=SUDOKU, paper=PAPER_SUDOKU),
            Column(name="Maze", look=TRAINED, lab=MAZE, paper=PAPER_MAZE),
        ),
        seeds=5,
        minutes=100,
        note="EqR is run at D=64 from 32 starts, the lowest residual chosen; the others at D=16 from one, as "
        "printed. The 256-layer model of the paper ran out of memory and has no row.",
    ),
)
