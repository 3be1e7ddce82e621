"""The exact Sudoku search and the digger that takes clues away, compiled by numba.

Candidates are bit masks. The search fills cells with one possible digit and digits with one possible place
until nothing is forced, then guesses in the most constrained cell and backtracks. `Sudoku` in sudoku.py is
the way to use it; this module is apart so that parsing and checking need not load the compiler. Compiled code
is kept on disk, so only the first use after an installation waits for it.

Grids here hold digits: 0 is blank, 1..size are digits.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eqr.tasks.compiled import compiled

Digits = NDArray[np.uint8]
Masks = NDArray[np.int64]

DEAD = -1


class Searched(NamedTuple):
    """What a search saw."""

    solutions: int
    """Number of solutions met, at most the limit."""
    backtracks: int
    """Guesses, or consequences of guesses, that ran into a contradiction."""
    steps: int
    """Rounds of filling in; one per guess and one for the start."""
    complete: bool
    """Whether the search ended by itself, not by running out of steps."""


class Dug(NamedTuple):
    """A puzzle with one solution, left over after taking clues away."""

    clues: int
    steps: int


def all_digits(cells: int) -> Masks:
    """Allow every digit in every cell."""
    return np.full(cells, (1 << math.isqrt(cells)) - 1, np.int64)


@compiled
def _place(slot: int, bit: int, left: int, grid: Masks, cells: Masks, units: Masks, used: Masks) -> int:
    """Fill the blank cell at `slot` and move it behind the blanks; return how many blanks are left."""
    cell = cells[slot]
    grid[cell] = bit
    for kind in range(3):
        used[units[cell, kind]] |= bit
    cells[slot] = cells[left - 1]
    cells[left - 1] = cell
    return left - 1


@compiled
def _settle(
    left: int, grid: Masks, cells: Masks, allowed: Masks, units: Masks, used: Masks, scratch: Masks, full: int
) -> tuple[int, int]:
    """Fill in all that is forced; return the blanks left and the slot of the most constrained, or DEAD."""
    possible, once, twice = scratch[0], scratch[1], scratch[2]
    while True:
        changed = False
        best, fewest = 0, 64
        slot = 0
        while slot < left:  # a cell with one digit
            cell = cells[slot]
            mask = allowed[cell] & ~(used[units[cell, 0]] | used[units[cell, 1]] | used[units[cell, 2]])
            if mask == 0:
                return left, DEAD
            if mask & (mask - 1) == 0:
                left = _place(slot, mask, left, grid, cells, units, used)
                changed = True
                continue
            possible[cell] = mask
            count = 0
            while mask:
                mask &= mask - 1
                count += 1
            if count < fewest:
                best, fewest = slot, count
            slot += 1
        if left == 0:
            return left, best
        if changed:
            continue
        for unit in range(used.size):
            once[unit] = 0
            twice[unit] = 0
        for slot in range(left):
            cell = cells[slot]
            for kind in range(3):
                unit = units[cell, kind]
                twice[unit] |= once[unit] & possible[cell]
                once[unit] |= possible[cell]
        for unit in range(used.size):
            if once[unit] | used[unit] != full:
                return left, DEAD
            once[unit] &= ~twice[unit]
        slot = 0
        while slot < left:  # a digit with one place
            cell = cells[slot]
            mask = possible[cell] & (once[units[cell, 0]] | once[units[cell, 1]] | once[units[cell, 2]])
            if mask == 0:
                slot += 1
                continue
            taken = used[units[cell, 0]] | used[units[cell, 1]] | used[units[cell, 2]]
            if mask & (mask - 1) or mask & taken:
                return left, DEAD
            left = _place(slot, mask, left, grid, cells, units, used)
            changed = True
        if not changed:
            return left, best


@compiled
def _load(puzzle: Digits, order: Masks, units: Masks, grid: Masks, cells: Masks, used: Masks) -> int:
    """Turn digits into masks, list the blanks in `order` and return their number; DEAD if givens clash."""
    left = 0
    for cell in order:
        grid[cell] = 0
        if puzzle[cell] == 0:
            cells[left] = cell
            left += 1
            continue
        bit = 1 << (np.int64(puzzle[cell]) - 1)
        grid[cell] = bit
        for kind in range(3):
            if used[units[cell, kind]] & bit:
                return DEAD
            used[units[cell, kind]] |= bit
    return left


@compiled
def _pick(mask: int, state: Masks) -> int:
    """Return one bit of the mask: the lowest if the state is 0, otherwise a random one (xorshift)."""
    if state[0]:
        word = state[0]
        word ^= word << 13
        word ^= (word >> 7) & 0x1FFFFFFFFFFFFFF
        word ^= word << 17
        state[0] = word
        count = 0
        rest = mask
        while rest:
            rest &= rest - 1
            count += 1
        for _ in range((word & 0x7FFFFFFFFFFFFFFF) % count):
            mask &= mask - 1
    return mask & -mask


@compiled
def _write_digits(grid: Masks, answer: Digits) -> None:
    """Turn one-bit masks into digits."""
    for cell in range(grid.size):
        answer[cell] = 0
        while grid[cell] >> answer[cell]:
            answer[cell] += 1


@compiled
def search(
    puzzle: Digits,
    answer: Digits,
    allowed: Masks,
    order: Masks,
    units: Masks,
    limit: int,
    max_steps: int,
    seed: int,
) -> Searched:
    """Look for up to `limit` solutions and write the first into `answer`.

    `allowed` restricts the digits of blank cells, `order` breaks ties between equally constrained cells, and
    a seed other than 0 tries digits in random order. `units` (cells, 3) names each cell's row, column, box.
    """
    size = int(np.sqrt(puzzle.size) + 0.5)
    full = (1 << size) - 1
    grid = np.zeros(puzzle.size, np.int64)
    cells = np.zeros(puzzle.size, np.int64)
    used = np.zeros(3 * size, np.int64)
    untried, blanks = np.zeros((2, puzzle.size + 1), np.int64)
    scratch = np.zeros((3, max(grid.size, used.size)), np.int64)
    state = np.full(1, seed, np.int64)
    depth, solutions, backtracks, steps = 0, 0, 0, 0
    left = _load(puzzle, order, units, grid, cells, used)
    if left == DEAD:
        return Searched(0, 0, 0, True)
    while steps < max_steps:
        steps += 1
        left, slot = _settle(left, grid, cells, allowed, units, used, scratch, full)
        if slot == DEAD:
            if depth > 0:
                backtracks += 1
        elif left == 0:
            solutions += 1
            if solutions == 1:
                _write_digits(grid, answer)
            if solutions == limit:
                return Searched(solutions, backtracks, steps, True)
        else:  # guess; the cell is kept last among the blanks, so that undoing the guess leaves it there
            cell = cells[slot]
            cells[slot] = cells[left - 1]
            cells[left - 1] = cell
            taken = used[units[cell, 0]] | used[units[cell, 1]] | used[units[cell, 2]]
            untried[depth] = allowed[cell] & ~taken
            blanks[depth] = left
            depth += 1
        while depth > 0 and untried[depth - 1] == 0:
            depth -= 1
        if depth == 0:
            return Searched(solutions, backtracks, steps, True)
        for slot in range(left, blanks[depth - 1]):
            cell = cells[slot]
            for kind in range(3):
                used[units[cell, kind]] ^= grid[cell]
        left = blanks[depth - 1]
        bit = _pick(untried[depth - 1], state)
        untried[depth - 1] ^= bit
        left = _place(left - 1, bit, left, grid, cells, units, used)
    return Searched(solutions, backtracks, steps, False)


@compiled
def dig(puzzle: Digits, order: Masks, units: Masks, clues: int, max_steps: int) -> Dug:
    """Take clues out of a solved grid, in place and in `order`, while it keeps one solution.

    A clue may go if no solution has another digit there. Stops at `clues` clues; a clue whose search exceeds
    `max_steps` stays.
    """
    size = int(np.sqrt(puzzle.size) + 0.5)
    full = (1 << size) - 1
    allowed = np.full(puzzle.size, full, np.int64)
    plain = np.arange(puzzle.size)
    unused = np.empty_like(puzzle)
    count, steps = puzzle.size, 0
    for cell in order:
        if count == clues:
            break
        digit = puzzle[cell]
        puzzle[cell] = 0
        allowed[cell] = full ^ (1 << (np.int64(digit) - 1))
        other = search(puzzle, unused, allowed, plain, units, 1, max_steps, 0)
        allowed[cell] = full
        steps += other.steps
        if other.solutions == 0 and other.complete:
            count -= 1
        else:
            puzzle[cell] = digit
    return Dug(count, steps)
