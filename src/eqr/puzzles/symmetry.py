"""Which relabellings map the rules onto themselves, found from the rows.

Tried are swaps of two values, of two rows or columns or of two equal bands of them, and the turns and
reflections of the grid; each that maps the set of rows onto itself is kept. Drawn is a random order within
each set of what may be swapped, one after the other, which never leaves what is allowed.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eqr.tasks.base import CellsAndTokens
from eqr.tasks.grids import dihedral
from eqr.tasks.rows import Rows

MOST_ENTRIES = 1_000_000
"""Entries times values above which only names are tried: the rest would take minutes."""

Moves = NDArray[np.intp]
"""Gather tables (moves, cells): new cell c takes what was in cell `moves[m, c]`."""


@dataclass(frozen=True, eq=False)
class Invariances:
    """The relabellings that keep the rules."""

    turns: Moves
    """Turns and reflections, the first of which changes nothing."""
    bands: tuple[tuple[int, int, tuple[tuple[int, ...], ...]], ...]
    """(axis, size, sets): bands of `size` rows (axis 0) or columns whose places within a set are alike."""
    values: tuple[tuple[int, ...], ...]
    """Sets of values that may be renamed into each other."""

    def draw(
        self, rng: np.random.Generator, count: int, shape: tuple[int, int], first: int, vocabulary: int
    ) -> CellsAndTokens:
        """Draw relabellings of grids of a shape, whose values are tokens from `first` on."""
        cells = np.empty((count, shape[0] * shape[1]), np.intp)
        tokens = np.tile(np.arange(vocabulary, dtype=np.uint8), (count, 1))
        for row in range(count):
            grid = self.turns[rng.integers(len(self.turns))].reshape(shape)
            for axis, size, sets in self.bands:
                order = np.arange(shape[axis] // size)
                for places in sets:
                    order[list(places)] = rng.permutation(places)
                grid = grid.take(_spread(order, size), axis=axis)
            cells[row] = grid.ravel()
            for names in self.values:
                tokens[row, np.array(names) + first] = rng.permutation(names) + first
        return CellsAndTokens(cells, tokens)


def find(rows: Rows, shape: tuple[int, int], whole: bool) -> Invariances:
    """Find what keeps the rows; only `whole` rectangles have rows, columns and turns to try."""
    cells = shape[0] * shape[1]
    hashes = _Hashes(rows, cells)
    values = _classes(range(rows.values), hashes.keep_value)
    still = np.arange(cells).reshape(shape)
    if not whole or len(rows.sites) * rows.values > MOST_ENTRIES:
        return Invariances(still.reshape(1, -1), (), values)
    turns = dihedral(*shape)
    turns = turns[[hashes.keep_cells(turn) for turn in turns]]
    bands = []
    for axis in (0, 1):
        for size in range(1, shape[axis] // 2 + 1):
            if shape[axis] % size == 0:

                def alike(one: int, other: int, axis: int = axis, size: int = size) -> bool:
                    order = np.arange(shape[axis] // size)
                    order[[one, other]] = other, one
                    return hashes.keep_cells(still.take(_spread(order, size), axis=axis).ravel())

                sets = _classes(range(shape[axis] // size), alike)
                if sets:
                    bands.append((axis, size, sets))
                if sets and len(sets[0]) * size == shape[axis]:
                    break  # larger bands move no further
    return Invariances(turns, tuple(bands), values)


class _Hashes:
    """Compares the set of rows with its image by random numbers, one a site.

    Rows that say the same have the same hash: weights are taken about their mean in each cell, and a row and
    its negative are one.
    """

    def __init__(self, rows: Rows, cells: int) -> None:
        self._values = rows.values
        rng = np.random.default_rng(0)
        self._of_site = rng.integers(1 << 63, size=cells * rows.values, dtype=np.int64)
        term_of, terms = _terms(rows, cells)
        weights = np.zeros((len(terms), rows.values), np.int64)
        np.add.at(weights, (term_of, rows.sites % rows.values), rows.weights)
        totals = weights.sum(axis=1)
        self._weights = weights * rows.values - totals[:, None]
        self._cells, owners = terms % cells, terms // cells
        self._starts = np.searchsorted(owners, np.arange(len(rows)))
        shift = np.add.reduceat(totals, self._starts) if len(rows) else totals
        self._low, self._high = rows.low * rows.values - shift, rows.high * rows.values - shift
        self._same_values, self._same_cells = np.arange(rows.values), np.arange(cells)
        self._before = self._image(self._same_cells, self._same_values)

    def keep_value(self, one: int, other: int) -> bool:
        """Say whether swapping two values maps the rows onto themselves."""
        names = self._same_values.copy()
        names[[one, other]] = other, one
        return self._same(self._same_cells, names)

    def keep_cells(self, moves: NDArray[np.intp]) -> bool:
        """Say whether moving cells maps the rows onto themselves."""
        return self._same(moves, self._same_values)

    def _same(self, moves: NDArray[np.integer], names: NDArray[np.integer]) -> bool:
        return bool((self._image(moves, names) == self._before).all())

    def _image(self, moves: NDArray[np.integer], names: NDArray[np.integer]) -> NDArray[np.int64]:
        if not len(self._low):
            return self._low
        sites = moves[self._cells][:, None] * self._values + names
        sums = np.add.reduceat((self._of_site[sites] * self._weights).sum(axis=1), self._starts)
        both = _mixed(sums, self._low, self._high) + _mixed(-sums, -self._high, -self._low)
        image: NDArray[np.int64] = np.sort(both)
        return image


def _terms(rows: Rows, cells: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the number of the (row, cell) pair of each entry, and the pairs as row * cells + cell."""
    pairs = rows.row_of * cells + rows.sites // rows.values
    terms, term_of = np.unique(pairs, return_inverse=True)
    return term_of, terms


def _mixed(*parts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Mix numbers into one, wrapping around."""
    mixed = np.zeros_like(parts[0])
    for part in parts:
        mixed = (mixed ^ part) * np.int64(0x2545F4914F6CDD1D)
        mixed ^= mixed >> np.int64(31)
    return mixed


def _classes(things: Iterable[int], alike: Callable[[int, int], bool]) -> tuple[tuple[int, ...], ...]:
    """Return the sets of two and more things of which any two may be swapped."""
    classes: list[list[int]] = []
    for thing in things:
        home = next((known for known in classes if alike(known[0], thing)), None)
        if home is None:
            classes.append([thing])
        else:
            home.append(thing)
    return tuple(tuple(known) for known in classes if len(known) > 1)


def _spread(order: NDArray[np.integer], size: int) -> NDArray[np.intp]:
    """Return the order of lines when bands of `size` are put in an order."""
    return np.asarray((order[:, None] * size + np.arange(size)).ravel(), np.intp)
