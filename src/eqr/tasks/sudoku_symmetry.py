"""Relabellings of Sudoku grids: drawing random ones in batches, and undoing them all in a canonical form.

The group: rename digits, permute bands and the rows within each, stacks and the columns within each, and
transpose where boxes are square. Used by `Sudoku` in sudoku.py for augmentation and for leak checks.
"""

import numpy as np
from numpy.typing import NDArray

from eqr.tasks.base import CellsAndTokens, Tokens
from eqr.tasks.filling import BLANK

Hashes = NDArray[np.uint64]

REFINEMENTS = 4
"""Rounds of refinement in `canonical`; beyond 4 no further 9x9 puzzles are told apart in practice."""


def draw(rng: np.random.Generator, count: int, box_rows: int, box_columns: int) -> CellsAndTokens:
    """Draw `count` relabellings, each symmetry with equal probability; blank and padding stay."""
    size = box_rows * box_columns
    rows = _lines(rng, count, bands=box_columns, height=box_rows)
    columns = _lines(rng, count, bands=box_rows, height=box_columns)
    transposed = rng.random((count, 1, 1)) < 0.5 if box_rows == box_columns else np.zeros((count, 1, 1), bool)
    row_step, column_step = np.where(transposed, 1, size), np.where(transposed, size, 1)
    cells = rows[:, :, None] * row_step + columns[:, None, :] * column_step
    tokens = np.empty((count, size + 2), np.uint8)
    tokens[:, :2] = 0, BLANK
    tokens[:, 2:] = _permutations(rng, (count, size)) + 2
    return CellsAndTokens(cells.reshape(count, -1), tokens)


def _permutations(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.intp]:
    """Independent random permutations along the last axis: the order of random keys."""
    return np.argsort(rng.random(shape, dtype=np.float32), axis=-1)


def _lines(rng: np.random.Generator, count: int, *, bands: int, height: int) -> NDArray[np.intp]:
    """Permute the bands, and the lines within each band: (count, bands * height)."""
    order = _permutations(rng, (count, bands))[:, :, None] * height
    return (order + _permutations(rng, (count, bands, height))).reshape(count, -1)


def canonical(grids: Tokens, box_rows: int, box_columns: int) -> Tokens:
    """Map symmetric grids to one representative, for nearly every puzzle with enough irregularity.

    Rows and columns are sorted by what they contain (colour refinement), digits renamed by first appearance.
    Two different puzzles never share a form. Rows that refinement cannot tell apart keep their order, so
    for regular grids (above all full ones) only renaming and transposing are certain to be undone.
    """
    form = _sorted_form(grids, box_rows, box_columns)
    if box_rows != box_columns:
        return form
    size = box_rows * box_columns
    flipped = grids.reshape(-1, size, size).transpose(0, 2, 1).reshape(grids.shape)
    other = _sorted_form(flipped, box_rows, box_columns)
    first = np.argmax(form != other, axis=1)[:, None]
    smaller = np.take_along_axis(form, first, 1) <= np.take_along_axis(other, first, 1)
    return np.where(smaller, form, other)


def _sorted_form(grids: Tokens, box_rows: int, box_columns: int) -> Tokens:
    count, size = len(grids), box_rows * box_columns
    rows, columns = _refined(grids, box_rows, box_columns)
    row_order, column_order = _line_order(rows, box_rows), _line_order(columns, box_columns)
    cells = (row_order[:, :, None] * size + column_order[:, None, :]).reshape(count, -1)
    return _renamed(np.take_along_axis(grids, cells, axis=1), size)


def _refined(grids: Tokens, box_rows: int, box_columns: int) -> tuple[Hashes, Hashes]:
    """Hash each row and column by its clues, those clues by their lines and digits, and so on, in rounds."""
    count, size = len(grids), box_rows * box_columns
    filled = (grids > BLANK).reshape(count, size, size)
    digits = np.ones((count, size + 2), np.uint64)
    rows, columns = np.full((count, size), 2, np.uint64), np.full((count, size), 3, np.uint64)
    index = np.arange(count)[:, None]
    for _ in range(REFINEMENTS):
        digit = np.take_along_axis(digits, grids.astype(np.intp), axis=1).reshape(count, size, size)
        clue = _mixed(_with_band(rows, box_rows)[:, :, None] + digit * np.uint64(5))
        clue = np.where(filled, _mixed(clue + _with_band(columns, box_columns)[:, None, :]), np.uint64(0))
        rows, columns = _mixed(rows + clue.sum(2)), _mixed(columns + clue.sum(1))
        digits = np.zeros_like(digits)
        np.add.at(digits, (index, grids), clue.reshape(count, -1))
    return _with_band(rows, box_rows), _with_band(columns, box_columns)


def _with_band(lines: Hashes, height: int) -> Hashes:
    """Mix into each line's hash the sum over its band, which does not depend on the order inside it."""
    banded = lines.reshape(len(lines), -1, height)
    return _mixed(lines + _mixed(np.repeat(banded.sum(2), height, axis=1)))


def _line_order(lines: Hashes, height: int) -> NDArray[np.intp]:
    """Sort lines by hash within each band, then the bands by theirs; ties keep their order."""
    banded = lines.reshape(len(lines), -1, height)
    inside = np.argsort(banded, axis=2, kind="stable")
    order = np.argsort(_mixed(banded).sum(2), axis=1, kind="stable")[:, :, None]
    return (order * height + np.take_along_axis(inside, order, axis=1)).reshape(len(lines), -1)


def _renamed(grids: Tokens, size: int) -> Tokens:
    """Rename digits by first appearance, reading row by row."""
    present = grids[:, :, None] == np.arange(2, size + 2, dtype=np.uint8)
    first = np.where(present.any(1), present.argmax(1), grids.shape[1])
    names = np.empty((len(grids), size + 2), np.uint8)
    names[:, :2] = 0, BLANK
    names[:, 2:] = np.argsort(np.argsort(first, axis=1, kind="stable"), axis=1) + 2
    return np.take_along_axis(names, grids, axis=1)


def _mixed(words: Hashes) -> Hashes:
    """Scramble 64-bit words (the splitmix64 finaliser)."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
