"""Hard 9x9 Sudoku puzzles, found by long walks (benchmarks/climb.py) and kept in `sudoku_hard.txt`.

Puzzles dug at random are solved by trying one candidate at a time; the hardest known are not, and neither are
these: an assumption must be made inside another. Every draw is one of them in a random
relabelling, with some of its answers given away if asked for, each of which makes it much easier.
"""

from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from eqr.tasks import sudoku_symmetry
from eqr.tasks.base import Instance
from eqr.tasks.sudoku_text import BLANK

FILE = "sudoku_hard.txt"
"""One puzzle and its rating a line."""
LETTERS = ".123456789"
RATE_STEPS = 1_000_000


@cache
def library() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the puzzles as tokens (count, 81), blank being 1, and their ratings."""
    lines = files("eqr.tasks").joinpath(FILE).read_text(encoding="ascii").splitlines()
    puzzles, ratings = zip(*(line.split() for line in lines), strict=True)
    tokens = np.array([[LETTERS.index(letter) + 1 for letter in puzzle] for puzzle in puzzles], np.uint8)
    return tokens, np.array(ratings, np.int64)


def draw(
    rng: np.random.Generator, units: NDArray[np.int64], least: int, most: int | None, reveal: int = 0
) -> Instance | None:
    """Return one of the puzzles with a rating in the range, relabelled at random; None if there is none.

    One to `reveal` blanks of it are filled with their answers, and it is rated as it then is.
    """
    from eqr.tasks.sudoku_search import all_digits, search

    puzzles, ratings = library()
    fitting = np.flatnonzero((ratings >= least) & (ratings <= (ratings.max() if most is None else most)))
    if not fitting.size:
        return None
    chosen = fitting[rng.integers(fitting.size)]
    puzzle = np.asarray(sudoku_symmetry.draw(rng, 1, 3, 3).apply(puzzles[chosen][None])[0], np.uint8)
    answer = np.zeros_like(puzzle)
    search(puzzle - 1, answer, all_digits(81), np.arange(81), units, 1, RATE_STEPS, 0)
    if not reveal:
        return Instance(puzzle=puzzle, answer=answer + 1, rating=int(ratings[chosen]))
    given = rng.permutation(np.flatnonzero(puzzle == BLANK))[: rng.integers(1, reveal + 1)]
    puzzle[given] = answer[given] + 1
    rated = search(puzzle - 1, np.zeros_like(answer), all_digits(81), np.arange(81), units, 2, RATE_STEPS, 0)
    return Instance(puzzle=puzzle, answer=answer + 1, rating=rated.backtracks)
