"""Generating Sudoku puzzles: fill a grid at random, take clues away, keep what fits the options.

Behind `Sudoku.generate`. Every search here is bounded; options that (almost) no puzzle meets end in an error
that says what was tried, never in an endless loop.

Puzzles dug at random are solved by trying one candidate at a time; the hardest known are not, and neither are
those of the library `sudoku_hard.txt`, found by long walks (benchmarks/climb.py): an assumption must be made
inside another.
"""

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from eqr.errors import UserError
from eqr.tasks import sudoku_symmetry
from eqr.tasks.base import Instance, Tokens
from eqr.tasks.filling import BLANK
from eqr.tasks.sudoku_search import Searched, all_digits, dig, search

if TYPE_CHECKING:
    from eqr.tasks.sudoku import SudokuOptions

FILL_STEPS = 5_000
DIG_STEPS = 1_000_000
"""Steps to decide whether one clue can go; up to 9x9 always enough, so "minimal" is exact there."""
DIG_STEPS_LARGE = 300
"""The same above 9x9, where proofs can take for ever: a few clues that could go may stay."""
RATE_STEPS = 200_000
RATE_STEPS_HARD = 1_000_000
TOTAL_STEPS = 3_000_000
TOTAL_ATTEMPTS = 20_000
"""How long to look for one puzzle that fits the options: some ten seconds."""

LIBRARY = "sudoku_hard.txt"
"""One puzzle and its rating a line."""
LETTERS = ".123456789"


def endless(
    rng: np.random.Generator, options: "SudokuOptions", units: NDArray[np.int64], name: str
) -> Iterator[Instance]:
    """Yield fitting puzzles without end; `units` (cells, 3) names each cell's row, column and box."""
    while True:
        if options.hard and rng.random() < options.hard:
            yield _hard(rng, options, units, name)
        else:
            yield _fitting(rng, options, units, name)


def _fitting(
    rng: np.random.Generator, options: "SudokuOptions", units: NDArray[np.int64], name: str
) -> Instance:
    cells = len(units)
    dig_steps = DIG_STEPS if cells <= 81 else DIG_STEPS_LARGE
    steps, attempts, fewest, ratings = 0, 0, cells, list[int]()
    while steps < TOTAL_STEPS and attempts < TOTAL_ATTEMPTS:
        attempts += 1
        answer = solved_grid(rng, units)
        puzzle = answer.copy()
        dug = dig(puzzle, rng.permutation(cells), units, options.clues or 0, dig_steps)
        steps += dug.steps
        fewest = min(fewest, dug.clues)
        if options.clues in (None, dug.clues):
            rated = _searched(puzzle, answer, units, limit=2, steps=RATE_STEPS)
            steps += rated.steps
            ratings.append(rated.backtracks)
            if rated.complete and options.fits(rated.backtracks):
                return Instance(puzzle=puzzle + 1, answer=answer + 1, rating=rated.backtracks)
    seen = f"; ratings seen: {min(ratings)} to {max(ratings)}" if ratings else ""
    raise UserError(
        f"{name}: no puzzle with {options} in {attempts:,} attempts (fewest clues reached: {fewest}{seen}); "
        "ask for more clues or a wider range of ratings"
    )


def solved_grid(rng: np.random.Generator, units: NDArray[np.int64]) -> Tokens:
    """Fill an empty grid with digits from 1 by a search in random order of cells and digits.

    No cell or digit is treated unlike another, so a grid and its symmetric variants are equally likely.
    """
    cells = len(units)
    empty, grid = np.zeros(cells, np.uint8), np.zeros(cells, np.uint8)
    while True:  # an unlucky beginning is dropped early; the next is independent of it
        order, seed = rng.permutation(cells), int(rng.integers(1, 2**63 - 1))
        if search(empty, grid, all_digits(cells), order, units, 1, FILL_STEPS, seed).solutions:
            return grid


def _searched(
    digits: Tokens, answer: Tokens, units: NDArray[np.int64], *, limit: int, steps: int
) -> Searched:
    cells = len(units)
    return search(digits, answer, all_digits(cells), np.arange(cells), units, limit, steps, 0)


@cache
def library() -> tuple[Tokens, NDArray[np.int64]]:
    """Return the hard puzzles as tokens (count, 81), blank being 1, and their ratings."""
    lines = files("eqr.tasks").joinpath(LIBRARY).read_text(encoding="ascii").splitlines()
    puzzles, ratings = zip(*(line.split() for line in lines), strict=True)
    tokens = np.array([[LETTERS.index(letter) + 1 for letter in puzzle] for puzzle in puzzles], np.uint8)
    return tokens, np.array(ratings, np.int64)


def _hard(
    rng: np.random.Generator, options: "SudokuOptions", units: NDArray[np.int64], name: str
) -> Instance:
    """Return one of the library with a rating in the range, relabelled at random.

    One to `reveal` blanks of it are filled with their answers, and it is rated as it then is.
    """
    puzzles, ratings = library()
    fitting = np.flatnonzero([options.fits(rating) for rating in ratings])
    if not fitting.size:
        raise UserError(f"{name}: no hard puzzle with {options}; widen the range of ratings")
    chosen = fitting[rng.integers(fitting.size)]
    puzzle = np.asarray(sudoku_symmetry.draw(rng, 1, 3, 3).apply(puzzles[chosen][None])[0], np.uint8)
    answer = np.zeros_like(puzzle)
    _searched(puzzle - 1, answer, units, limit=1, steps=RATE_STEPS_HARD)
    if not options.reveal:
        return Instance(puzzle=puzzle, answer=answer + 1, rating=int(ratings[chosen]))
    given = rng.permutation(np.flatnonzero(puzzle == BLANK))[: rng.integers(1, options.reveal + 1)]
    puzzle[given] = answer[given] + 1
    rated = _searched(puzzle - 1, np.zeros_like(answer), units, limit=2, steps=RATE_STEPS_HARD)
    return Instance(puzzle=puzzle, answer=answer + 1, rating=rated.backtracks)
