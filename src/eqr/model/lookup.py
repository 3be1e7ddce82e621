"""Which model is meant: by a name (a folder, a run, a shipped model, a hub id) or by a puzzle's text.

Shipped models lie in the package (`eqr/weights`), a folder each with config, weights, measured numbers and
card. One lookup serves the command line, `Solver`, `Reasoner.from_pretrained` and the server. PyTorch loads
where a model is opened, so that a mistyped name or puzzle is refused at once.
"""

import os
import re
from math import isqrt
from pathlib import Path
from typing import TYPE_CHECKING

from eqr.errors import UserError, brief, nearest
from eqr.files import read_json
from eqr.tasks import Task, task_named
from eqr.tasks.filling import WORDS

if TYPE_CHECKING:
    import torch

    from eqr.model.reasoner import Reasoner

CONFIG = "config.json"
BEST = "best"
RUNS = "runs"
"""The folder that runs are in unless told otherwise: never the name of an owner on the hub."""
SHIPPED = Path(__file__).resolve().parent.parent / "weights"


def load(name: str | Path, *, device: str = "auto") -> "Reasoner":
    """Open a model for inference; `auto` is a GPU where there is one, else the cpu."""
    from eqr.model.reasoner import Reasoner

    place = local_device(device)
    reasoner = Reasoner.from_pretrained(name)
    try:
        return reasoner.to(place).requires_grad_(False)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device {device!r} cannot be used here: {error}") from None


def local_device(name: str) -> "torch.device":
    """Return the device a name means here: `auto` takes cuda, else cpu (mps by name); a rank its own card."""
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and "LOCAL_RANK" in os.environ:
        name = f"cuda:{os.environ['LOCAL_RANK']}"
    try:
        device = torch.device(name)
        if device.type == "cuda":
            if not torch.cuda.is_available():
                raise UserError(f"device = {name!r}: this PyTorch finds no CUDA device; use cpu or auto")
            torch.cuda.set_device(device)
        torch.zeros(1, device=device).item()  # some can be named but not computed on, or not here
    except (RuntimeError, AssertionError, ValueError, ImportError):
        raise UserError(
            f"device = {brief(name)} is no device that this PyTorch computes on; use auto, cpu, cuda, cuda:1 "
            "or mps"
        ) from None
    return device


def shipped() -> dict[str, Path]:
    """Return the shipped models by name."""
    return {path.parent.name: path.parent for path in sorted(SHIPPED.glob(f"*/{CONFIG}"))}


def local_model(name: str | Path) -> Path | None:
    """Return the folder of the model that a name means, None if only the hub could know it.

    What lies at hand comes first: a folder called like a shipped model is the folder.
    """
    path, name = Path(name), str(name)
    for folder in (path, path / BEST):
        if os.path.isfile(folder / CONFIG):  # noqa: PTH113 - a whole puzzle is too long for pathlib's
            return folder
    if os.path.exists(path):  # noqa: PTH110
        raise UserError(f"{path} holds no model: neither {CONFIG} nor {BEST}/{CONFIG} is in it")
    known = shipped()
    if name in known:
        return known[name]
    if not is_path(name):
        raise UserError(
            f"no model {name!r}: neither a folder here, nor a shipped model, nor a hub id such "
            f"as owner/name{nearest(name, known)}"
        )
    owner, _, rest = name.partition("/")
    if "/" in rest or owner[:1] in (".", "~", "") or owner == RUNS or Path(owner).is_dir():
        raise UserError(f"no folder {name}: a run is trained there by `eqr train RECIPE --out {name}`")
    return None


def is_path(name: str) -> bool:
    """Say whether a name is written as a path or hub id, and not as a puzzle that has a slash in it."""
    return re.fullmatch(r"/?[\w.~-]+(/[\w.-]+)+/?", name) is not None


MAZE, SUDOKU = "maze-", "sudoku-"
FIRST = "sudoku-9x9-hard"
"""The model to ask first where two are for one task."""
SERVED = {"sudoku-16x16": "sudoku-9x9"}
"""Tasks without weights of their own, and the model whose weights serve them too."""
SIZES = (4, 6, 9, 16)
"""Sides of the Sudokus that a text may be."""


def model_for(text: str) -> tuple[str, Task]:
    """Return the shipped model and the task for a puzzle as people paste it."""
    task = task_for(text)
    for name, folder in sorted(shipped().items(), key=lambda model: model[0] != FIRST):
        kind = read_json(folder / CONFIG)["task"]
        if kind == task.name or (_is_maze(kind) and _is_maze(task.name)):
            return name, task
    return SERVED[task.name], task


def task_for(text: str, kind: str | None = None) -> Task:
    """Return the task that a text is a puzzle of; `kind` is a model's own, which comes first.

    Models of mazes and Sudokus run on other sizes than their own, so the text decides the size. `UserError`
    says what keeps it from being a puzzle of the task it is nearest to.
    """
    own = None if kind is None else task_named(kind)
    if own is not None and (not own.name.startswith((MAZE, SUDOKU)) or not _fault(own, text)):
        return own
    if "#" in text:
        tasks = [_maze_of_that_size(text)]
    else:
        cells = sum(map(len, WORDS.findall(text)))
        sides = sorted(SIZES, key=lambda side: abs(side * side - cells))
        tasks = [task_named(f"{SUDOKU}{side}x{side}") for side in sides]
    for task in tasks:
        if not _fault(task, text) and (own is None or _is_maze(own.name) == _is_maze(task.name)):
            return task
    if own is not None:
        return own  # which refuses it, and answers the other puzzles of the same input
    raise UserError(
        f"{text[:40]!r} reads like none of the puzzles that shipped models solve (Sudokus of 16, 36, 81 or "
        f"256 cells, mazes drawn with #, S and G); as {tasks[0].name}: {_fault(tasks[0], text)}. If "
        "another model solves it, name that first: eqr solve MODEL PUZZLE"
    )


def reads_as(kind: str | None, text: str) -> bool:
    """Say whether a text is a puzzle of a task, or of any that shipped models solve."""
    if kind is not None:
        return not _fault(task_named(kind), text)
    try:
        task_for(text)
    except UserError:
        return False
    return True


def _fault(task: Task, text: str) -> str:
    """Say why a text is no puzzle of a task, nothing if it is one."""
    try:
        task.parse(text)
    except UserError as error:
        return str(error)
    return ""


def _maze_of_that_size(text: str) -> Task:
    lines = [line.strip("\r") for line in text.strip("\n").split("\n")]
    rows, columns = len(lines), max(map(len, lines))
    if rows == 1:  # a square, its lines one behind another
        rows = columns = isqrt(columns)
    try:
        return task_named(f"{MAZE}{rows}x{columns}")
    except UserError:
        return task_named(f"{MAZE}11x11")


def _is_maze(name: str) -> bool:
    return name.startswith(MAZE)
