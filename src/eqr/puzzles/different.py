"""Puzzles whose only rules are groups of cells that differ, and random ones of them to train on.

A model that is told groups and nothing else learns from random geometries what holds for any: Sudoku with
diagonals, of odd regions or with more pairs is then a puzzle it never saw and can solve. A random geometry is
a Latin square, most often with regions, and groups that hold in one of its answers: transversals, pairs a
fixed step apart, small groups anywhere. None is the knight's step, which is kept for judging.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from eqr.puzzles.task import Puzzle
from eqr.tasks.base import Instance
from eqr.tasks.compiled import compiled
from eqr.tasks.filling import FIRST, LETTERS, Board, box_of, different
from eqr.tasks.rows import Ints, Rows

FILL_STEPS = 20_000
"""Rows that a search for a grid may look at; regions that allow none are soon given up."""
DIG_STEPS = 3_000
"""The same to decide whether a clue can go; where it is not enough the clue stays."""
KNIGHT = ((1, 2), (2, 1))
"""Steps between cells that no training puzzle has a rule about."""


def all_different(
    name: str, shape: tuple[int, int], groups: Sequence[NDArray[np.integer]], values: int
) -> Puzzle:
    """Return the puzzle of a grid whose groups of cells differ; one as large as `values` has each once."""
    cells = [np.sort(group).astype(np.int64) for group in groups]
    box = box_of(shape, {frozenset(group.tolist()) for group in cells})
    names = tuple(LETTERS[:values]) if values <= len(LETTERS) else tuple(str(n + 1) for n in range(values))
    board = Board(shape, np.arange(shape[0] * shape[1]), names, box)
    return Puzzle(name, board, range(1, values + 1), different(cells), Rows.different(cells, values))


def random_geometry(name: str, rng: np.random.Generator, size: int) -> tuple[Puzzle, Ints]:
    """Draw a geometry of size x size cells and as many values, and a grid that keeps it, as value numbers."""
    from eqr.puzzles.search import find

    cells = np.arange(size * size).reshape(size, size)
    while True:
        groups = [*cells, *cells.T, *random_regions(rng, size)]
        puzzle = all_different(name, (size, size), groups, size)
        seed = int(rng.integers(1, 1 << 31))
        found, answer = find(puzzle.tables, np.full(size * size, -1), limit=1, steps=FILL_STEPS, seed=seed)
        if found.solutions:
            break
    more = [*_transversals(rng, answer, size), *_steps(rng, answer, cells), *_scattered(rng, answer, size)]
    return all_different(name, (size, size), [*groups, *more], size), answer


def dug(rng: np.random.Generator, puzzle: Puzzle, answer: Ints) -> Iterator[Instance]:
    """Yield puzzles without a spare clue, of this grid and of others where a short search finds some."""
    from eqr.puzzles.search import dig, find

    while True:
        blank, seed = np.full(puzzle.cells, -1), int(rng.integers(1, 1 << 31))
        found, other = find(puzzle.tables, blank, limit=1, steps=FILL_STEPS, seed=seed)
        whole = other if found.solutions else answer
        givens = whole.copy()
        dig(givens, rng.permutation(puzzle.cells), puzzle.tables, 0, DIG_STEPS)
        grids = (np.where(grid < 0, FIRST - 1, grid + FIRST).astype(np.uint8) for grid in (givens, whole))
        yield Instance(puzzle=next(grids), answer=next(grids), rating=0)


def random_regions(rng: np.random.Generator, size: int) -> list[Ints]:
    """Draw as many connected regions of `size` cells, or boxes; none in one of seven geometries."""
    kind = rng.random()
    if kind < 1 / 7:
        return []
    rows = max(side for side in range(1, size) if size % side == 0 and side * side <= size)
    cells = np.arange(size * size)
    region = cells // size // rows * rows + cells % size // (size // rows)
    if kind > 2 / 7 or rows == 1:
        wanted = int(rng.integers(size, 8 * size))
        _exchange(region.reshape(size, size), wanted, rng.integers(size * size, size=(100 * wanted, 2)))
    return [np.flatnonzero(region == number) for number in range(size)]


@compiled
def _exchange(region: NDArray[np.int64], wanted: int, tries: NDArray[np.int64]) -> None:
    """Let regions exchange the cells of some tries, (count, 2), while each stays connected."""
    size, reached, stack = len(region), np.empty(region.size, np.uint8), np.empty(region.size, np.int64)
    flat = region.reshape(-1)
    for one, other in tries:
        mine, theirs = flat[one], flat[other]
        if mine == theirs:
            continue
        flat[one], flat[other] = theirs, mine
        whole = True
        for first, number in ((one, theirs), (other, mine)):
            reached[:] = 0
            reached[first], stack[0], left, seen = 1, first, 1, 1
            while left:
                left -= 1
                row, column = divmod(stack[left], size)
                for down, right in ((0, 1), (1, 0), (0, -1), (-1, 0)):
                    r, c = row + down, column + right
                    cell = r * size + c
                    inside = 0 <= r < size and 0 <= c < size
                    if inside and flat[cell] == number and not reached[cell]:
                        reached[cell], stack[left] = 1, cell
                        left, seen = left + 1, seen + 1
            whole = whole and seen == size
        if not whole:
            flat[one], flat[other] = mine, theirs
            continue
        wanted -= 1
        if not wanted:
            break


def _transversals(rng: np.random.Generator, answer: Ints, size: int) -> list[Ints]:
    """Draw up to three sets of cells that hold every value once."""
    places = [np.flatnonzero(answer == value) for value in range(size)]
    return [np.array([rng.choice(cells) for cells in places]) for _ in range(rng.integers(0, 4))]


def _steps(rng: np.random.Generator, answer: Ints, cells: Ints) -> list[Ints]:
    """Draw pairs a fixed step apart, as many as hold, in half of the geometries; up to three steps."""
    found: list[Ints] = []
    for _ in range(max(int(rng.integers(-2, 4)), 0)):
        down, right = int(rng.integers(1, 4)), int(rng.integers(1, 4))
        if (down, right) in KNIGHT or max(down, right) >= len(cells):
            continue
        ways = (cells[:-down, :-right], cells[down:, right:]), (cells[:-down, right:], cells[down:, :-right])
        for one, other in ways[: rng.integers(1, 3)]:
            pairs = np.stack([one.ravel(), other.ravel()], axis=1)
            found += list(pairs[answer[pairs[:, 0]] != answer[pairs[:, 1]]])
    return found


def _scattered(rng: np.random.Generator, answer: Ints, size: int) -> list[Ints]:
    """Draw groups of two cells and more that differ, in a third of the geometries."""
    count = int(rng.integers(1, size * size)) if rng.random() < 1 / 3 else 0
    groups = []
    for _ in range(count):
        members = 2 if rng.random() < 0.7 else int(rng.integers(2, size))
        values = rng.permutation(size)[:members]
        groups.append(np.array([rng.choice(np.flatnonzero(answer == value)) for value in values]))
    return groups
