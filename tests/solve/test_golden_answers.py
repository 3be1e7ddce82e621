"""Golden answers of shipped weights to fixed puzzles, so that a change of behaviour never goes unnoticed.

Residuals are those of the first segments, where processors have not drifted apart yet; whole runs are
compared by the answer and the depth at which they halt.
"""

import pytest

from eqr import behaviour
from eqr.solve import Budget, Solver
from golden_records import FOLDER, Golden

GOLDEN = Golden(FOLDER / "answers.json", behaviour.ANSWERS)
PUZZLES = {
    "sudoku-4x4": ["4.2....4...2.1..", "....134..13.....", ".4......3..2..1."],
    "sudoku-9x9": [
        "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79",
        "...87.....4.....622...........1......1.5..7.8.9...7.3...8..9.1.7....5.4.6..4..3..",
    ],
    "maze": [
        "############      S  ## ### ######   #     ######## # ##"
        "     # # ## ### ### ## # #   # ## # ##### ##    G    ############"
    ],
}


@pytest.mark.parametrize("name", PUZZLES)
def test_answers_are_those_on_record(name):
    halting = Solver(name, budget=Budget(depth=64, halting="head+stable:1"))
    puzzles = [halting.task.parse(text) for text in PUZZLES[name]]
    answers = list(halting.solve_many(puzzles))
    numbers = {
        "answers": ["".join(f"{token:x}" for token in answer.grid.tolist()) for answer in answers],
        "depths": [answer.depth for answer in answers],
    }
    for depth in (1, 2, 3):
        short = Solver(name, task=halting.task, budget=Budget(depth=depth)).solve_many(puzzles)
        numbers[f"residuals after {depth}"] = [round(answer.residual, 7) for answer in short]
    GOLDEN.check(name, numbers, rel=1e-3)
