"""Puzzles whose answer fills in blanks by rules: what Sudoku and declared puzzles share.

A `Board` says where the cells lie and what their values are called: so how people paste a grid, how a
terminal shows it, how a verdict names cells. `Filling` is the task; rows over candidates judge its answers.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from eqr.errors import UserError, brief
from eqr.tasks.base import PAD, VALID, Generate, Task, Tokens, Verdict, invalid
from eqr.tasks.rows import Rows, Rule, Sort

BLANK, FIRST = 1, 2
"""The token of a cell to be filled, and that of the first value."""
BLANKS = "._*?0-"
HOLE = "#"
LETTERS = "123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
MARKS = "|+=-,;:/"
"""What may stand between cells, unless a value is called so."""
RULED = re.compile(r"^[\s|+=\-\u2500-\u257f]*$")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
FILLED, CHANGED, RESET = "\x1b[1;36m", "\x1b[1;31m", "\x1b[0m"


def words_between(marks: str) -> re.Pattern[str]:
    """Return what is left between spaces, marks, and lines drawn in box characters."""
    return re.compile(rf"[^\s\ufeff\u2500-\u257f{re.escape(marks)}]+")


WORDS = words_between(MARKS)


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
    def cells(self) -> int:
        """Number of cells, those that are always given among them."""
        return len(self.places) + self.given

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
        """Read a name, or one letter, for each cell; marks and lines drawn between cells do not matter."""
        text = COLOURS.sub("", text)
        lines = ["" if RULED.match(line) else line for line in text.splitlines()]
        if not any(lines):
            lines = text.splitlines()
        words = [(number, match.start(), match.group()) for number, line in enumerate(lines, 1)
                 for match in self._words.finditer(line)]  # fmt: skip
        letters = [(line, at + k, letter) for line, at, word in words for k, letter in enumerate(word)]
        dashed = letters
        if (
            "-" in text and not {"|", "+"} & {*text} and "-" not in "".join(self.names)
        ):  # without box lines, `-` can be a blank
            dashes = [(number, match.start(), "-") for number, line in enumerate(text.splitlines(), 1)
                      for match in re.finditer("-", line)]  # fmt: skip
            dashed = sorted([*letters, *dashes])
        holes, order = self._order
        for found in (words, letters, dashed):
            if len(found) == len(holes):
                found = [word for word, hole in zip(found, holes, strict=True) if not hole]
            else:
                found = [word for word in found if word[2] != HOLE]
            if len(found) == self.cells:
                known, ordered = self._tokens, (found[place] for place in order)
                return np.array(
                    [known.get(word[2]) or self._other_token(*word) for word in ordered], np.uint8
                )
        rows, columns = self.shape
        raise UserError(
            f"a puzzle of {rows}x{columns} has {len(self.places)} cells"
            f"{f' and {self.given} that are always given' if self.given else ''}, this text has "
            f"{len(words if max(map(len, self.names)) > 1 else letters)}; "
            f"write {self.names[0]} to {self.names[-1]}, and . for a cell to be filled"
        )

    @cached_property
    def _words(self) -> re.Pattern[str]:
        return words_between("".join(mark for mark in MARKS if mark not in "".join(self.names)))

    @cached_property
    def _order(self) -> tuple[list[bool], list[int]]:
        """Which places of the rectangle are holes, and where among the others each cell stands."""
        holes = np.ones(self.shape[0] * self.shape[1] + self.given, np.bool_)
        holes[self.places] = holes[len(holes) - self.given :] = False
        return holes.tolist(), [
            *np.argsort(np.argsort(self.places)).tolist(),
            *range(len(self.places), self.cells),
        ]

    @cached_property
    def _tokens(self) -> dict[str, int]:
        """Tokens by name, by letter for a blank, and by the symbol that the page writes for a longer name."""
        by_symbol = {symbol: token for token, symbol in enumerate(self.symbols, BLANK)}
        by_name = {name: token for token, name in enumerate(self.names, FIRST)}
        return dict.fromkeys(BLANKS, BLANK) | by_symbol | by_name

    def _other_token(self, line: int, column: int, word: str) -> int:
        """Return the token of a name in small letters, or of a number where letters are names."""
        small = [name.lower() for name in self.names]
        if small.count(word.lower()) == 1:
            return small.index(word.lower()) + FIRST
        numbered = self.names == tuple(LETTERS[: len(self.names)]) and word.isascii() and word.isdigit()
        if numbered and 1 <= int(word) <= len(self.names):  # 10 for A
            return int(word) - 1 + FIRST
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
        stacks = self.shape[1] // columns
        rule = "+".join("-" * (columns * (width + 1) + (0 < stack < stacks - 1)) for stack in range(stacks))
        lines = []
        for number, line in enumerate(drawn.reshape(self.shape)):
            if number and number % rows == 0:
                lines.append(rule)
            parts = [" ".join(line[at : at + columns]) for at in range(0, self.shape[1], columns)]
            lines.append(" | ".join(parts))
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
        if rule.sort is Sort.DIFFERENT and len({*values}) == 1:
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
        if rule.sort is Sort.COUNT and len({*values}) == 1 and (grid[list(rule.cells)] > BLANK).all():
            counted = f"{total} of {self.names[values[0]]}, not {_bounds(low, high, len(cells))}"
            return f"{lead}{self.scope(rule.cells)} has {counted}", rule.cells
        text = "" if rule.described else f"{_short(rule.text)} does not hold: "
        held_by = [f"{self.place(c)} is {self.name(int(grid[c]))}" for c in rule.cells[:4]]
        return f"{lead}{text}{listed(held_by)}{', ...' if len(rule.cells) > 4 else ''}", rule.cells


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


class PuzzleOptions(Generate):
    """Which puzzles to generate."""

    clues: int | None = Field(default=None, ge=0)
    """Clues to keep; None takes clues away until every one is needed. More clues make it easier."""
    min_rating: int = Field(default=0, ge=0)
    """Least backtracks an exact search needs. Higher: harder."""
    max_rating: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max_rating is not None and self.max_rating < self.min_rating:
            raise ValueError(f"max_rating {self.max_rating} is below min_rating {self.min_rating}")
        return self

    def fits(self, rating: int) -> bool:
        """Say whether a rating is in the range asked for."""
        return self.min_rating <= rating and (self.max_rating is None or rating <= self.max_rating)

    def __str__(self) -> str:
        asked = {name: value for name, value in self.to_json().items() if value not in (None, 0)}
        return " and ".join(f"{name} = {value}" for name, value in asked.items()) or "one solution"


class Filling(Task):
    """A task whose answer fills the blanks of a puzzle so that every rule is kept."""

    rating_name = "backtracks"
    clues_name = "clues"
    generate_options: ClassVar[type[Generate]] = PuzzleOptions
    board: Board
    rules: Sequence[Rule]
    rows: Rows
    """The rules as rows over candidates."""

    def parse(self, text: str) -> Tokens:
        """Read one value a cell, by name, and a point for a cell to be filled."""
        return self.board.parse(text)

    def render(self, grid: Tokens, *, puzzle: Tokens | None = None, color: bool = False) -> str:
        """Draw the grid; with `color`, what was filled in is bold and changed givens are red."""
        return self.board.render(self.require_tokens(grid), puzzle if color else None)

    def check(self, puzzle: Tokens, answer: Tokens) -> Verdict:
        """Say whether the answer keeps the givens and every rule; if not, which rule it breaks and where."""
        self.require_tokens(puzzle)
        self.require_tokens(answer)
        changed = np.flatnonzero((puzzle > BLANK) & (puzzle != answer))
        if changed.size:
            cell = int(changed[0])
            name, now = self.board.name, self.board.name(int(answer[cell]))
            word = f"changed to {now}" if answer[cell] > BLANK else "removed"
            return invalid(
                f"the given {name(int(puzzle[cell]))} in {self.board.place(cell)} was {word}", *changed
            )
        blank = np.flatnonzero(answer <= BLANK)
        if blank.size:
            count = "" if blank.size == 1 else f" (of {blank.size} blank cells the first)"
            return invalid(f"{self.board.place(int(blank[0]))} is left blank{count}", *blank)
        kept = self.rows.kept(answer[None].astype(np.int64) - FIRST)[0]
        return self._broken(np.flatnonzero(~kept), answer)

    def check_many(self, puzzles: Tokens, answers: Tokens) -> NDArray[np.bool_]:
        """Judge all rows at once."""
        self.require_tokens(puzzles)
        self.require_tokens(answers)
        given = ((puzzles <= BLANK) | (puzzles == answers)).all(axis=1) & (answers > BLANK).all(axis=1)
        return np.asarray(given & self.rows.kept(answers.astype(np.int64) - FIRST).all(axis=1), np.bool_)

    def check_puzzle(self, puzzle: Tokens) -> Verdict:
        """Say whether some rule cannot be kept whatever the blank cells hold; each rule by itself."""
        self.require_tokens(puzzle)
        padding = np.flatnonzero(puzzle == PAD)
        if padding.size:
            return invalid(
                f"{self.board.place(int(padding[0]))} holds padding, not a value or a blank", *padding
            )
        first = self.cells - self.board.given
        missing = first + np.flatnonzero(puzzle[first:] <= BLANK)
        if missing.size:
            return invalid(f"{self.board.place(int(missing[0]))} is missing; every puzzle gives it", *missing)
        value = puzzle.astype(np.int64) - FIRST
        possible = (value[:, None] < 0) | (value[:, None] == np.arange(self.rows.values))
        least, greatest = self.rows.reach(possible)
        broken = np.flatnonzero((least > self.rows.high) | (greatest < self.rows.low))
        return self._broken(broken, puzzle)

    def _broken(self, rows: NDArray[np.intp], grid: Tokens) -> Verdict:
        """Name the first broken row, one with too much before one with too little: it has cells to show."""
        if not len(rows):
            return VALID
        sums = self.rows.sums(grid[None].astype(np.int64) - FIRST)[0]
        over = rows[sums[rows] > self.rows.high[rows]]
        row = int((over if len(over) else rows)[0])
        reason, cells = self.board.broken(self.rules[int(self.rows.owner[row])], self.rows, row, grid)
        return invalid(reason, *cells)

    def constraints(self) -> Rows:
        """Return all rules."""
        return self.rows

    def clues(self, puzzles: Tokens) -> NDArray[np.int64]:
        """Count the givens of each puzzle."""
        return np.asarray((puzzles > BLANK).sum(axis=-1), np.int64)


def different(groups: Iterable[NDArray[np.integer]]) -> list[Rule]:
    """Return the rules of groups of cells that differ, whose rows are `Rows.different`."""
    scopes = [tuple(sorted(group.tolist())) for group in groups]
    return [Rule(text="different cells", sort=Sort.DIFFERENT, cells=cells) for cells in scopes]
