"""Sudoku of any box shape: rules, checking, exact solving.

The token of digit d is d + 1, blank being 1, so 9x9 has the published vocabulary of 11 with padding. Reading,
drawing and judging is in filling.py, relabelling in sudoku_symmetry.py; the exact search (sudoku_search.py)
and the generator (sudoku_generate.py) need numba and load on use.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from eqr.errors import UserError
from eqr.tasks import sudoku_symmetry
from eqr.tasks.base import Appearance, CellsAndTokens, Generate, Instance, Tokens
from eqr.tasks.filling import BLANK, LETTERS, Board, Filling, PuzzleOptions, different
from eqr.tasks.rows import Rows

if TYPE_CHECKING:  # numba loads on use
    from eqr.tasks.sudoku_search import Searched

BOXES = {4: (2, 2), 6: (2, 3), 9: (3, 3), 16: (4, 4)}
"""Box rows and columns of the usual sizes."""
FEWEST_CLUES = {4: 4, 6: 8, 9: 17}
"""Proven least number of clues of a puzzle with one solution; elsewhere all digits but one must appear."""
LARGEST = 25

CAUTION_STEPS = 20_000
"""Where the search for a second answer to a puzzle just answered gives up: some 50 ms."""
SOLVE_STEPS = 20_000_000
"""Where an exact search gives up: about a minute. Of 9x9 puzzles with one solution none comes near."""


class SudokuOptions(PuzzleOptions):
    """Which puzzles to generate; `clues` is exact."""

    hard: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of puzzles that come from the library of hard ones (9x9 only) instead of being dug."""
    reveal: int = Field(default=0, ge=0)
    """Most answers given away in a hard puzzle, each number from one on as likely; 0 gives none away."""

    @model_validator(mode="after")
    def _about_hard_puzzles(self) -> Self:
        if self.hard and self.clues is not None:
            raise ValueError("hard puzzles have the clues they have; leave out clues or hard")
        if self.reveal and not self.hard:
            raise ValueError(f"reveal = {self.reveal} is about hard puzzles; set hard to their share")
        return self


@dataclass(frozen=True, kw_only=True)
class Solved:
    """What the exact search says about one puzzle."""

    solutions: int
    """Number of solutions, counted up to the limit."""
    answer: Tokens | None
    """The solution, if there is exactly one."""
    backtracks: int
    """Dead ends met while finding the solutions: how hard the puzzle is for a search. 0: no guess failed."""


@dataclass(frozen=True, kw_only=True)
class SolvedMany:
    """What the exact search says about many puzzles, one entry per row."""

    solutions: NDArray[np.int64]
    answers: Tokens
    """First solution found; all padding where there is none."""
    backtracks: NDArray[np.int64]


class Sudoku(Filling):
    """Fill every row, column and box with each digit once."""

    generate_options: ClassVar[type[Generate]] = SudokuOptions

    def __init__(self, box_rows: int, box_columns: int) -> None:
        size = box_rows * box_columns
        if min(box_rows, box_columns) < 1 or not 2 <= size <= LARGEST:
            raise UserError(f"Sudoku boxes of {box_rows}x{box_columns}: a box needs 2 to {LARGEST} cells")
        self.size, self.box_rows, self.box_columns = size, box_rows, box_columns
        usual = BOXES.get(size) == (box_rows, box_columns)
        self.name = f"sudoku-{size}x{size}" + ("" if usual else f"-boxes-{box_rows}x{box_columns}")
        self.summary = f"{size}x{size} Sudoku with boxes of {box_rows}x{box_columns}, one solution each"
        self.shape = (size, size)
        cells = np.arange(size * size)
        self.board = Board(self.shape, cells, tuple(LETTERS[:size]), (box_rows, box_columns))
        self.symbols = self.board.symbols
        row, column = cells // size, cells % size
        box = row // box_rows * box_rows + column // box_columns
        self.units: NDArray[np.int64] = np.stack([row, size + column, 2 * size + box], axis=1)
        """(cells, 3): the row, column and box of each cell, numbered through from 0 to 3 * size - 1."""
        self.members: NDArray[np.intp] = np.argsort(self.units, axis=0, kind="stable").T.reshape(-1, size)
        """(3 * size, size): the cells of each row, column and box."""
        self.rules = different(self.members)

    @classmethod
    def of_size(cls, rows: int, columns: int) -> Self:
        """Return the Sudoku of a usual size, with its usual boxes."""
        if rows != columns or rows not in BOXES:
            known = ", ".join(f"{size}x{size}" for size in BOXES)
            raise UserError(
                f"no Sudoku of {rows}x{columns}; known: {known} (other boxes: Sudoku(rows, columns))"
            )
        return cls(*BOXES[rows])

    @cached_property
    def rows(self) -> Rows:  # type: ignore[override]
        """Each digit once in every row, column and box."""
        return Rows.different(self.members, self.size)

    def check_many(self, puzzles: Tokens, answers: Tokens) -> NDArray[np.bool_]:
        """Judge all rows at once, several times as fast as by the rows over candidates."""
        self.require_tokens(puzzles)
        self.require_tokens(answers)
        kept = ((puzzles <= BLANK) | (puzzles == answers)).all(axis=1)
        bits = np.left_shift(1, answers, dtype=np.int32)
        bits = bits.reshape(-1, self.box_columns, self.box_rows, self.box_rows, self.box_columns)
        every_digit = (1 << (self.size + 2)) - 4  # the bits of tokens 2, 3, ...
        for unit in ((3, 4), (1, 2), (2, 4)):  # axes of a row, a column and a box
            kept &= (np.bitwise_or.reduce(bits, axis=unit) == every_digit).all(axis=(1, 2))
        return np.asarray(kept, np.bool_)

    def draw_symmetries(self, rng: np.random.Generator, count: int) -> CellsAndTokens:
        """Draw digit names, row and column orders that keep the boxes, and for square boxes transposition."""
        return sudoku_symmetry.draw(rng, count, self.box_rows, self.box_columns)

    def look(self) -> Appearance:
        """Boxes between heavy lines, blanks empty."""
        return Appearance(
            box=self.board.box,
            silent=self.symbols[0],
            editor="sudoku",
            hint="Digits, with . or 0 for blanks; lines and separators do not matter.",
        )

    def canonical(self, grids: Tokens) -> Tokens:
        """Undo all symmetries for nearly every puzzle; always undo digit names and transposition."""
        return sudoku_symmetry.canonical(self.require_tokens(grids), self.box_rows, self.box_columns)

    def groups(self) -> dict[str, NDArray[np.intp]]:
        """Rows and columns are lines; boxes are boxes."""
        return {"line": self.members[: 2 * self.size], "box": self.members[2 * self.size :]}

    def distinct(self) -> tuple[str, ...]:
        """No symbol stands twice in a row, a column or a box."""
        return "line", "box"

    def count_answers(self, puzzles: Tokens) -> NDArray[np.int64]:
        """Search exactly; every Sudoku has one answer."""
        return self.solve_many(puzzles, limit=2).solutions

    @property
    def fewest_clues(self) -> int:
        """The least number of clues that a puzzle with one solution may have, as far as is known."""
        return FEWEST_CLUES.get(self.size, self.size - 1)

    def caution(self, puzzle: Tokens, *, solved: bool) -> str:
        """Say that a puzzle has several answers, or none, as far as a short exact search can tell."""
        several = f"the puzzle has several answers{', of which this is one' if solved else ''}"
        if self.clues(puzzle) < self.fewest_clues:
            return several
        digits = np.maximum(puzzle, BLANK) - np.uint8(1)
        found = self._search(digits, np.zeros_like(digits), limit=2, steps=CAUTION_STEPS)
        if found.solutions > 1:
            return several
        return "the puzzle has no answer" if found.complete and not found.solutions else ""

    def solve(self, puzzle: Tokens, *, limit: int = 2) -> Solved:
        """Search exactly for up to `limit` solutions; `UserError` if the search outgrows all patience."""
        many = self.solve_many(puzzle[None], limit=limit)
        count = int(many.solutions[0])
        answer = many.answers[0] if count == 1 and limit > 1 else None
        return Solved(solutions=count, answer=answer, backtracks=int(many.backtracks[0]))

    def solve_many(self, puzzles: Tokens, *, limit: int = 2) -> SolvedMany:
        """Search exactly for up to `limit` solutions of each puzzle (count, cells)."""
        self.require_tokens(puzzles)
        digits = np.maximum(puzzles, BLANK) - np.uint8(1)
        answers = np.zeros_like(digits)
        solutions, backtracks = np.zeros(len(digits), np.int64), np.zeros(len(digits), np.int64)
        for row, puzzle in enumerate(digits):
            found = self._search(puzzle, answers[row], limit=limit, steps=SOLVE_STEPS)
            if not found.complete:
                raise UserError(
                    f"{self.name} puzzle {row + 1}: undecided after {SOLVE_STEPS:,} steps; add clues"
                )
            solutions[row], backtracks[row] = found.solutions, found.backtracks
        answers[solutions > 0] += 1
        return SolvedMany(solutions=solutions, answers=answers, backtracks=backtracks)

    def _search(self, digits: Tokens, answer: Tokens, *, limit: int, steps: int) -> "Searched":
        """Search exactly; the first solution's digits go into `answer`."""
        from eqr.tasks.sudoku_search import all_digits, search

        order, allowed = np.arange(self.cells), all_digits(self.cells)
        return search(digits, answer, allowed, order, self.units, limit, steps, 0)

    def generate(self, rng: np.random.Generator, options: Generate | None = None) -> Iterator[Instance]:
        """Yield puzzles with exactly one solution, rated by the backtracks an exact search needs."""
        chosen = SudokuOptions.of(options, self.name)
        if chosen.clues is not None and not self.fewest_clues <= chosen.clues <= self.cells:
            raise UserError(
                f"clues = {chosen.clues}: with one solution, {self.name} has {self.fewest_clues} to "
                f"{self.cells} clues"
            )
        if chosen.hard and self.name != "sudoku-9x9":
            raise UserError(f"hard = {chosen.hard}: there is a library of hard puzzles for sudoku-9x9 only")
        from eqr.tasks.sudoku_generate import endless

        return endless(rng, chosen, self.units, self.name)
