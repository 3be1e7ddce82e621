"""A few 5x5 transformations in the spirit of Mini-ARC, so that the task can be tried without its files.

Mini-ARC itself is a fixed public collection and is imported as data. Each rule here plays the part of one of
its tasks: all its pairs share an identity, which is its place in `RULES` counted from 1 (0 means none).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from eqr.tasks.base import Tokens

SIDE = 5


class Rule(NamedTuple):
    """A named map of colour grids (5, 5)."""

    name: str
    apply: Callable[[Tokens], Tokens]


def _fall(grid: Tokens) -> Tokens:
    return np.take_along_axis(grid, np.argsort(grid != 0, axis=0, kind="stable"), axis=0)


def _next_color(grid: Tokens) -> Tokens:
    return np.where(grid == 0, 0, grid % 9 + 1).astype(np.uint8)


def _complete(grid: Tokens) -> Tokens:
    half = grid[:, : SIDE // 2]
    return np.concatenate([grid[:, : SIDE // 2 + 1], half[:, ::-1]], axis=1)


def _fill_background(grid: Tokens) -> Tokens:
    most_common = np.bincount(grid[grid != 0], minlength=1).argmax()
    return np.where(grid == 0, most_common, grid).astype(np.uint8)


RULES = (
    Rule("mirror left and right", np.fliplr),
    Rule("mirror top and bottom", np.flipud),
    Rule("quarter turn", np.rot90),
    Rule("transpose", np.transpose),
    Rule("fall down", _fall),
    Rule("next colour", _next_color),
    Rule("make symmetric", _complete),
    Rule("fill with the commonest colour", _fill_background),
)


def draw_grid(rng: np.random.Generator) -> Tokens:
    """Draw colours 0-9, shape (5, 5): a background sprinkled with up to four colours."""
    palette = rng.choice(np.arange(1, 10, dtype=np.uint8), size=rng.integers(1, 5), replace=False)
    colored = rng.random((SIDE, SIDE)) < rng.uniform(0.2, 0.7)
    return np.where(colored, rng.choice(palette, size=(SIDE, SIDE)), 0).astype(np.uint8)
