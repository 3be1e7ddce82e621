"""Decoded grids as pictures: a puzzle, its answer, and what a trajectory decodes to on the way.

One renderer for every task: it asks the task for shape, symbols and look (`Task.look`). What counts as given,
filled or wrong follows from puzzle and label alone: a cell whose label the puzzle already shows is given.
"""

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from eqr.errors import UserError
from eqr.figures.style import WIDE, new_figure, styled
from eqr.tasks.base import PAD, Task, Tokens

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GIVEN_FILL, RIGHT_FILL, WRONG_FILL = "#E4E4E4", "#BFE5D8", "#F6C3A6"
RIGHT_INK, WRONG_INK = "#00614A", "#9C3A00"
LINE, STRONG, CHANGED = "#9A9A9A", "#222222", "#0072B2"
LINED = 16
"""Columns up to which cells have lines between them."""


def draw_grid(
    axes: "Axes",
    task: Task,
    grid: Tokens,
    *,
    puzzle: Tokens | None = None,
    label: Tokens | None = None,
    before: Tokens | None = None,
    given: NDArray[np.bool_] | None = None,
) -> None:
    """Draw one grid; `puzzle` and `label` mark given, right and wrong cells, `before` rings changed ones.

    A puzzle itself is drawn with `given` cells instead, which are shaded.
    """
    look, (rows, columns) = task.look(), task.shape
    wrong = _wrong(grid, label)
    if given is None:
        given = np.zeros(len(grid), bool) if puzzle is None or label is None else puzzle == label
    scale = axes.figure.get_figure(root=True).get_size_inches()[0] / WIDE
    size = scale * axes.get_position().width * WIDE * 72 / columns * 0.58
    symbols = ["?" if token == PAD else task.symbols[token - 1] for token in grid.tolist()]
    others = "#FFFFFF" if label is None else RIGHT_FILL
    plain = np.where(wrong, WRONG_FILL, np.where(given, GIVEN_FILL, others)).tolist()
    _paint(axes, [look.fills.get(*pair) for pair in zip(symbols, plain, strict=True)], columns)
    for cell, symbol in enumerate(symbols):
        row, column = divmod(cell, columns)
        if symbol not in look.silent:
            ink = WRONG_INK if wrong[cell] else "#111111" if given[cell] or label is None else RIGHT_INK
            weight = "bold" if given[cell] and not wrong[cell] else "normal"
            axes.text(
                column + 0.5,
                row + 0.52,
                symbol,
                ha="center",
                va="center",
                size=size,
                color=ink,
                weight=weight,
            )
        if wrong[cell] and symbol in look.fills:
            _cross(axes, row, column)
        if before is not None and before[cell] != grid[cell]:
            _ring(axes, row, column, halo=symbol in look.fills)
    high, wide = look.box or (rows, columns)
    edge: dict[str, Any] = {"color": STRONG, "lw": 1.1, "solid_capstyle": "projecting"}
    for row in range(0, rows + 1, high):
        axes.plot([0, columns], [row, row], **edge)
    for column in range(0, columns + 1, wide):
        axes.plot([column, column], [0, rows], **edge)
    axes.set(xlim=(-0.05, columns + 0.05), ylim=(rows + 0.05, -0.05), aspect="equal")
    axes.set_axis_off()


@styled
def grid_figure(
    task: Task, grid: Tokens, *, puzzle: Tokens | None = None, label: Tokens | None = None
) -> "Figure":
    """Draw one grid as a figure of its own."""
    figure = new_figure(2.4, 2.4 * task.shape[0] / task.shape[1])
    draw_grid(figure.subplots(), task, grid, puzzle=puzzle, label=label)
    return figure


@styled
def trajectory_figure(
    task: Task,
    puzzle: Tokens,
    label: Tokens,
    grids: Tokens,
    segments: Sequence[int],
    *,
    across: int | None = None,
) -> "Figure":
    """Draw the puzzle and what a trajectory decodes to after some segments; `grids` (segments, cells)."""
    if len(grids) != len(segments):
        raise UserError(f"{len(grids)} grids for {len(segments)} segments; give one segment number per grid")
    across = min(across or (4 if task.shape[1] <= 9 else 3), len(grids) + 1)
    down, side = ceil((len(grids) + 1) / across), WIDE / across
    size = min(8.0, 4.6 * side)
    figure = new_figure(WIDE, down * (side * task.shape[0] / task.shape[1] + 0.22))
    panels = figure.subplots(down, across, squeeze=False).flat
    draw_grid(next(panels), task, puzzle, given=(puzzle == label) & (label != PAD))
    figure.axes[0].set_title("puzzle", fontsize=size)
    counted = int((label != PAD).sum())
    before: Tokens | None = None
    for axes, grid, segment in zip(panels, grids, segments, strict=False):
        draw_grid(axes, task, grid, puzzle=puzzle, label=label, before=before)
        right = counted - int(_wrong(grid, label).sum())
        axes.set_title(f"segment {segment}: {right}/{counted} right", fontsize=size)
        before = grid
    for axes in figure.axes[len(grids) + 1 :]:
        axes.set_axis_off()
    return figure


def telling_segments(grids: Tokens, most: int) -> list[int]:
    """Pick up to `most` segments (from 1) of a trajectory (segments, cells): where the answer changes."""
    changed = np.flatnonzero((grids[1:] != grids[:-1]).any(axis=1)) + 1
    chosen = [0, *changed.tolist()]
    if len(chosen) > most:  # keep the beginning, where most happens, and the end
        head = most - most // 3
        tail = np.unique(np.linspace(head, len(chosen) - 1, most - head).round().astype(int))
        chosen = chosen[:head] + [chosen[index] for index in tail]
    return [index + 1 for index in chosen]


def _wrong(grid: Tokens, label: Tokens | None) -> NDArray[np.bool_]:
    if label is None:
        return np.zeros(len(grid), bool)
    return np.asarray((grid != label) & (label != PAD))


def _paint(axes: "Axes", fills: Sequence[str], columns: int) -> None:
    """Fill all cells at once; in large grids neighbours of one colour become one rectangle, without lines."""
    from matplotlib.collections import PolyCollection

    boxes, colors = [], []
    cell = 0
    while cell < len(fills):
        row, column = divmod(cell, columns)
        wide = 1
        while columns > LINED and column + wide < columns and fills[cell + wide] == fills[cell]:
            wide += 1
        left, right = column, column + wide
        boxes.append([(left, row), (right, row), (right, row + 1), (left, row + 1)])
        colors.append(fills[cell])
        cell += wide
    lines: Any = LINE if columns <= LINED else colors
    axes.add_collection(PolyCollection(boxes, facecolors=colors, edgecolors=lines, linewidths=0.4))


def _cross(axes: "Axes", row: int, column: int) -> None:
    across, down = [column + 0.25, column + 0.75], [row + 0.25, row + 0.75]
    for color, width in (("white", 2.4), (WRONG_INK, 1.2)):
        axes.plot(across, down, color=color, lw=width)
        axes.plot(across, down[::-1], color=color, lw=width)


def _ring(axes: "Axes", row: int, column: int, *, halo: bool) -> None:
    from matplotlib.patches import Circle

    for color, width in ((("white", 2.6),) if halo else ()) + ((CHANGED, 1.0),):
        axes.add_patch(Circle((column + 0.5, row + 0.5), 0.42, fill=False, edgecolor=color, linewidth=width))
