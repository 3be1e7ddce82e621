"""The smallest real task: two rows of three cells, the answer's second row repeats the first."""

from collections.abc import Iterator

import numpy as np

from eqr.errors import UserError
from eqr.tasks.base import VALID, CellsAndTokens, Generate, Instance, Task, Tokens, Verdict, invalid


class ToyGenerate(Generate):
    """Which symbol the first cell holds, or any."""

    first: int | None = None


class Toy(Task):
    """`ab` letters above blanks; copy the first row down. 4 symbols: blank and the letters a, b, c."""

    name = "toy"
    summary = "copy the row down"
    shape = (2, 3)
    symbols = ".abc"
    generate_options = ToyGenerate
    clues_name = "letters"

    def parse(self, text: str) -> Tokens:
        """Read six symbols."""
        symbols = [symbol for symbol in text if not symbol.isspace()]
        wrong = [symbol for symbol in symbols if symbol not in self.symbols]
        if wrong or len(symbols) != self.cells:
            raise UserError(f"toy needs {self.cells} symbols of {self.symbols!r}, got {text!r}")
        return np.array([self.symbols.index(symbol) + 1 for symbol in symbols], np.uint8)

    def render(self, grid: Tokens, *, puzzle: Tokens | None = None, color: bool = False) -> str:
        """Two lines."""
        text = "".join(" " + self.symbols[token - 1] for token in grid)
        return text[:6] + "\n" + text[6:]

    def check(self, puzzle: Tokens, answer: Tokens) -> Verdict:
        """Both rows equal the puzzle's first."""
        wrong = np.flatnonzero(answer != np.tile(puzzle[:3], 2))
        return invalid("cell differs from the first row", *wrong) if len(wrong) else VALID

    def check_puzzle(self, puzzle: Tokens) -> Verdict:
        """Letters above blanks."""
        good = bool((puzzle[:3] > 1).all() and (puzzle[3:] == 1).all())
        return VALID if good else invalid("needs three letters above three blanks")

    def draw_symmetries(self, rng: np.random.Generator, count: int) -> CellsAndTokens:
        """Permute columns and letters."""
        columns = rng.permuted(np.tile(np.arange(3), (count, 1)), axis=1)
        letters = rng.permuted(np.tile(np.arange(2, 5, dtype=np.uint8), (count, 1)), axis=1)
        fixed = np.tile(np.array([0, 1], np.uint8), (count, 1))
        return CellsAndTokens(np.hstack([columns, columns + 3]), np.hstack([fixed, letters]))

    def generate(self, rng: np.random.Generator, options: Generate | None = None) -> Iterator[Instance]:
        """Draw three letters; 27 puzzles exist."""
        first = options.first if isinstance(options, ToyGenerate) else None
        while True:
            letters = rng.integers(2, 5, 3, dtype=np.uint8)
            if first is not None:
                letters[0] = first
            puzzle = np.concatenate([letters, np.ones(3, np.uint8)])
            facts = {"distinct": len(set(letters.tolist()))}
            yield Instance(puzzle=puzzle, answer=np.tile(letters, 2), rating=int(letters.max()), facts=facts)

    def canonical(self, grids: Tokens) -> Tokens:
        """Sort the columns."""
        return np.hstack([np.sort(grids[:, :3], axis=1), grids[:, 3:]])

    def clues(self, puzzles: Tokens) -> np.ndarray:
        """Letters given."""
        return (puzzles > 1).sum(axis=1)
