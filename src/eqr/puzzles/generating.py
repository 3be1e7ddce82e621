"""Making puzzles with one answer: fill the grid at random, then take clues away while one answer is proven.

Every search is bounded, so that options no puzzle meets, and rules no grid keeps, end in an error.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from eqr.errors import UserError
from eqr.puzzles import cpsat
from eqr.tasks.base import Instance
from eqr.tasks.filling import BLANK, FIRST, PuzzleOptions
from eqr.tasks.rows import Ints, Rows

if TYPE_CHECKING:
    from eqr.puzzles.search import Tables

FILL_STEPS, FILL_TRIES = 50_000, 40
"""Rows that one try at a random grid may look at, and tries before CP-SAT is asked."""
DIG_STEPS = 100_000
"""The same to decide whether one clue can go; where it is not enough the clue stays."""
MOST_DIG_STEPS = 20_000_000
"""The same for all clues of a puzzle, some ten seconds; what is left then stays."""
SLICE = 16
"""Clues decided in one compiled call: Ctrl-C is heard between two."""
RATE_STEPS = 2_000_000
"""The same to rate a puzzle; the backtracks of a search that is longer are those seen by then."""
SECONDS = 20.0
"""What CP-SAT may take for one question."""
ATTEMPTS = 2_000
"""Puzzles looked at for one that fits the options."""


def filled(rng: np.random.Generator, rows: Rows, tables: "Tables", name: str) -> Ints:
    """Return a random grid that keeps the rules, as value numbers."""
    from eqr.puzzles.search import find

    empty = np.full(tables.cells, -1)
    for _ in range(FILL_TRIES):
        seed = int(rng.integers(1, 1 << 31))
        found, answer = find(tables, empty, limit=1, steps=FILL_STEPS, seed=seed)
        if found.solutions:
            return answer
        if found.complete:
            raise UserError(f"{name}: no grid keeps all rules; they contradict each other")
    answers, complete = cpsat.answers(
        rows, empty, limit=1, seconds=SECONDS, seed=int(rng.integers(1, 1 << 31))
    )
    if answers:
        return answers[0]
    if complete:
        raise UserError(f"{name}: no grid keeps all rules; they contradict each other")
    raise UserError(
        f"{name}: no grid that keeps all rules was found in {SECONDS:g} s; "
        "make the puzzle smaller, or check that its rules do not contradict each other"
    )


def count(rows: Rows, tables: "Tables", givens: Ints, name: str) -> int:
    """Count the answers of a puzzle, 2 for more; `UserError` where that cannot be decided."""
    from eqr.puzzles.search import find

    found, _ = find(tables, givens, limit=2, steps=RATE_STEPS)
    if found.complete:
        return found.solutions
    answers, complete = cpsat.answers(rows, givens, limit=2, seconds=SECONDS)
    if not complete:
        raise UserError(
            f"{name}: whether a puzzle has one answer was not decided in {SECONDS:g} s; add clues"
        )
    return len(answers)


def take_away(givens: Ints, order: NDArray[np.int64], tables: "Tables", clues: int) -> None:
    """Take clues away in place, in order, while one answer is proven and more than `clues` are left."""
    from eqr.puzzles.search import dig

    keep = clues + tables.cells - tables.leading  # others are always given
    spent = 0
    for first in range(0, len(order), SLICE):
        left, steps = dig(givens, order[first : first + SLICE], tables, keep, DIG_STEPS)
        spent += steps
        if left <= keep or spent > MOST_DIG_STEPS:
            break


def endless(
    rng: np.random.Generator, options: PuzzleOptions, rows: Rows, tables: "Tables", name: str
) -> Iterator[Instance]:
    """Yield fitting puzzles without end."""
    while True:
        yield _fitting(rng, options, rows, tables, name)


def _fitting(
    rng: np.random.Generator, options: PuzzleOptions, rows: Rows, tables: "Tables", name: str
) -> Instance:
    from eqr.puzzles.search import find

    ratings: list[int] = []
    for _ in range(ATTEMPTS):
        answer = filled(rng, rows, tables, name)
        givens = answer.copy()
        take_away(givens, rng.permutation(tables.leading), tables, options.clues or 0)
        rated, _ = find(tables, givens, limit=2, steps=RATE_STEPS)
        ratings.append(rated.backtracks)
        if options.fits(rated.backtracks):
            puzzle = np.where(givens < 0, BLANK, givens + FIRST).astype(np.uint8)
            return Instance(puzzle=puzzle, answer=(answer + FIRST).astype(np.uint8), rating=rated.backtracks)
    raise UserError(
        f"{name}: no puzzle with {options} in {ATTEMPTS:,} attempts (ratings seen: {min(ratings)} to "
        f"{max(ratings)}); widen the range"
    )
