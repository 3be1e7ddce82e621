"""A kind of puzzle of your own, trained and solved: Latin squares.

Every row and every column of the 4x4 grid holds A, B, C and D once. All 576 squares fit into an array, which
makes the generator a few lines: take letters away as long as one square alone still fits.

    python examples/custom_task.py                          # trains the recipe below, then solves a puzzle
    eqr --load examples/custom_task.py train latin-4x4      # the same on the command line
    eqr --load examples/custom_task.py solve runs/latin-4x4 "A..D .C.. .... D..."
"""

import sys
from collections.abc import Iterator
from itertools import permutations, product
from pathlib import Path

import numpy as np

from eqr.errors import UserError
from eqr.recipes import add_recipe, recipe_named, small
from eqr.tasks import Task, register
from eqr.tasks.base import VALID, CellsAndTokens, Generate, Instance, Tokens, Verdict, invalid

BLANK, LETTERS = 1, [2, 3, 4, 5]  # token t is symbols[t - 1]; token 0 is padding
ROWS = permutations(LETTERS)
GRIDS = np.array(list(product(ROWS, repeat=4)), np.uint8)
SQUARES = GRIDS[(np.sort(GRIDS, axis=1) == np.array(LETTERS)[:, None]).all(axis=(1, 2))].reshape(-1, 16)


class Latin(Task):
    name, summary, shape, symbols = "latin-4x4", "4x4 Latin squares, one solution each", (4, 4), ".ABCD"
    rating_name = "blanks"

    def parse(self, text: str) -> Tokens:
        letters = "".join(text.split()).upper()
        if set(letters) - set(self.symbols):
            raise UserError(f"a Latin square is written with {self.symbols}, not {text!r}")
        return self.require_tokens(np.array([self.symbols.index(letter) + 1 for letter in letters], np.uint8))

    def render(self, grid: Tokens, *, puzzle: Tokens | None = None, color: bool = False) -> str:
        return "\n".join(" ".join(("?" + self.symbols)[token] for token in row) for row in grid.reshape(4, 4))

    def check(self, puzzle: Tokens, answer: Tokens) -> Verdict:
        if (changed := (puzzle != BLANK) & (answer != puzzle)).any():
            return invalid("a given letter was changed", *np.flatnonzero(changed))
        for word, lines in (("row", answer.reshape(4, 4)), ("column", answer.reshape(4, 4).T)):
            for number, line in enumerate(lines, start=1):
                if sorted(line) != LETTERS:
                    return invalid(f"{word} {number} does not hold every letter once")
        return VALID

    def check_puzzle(self, puzzle: Tokens) -> Verdict:
        return VALID if len(fitting(puzzle)) else invalid("no Latin square has these letters")

    def draw_symmetries(self, rng: np.random.Generator, count: int) -> CellsAndTokens:
        rows, columns, letters = rng.permuted(np.tile(np.arange(4), (3, count, 1)), axis=2)
        cells = (4 * rows[:, :, None] + columns[:, None, :]).reshape(count, 16)
        tokens = np.hstack([np.tile([0, BLANK], (count, 1)), letters + 2])
        return CellsAndTokens(cells, tokens.astype(np.uint8))

    def generate(self, rng: np.random.Generator, options: Generate | None = None) -> Iterator[Instance]:
        while True:
            answer = SQUARES[rng.integers(len(SQUARES))]
            puzzle = answer.copy()
            for cell in rng.permutation(16):
                puzzle[cell] = BLANK
                puzzle[cell] = BLANK if len(fitting(puzzle)) == 1 else answer[cell]
            yield Instance(puzzle=puzzle, answer=answer, rating=int((puzzle == BLANK).sum()))


def fitting(puzzle: Tokens) -> Tokens:
    """Return all Latin squares that have the puzzle's letters."""
    return SQUARES[((puzzle == BLANK) | (puzzle == SQUARES)).all(axis=1)]


task = register(Latin())
MODEL = {"round_hidden_to": 48}  # the default, 256, is meant for larger grids
add_recipe(
    task.name, lambda: small(task.name, width=48, blocks=1, steps=1500, data={"train": 500}, model=MODEL)
)


def main(run: Path, settings: list[str]) -> None:
    """Train the recipe, then solve one puzzle; settings are those of `eqr train --set`."""
    from eqr import Solver
    from eqr.train.run import train

    outcome = train(recipe_named(task.name).with_settings(settings), run, overwrite=True)
    best = outcome.summary.best
    print("exact accuracy by depth:", {name: best[name] for name in best if name.startswith("exact@")})
    answer = Solver(run).solve("A..D .C.. .... D...")
    print(task.render(answer.grid))
    print("solved" if answer.valid else f"not solved: {answer.reason}", f"(depth {answer.depth})")


if __name__ == "__main__":
    main(Path("runs/latin-4x4"), sys.argv[1:])
