"""What a declared puzzle looks like on paper, found from its rules: regions, cages, signs and edges."""

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from eqr.tasks.base import Link
from eqr.tasks.filling import Board
from eqr.tasks.rows import RowKind, Rows, Rule, Sort

MOST_SIGNS = 5
"""Values of a sign at most: none and four signs; what has more is a number, such as a sum."""


def regions_of(board: Board, rules: Sequence[Rule], size: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the area of each cell where groups divide the grid, and the cells of other groups of `size`.

    Rows and columns are neither.
    """
    scopes = dict.fromkeys(
        frozenset(rule.cells) for rule in rules if rule.sort in (Sort.DIFFERENT, Sort.COUNT)
    )
    lines = {scope for scope, word in board._lines.items() if word.startswith(("row", "column"))}
    groups = [scope for scope in scopes if len(scope) == size and scope not in lines]
    areas, rest, number = np.full(len(board.places), -1), set[int](), 0
    for scope in groups:
        cells = sorted(scope)
        if (areas[cells] < 0).all() and _connected(board.places[cells], board.shape[1]):
            areas[cells], number = number, number + 1
        else:
            rest |= scope
    if (areas < 0).any():
        return (), tuple(sorted(rest.union(*groups)))
    return tuple(areas.tolist()), tuple(sorted(rest))


def cages_of(board: Board, rules: Sequence[Rule]) -> tuple[tuple[int, ...], ...]:
    """Return the cells of rules about one given number, that number's cell last, if no cell has two such."""
    cages = []
    for cells in dict.fromkeys(tuple(sorted(rule.cells)) for rule in rules):
        if len(cells) > 1 and cells[-1] >= len(board.places) > cells[-2]:
            cages.append(cells)
    inside = [cell for cage in cages for cell in cage[:-1]]
    return tuple(cages) if len(set(inside)) == len(inside) else ()


def links_of(board: Board, rules: Sequence[Rule], rows: Rows) -> tuple[Link, ...]:
    """Return what given values say of two cells each: the signs of a Futoshiki, the edges of a graph."""
    about: dict[tuple[int, ...], list[int]] = {}
    for number, rule in enumerate(rules):
        cells = tuple(sorted(rule.cells))
        if len(cells) == 3 and cells[2] >= len(board.places) > cells[1]:
            about.setdefault(cells, []).append(number)
    possible = np.ones((board.cells, rows.values), np.bool_)
    barred = rows.members(RowKind.BARRED)
    possible.ravel()[barred[barred >= 0]] = False
    combinations = list(product(range(rows.values), repeat=3))
    links = []
    for cells, owners in about.items():
        first, second, told = (np.flatnonzero(possible[cell]) for cell in cells)
        if len(told) > MOST_SIGNS:
            continue
        grids = np.full((len(combinations), board.cells), -1)
        grids[:, cells] = combinations
        whole = rows.kept(grids)[:, np.isin(rows.owner, owners)].all(axis=1)
        kept = np.reshape(whole, (rows.values,) * 3)
        kept = kept[np.ix_(first, second)]
        signs = tuple(
            _sign(first, second, kept[:, :, value]) if value in told else None for value in range(rows.values)
        )
        if any(signs):
            links.append(Link(cells[0], cells[1], cells[2], signs))
    return tuple(links)


def _sign(first: NDArray[np.intp], second: NDArray[np.intp], allowed: NDArray[np.bool_]) -> str:
    """Return the sign of a relation between two values, "" for none and for those without a sign."""
    first = first[:, None]
    signs = {"<": first < second, ">": first > second, "=": first == second, "\u2260": first != second}
    return next((sign for sign, holds in signs.items() if np.array_equal(allowed, holds)), "")


def _connected(places: NDArray[np.int64], columns: int) -> bool:
    row, column = np.divmod(places, columns)
    near = abs(row[:, None] - row) + abs(column[:, None] - column) <= 1
    reached = near[0]
    for _ in places:
        reached = near[reached].any(axis=0)
    return bool(reached.all())
