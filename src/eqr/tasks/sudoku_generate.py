"""Generating Sudoku puzzles: fill a grid at random, take clues away, keep what fits the options.

Behind `Sudoku.generate`. Every search here is bounded; options that (almost) no puzzle meets end in an error
that says what was tried, never in an endless loop.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from eqr.errors import UserError
from eqr.tasks import sudoku_hard
from eqr.tasks.base import Generate, Instance

FILL_STEPS = 5_000
DIG_STEPS = 1_000_000
"""Steps to decide whether one clue can go; up to 9x9 always enough, so "minimal" is exact there."""
DIG_STEPS_LARGE = 300
"""The same above 9x9, where proofs can take for ever: a few clues that could go may stay."""
RATE_STEPS = 200_000
TOTAL_STEPS = 3_000_000
TOTAL_ATTEMPTS = 20_000
"""How long to look for one puzzle that fits the options: some ten seconds."""


class SudokuOptions(Generate):
    """Which puzzles to generate."""

    clues: int | None = Field(default=None, ge=0)
    """Exact number of clues; None takes clues away until every one is needed."""
    min_rating: int = Field(default=0, ge=0)
    max_rating: int | None = Field(default=None, ge=0)
    hard: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of puzzles that come from the library of hard ones (9x9 only) instead of being dug."""
    reveal: int = Field(default=0, ge=0)
    """Most answers given away in a hard puzzle, each number from one on as likely; 0 gives none away."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max_rating is not None and self.max_rating < self.min_rating:
            raise ValueError(f"max_rating {self.max_rating} is below min_rating {self.min_rating}")
        if self.hard and self.clues is not None:
            raise ValueError("hard puzzles have the clues they have; leave out clues or hard")
        if self.reveal and not self.hard:
            raise ValueError(f"reveal = {self.reveal} is about hard puzzles; set hard to their share")
        return self

    def fits(self, rating: int) -> bool:
        """Say whether a rating is in the range asked for."""
        return self.min_rating <= rating and (self.max_rating is None or rating <= self.max_rating)

    def wanted(self) -> str:
        """Name what was asked for, for an error."""
        asked = {name: value for name, value in self.to_json().items() if value not in (None, 0)}
        return " and ".join(f"{name} = {value}" for name, value in asked.items()) or "one solution"


@dataclass
class _Tried:
    """What the search for one fitting puzzle has seen so far."""

    attempts: int = 0
    steps: int = 0
    clues: list[int] = field(default_factory=list)
    ratings: list[int] = field(default_factory=list)

    def why_not(self, options: SudokuOptions) -> str:
        seen = f"fewest clues reached: {min(self.clues)}"
        if self.ratings:
            seen += f"; ratings seen: {min(self.ratings)} to {max(self.ratings)}"
        return (
            f"no puzzle with {options.wanted()} in {self.attempts:,} attempts ({seen}); "
            "ask for more clues or a wider range of ratings"
        )


def endless(
    rng: np.random.Generator, options: SudokuOptions, units: NDArray[np.int64], name: str
) -> Iterator[Instance]:
    """Yield fitting puzzles without end; `units` (cells, 3) names each cell's row, column and box."""
    if options.hard and name != "sudoku-9x9":
        raise UserError(f"hard = {options.hard}: there is a library of hard puzzles for sudoku-9x9 only")
    while True:
        if options.hard and rng.random() < options.hard:
            found = sudoku_hard.draw(rng, units, options.min_rating, options.max_rating, options.reveal)
            if found is None:
                raise UserError(f"{name}: no hard puzzle with {options.wanted()}; widen the range of ratings")
            yield found
        else:
            yield _fitting(rng, options, units, name)


def _fitting(
    rng: np.random.Generator, options: SudokuOptions, units: NDArray[np.int64], name: str
) -> Instance:
    from eqr.tasks.sudoku_search import all_digits, dig, search

    cells = len(units)
    dig_steps = DIG_STEPS if cells <= 81 else DIG_STEPS_LARGE
    tried = _Tried()
    while tried.steps < TOTAL_STEPS and tried.attempts < TOTAL_ATTEMPTS:
        answer = solved_grid(rng, units)
        puzzle = answer.copy()
        dug = dig(puzzle, rng.permutation(cells), units, options.clues or 0, dig_steps)
        tried.attempts += 1
        tried.steps += dug.steps
        tried.clues.append(dug.clues)
        if options.clues not in (None, dug.clues):
            continue
        rated = search(puzzle, answer, all_digits(cells), np.arange(cells), units, 2, RATE_STEPS, 0)
        tried.steps += rated.steps
        tried.ratings.append(rated.backtracks)
        if rated.complete and options.fits(rated.backtracks):
            return Instance(puzzle=puzzle + 1, answer=answer + 1, rating=rated.backtracks)
    raise UserError(f"{name}: {tried.why_not(options)}")


def solved_grid(rng: np.random.Generator, units: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Fill an empty grid with digits from 1 by a search in random order of cells and digits.

    No cell or digit is treated unlike another, so a grid and its symmetric variants are equally likely.
    """
    from eqr.tasks.sudoku_search import all_digits, search

    cells = len(units)
    empty, grid = np.zeros(cells, np.uint8), np.zeros(cells, np.uint8)
    while True:  # an unlucky beginning is dropped early; the next is independent of it
        order, seed = rng.permutation(cells), int(rng.integers(1, 2**63 - 1))
        if search(empty, grid, all_digits(cells), order, units, 1, FILL_STEPS, seed).solutions:
            return grid
