"""Takuzu (binary puzzles) of your own, with its structure told to the model, trained in three minutes.

Each row and column of the 6x6 grid holds three 0 and three 1, and never three equal ones side by side. The
task says in `groups` which cells constrain each other, and the recipe is `candidates`, whose sites are (cell,
symbol) and whose mixer works on those groups: nothing else is told. (Some also forbid two equal rows or
columns. That relates whole lines, which no group of cells can say; docs/lab-notes.md has what it costs.)

    python examples/takuzu.py                           # trains the recipe below, then solves a puzzle
    eqr --load examples/takuzu.py train takuzu-6x6      # the same on the command line
    eqr --load examples/takuzu.py solve runs/takuzu-6x6 ".1...0 ..0... ..1... 0..0.. ..1.1. 0.0..."
"""

import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eqr.errors import UserError
from eqr.recipes import add_recipe, candidates, recipe_named
from eqr.tasks import Task, register
from eqr.tasks.base import VALID, CellsAndTokens, Generate, Instance, Tokens, Verdict, invalid
from eqr.tasks.grids import dihedral, smallest_image

SIDE, BLANK, ZERO, ONE = 6, 1, 2, 3  # token t is symbols[t - 1]; token 0 is padding
CELLS = np.arange(SIDE * SIDE).reshape(SIDE, SIDE)
LINES = np.concatenate([CELLS, CELLS.T])  # (12 lines, 6 cells)


def in_threes(lines: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Say which lines (..., cells) have three equal symbols side by side."""
    same = lines[..., 1:] == lines[..., :-1]
    return (same[..., 1:] & same[..., :-1]).any(axis=-1)


def all_grids() -> Tokens:
    """Return every finished grid, one a row: 11,222, put together line by line."""
    lines = np.array(list(product((ZERO, ONE), repeat=SIDE)), np.uint8)
    lines = lines[((lines == ONE).sum(axis=1) == SIDE // 2) & ~in_threes(lines)]
    grids = lines[:, None]
    for _ in range(SIDE - 1):
        below = np.tile(lines[:, None], (len(grids), 1, 1))
        grids = np.concatenate([np.repeat(grids, len(lines), axis=0), below], axis=1)
        grids = grids[~in_threes(grids.swapaxes(1, 2)).any(axis=1)]
    columns = grids.swapaxes(1, 2)
    balanced = ((columns == ONE).sum(axis=2) == SIDE // 2).all(axis=1)
    return grids[balanced].reshape(-1, CELLS.size)


GRIDS = all_grids()


class Takuzu(Task):
    name, summary, shape, symbols = "takuzu-6x6", "6x6 Takuzu, one solution each", (SIDE, SIDE), ".01"
    rating_name = "blanks"

    def groups(self) -> dict[str, NDArray[np.intp]]:
        """Rows and columns are one family, every three cells side by side another."""
        threes = np.lib.stride_tricks.sliding_window_view(LINES, 3, axis=1).reshape(-1, 3)
        return {"line": LINES, "three": threes}

    def parse(self, text: str) -> Tokens:
        letters = "".join(text.split()).replace("_", ".")
        if set(letters) - set(self.symbols):
            raise UserError(f"a Takuzu is written with {self.symbols}, not {text!r}")
        return self.require_tokens(np.array([self.symbols.index(letter) + 1 for letter in letters], np.uint8))

    def render(self, grid: Tokens, *, puzzle: Tokens | None = None, color: bool = False) -> str:
        return "\n".join(" ".join(("?" + self.symbols)[token] for token in row) for row in grid[CELLS])

    def check(self, puzzle: Tokens, answer: Tokens) -> Verdict:
        if (changed := (puzzle != BLANK) & (answer != puzzle)).any():
            return invalid("a given symbol was changed", *np.flatnonzero(changed))
        for word, cells in (("row", CELLS), ("column", CELLS.T)):
            for number, (line, where) in enumerate(zip(answer[cells], cells, strict=True), start=1):
                if sorted(line) != [ZERO] * (SIDE // 2) + [ONE] * (SIDE // 2):
                    return invalid(f"{word} {number} does not hold three 0 and three 1", *where)
                if in_threes(line):
                    return invalid(f"{word} {number} has three equal symbols side by side", *where)
        return VALID

    def check_puzzle(self, puzzle: Tokens) -> Verdict:
        fits = ((puzzle == BLANK) | (puzzle == GRIDS)).all(axis=1).any()
        return VALID if fits else invalid("no finished grid has these symbols")

    def draw_symmetries(self, rng: np.random.Generator, count: int) -> CellsAndTokens:
        turns = dihedral(*self.shape)
        renamed = np.array([[0, BLANK, ZERO, ONE], [0, BLANK, ONE, ZERO]], np.uint8)
        return CellsAndTokens(
            turns[rng.integers(len(turns), size=count)], renamed[rng.integers(2, size=count)]
        )

    def canonical(self, grids: Tokens) -> Tokens:
        return smallest_image(grids, dihedral(*self.shape))

    def generate(self, rng: np.random.Generator, options: Generate | None = None) -> Iterator[Instance]:
        while True:
            answer = GRIDS[rng.integers(len(GRIDS))]
            puzzle, differs = answer.copy(), answer != GRIDS
            misfits = differs.sum(axis=1)  # how many givens each finished grid contradicts
            for cell in rng.permutation(self.cells):
                without = misfits - differs[:, cell]
                if (without == 0).sum() == 1:  # the answer alone still fits
                    puzzle[cell], misfits = BLANK, without
            yield Instance(puzzle=puzzle, answer=answer, rating=int((puzzle == BLANK).sum()))


task = register(Takuzu())
add_recipe(task.name, lambda: candidates(task.name, width=24, steps=5000, rows=12, data={"train": 4000}))


def main(run: Path, settings: list[str]) -> None:
    """Train the recipe, then solve one puzzle; settings are those of `eqr train --set`."""
    from eqr import Solver
    from eqr.train.run import train

    outcome = train(recipe_named(task.name).with_settings(settings), run, overwrite=True)
    best = outcome.summary.best
    print("exact accuracy by depth:", {name: best[name] for name in best if name.startswith("exact@")})
    answer = Solver(run).solve(task.render(next(task.generate(np.random.default_rng(1))).puzzle))
    print(task.render(answer.grid))
    print("solved" if answer.valid else f"not solved: {answer.reason}", f"(depth {answer.depth})")


if __name__ == "__main__":
    main(Path("runs/takuzu-6x6"), sys.argv[1:])
