"""What single assumptions decide of a 9x9 Sudoku, and how much they leave open: a measure of nested thought.

Whoever tries each candidate in turn, follows the singles it leads to (cells with one candidate, digits with
one place in a unit) and crosses it out at a contradiction, solves every puzzle that is dug at random,
whatever a search's backtracks say. The hardest known puzzles are of another kind: there this decides next to
nothing, and an assumption must be made inside another. Importing this module loads numba.
"""

import numpy as np
from numpy.typing import NDArray

from eqr.tasks.compiled import compiled

ALL = 511
"""The candidates of an empty cell, one bit each."""


def undecided(puzzle: NDArray[np.uint8], units: NDArray[np.int64]) -> tuple[int, int]:
    """Return how many spare candidates are left when no assumption leads to a contradiction, and the tries.

    `puzzle` (81,) has 0 for blanks; `units` (81, 3) names each cell's row, column and box. 0 spare candidates
    mean that the puzzle is solved, -1 that it has no solution.
    """
    digits = puzzle.astype(np.int64)
    candidates = np.where(digits > 0, 1 << np.maximum(digits - 1, 0), ALL)
    members = np.argsort(units, axis=0, kind="stable").T.reshape(-1, 9).astype(np.int64)
    left, tries = _assume_each(candidates, members, units)
    return int(left), int(tries)


@compiled
def _assume_each(
    candidates: NDArray[np.int64], members: NDArray[np.int64], units: NDArray[np.int64]
) -> tuple[int, int]:
    settled = np.zeros(81, np.bool_)
    tries = 0
    if not _follow_singles(candidates, settled, members, units):
        return -1, tries
    changed = True
    while changed:
        changed = False
        for cell in range(81):
            for digit in range(9):
                bit = 1 << digit
                if not candidates[cell] & bit or candidates[cell] == bit:
                    continue
                assumed = candidates.copy()
                assumed[cell] = bit
                tries += 1
                if _follow_singles(assumed, settled.copy(), members, units):
                    continue
                candidates[cell] &= ~bit
                changed = True
                if not _follow_singles(candidates, settled, members, units):
                    return -1, tries
    left = -81
    for cell in range(81):
        left += _count(candidates[cell])
    return left, tries


@compiled
def _follow_singles(
    candidates: NDArray[np.int64],
    settled: NDArray[np.bool_],
    members: NDArray[np.int64],
    units: NDArray[np.int64],
) -> bool:
    """Fill in what is forced, in place, until nothing is; False at a contradiction."""
    changed = True
    while changed:
        changed = False
        for cell in range(81):
            mask = candidates[cell]
            if mask == 0:
                return False
            if settled[cell] or mask & (mask - 1):
                continue
            settled[cell] = True
            changed = True
            for kind in range(3):
                for peer in members[units[cell, kind]]:
                    if peer != cell:
                        candidates[peer] &= ~mask
                        if candidates[peer] == 0:
                            return False
        for unit in members:
            once, twice = 0, 0
            for cell in unit:
                twice |= once & candidates[cell]
                once |= candidates[cell]
            if once != ALL:
                return False
            for cell in unit:
                alone = candidates[cell] & ~twice
                if alone and alone != candidates[cell]:
                    if alone & (alone - 1):
                        return False
                    candidates[cell] = alone
                    changed = True
    return True


@compiled
def _count(mask: int) -> int:
    count = 0
    while mask:
        mask &= mask - 1
        count += 1
    return count
