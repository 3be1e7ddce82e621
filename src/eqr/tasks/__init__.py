"""The kinds of puzzles: look one up by name with `task_named`, add one with `register`."""

from eqr.registry import register
from eqr.tasks.base import Task
from eqr.tasks.registry import task_named, task_names

__all__ = ["Task", "register", "task_named", "task_names"]
