"""`Puzzle`: a task that is nothing but its rules (`declaring.py` makes one from CPMpy constraints).

The constraints become rows over candidates (`compiling.py`, the only file that reads CPMpy); checking,
search, generator, symmetries and groups follow from the rows. A puzzle once made needs no CPMpy, so it can be
sent to other processes.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from eqr.puzzles import generating, symmetry
from eqr.puzzles.drawing import cages_of, links_of, regions_of
from eqr.tasks.base import Appearance, CellsAndTokens, Generate, Instance, Tokens
from eqr.tasks.filling import FIRST, Board, Filling, PuzzleOptions
from eqr.tasks.grids import smallest_image
from eqr.tasks.rows import Rows, Rule, Sort

if TYPE_CHECKING:
    from eqr.puzzles.search import Tables


class Puzzle(Filling):
    """A kind of puzzle declared by its rules: each cell chooses a value so that every rule is kept."""

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
        self.shape = board.shape if board.whole else (1, board.cells)
        self.symbols = board.symbols
        size = "x".join(map(str, board.shape)) if board.shape[0] > 1 else f"{board.shape[1]} cells"
        self.summary = summary or f"{name}: {size}, {len(self.rules)} rules, one solution each"

    def __getstate__(self) -> dict[str, Any]:
        kept = "name", "board", "rules", "rows", "values", "shape", "symbols", "summary"
        return {key: vars(self)[key] for key in kept}

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
        links, below = links_of(board, self.rules, self.rows), -(-board.given // columns)
        others: Sequence[int] = range((rows + 1) * columns, (rows + 1) * columns + board.given)
        if len({link.told for link in links}) == board.given:  # signs and edges show all of them
            below, others = 0, [-1] * board.given
        return Appearance(
            box=board.box if board.whole else None,
            drawn=(rows + bool(below) + below, columns),
            places=(*board.places.tolist(), *others),
            areas=areas,
            shaded=shaded,
            cages=cages_of(board, self.rules),
            links=links,
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

    def count_answers(self, puzzles: Tokens) -> NDArray[np.int64]:
        """Search exactly; every puzzle has one answer."""
        givens = self.require_tokens(puzzles).astype(np.int64) - FIRST
        return np.array(
            [generating.count(self.rows, self.tables, row, self.name) for row in givens], np.int64
        )

    def generate(self, rng: np.random.Generator, options: Generate | None = None) -> Iterator[Instance]:
        """Yield puzzles with one answer, rated by the backtracks an exact search needs."""
        chosen = PuzzleOptions.of(options, self.name)
        draw = partial(generating.fitting, rng, chosen, self.rows, self.tables, self.name)
        return iter(draw, None)

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
