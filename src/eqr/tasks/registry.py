"""Which tasks exist, by name.

Built-in tasks are made when first asked for, so that listing names costs nothing; installed packages can add
their own through the `eqr.tasks` entry-point group, and scripts through `register` (`eqr.registry`).
"""

import re
from importlib import import_module
from operator import attrgetter

from eqr.errors import UserError, brief, nearest
from eqr.registry import Registry
from eqr.tasks.base import Task

LISTED = (
    "sudoku-4x4",
    "sudoku-6x6",
    "sudoku-9x9",
    "sudoku-16x16",
    "maze-unique",
    "maze-1k",
    "mini-arc",
)
"""Shown by `eqr tasks`; mazes of any size (`maze-11x11`, `maze-1k-12x12`) exist by pattern as well."""


def _name_of(thing: object) -> str | None:
    if isinstance(thing, Task) or (isinstance(thing, type) and issubclass(thing, Task)):
        return thing.name
    return None


def _made(thing: Task | type[Task]) -> Task:
    return thing() if isinstance(thing, type) else thing


TASKS: Registry[Task] = Registry("tasks", _name_of, _made)
"""Tasks made so far, plug-ins and your own."""


def task_names() -> list[str]:
    """Return the names of all listed tasks, plug-ins and registered ones last."""
    return [*LISTED, *(name for name in TASKS if name not in LISTED)]


def task_named(name: str) -> Task:
    """Return the task of that name; the same object each time, also by another spelling of its name."""
    found = TASKS.known(name)
    if found is not None:
        return found
    task = _build(name)
    return TASKS.known(task.name) or TASKS.keep(task.name, task)


def _build(name: str) -> Task:
    for pattern, module, make in _PATTERNS:
        match = re.fullmatch(pattern, name)
        if match:
            sizes = (int(group) for group in match.groups() if group is not None)
            task: Task = attrgetter(make)(import_module(f"eqr.tasks.{module}"))(*sizes)
            return task
    found = TASKS.find(name)
    if found is None:
        hint = "(your own? add --load FILE)"
        raise UserError(f"unknown task {brief(name)}{nearest(name, task_names())} {hint}")
    return found


_SIZE = "([0-9]{1,4})x([0-9]{1,4})"

_PATTERNS = (
    (rf"sudoku-{_SIZE}", "sudoku", "Sudoku.of_size"),
    (rf"maze-unique(?:-{_SIZE})?", "maze", "MazeUnique"),
    (rf"maze-{_SIZE}", "maze", "MazeUnique"),
    (rf"maze-1k(?:-{_SIZE})?", "maze", "MazeOpen"),
    (r"mini-arc", "mini_arc", "MiniArc"),
)
"""Names, and the module and class that makes their tasks."""
