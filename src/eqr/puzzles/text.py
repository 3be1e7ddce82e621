"""Declared puzzles as text: what people paste, what a terminal shows, how verdicts name cells and rules."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from eqr.errors import UserError, brief
from eqr.tasks.base import PAD, Tokens
from eqr.tasks.rows import Rows, Rule, Sort

BLANK, FIRST = 1, 2
"""The token of a cell to be filled, and that of the first value."""
BLANKS = "._*?"
HOLE = "#"
LETTERS = "123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
RULED = re.compile(r"^[\s|+=\-\u2500-\u257f]*$")
WORD = re.compile(r"[^\s|,;\ufeff\u2500-\u257f]+")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
FILLED, CHANGED, RESET = "\x1b[1;36m", "\x1b[1;31m", "\x1b[0m"


@dataclass(frozen=True, eq=False)
class Board:
    """Where the cells lie and what their values are called."""

    shape: tuple[int, int]
    """Rows and columns of the rectangle that is drawn."""
    places: NDArray[np.int64]
    """(cells): the place of each cell in it, row by row; places without a cell are holes."""
    names: tuple[str, ...]
    """What each value is called."""
    box: tuple[int, int] | None = None
    """Rows and columns between lines."""
    given: int = 0
    """Cells behind those of the rectangle that every puzzle gives, such as the sums of cages."""

    @property
    def whole(self) -> bool:
        """Whether there are no holes and more than one row and column."""
        return len(self.places) == self.shape[0] * self.shape[1] and min(self.shape) > 1 and not self.given

    @cached_property
    def symbols(self) -> str:
        """A character for each token but padding: the names, or others where names are longer."""
        if all(len(name) == 1 for name in self.names):
            return "." + "".join(self.names)
        free = iter(
            [letter for letter in LETTERS if letter not in self.names] + [chr(n) for n in range(256, 999)]
        )
        return "." + "".join(name if len(name) == 1 else next(free) for name in self.names)

    def parse(self, text: str) -> Tokens:
        """Read names, with a blank for cells to be filled; lines drawn between cells do not matter."""
        text = COLOURS.sub("", text)
        lines = ["" if RULED.match(line) else line for line in text.splitlines()]
        if not any(lines):
            lines = text.splitlines()
        words = [(number, match.start(), match.group()) for number, line in enumerate(lines, 1)
                 for match in WORD.finditer(line)]  # fmt: skip
        holes = np.ones(self.shape[0] * self.shape[1] + self.given, np.bool_)
        holes[self.places] = holes[len(holes) - self.given :] = False
        for found in (words, [(n, at + k, letter) for n, at, word in words for k, letter in enumerate(word)]):
            if len(found) == len(holes):
                found = [word for word, hole in zip(found, holes, strict=True) if not hole]
            else:
                found = [word for word in found if word[2] != HOLE]
            if len(found) == len(self.places) + self.given:
                order = [*np.argsort(np.argsort(self.places)), *range(len(self.places), len(found))]
                return np.array([self._token(*found[place]) for place in order], np.uint8)
        rows, columns = self.shape
        raise UserError(
            f"this puzzle has {len(self.places)} cells ({rows}x{columns})"
            f"{f' and {self.given} that are always given' if self.given else ''}, "
            f"this text has {len(words)} words; "
            f"write {self.names[0]} to {self.names[-1]}, and . for a cell to be filled"
        )

    def _token(self, line: int, column: int, word: str) -> int:
        if word in self.names:
            return self.names.index(word) + FIRST
        if word in BLANKS or word == "0":
            return BLANK
        if len(word) == 1 and word in self.symbols:  # as the page writes names that are longer
            return self.symbols.index(word) + 1
        small = [name.lower() for name in self.names]
        if small.count(word.lower()) == 1:
            return small.index(word.lower()) + FIRST
        raise UserError(
            f"line {line}, character {column + 1}: {brief(word)} is no value of this puzzle; "
            f"use {', '.join(self.names)}, and . for a cell to be filled"
        )

    def render(self, grid: Tokens, puzzle: Tokens | None = None) -> str:
        """Draw the grid; given `puzzle`, colour what was filled in and what was changed."""
        width = max(map(len, self.names))
        below: list[str] = []
        drawn = np.full(self.shape[0] * self.shape[1], HOLE.rjust(width), object)
        for cell, place in enumerate([*self.places, *range(len(drawn), len(drawn) + self.given)]):
            word = self.name(int(grid[cell])).rjust(width)
            if puzzle is not None and grid[cell] != puzzle[cell]:
                word = f"{FILLED if puzzle[cell] <= BLANK else CHANGED}{word}{RESET}"
            if place < len(drawn):
                drawn[place] = word
            else:
                below.append(word)
        rows, columns = self.box or self.shape
        lines = []
        for number, line in enumerate(drawn.reshape(self.shape)):
            if number and number % rows == 0:
                stack = "-" * (columns * (width + 1))
                lines.append("+".join([stack, *["-" + stack] * (self.shape[1] // columns - 1)]))
            stacks = [" ".join(line[at : at + columns]) for at in range(0, self.shape[1], columns)]
            lines.append(" | ".join(stacks))
        return "\n".join([*lines, *([" ".join(below)] if below else [])])

    def name(self, token: int) -> str:
        """Return what a token is called."""
        return {PAD: "?", BLANK: "."}.get(token) or self.names[token - FIRST]

    def place(self, cell: int) -> str:
        """Return what a cell is called."""
        if cell >= len(self.places):
            return f"given number {cell - len(self.places) + 1}"
        row, column = divmod(int(self.places[cell]), self.shape[1])
        return f"row {row + 1}, column {column + 1}" if self.shape[0] > 1 else f"cell {column + 1}"

    @cached_property
    def _lines(self) -> dict[frozenset[int], str]:
        """Names of the sets of cells that have one, where a rectangle has several rows."""
        if self.shape[0] == 1:
            return {}
        row, column = np.divmod(self.places, self.shape[1])
        words = [(f"row {n + 1}", row == n) for n in range(self.shape[0])]
        words += [(f"column {n + 1}", column == n) for n in range(self.shape[1])]
        words += [("the diagonal", row == column), ("the other diagonal", row + column == self.shape[1] - 1)]
        if self.box is not None:
            box = row // self.box[0] * (self.shape[1] // self.box[1]) + column // self.box[1]
            words += [(f"box {n + 1}", box == n) for n in range(box.max() + 1)]
        return {frozenset(np.flatnonzero(where).tolist()): word for word, where in reversed(words)}

    def scope(self, cells: Sequence[int]) -> str:
        """Return what a set of cells is called: a row, a column, a box, or its cells one by one."""
        known = self._lines.get(frozenset(cells))
        if known is not None:
            return known
        if len(cells) > 4:
            return f"the {len(cells)} cells from {self.place(cells[0])}"
        return listed([self.place(cell) for cell in cells])

    def broken(self, rule: Rule, rows: Rows, row: int, grid: Tokens) -> tuple[str, tuple[int, ...]]:
        """Say how a grid breaks a row of a rule, and in which cells; blanks count for nothing."""
        entries = slice(rows.starts[row], rows.starts[row + 1])
        cells, values = np.divmod(rows.sites[entries], rows.values)
        held = grid[cells] == values + FIRST
        total = int(rows.weights[entries][held].sum())
        where = tuple(int(cell) for cell in cells[held])
        low, high = int(rows.low[row]), int(rows.high[row])
        lead = f"{rule.text}: " if rule.described else ""
        if rule.sort is Sort.DIFFERENT and len(set(values.tolist())) == 1:
            what, name = self.scope(rule.cells), self.names[values[0]]
            places = listed([self.place(cell) for cell in where]) if where else ""
            if not high:
                return f"{lead}{places} cannot hold {name}", where
            if total == 0:
                return f"{lead}{what} has no {name}", rule.cells
            times = "twice" if total == 2 else f"{total} times"
            if frozenset(rule.cells) in self._lines:
                return f"{lead}{what} has {name} {times}: {places}", where
            return f"{lead}{places} must differ, and hold {name}", where
        if (
            rule.sort is Sort.COUNT
            and len(set(values.tolist())) == 1
            and (grid[list(rule.cells)] > BLANK).all()
        ):
            name = self.names[values[0]]
            return (
                f"{lead}{self.scope(rule.cells)} has {total} of {name}, not {_bounds(low, high, len(cells))}",
                rule.cells,
            )
        text = "" if rule.described else f"{_short(rule.text)} does not hold: "
        held_by = [f"{self.place(c)} is {self.name(int(grid[c]))}" for c in rule.cells[:4]]
        return f"{lead}{text}{listed(held_by)}{', ...' if len(rule.cells) > 4 else ''}", rule.cells


def regions_of(board: Board, rules: Sequence[Rule], size: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the area of each cell where groups divide the grid, and the cells of other groups of `size`.

    Rows and columns are neither.
    """
    scopes = dict.fromkeys(
        frozenset(rule.cells) for rule in rules if rule.sort in (Sort.DIFFERENT, Sort.COUNT)
    )
    lines = {scope for scope, word in board._lines.items() if word.startswith(("row", "column"))}
    groups = [scope for scope in scopes if len(scope) == size and scope not in lines]
    areas, rest, number = np.full(len(board.places), -1), set[int](), 0
    for scope in groups:
        cells = sorted(scope)
        if (areas[cells] < 0).all() and _connected(board.places[cells], board.shape[1]):
            areas[cells], number = number, number + 1
        else:
            rest |= scope
    if (areas < 0).any():
        return (), tuple(sorted(rest.union(*groups)))
    return tuple(areas.tolist()), tuple(sorted(rest))


def cages_of(board: Board, rules: Sequence[Rule]) -> tuple[tuple[int, ...], ...]:
    """Return the cells of rules about one given number, that number's cell last, if no cell has two such."""
    cages = []
    for cells in dict.fromkeys(tuple(sorted(rule.cells)) for rule in rules):
        if len(cells) > 1 and cells[-1] >= len(board.places) > cells[-2]:
            cages.append(cells)
    inside = [cell for cage in cages for cell in cage[:-1]]
    return tuple(cages) if len(set(inside)) == len(inside) else ()


def _connected(places: NDArray[np.int64], columns: int) -> bool:
    row, column = np.divmod(places, columns)
    near = abs(row[:, None] - row) + abs(column[:, None] - column) <= 1
    reached = near[0]
    for _ in places:
        reached = near[reached].any(axis=0)
    return bool(reached.all())


def _short(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:60]} ... {text[-30:]}"


def _bounds(low: int, high: int, most: int) -> str:
    if low == high:
        return str(low)
    if low <= 0:
        return f"at most {high}"
    return f"at least {low}" if high >= most else f"{low} to {high}"


def listed(words: Sequence[str]) -> str:
    """Join words with commas and a last "and"."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def box_of(shape: tuple[int, int], regions: set[frozenset[int]]) -> tuple[int, int] | None:
    """Return the rows and columns of equal boxes that all are among the regions, if there are such."""
    cells = np.arange(shape[0] * shape[1]).reshape(shape)
    for rows, columns in product(range(2, shape[0]), range(2, shape[1])):  # whole lines are no boxes
        if shape[0] % rows or shape[1] % columns:
            continue
        boxes = cells.reshape(shape[0] // rows, rows, shape[1] // columns, columns).swapaxes(1, 2)
        if {frozenset(box.ravel().tolist()) for pair in boxes for box in pair} <= regions:
            return rows, columns
    return None
