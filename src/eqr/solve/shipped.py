"""Which shipped model can solve a puzzle, by the look of its text."""

from eqr.errors import UserError
from eqr.files import read_json
from eqr.model.lookup import CONFIG, shipped
from eqr.tasks import Task, task_named

MAZE = "maze-"
FIRST = "sudoku-9x9-hard"
"""The model to ask first where two are for one task."""
SERVED = {"sudoku-16x16": "sudoku-9x9"}
"""Tasks without weights of their own, and the model whose weights serve them too."""


def model_for(text: str) -> tuple[str, Task]:
    """Return the shipped model and the task for a puzzle as people paste it."""
    tried = []
    models = sorted(shipped().items(), key=lambda model: model[0] != FIRST)
    own = [(name, read_json(folder / CONFIG)["task"]) for name, folder in models]
    for name, kind in (*own, *((model, task) for task, model in SERVED.items())):
        task = _of_that_size(kind, text)
        try:
            task.parse(text)
        except UserError:
            tried.append(task.name)
        else:
            return name, task
    raise UserError(
        f"{text[:40]!r} reads like none of the puzzles that shipped models solve ({', '.join(tried)}); "
        "name a model first: eqr solve MODEL PUZZLE"
    )


def _of_that_size(name: str, text: str) -> Task:
    """Maze models run on mazes of any size, so the text decides it."""
    lines = [line.strip("\r") for line in text.strip("\n").split("\n")]
    columns = max(map(len, lines))
    if name.startswith(MAZE) and len(lines) > 2 and columns > 2:
        try:
            return task_named(f"{MAZE}{len(lines)}x{columns}")
        except UserError:
            pass
    return task_named(name)
