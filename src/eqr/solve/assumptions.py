"""Being broad by assuming: each start is told another guess about a few cells.

Random starts differ in where they begin, not in what they know; where a puzzle takes an assumption inside an
assumption, most of them stay in the same doubt. Every right guess is an answer given away, which makes such a
puzzle much easier, and a start that was told wrong finds no rest. What follows from a guess is for the model
to find out; here only grids are left out in which some cell has no symbol left.

Starts may be told anew on the way (`retold`), by how sure they have become. A guess that is wrong forces one
contradiction after another, and the model settles for some symbol everywhere; where the guesses are right and
do not suffice yet, it goes on doubting. So of those that have not settled, the least sure are worth a further
guess, and the others give up their places. Now and then the right one is among these, and what was told once
too often is sure of nonsense; so a tree is not followed for long before another begins, at another cell.
"""

from collections import deque

import numpy as np
from numpy.typing import NDArray

from eqr.errors import UserError
from eqr.tasks.base import Task, Tokens

FIRST_SYMBOL = 2
"""Tokens below it, padding and blank, are no answers."""
MOST_GUESSES = 512
"""Grids that are told apart, at most; a larger breadth tries each of them from several starts."""
TELLINGS = 2
"""Times that starts are told before they begin another tree: at first, and once more by how sure they are."""


def require_assumable(task: Task | None) -> None:
    """Say what is missing where nobody tells which symbols a cell may hold."""
    if task is None:
        raise UserError("assume: this model does not say which task it is for; add --task NAME (task=...)")
    if not task.distinct():
        raise UserError(
            f"assume: {task.name} does not say in which groups symbols differ, so nothing can be assumed; "
            "declare `Task.distinct`, or take random starts"
        )
    if task.look().empty not in (None, task.symbols[0]):
        raise UserError(f"assume: a blank of {task.name} is not its first symbol, so none can be told")


def assumptions(task: Task, puzzle: Tokens, breadth: int) -> Tokens:
    """Return what `breadth` starts are told in turn, (at most breadth, cells).

    It is a tree, level by level: the puzzle as it is, then with the open cell of the fewest choices (two or
    more) filled in by each of them, then those with a further cell, and so on. An answer agrees with one grid
    of every level that is whole, as long as it leaves something to guess. What the first starts are told does
    not depend on how many there are.
    """
    peers, symbols, most = _peers(task), len(task.symbols) - 1, min(breadth, MOST_GUESSES)
    told, unsplit = [puzzle], deque([puzzle])
    while unsplit and len(told) < most:
        children = _split(unsplit.popleft(), peers, symbols)
        told += children
        unsplit += children
    return np.stack(told[:most])


def frontier(task: Task, puzzle: Tokens, breadth: int, tree: int = 0) -> Tokens:
    """Return the deepest whole level with at most `breadth` grids of a tree: one of them is right.

    Tree 0 is the one of `assumptions`; the others begin at the cells that are next best to guess at.
    """
    peers, symbols, level = _peers(task), len(task.symbols) - 1, [puzzle]
    while True:
        first = tree if level[0] is puzzle else 0
        deeper = [child for grid in level for child in _split(grid, peers, symbols, first) or [grid]]
        if len(deeper) > breadth or all(one is other for one, other in zip(deeper, level, strict=False)):
            return np.stack(level)
        level = deeper


def retold(
    task: Task,
    puzzle: Tokens,
    told: Tokens,
    sure: NDArray[np.float64],
    staying: NDArray[np.bool_],
    telling: int,
) -> Tokens:
    """Return what the starts of a puzzle, told (starts, cells) so many times, are told next.

    Those that stay keep what they were told. The others are told further guesses: the least sure grid with a
    cell more filled in by each symbol that fits, then the next, as far as there are places. After `TELLINGS`
    of a tree they begin the next one. If places are left over, grids are told twice; with nothing left to
    guess all keep theirs.
    """
    places = np.flatnonzero(~staying)
    if telling % TELLINGS:
        fresh = _doubted(task, told[places], sure[places])
    else:
        fresh = list(frontier(task, puzzle, len(places), tree=telling // TELLINGS)) if len(places) else []
    after = told.copy()
    if fresh:
        after[places] = np.stack(fresh)[np.arange(len(places)) % len(fresh)]
    return after


def _doubted(task: Task, told: Tokens, sure: NDArray[np.float64]) -> list[Tokens]:
    """Return the grids told with one more cell filled in, the least sure first, no more than they were."""
    peers, symbols = _peers(task), len(task.symbols) - 1
    grids = {told[row].tobytes(): told[row] for row in np.argsort(sure)}
    fresh: list[Tokens] = []
    for grid in grids.values():
        children = _split(grid, peers, symbols)
        if len(fresh) + len(children) > len(told):
            break
        fresh += children
    return fresh


def _split(given: Tokens, peers: NDArray[np.float32], symbols: int, place: int = 0) -> list[Tokens]:
    """Return the grids in which the open cell with the fewest choices, two or more, is filled in.

    Among equals it is the one that rules out most elsewhere: what tells much is worth a guess. `place` counts
    on from there, to the cells that come next.
    """
    fitting = _fitting(given, peers, symbols)
    choices, ruled_out = fitting.sum(axis=1), (fitting * (peers @ fitting)).sum(axis=1)
    open_cells = np.flatnonzero(choices >= 2)
    if not len(open_cells):
        return []
    order = open_cells[np.lexsort((-ruled_out[open_cells], choices[open_cells]))]
    cell = int(order[place % len(order)])
    children = []
    for symbol in np.flatnonzero(fitting[cell]):
        child = given.copy()
        child[cell] = FIRST_SYMBOL + symbol
        if _fitting(child, peers, symbols)[child < FIRST_SYMBOL].any(axis=1).all():
            children.append(child)
    return children


def _fitting(given: Tokens, peers: NDArray[np.float32], symbols: int) -> NDArray[np.bool_]:
    """Return which symbols an open cell may hold beside what is given, (cells, symbols)."""
    held = given[:, None] == np.arange(FIRST_SYMBOL, FIRST_SYMBOL + symbols)
    fitting: NDArray[np.bool_] = (given < FIRST_SYMBOL)[:, None] & (peers @ held == 0)
    return fitting


def _peers(task: Task) -> NDArray[np.float32]:
    """Return which cells may not hold the same symbol, (cells, cells) of 0 and 1."""
    found = np.zeros((task.cells, task.cells), np.float32)
    for family in task.distinct():
        for group in task.groups()[family]:
            members = group[group >= 0]
            found[np.ix_(members, members)] = 1
    np.fill_diagonal(found, 0)
    return found
