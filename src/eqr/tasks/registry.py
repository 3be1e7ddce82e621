"""Which tasks exist, by name.

Built-in tasks are made when first asked for, so that listing names costs nothing; installed packages can add
their own through the `eqr.tasks` entry-point group, and scripts through `register`.
"""

import re
from collections.abc import Callable
from importlib.metadata import entry_points

from eqr.errors import UserError, brief, nearest
from eqr.tasks.base import Task

_registered: dict[str, Task] = {}

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


def register(task: Task) -> Task:
    """Make a task known by its name in this process and return it.

    Registering a class of the same name again replaces it, so that a notebook cell can be run twice.
    """
    known = _registered.get(task.name)
    if known is not None and type(known).__qualname__ != type(task).__qualname__:
        raise UserError(f"a task named {task.name!r} is already registered; give yours another name")
    _registered[task.name] = task
    return task


def task_names() -> list[str]:
    """Return the names of all listed tasks, plug-ins and registered ones last."""
    plugins = [point.name for point in entry_points(group="eqr.tasks")]
    return [*LISTED, *(name for name in [*plugins, *_registered] if name not in LISTED)]


def task_named(name: str) -> Task:
    """Return the task of that name; the same object each time, also by another spelling of its name."""
    if name in _registered:
        return _registered[name]
    task = _build(name)
    return _registered.setdefault(task.name, task)


def _build(name: str) -> Task:
    for pattern, make in _PATTERNS:
        match = re.fullmatch(pattern, name)
        if match:
            return make(*(int(group) for group in match.groups() if group is not None))
    for point in entry_points(group="eqr.tasks"):
        if point.name == name:
            task = point.load()()
            if not isinstance(task, Task):
                raise UserError(f"plug-in {name!r} gives a {type(task).__name__}, not a Task")
            return task
    raise UserError(
        f"unknown task {brief(name)}{nearest(name, task_names())} (your own? put --load FILE before the verb)"
    )


def _sudoku(rows: int, columns: int) -> Task:
    from eqr.tasks.sudoku import Sudoku

    return Sudoku.of_size(rows, columns)


def _maze_unique(rows: int = 30, columns: int = 30) -> Task:
    from eqr.tasks.maze import MazeUnique

    return MazeUnique(rows, columns)


def _maze_1k(rows: int = 30, columns: int = 30) -> Task:
    from eqr.tasks.maze import MazeOpen

    return MazeOpen(rows, columns)


def _mini_arc() -> Task:
    from eqr.tasks.mini_arc import MiniArc

    return MiniArc()


_SIZE = "([0-9]{1,4})x([0-9]{1,4})"

_PATTERNS: tuple[tuple[str, Callable[..., Task]], ...] = (
    (rf"sudoku-{_SIZE}", _sudoku),
    (rf"maze-unique(?:-{_SIZE})?", _maze_unique),
    (rf"maze-{_SIZE}", _maze_unique),
    (rf"maze-1k(?:-{_SIZE})?", _maze_1k),
    (r"mini-arc", _mini_arc),
)
