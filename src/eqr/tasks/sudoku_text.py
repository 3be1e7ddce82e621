"""Sudoku grids as text: what people paste, and what a terminal shows. Used by `Sudoku` in sudoku.py."""

import re

import numpy as np

from eqr.errors import UserError
from eqr.tasks.base import Tokens

BLANK = 1
SYMBOLS = ".123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
BLANKS = ".0_*-"
WORDS = re.compile(r"[^\s|+\-=,;:/\ufeff\u2500-\u257f]+")
"""What is left between spaces, commas, and lines drawn in ASCII or box characters."""
COLOURS = re.compile(r"\x1b\[[0-9;]*m")

FILLED, CHANGED, RESET = "\x1b[1;36m", "\x1b[1;31m", "\x1b[0m"


def parse(text: str, symbols: str, size: int) -> Tokens:
    """Read a size x size grid; separators are ignored, letters may be small, a lone 10 stands for A."""
    text = COLOURS.sub("", text)
    cells = size * size
    found = [(word.start(), word.group()) for word in WORDS.finditer(text)]
    if len(found) != cells:  # not one word per cell, so one letter per cell
        found = [(start + offset, letter) for start, word in found for offset, letter in enumerate(word)]
    if len(found) < cells and not any(line in text for line in "|+"):  # without box lines, `-` can be a blank
        dashed = [(place, letter) for place, letter in enumerate(text) if letter == "-"]
        found = sorted([*found, *dashed]) if len(found) + len(dashed) == cells else found
    tokens = [_token(word, place, text, symbols) for place, word in found]
    if len(tokens) != cells:
        raise UserError(f"a {size}x{size} Sudoku has {cells} cells, this text has {len(tokens)}")
    return np.array(tokens, np.uint8)


def _token(word: str, place: int, text: str, symbols: str) -> int:
    """Return the token of a symbol or a decimal number found at `place` in the text."""
    if len(word) == 1 and word in BLANKS:
        return BLANK
    if len(word) == 1 and word.upper() in symbols:
        return symbols.index(word.upper()) + 1
    if len(word) > 1 and word.isascii() and word.isdigit() and 1 <= int(word) < len(symbols):
        return int(word) + 1
    line, column = text.count("\n", 0, place) + 1, place - text.rfind("\n", 0, place)
    raise UserError(
        f"line {line}, character {column}: {word!r} is not a digit of this Sudoku; "
        f"use {symbols[1]} to {symbols[-1]}, and one of {' '.join(BLANKS)} for a blank"
    )


def render(grid: Tokens, symbols: str, boxes: tuple[int, int], puzzle: Tokens | None) -> str:
    """Draw the grid with box lines; given `puzzle`, colour what was filled in and what was changed."""
    box_rows, box_columns = boxes
    size = box_rows * box_columns
    drawn = [_drawn(grid, cell, symbols, puzzle) for cell in range(size * size)]
    rule = "+".join(
        "-" * (2 * box_columns + (1 if 0 < stack < box_rows - 1 else 0)) for stack in range(box_rows)
    )
    lines = []
    for row in range(size):
        if row and row % box_rows == 0:
            lines.append(rule)
        cells = drawn[row * size : (row + 1) * size]
        stacks = [" ".join(cells[start : start + box_columns]) for start in range(0, size, box_columns)]
        lines.append(" | ".join(stacks))
    return "\n".join(lines)


def _drawn(grid: Tokens, cell: int, symbols: str, puzzle: Tokens | None) -> str:
    token = int(grid[cell])
    symbol = symbols[token - 1] if token else "?"
    if puzzle is None or token == puzzle[cell]:
        return symbol
    return f"{FILLED if puzzle[cell] <= BLANK else CHANGED}{symbol}{RESET}"
