"""Figures 3 and 11: example puzzles with their answers, and what ambiguous mazes do to depth scaling."""

from eqr.experiments.bases import BROAD, MAZE, MAZE_WHY, PAPER_MAZE, SUDOKU
from eqr.experiments.experiment import Column, Experiment, Picture, Row
from eqr.experiments.looks import Puzzles

AMBIGUOUS = ("data.task=maze-1k-11x11", "model.task=maze-1k-11x11")
DEEPER = BROAD.replace(breadth=1, puzzles=500)

EXPERIMENTS = (
    Experiment(
        item="F3",
        title="Datasets",
        question="What do the puzzles look like?",
        lab=SUDOKU,
        regime="Puzzles of the lab recipes; nothing is trained.",
        rows=(Row(name="Sudoku", lab=SUDOKU), Row(name="Maze", lab=MAZE)),
        columns=(Column(name="Test puzzles", metric="test", look=Puzzles(), percent=False, digits=0),),
        minutes=0.2,
        picture=Picture(kind="grids"),
    ),
    Experiment(
        item="F11",
        title="Maze-1k and Maze-Unique",
        question="Does depth scaling break where a maze has several shortest paths but one label?",
        lab=MAZE,
        paper=PAPER_MAZE,
        regime=f"{MAZE_WHY} The same recipe on mazes with one path and on open mazes with several.",
        rows=(
            Row(
                name="Maze-1k",
                lab_changes=AMBIGUOUS,
                paper_changes=("data.path=data/maze-1k",),
            ),
            Row(name="Maze-Unique"),
        ),
        columns=(
            Column(name="D=16", look=DEEPER, at=(16, 1)),
            Column(name="D=64", look=DEEPER, at=(64, 1)),
            Column(name="Valid, D=64", metric="valid", look=DEEPER, at=(64, 1)),
            Column(name="One shortest path", metric="unique", look=Puzzles()),
        ),
        seeds=5,
        minutes=12,
        picture=Picture(kind="grids"),
        note="Valid counts every shortest path, the others only the labelled one.",
    ),
)
