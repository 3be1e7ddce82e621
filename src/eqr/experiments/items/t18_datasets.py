"""Table 18: sizes of the datasets and lengths of maze paths."""

from eqr.experiments.experiment import Column, Experiment, Row, Setting
from eqr.experiments.looks import Puzzles

MAZES = Setting(recipe="paper/maze-eqr")
HERE = ("data.kind=generated", "data.train=1000", "data.validation=1", "data.test=1000")


def generated(task: str) -> Setting:
    """Return a recipe that only has to name the task's generator."""
    return MAZES.plus("data.kind=generated", f"data.task={task}", *HERE[1:], f"model.task={task}")


EXPERIMENTS = (
    Experiment(
        item="T18",
        title="Dataset statistics",
        question="Do the puzzles that we generate have the published sizes and path lengths?",
        lab=generated("maze-unique"),
        regime="Generated here at full size; nothing is trained.",
        rows=(
            Row(
                name="Maze-Unique",
                lab=generated("maze-unique"),
                published={"Train": 1000, "Test": 1000, "Side": 30, "Tokens": 6, "Mean path": 119.75},
            ),
            Row(name="Maze-1k", lab=generated("maze-1k"), published={"Mean path": 113.79}),
            Row(
                name="Sudoku-Extreme",
                lab=Setting(recipe="sudoku-9x9", changes=("data.options={}", *HERE[1:])),
                only=("Train", "Test", "Side", "Tokens"),
                published={"Train": 1_001_000, "Test": 422_786, "Side": 9, "Tokens": 11},
            ),
        ),
        columns=(
            Column(name="Train", metric="train", look=Puzzles(), percent=False, digits=0),
            Column(name="Test", metric="test", look=Puzzles(), percent=False, digits=0),
            Column(name="Side", metric="rows", look=Puzzles(), percent=False, digits=0),
            Column(name="Tokens", metric="vocabulary", look=Puzzles(), percent=False, digits=0),
            Column(name="Mean path", metric="path length", look=Puzzles(), percent=False, digits=2),
            Column(name="One shortest path", metric="unique", look=Puzzles()),
        ),
        minutes=1,
        note="Sudoku rows are generated minimal puzzles; Sudoku-Extreme itself is imported "
        "(docs/data-guide.md), and its training set counts 1,000 variants of each of 1,000 puzzles. The "
        "published Maze-1k keeps only long paths; ours are as its generator draws them.",
    ),
)
