"""Mini-ARC: 5x5 grids in ten colours; guess a task's rule from its demonstrations and apply it.

Here a demonstration is a training pair under the identity of its task, and a model learns one vector per
identity. Grids and transforms live here (variants and voting in `mini_arc_variants`); reading the public
collection's files is the data layer's work.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from eqr.errors import UserError, brief
from eqr.files import parse_json
from eqr.tasks.base import (
    PAD,
    VALID,
    Appearance,
    CellsAndTokens,
    Generate,
    Instance,
    Task,
    Tokens,
    Verdict,
    invalid,
)
from eqr.tasks.grids import dihedral
from eqr.tasks.mini_arc_rules import RULES, SIDE, draw_grid
from eqr.tasks.mini_arc_variants import COLORS, Variant, Vote, symmetries, variants, vote

__all__ = ["RULES", "MiniArc", "Variant", "Vote", "symmetries", "variants", "vote"]

_PALETTE = (16, 27, 196, 34, 226, 245, 201, 208, 117, 88)
"""Terminal colours (of 256) close to those ARC is usually shown in."""
_SEPARATORS = " \t\r\n,;|/"

LOOKS = (
    "#111111", "#0074D9", "#FF4136", "#2ECC40", "#FFDC00",
    "#AAAAAA", "#F012BE", "#FF851B", "#7FDBFF", "#870C25",
)  # fmt: skip
"""The colours ARC grids are usually shown in."""


class MiniArc(Task):
    """Token = colour + 1. A grid tells nothing of its rule, so rules come as puzzle identities."""

    name = "mini-arc"
    summary = "5x5 grids in ten colours: apply the rule that a task's demonstrations show"
    shape = (SIDE, SIDE)
    symbols = "0123456789"
    identities = True

    def parse(self, text: str) -> Tokens:
        """Read 25 digits with or without separators ('.' is 0), or JSON rows `[[0, 1, ...], ...]`."""
        colors = _from_json(text) if text.lstrip().startswith("[") else _from_digits(text)
        if len(colors) != self.cells:
            raise UserError(
                f"a Mini-ARC grid has {self.cells} colours (5 rows of 5), this text has {len(colors)}"
            )
        return np.array(colors, np.uint8) + np.uint8(1)

    def render(self, grid: Tokens, *, puzzle: Tokens | None = None, color: bool = False) -> str:
        """Draw digits, or blocks when `color`, where dots mark cells that differ from `puzzle`."""
        tokens = self.require_tokens(grid).tolist()
        before = tokens if puzzle is None else self.require_tokens(puzzle).tolist()
        if color:
            cells = [_block(token, changed=token != old) for token, old in zip(tokens, before, strict=True)]
        else:
            cells = ["?" if token == PAD else self.symbols[token - 1] for token in tokens]
        gap = "" if color else " "
        return "\n".join(gap.join(cells[row : row + SIDE]) for row in range(0, self.cells, SIDE))

    def check(self, puzzle: Tokens, answer: Tokens) -> Verdict:
        """Judge form only, a colour in every cell: whether the rule was met shows only against a label."""
        self.require_tokens(puzzle)
        return self._well_formed(answer)

    def check_many(self, puzzles: Tokens, answers: Tokens) -> NDArray[np.bool_]:
        """Judge the form of answers (count, cells)."""
        self.require_tokens(puzzles)
        filled: NDArray[np.bool_] = (self.require_tokens(answers) != PAD).all(axis=1)
        return filled

    def look(self) -> Appearance:
        """Painted, not written."""
        fills = dict(zip(self.symbols, LOOKS, strict=True))
        return Appearance(fills=fills, silent=self.symbols, editor="colours")

    def check_puzzle(self, puzzle: Tokens) -> Verdict:
        """Ask for a colour in every cell."""
        return self._well_formed(puzzle)

    def draw_symmetries(self, rng: np.random.Generator, count: int) -> CellsAndTokens:
        """Draw turns and recolourings, colour 0 fixed; they change the rule, so each needs an identity."""
        tables = dihedral(*self.shape)
        tokens = np.tile(np.arange(self.vocabulary, dtype=np.uint8), (count, 1))
        tokens[:, 2:] = rng.permuted(tokens[:, 2:], axis=1)
        return CellsAndTokens(tables[rng.integers(0, len(tables), count)], tokens)

    def generate(self, rng: np.random.Generator, options: Generate | None = None) -> Iterator[Instance]:
        """Yield pairs of the built-in rules; the fact `identity` is the rule's place in `RULES`, from 1."""
        del options
        while True:
            identity = int(rng.integers(len(RULES))) + 1
            before = draw_grid(rng)
            after = RULES[identity - 1].apply(before)
            if not np.array_equal(before, after):
                puzzle, answer = (grid.reshape(-1) + np.uint8(1) for grid in (before, after))
                yield Instance(puzzle=puzzle, answer=answer, facts={"identity": identity})

    def _well_formed(self, grid: Tokens) -> Verdict:
        empty = np.flatnonzero(self.require_tokens(grid) == PAD)
        if len(empty):
            row, column = divmod(int(empty[0]), SIDE)
            return invalid(f"no colour at (row {row + 1}, column {column + 1})", *empty)
        return VALID


def _block(token: int, *, changed: bool) -> str:
    if token == PAD:
        return "??"
    return f"\x1b[48;5;{_PALETTE[token - 1]}m{'··' if changed else '  '}\x1b[0m"


def _from_digits(text: str) -> list[int]:
    colors = []
    for position, character in enumerate(text, 1):
        if character in _SEPARATORS:
            continue
        if character != "." and not ("0" <= character <= "9"):
            raise UserError(f"character {position}, {character!r}, is no colour; a grid is 25 digits 0-9")
        colors.append(0 if character == "." else int(character))
    return colors


def _from_json(text: str) -> list[int]:
    rows = parse_json(text, where="the grid")
    if all(isinstance(row, list) for row in rows):
        for number, row in enumerate(rows, 1):
            if len(row) != SIDE:
                raise UserError(f"row {number} of the grid has {len(row)} colours, it needs {SIDE}")
        rows = [color for row in rows for color in row]
    for position, color in enumerate(rows, 1):
        if type(color) is not int or color not in range(COLORS):
            raise UserError(f"cell {position} of the grid is {brief(color)}; colours are whole numbers 0-9")
    return list(rows)
