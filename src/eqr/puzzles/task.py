"""`Puzzle`: a task that is nothing but its rules (`declaring.py` makes one from CPMpy constraints).

The constraints become rows over candidates (`compiling.py`, the only file that reads CPMpy); checking,
search, generator, symmetries and groups follow from the rows. A puzzle once made needs no CPMpy, so it can be
sent to other processes.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from eqr.errors import UserError
from eqr.puzzles import generating, symmetry
from eqr.puzzles.generating import PuzzleOptions
from eqr.puzzles.text import BLANK, FIRST, Board, cages_of, regions_of
from eqr.tasks.base import (
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
from eqr.tasks.grids import smallest_image
from eqr.tasks.rows import Ints, Rows, Rule, Sort

if TYPE_CHECKING:
    from eqr.puzzles.search import Tables


class Puzzle(Task):
    """A kind of puzzle declared by its rules: each cell chooses a value so that every rule is kept."""

    rating_name = "backtracks"
    clues_name = "clues"
    generate_options: ClassVar[type[Generate]] = PuzzleOptions
    cell_names: tuple[str, ...] = ()
    """The variables that the cells were declared by."""

    def __init__(
        self,
        name: str,
        board: Board,
        values: Sequence[int],
        rules: Sequence[Rule],
        rows: Rows,
        summary: str = "",
    ) -> None:
        self.name, self.board, self.rules, self.rows = name, board, tuple(rules), rows
        self.values = tuple(values)
        whole = board.whole
        self.shape = board.shape if whole else (1, len(board.places) + board.given)
        self.symbols = board.symbols
        size = "x".join(map(str, board.shape)) if board.shape[0] > 1 else f"{board.shape[1]} cells"
        self.summary = summary or f"{name}: {size}, {len(self.rules)} rules, one solution each"

    def __getstate__(self) -> dict[str, Any]:
        kept = "name", "board", "rules", "rows", "values", "shape", "symbols", "summary"
        return {key: vars(self)[key] for key in kept}

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
            others = f" (and {blank.size - 1} more)" if blank.size > 1 else ""
            return invalid(f"{self.board.place(int(blank[0]))} is left blank{others}", *blank)
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
        padding = np.flatnonzero(puzzle == 0)
        if padding.size:
            return invalid(
                f"{self.board.place(int(padding[0]))} holds padding, not a value or a blank", *padding
            )
        first = self.cells - self.board.given
        missing = first + np.flatnonzero(puzzle[first:] <= BLANK)
        if missing.size:
            return invalid(f"{self.board.place(int(missing[0]))} is missing; every puzzle gives it", *missing)
        value = puzzle.astype(np.int64) - FIRST
        possible = (value[:, None] < 0) | (value[:, None] == np.arange(len(self.values)))
        least, greatest = self.rows.reach(possible)
        broken = np.flatnonzero((least > self.rows.high) | (greatest < self.rows.low))
        return self._broken(broken, puzzle)

    def _broken(self, rows: Ints | NDArray[np.intp], grid: Tokens) -> Verdict:
        """Name the first broken row, one with too much before one with too little: it has cells to show."""
        if not len(rows):
            return VALID
        sums = self.rows.sums(grid[None].astype(np.int64) - FIRST)[0]
        over = rows[sums[rows] > self.rows.high[rows]]
        row = int((over if len(over) else rows)[0])
        reason, cells = self.board.broken(self.rules[int(self.rows.owner[row])], self.rows, row, grid)
        return invalid(reason, *cells)

    def draw_symmetries(self, rng: np.random.Generator, count: int) -> CellsAndTokens:
        """Draw value names, orders of rows and columns, and turns that map the rules onto themselves."""
        return self.symmetries.draw(rng, count, self.shape, FIRST, self.vocabulary)

    def canonical(self, grids: Tokens) -> Tokens:
        """Undo the turns and reflections that keep the rules, and the names where any may be any other."""
        self.require_tokens(grids)
        found = self.symmetries
        if len(found.values) != 1 or len(found.values[0]) != len(self.values):
            return smallest_image(grids, found.turns)
        best = _renamed(grids)
        for turn in found.turns[1:]:
            both = np.concatenate([best, _renamed(grids[:, turn])], axis=1)
            halves = np.arange(both.shape[1]).reshape(2, -1)
            best = smallest_image(both, np.stack([halves.ravel(), halves[::-1].ravel()]))[:, : self.cells]
        return best

    def look(self) -> Appearance:
        """Boxes between heavy lines, blanks empty."""
        words = {
            letter: name
            for letter, name in zip(self.symbols[1:], self.board.names, strict=True)
            if letter != name
        }
        board, (rows, columns) = self.board, self.board.shape
        areas, shaded = regions_of(board, self.rules, columns) if rows > 1 else ((), ())
        below = -(-board.given // columns)
        others = range((rows + 1) * columns, (rows + 1) * columns + board.given)
        return Appearance(
            box=board.box if board.whole else None,
            drawn=(rows + bool(below) + below, columns),
            places=(*board.places.tolist(), *others),
            areas=areas,
            shaded=shaded,
            cages=cages_of(board, self.rules),
            silent=".",
            words=words,
            hint=f"{', '.join(self.board.names)}, with . for cells to be filled; lines do not matter.",
        )

    def groups(self) -> dict[str, NDArray[np.intp]]:
        """Return the sets of different cells, if there are no other rules: with every value, and smaller."""
        return self._groups or {}

    def distinct(self) -> tuple[str, ...]:
        """No value stands twice in any of the groups."""
        return tuple(self.groups())

    def constraints(self) -> Rows:
        """Return all rules."""
        return self.rows

    def count_answers(self, puzzles: Tokens) -> NDArray[np.int64]:
        """Search exactly; every puzzle has one answer."""
        givens = self.require_tokens(puzzles).astype(np.int64) - FIRST
        return np.array(
            [generating.count(self.rows, self.tables, row, self.name) for row in givens], np.int64
        )

    def clues(self, puzzles: Tokens) -> NDArray[np.int64]:
        """Count the givens of each puzzle."""
        return np.asarray((puzzles > BLANK).sum(axis=-1), np.int64)

    def generate(self, rng: np.random.Generator, options: Generate | None = None) -> Iterator[Instance]:
        """Yield puzzles with one answer, rated by the backtracks an exact search needs."""
        chosen = PuzzleOptions() if options is None else options
        if not isinstance(chosen, PuzzleOptions):
            raise UserError(f"{self.name} is steered by PuzzleOptions, not {type(chosen).__name__}")
        return generating.endless(rng, chosen, self.rows, self.tables, self.name)

    @cached_property
    def tables(self) -> "Tables":
        """The rows as the search reads them."""
        from eqr.puzzles.search import tables

        return tables(self.rows, self.cells, self.cells - self.board.given)

    @cached_property
    def symmetries(self) -> symmetry.Invariances:
        """The relabellings that keep the rules."""
        return symmetry.find(self.rows, self.shape, self.board.whole)

    @cached_property
    def _groups(self) -> dict[str, NDArray[np.intp]] | None:
        """Families of groups of cells, None where a rule says more than that cells differ."""
        families: dict[str, list[NDArray[np.int64]]] = {"once": [], "differ": []}
        values = len(self.values)
        for number, rule in enumerate(self.rules):
            rows = np.flatnonzero(self.rows.owner == number)
            if not len(rows):
                continue
            cells = np.array(sorted(rule.cells))
            entries = slice(self.rows.starts[rows[0]], self.rows.starts[rows[-1] + 1])
            plain = (cells * values + np.arange(values)[:, None]).ravel()
            if rule.sort is not Sort.DIFFERENT or not np.array_equal(self.rows.sites[entries], plain):
                return None
            families["once" if self.rows.low[rows].all() else "differ"].append(cells)
        return {name: _padded(groups) for name, groups in families.items() if groups}


def _padded(groups: Sequence[NDArray[np.int64]]) -> NDArray[np.intp]:
    """Return groups as one table, -1 filling up smaller ones."""
    table = np.full((len(groups), max(map(len, groups))), -1, np.intp)
    for row, cells in zip(table, groups, strict=True):
        row[: len(cells)] = cells
    return table


def _renamed(grids: Tokens) -> Tokens:
    """Number the values of each grid by their first appearance."""
    renamed = grids.copy()
    for row, grid in zip(renamed, grids, strict=True):
        values, first = np.unique(grid[grid >= FIRST], return_index=True)
        names = np.arange(256, dtype=np.uint8)
        names[values[np.argsort(first)]] = np.arange(len(values)) + FIRST
        row[:] = names[grid]
    return renamed
