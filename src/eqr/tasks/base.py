"""`Task`: all that eqr needs to know about a kind of puzzle, and nothing about models.

A puzzle is a fixed-size grid of symbols; inside eqr it is a row-major vector of small integer tokens, token 0
being padding in every task. To add a kind of puzzle, write one subclass and `register` it (see
docs/custom-tasks.md). Tasks know NumPy only: no torch, no files.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from eqr.errors import UserError
from eqr.tasks.rows import Rows
from eqr.value import Value

Tokens = NDArray[np.uint8]
"""Tokens of one grid, shape (cells,), or of many, shape (count, cells)."""

PAD = 0


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether an answer solves its puzzle and, if not, why, in words a person understands."""

    valid: bool
    reason: str = ""
    cells: tuple[int, ...] = ()
    """Row-major indices of the cells the reason is about, for highlighting."""

    def __bool__(self) -> bool:
        return self.valid


VALID = Verdict(valid=True)


def invalid(reason: str, *cells: int) -> Verdict:
    """Return a negative verdict."""
    return Verdict(valid=False, reason=reason, cells=tuple(int(cell) for cell in cells))


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One puzzle with its answer, as a generator makes them."""

    puzzle: Tokens
    answer: Tokens
    rating: int = 0
    """Difficulty; what it counts (backtracks, path length) is the task's `rating_name`."""
    facts: dict[str, int] = field(default_factory=dict)
    """Extra per-puzzle integers worth keeping, such as the number of shortest paths."""


class Symmetries(ABC):
    """A batch of relabellings, one per row, that turn puzzles into equally hard puzzles of the same task."""

    @abstractmethod
    def apply(self, grids: Tokens) -> Tokens:
        """Transform grids (count, cells), row i by relabelling i."""

    @abstractmethod
    def inverse(self) -> "Symmetries":
        """Return the relabellings that undo these."""


@dataclass(frozen=True)
class CellsAndTokens(Symmetries):
    """Every symmetry of our tasks: move the cells, then rename the tokens, both by table look-up."""

    cells: NDArray[np.intp]
    """(count, cells): new cell c takes the token of old cell `cells[i, c]`."""
    tokens: Tokens
    """(count, vocabulary): token t becomes `tokens[i, t]`."""

    def apply(self, grids: Tokens) -> Tokens:
        """Two gathers, no Python loop."""
        moved = np.take_along_axis(grids, self.cells, axis=1)
        return np.take_along_axis(self.tokens, moved, axis=1)

    def inverse(self) -> "CellsAndTokens":
        """Invert both tables."""
        return CellsAndTokens(
            np.argsort(self.cells, axis=1), np.argsort(self.tokens, axis=1).astype(np.uint8)
        )


class Link(NamedTuple):
    """What a given value says of two cells."""

    first: int
    second: int
    told: int
    """The cell of the given value."""
    signs: tuple[str | None, ...]
    """The sign that each value stands for, "" for none; None for values that it cannot have."""


@dataclass(frozen=True, kw_only=True)
class Appearance:
    """How a task's cells are drawn in figures, and how they are written and edited on the page."""

    fills: dict[str, str] = field(default_factory=dict)
    """Background by symbol; a symbol without one shows by its fill whether it is given, right or wrong."""
    silent: str = " "
    """Symbols that are not written: their background says all."""
    box: tuple[int, int] | None = None
    """Rows and columns between heavy lines."""
    drawn: tuple[int, int] | None = None
    """Rows and columns of the rectangle that the page draws, if not the task's."""
    places: tuple[int, ...] = ()
    """Where in it each cell lies, row by row, if not in order, -1 if nowhere; other places are holes."""
    areas: tuple[int, ...] = ()
    """The area of each cell, with heavy lines between areas."""
    shaded: tuple[int, ...] = ()
    """Cells that lie in groups of their own, such as diagonals."""
    cages: tuple[tuple[int, ...], ...] = ()
    """Cells within a dashed line, and last the cell whose value says what they come to."""
    links: tuple[Link, ...] = ()
    """Signs between cells, or edges of a graph."""
    editor: Literal["sudoku", "maze", "colours", "symbols"] = "symbols"
    """How the page takes a puzzle: digits by keyboard, walls by mouse, colours, or symbol by symbol."""
    empty: str | None = None
    """The symbol of a cell that is still to be filled; the point, or the first symbol, if not said."""
    fixed: str | None = None
    """Symbols that an answer must keep; all but the empty one if not said."""
    words: dict[str, str] = field(default_factory=dict)
    """What symbols are called, for whoever listens to the page."""
    hint: str = ""
    """How a puzzle is typed or pasted; the symbols are listed if nothing is said."""


class Generate(Value):
    """How to generate puzzles; a task that can be steered declares a subclass as its `generate_options`."""

    @classmethod
    def of(cls, options: "Generate | None", task: str) -> Self:
        """Return the options of a task, defaults for None; those of another kind are an error."""
        if options is not None and not isinstance(options, cls):
            raise UserError(f"{task} is steered by {cls.__name__}, not {type(options).__name__}")
        return cls() if options is None else options


class Task(ABC):
    """A kind of puzzle: its grid, symbols, rules, symmetries and generator."""

    name: str
    """As typed on the command line, such as `sudoku-9x9`."""
    summary: str
    """One line for `eqr tasks`."""
    shape: tuple[int, int]
    """Rows and columns."""
    symbols: str
    """`symbols[t - 1]` is the character of token t; token 0 is padding."""
    rating_name: str = "rating"
    generate_options: ClassVar[type[Generate]] = Generate
    identities: bool = False
    """Whether a puzzle belongs to a family that the model must know (Mini-ARC), by a learned vector."""
    clues_name: str | None = None
    """What `clues` counts, or None where it means nothing."""
    if_ambiguous: str = "correct or remove the row"
    """What to do about a puzzle of several answers where `count_answers` promises one."""

    @property
    def cells(self) -> int:
        """Number of cells, which is the sequence length a model sees."""
        return self.shape[0] * self.shape[1]

    @property
    def vocabulary(self) -> int:
        """Number of tokens, padding included."""
        return len(self.symbols) + 1

    @abstractmethod
    def parse(self, text: str) -> Tokens:
        """Read one puzzle (or answer) as people paste it; `UserError` names what is wrong and where."""

    @abstractmethod
    def render(self, grid: Tokens, *, puzzle: Tokens | None = None, color: bool = False) -> str:
        """Draw a grid for a terminal; given `puzzle`, cells that the solver filled stand out when `color`."""

    @abstractmethod
    def check(self, puzzle: Tokens, answer: Tokens) -> Verdict:
        """Judge an answer by the rules of the puzzle alone, without any label."""

    def check_many(self, puzzles: Tokens, answers: Tokens) -> NDArray[np.bool_]:
        """Judge many answers, (count, cells) each; the same verdicts as `check`, without the reasons."""
        rows = zip(puzzles, answers, strict=True)
        return np.array([self.check(puzzle, answer).valid for puzzle, answer in rows], np.bool_)

    def nearest(self, puzzles: Tokens, answers: Tokens, scores: NDArray[np.float32]) -> Tokens:
        """Return each puzzle's answer of the greatest score, summed over (count, cells, vocabulary).

        By default a puzzle has one answer, the one that is given.
        """
        return answers

    @abstractmethod
    def check_puzzle(self, puzzle: Tokens) -> Verdict:
        """Judge whether a puzzle is well formed and not contradictory on its face (cheap, no search)."""

    @abstractmethod
    def draw_symmetries(self, rng: np.random.Generator, count: int) -> Symmetries:
        """Draw `count` random relabellings that never change what `check` says."""

    @abstractmethod
    def generate(self, rng: np.random.Generator, options: Generate | None = None) -> Iterator[Instance]:
        """Yield puzzles without end, each solvable in exactly the way the task promises."""

    def look(self) -> Appearance:
        """Return how grids are drawn; by default they are written out, cell by cell."""
        return Appearance()

    def canonical(self, grids: Tokens) -> Tokens:
        """Map each grid to one representative of its cheap symmetries, for duplicate and leak checks."""
        return grids

    def groups(self) -> dict[str, NDArray[np.intp]]:
        """Return which cells constrain each other, by family, for structured models.

        A family is (groups, members) cell numbers, -1 filling up smaller groups; a cell may be in any number
        of them. Groups that play the same part, such as rows and columns, belong in one family.
        """
        return {}

    def distinct(self) -> tuple[str, ...]:
        """Return the families of `groups` in which no symbol stands twice: a given rules others out."""
        return ()

    def constraints(self) -> Rows | None:
        """Return the rules as rows over candidates, for models that are to be told; None if that is not all.

        By default what `groups` and `distinct` say, if no symbol stands twice in any group.
        """
        groups = self.groups()
        if not groups or set(groups) - set(self.distinct()):
            return None
        cells = [group[group >= 0].astype(np.int64) for table in groups.values() for group in table]
        return Rows.different(cells, self.vocabulary - 2)

    def count_answers(self, puzzles: Tokens) -> NDArray[np.int64] | None:
        """Count the answers of puzzles (count, cells), 2 for more; None where one is not promised."""
        return None

    def caution(self, puzzle: Tokens, *, solved: bool) -> str:
        """Return what a person should know of a puzzle besides its answer's verdict; mostly nothing."""
        return ""

    def measures(self, puzzles: Tokens) -> dict[str, NDArray[np.int64]]:
        """Return what else is worth knowing about puzzles (count, cells), a number each, by name."""
        return {} if self.clues_name is None else {self.clues_name: self.clues(puzzles)}

    def clues(self, puzzles: Tokens) -> NDArray[np.int64]:
        """Count what is given in each puzzle (count, cells); only where `clues_name` is set."""
        raise NotImplementedError(f"{self.name} has no clue count")

    def options(self, given: dict[str, Any]) -> Generate:
        """Build this task's generator options from what was typed, naming the nearest option for a typo."""
        return self.generate_options.from_json(given, where=f"options of {self.name}")

    def require_tokens(self, grid: Tokens) -> Tokens:
        """Return the grid if its size and tokens fit this task; otherwise say what does not."""
        if not isinstance(grid, np.ndarray):
            raise UserError(
                f"{self.name}: give tokens, an array of {self.cells} numbers; parse(text) makes them"
            )
        if grid.shape[-1] != self.cells:
            rows, columns = self.shape
            raise UserError(
                f"{self.name} needs {self.cells} cells ({rows}x{columns}), this grid has {grid.shape[-1]}"
            )
        if grid.size and int(grid.max()) >= self.vocabulary:
            raise UserError(
                f"{self.name} has tokens 0..{self.vocabulary - 1}, this grid has {int(grid.max())}"
            )
        return grid
