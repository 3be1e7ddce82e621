"""Mazes: mark a shortest path from S to G.

Two families. `MazeUnique` carves perfect mazes, where the path is the only one (the Maze-Unique set, and
smaller relatives for quick experiments). `MazeOpen` scatters walls (the Maze-1k set), where several shortest
paths may exist and a label is one of them: `check` accepts any, and every generated puzzle carries their
number. Searching is in `maze_search`.

Spaces are cells here, and editors and forms love to drop them, so reading repairs a line only where there is
one way to do it and otherwise asks for `.` instead of spaces.
"""

from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from eqr.errors import UserError
from eqr.tasks import maze_search
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
from eqr.tasks.grids import dihedral, smallest_image
from eqr.tasks.maze_search import GOAL, START, WALL, MazeFault

SYMBOLS = "# SGo"
"""Wall, open, start, goal, path: `SYMBOLS[t - 1]` is the character of token t."""
PAINT = ("\x1b[1;35m??", "\x1b[100m  ", "  ", "\x1b[1;30;42mS ", "\x1b[1;30;41mG ", "\x1b[43m  ")
"""How a terminal shows each token; padding, which only a model can produce, as question marks."""
RESET = "\x1b[0m"
SIZES = range(3, 256)
LAYOUTS = 200
"""Mazes carved before a path length is declared out of reach, and starts tried in each."""
STARTS = 200
OPEN_LAYOUTS = 20_000
OPEN_TRIES = 100
"""Start and goal pairs tried in each random layout."""


class MazeOptions(Generate):
    """Bounds on the path length, in steps from S to G; by default they follow from the size of the maze."""

    min_length: int | None = Field(default=None, ge=1)
    max_length: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_length is not None and self.max_length is not None and self.min_length > self.max_length:
            raise ValueError(f"min_length {self.min_length} is above max_length {self.max_length}")
        return self


class OpenMazeOptions(MazeOptions):
    """The share of cells that are walls is drawn uniformly between two bounds."""

    min_walls: float = Field(default=0.3, ge=0.0, le=0.9)
    max_walls: float = Field(default=0.5, ge=0.0, le=0.9)

    @model_validator(mode="after")
    def _ordered_walls(self) -> Self:
        if self.min_walls > self.max_walls:
            raise ValueError(f"min_walls {self.min_walls} is above max_walls {self.max_walls}")
        return self


class Maze(Task):
    """What all mazes share: text, rules and symmetries; a subclass says how they are made."""

    symbols = SYMBOLS
    rating_name = "path length"

    def __init__(self, rows: int, columns: int, *, name: str, summary: str) -> None:
        if rows not in SIZES or columns not in SIZES or max(rows, columns) < 5:
            raise UserError(
                f"a maze of {rows}x{columns} cannot be made; both sides go from {SIZES[0]} to {SIZES[-1]}, "
                "one of them at least 5"
            )
        self.shape = (rows, columns)
        self.name = name
        self.summary = summary

    def parse(self, text: str) -> Tokens:
        """Read a maze: lines of '#', ' ' or '.', 'S', 'G', 'o', or all cells on one line."""
        characters = _read(text, *self.shape)
        return np.array([self.symbols.index(character) + 1 for character in characters], np.uint8)

    def render(self, grid: Tokens, *, puzzle: Tokens | None = None, color: bool = False) -> str:
        """Draw a maze; `puzzle` adds nothing, as the path is all that a solver fills in and shines anyway."""
        drawn = [mark if mark == "  " else mark + RESET for mark in PAINT] if color else ["?", *SYMBOLS]
        lines = self.require_tokens(grid).reshape(self.shape).tolist()
        return "\n".join("".join(drawn[token] for token in line) for line in lines)

    def check(self, puzzle: Tokens, answer: Tokens) -> Verdict:
        """Accept any shortest path, marked completely and with nothing beside it, in an unchanged maze."""
        puzzle, answer = self.require_tokens(puzzle), self.require_tokens(answer)
        fault, cell, found, shortest = maze_search.judge(puzzle, answer, *self.shape)
        if fault == MazeFault.NONE:
            return VALID
        if fault == MazeFault.PUZZLE:
            return self.check_puzzle(puzzle)
        if fault == MazeFault.CHANGED:
            return invalid(f"{_change(int(puzzle[cell]), int(answer[cell]))} at {self._place(cell)}", cell)
        if fault == MazeFault.BROKEN:
            return invalid(f"the path breaks after {self._place(cell)}", cell)
        if fault == MazeFault.LONGER:
            return invalid(f"the path is longer than the shortest path ({found} steps against {shortest})")
        return invalid(f"an extra 'o' or dead branch at {self._place(cell)}, beside the path", cell)

    def check_many(self, puzzles: Tokens, answers: Tokens) -> NDArray[np.bool_]:
        """Judge answers (count, cells) as `check` does, without the reasons."""
        puzzles, answers = self.require_tokens(puzzles), self.require_tokens(answers)
        return maze_search.judge_many(puzzles, answers, *self.shape)

    def check_puzzle(self, puzzle: Tokens) -> Verdict:
        """Ask for one start, one goal, no marks and a way between the two."""
        puzzle = self.require_tokens(puzzle)
        for token, name in ((START, "start 'S'"), (GOAL, "goal 'G'")):
            found = np.flatnonzero(puzzle == token)
            if len(found) != 1:
                return invalid(f"the puzzle needs one {name}, it has {len(found)}", *found)
        stray = np.flatnonzero((puzzle == PAD) | (puzzle > GOAL))
        if len(stray):
            what = "an empty cell" if puzzle[stray[0]] == PAD else "a path mark 'o'"
            return invalid(f"the puzzle has {what} at {self._place(stray[0])}", *stray)
        if self.shortest_paths(puzzle[None])[0] == 0:
            return invalid("no way leads from S to G", *np.flatnonzero(puzzle >= START))
        return VALID

    def nearest(self, puzzles: Tokens, answers: Tokens, scores: NDArray[np.float32]) -> Tokens:
        """Choose among all shortest paths."""
        gains = scores[..., maze_search.PATH] - scores[..., maze_search.OPEN]
        return maze_search.nearest_paths(self.require_tokens(puzzles), gains, *self.shape)

    def shortest_paths(self, puzzles: Tokens) -> NDArray[np.int64]:
        """Count the shortest paths of puzzles (count, cells): 0 if none, above 1 if ambiguous."""
        return maze_search.shortest_paths(self.require_tokens(puzzles), *self.shape)[1]

    def path_lengths(self, puzzles: Tokens) -> NDArray[np.int64]:
        """Return the steps from S to G in puzzles (count, cells), 0 where there is no way."""
        return maze_search.shortest_paths(self.require_tokens(puzzles), *self.shape)[0]

    def draw_symmetries(self, rng: np.random.Generator, count: int) -> CellsAndTokens:
        """Draw turns and reflections: eight for a square, four for other rectangles."""
        tables = dihedral(*self.shape)
        tokens = np.broadcast_to(np.arange(self.vocabulary, dtype=np.uint8), (count, self.vocabulary))
        return CellsAndTokens(tables[rng.integers(0, len(tables), count)], tokens)

    def look(self) -> Appearance:
        """Walls, ways and marks as colours."""
        fills = {"#": "#3B3B3B", " ": "#FFFFFF", "S": "#56B4E9", "G": "#E69F00", "o": "#8FD3BC"}
        return Appearance(
            fills=fills,
            silent="# o",
            editor="maze",
            empty=" ",
            fixed="#SG",
            words={"#": "wall", " ": "open", "S": "start", "G": "goal", "o": "path"},
            hint="# is a wall, . or a space is open, S the start, G the goal.",
        )

    def measures(self, puzzles: Tokens) -> dict[str, NDArray[np.int64]]:
        """Steps from start to goal, and how many shortest ways there are."""
        return {"path length": self.path_lengths(puzzles), "shortest paths": self.shortest_paths(puzzles)}

    def canonical(self, grids: Tokens) -> Tokens:
        """Map each grid to the smallest of its turns and reflections."""
        return smallest_image(grids, dihedral(*self.shape))

    @abstractmethod
    def lengths(self, options: MazeOptions) -> tuple[int, int]:
        """Return the least and greatest path length that the options ask for in a maze of this size."""

    def _place(self, cell: int) -> str:
        row, column = divmod(int(cell), self.shape[1])
        return f"(row {row + 1}, column {column + 1})"


class MazeUnique(Maze):
    """Perfect mazes with exactly one path; at 30x30 and seed 42 exactly the published Maze-Unique stream.

    An even side leaves its last row or column walled. Equal puzzles are not filtered here: a set is built by
    skipping what it already holds, in stream order, train before test.
    """

    generate_options: ClassVar[type[Generate]] = MazeOptions
    if_ambiguous = "import it as maze-1k with --task, or remove the row"

    def __init__(self, rows: int = 30, columns: int = 30) -> None:
        name = "maze-unique" if (rows, columns) == (30, 30) else f"maze-{rows}x{columns}"
        super().__init__(
            rows, columns, name=name, summary=f"{rows}x{columns} perfect maze: mark the only path"
        )

    def count_answers(self, puzzles: Tokens) -> NDArray[np.int64]:
        """Count shortest paths."""
        return np.minimum(self.shortest_paths(puzzles), 2)

    def caution(self, puzzle: Tokens, *, solved: bool) -> str:
        """Say of a maze that was not solved that it is unlike generated ones: it has loops or rooms."""
        free = puzzle.reshape(self.shape) != WALL
        ways = int((free[:, 1:] & free[:, :-1]).sum() + (free[1:] & free[:-1]).sum())
        if solved or ways < int(free.sum()):  # a tree has fewer edges than nodes
            return ""
        return "the maze has loops or rooms; models trained on mazes without them may fail on it"

    @property
    def open_cells(self) -> int:
        """Cells that are not wall, in every maze of this size."""
        rows, columns = self.shape
        return 2 * ((rows - 1) // 2) * ((columns - 1) // 2) - 1

    def lengths(self, options: MazeOptions) -> tuple[int, int]:
        """Default to the published 100 to 140 steps of 391 open cells, in proportion."""
        least, most = options.min_length, options.max_length
        if least is None:
            least = max(1, round(self.open_cells * 100 / 391))
            least = least if most is None else min(least, most)
        if most is None:
            most = max(least, round(self.open_cells * 140 / 391))
        if most >= self.open_cells:
            raise UserError(
                f"max_length {most} does not fit {self.name}: it has only {self.open_cells} open cells"
            )
        return least, most

    def generate(self, rng: np.random.Generator, options: Generate | None = None) -> Iterator[Instance]:
        """Yield perfect mazes whose path length is drawn uniformly between the bounds."""
        least, most = self.lengths(MazeOptions.of(options, self.name))
        while True:
            puzzle, answer, length = maze_search.draw_unique(rng, *self.shape, least, most, LAYOUTS, STARTS)
            if length == 0:
                raise UserError(
                    f"no {self.name} maze has a path of {least} to {most} steps; lower min_length"
                )
            yield Instance(puzzle=puzzle, answer=answer, rating=length)


class MazeOpen(Maze):
    """Random walls in the manner of Maze-1k; the answer is drawn uniformly among the shortest paths."""

    generate_options: ClassVar[type[Generate]] = OpenMazeOptions

    def __init__(self, rows: int = 30, columns: int = 30) -> None:
        name = "maze-1k" if (rows, columns) == (30, 30) else f"maze-1k-{rows}x{columns}"
        summary = f"{rows}x{columns} random walls: mark one of the shortest paths"
        super().__init__(rows, columns, name=name, summary=summary)

    def lengths(self, options: MazeOptions) -> tuple[int, int]:
        """Default to paths that visit at least as many cells as the longer side has."""
        most = options.max_length or self.cells - 1
        least = options.min_length or min(max(self.shape) - 1, most)
        if least >= self.cells:
            raise UserError(f"min_length {least} does not fit {self.name}: it has only {self.cells} cells")
        return least, most

    def generate(self, rng: np.random.Generator, options: Generate | None = None) -> Iterator[Instance]:
        """Yield random layouts with the number of shortest paths as the fact `shortest_paths`."""
        options = OpenMazeOptions.of(options, self.name)
        least, most = self.lengths(options)
        while True:
            for _ in range(OPEN_LAYOUTS):
                walls = round(self.cells * rng.uniform(options.min_walls, options.max_walls))
                puzzle, answer, length, paths = maze_search.draw_open(
                    rng, *self.shape, min(walls, self.cells - 2), least, most, OPEN_TRIES
                )
                if length:
                    yield Instance(
                        puzzle=puzzle, answer=answer, rating=length, facts={"shortest_paths": paths}
                    )
                    break
            else:
                raise UserError(
                    f"{OPEN_LAYOUTS} layouts of {self.name} had no path of {least} to {most} steps; "
                    "change min_length, max_length or the share of walls"
                )


def _change(before: int, after: int) -> str:
    changed = {WALL: "wall changed", START: "start changed", GOAL: "goal changed"}
    added = {PAD: "nothing written", WALL: "wall added", START: "second start", GOAL: "second goal"}
    return changed.get(before) or added[after]


def _read(text: str, rows: int, columns: int) -> str:
    """Return the rows x columns characters of a pasted maze, row by row, open cells as spaces."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    dotted = "." in text
    if dotted:  # then a space is no cell but a separator or padding
        text = "\n".join("".join(line.split()) for line in text.split("\n"))
    unbroken = text.strip("\n")
    if "\n" not in unbroken and not unbroken[rows * columns :].strip(" "):
        unbroken = unbroken[: rows * columns]
    if len(unbroken) == rows * columns and "\n" not in unbroken:
        lines = [unbroken[start : start + columns] for start in range(0, len(unbroken), columns)]
    else:
        lines = _lines(text, rows, columns)
        if not dotted:
            lines = [_repaired(lines, number, columns) for number in range(rows)]
    for number, line in enumerate(lines, 1):
        _require_line(line, number, columns, dotted=dotted)
    return "".join(lines).replace(".", " ")


def _lines(text: str, rows: int, columns: int) -> list[str]:
    """Split into `rows` lines; blank lines around the maze go, but only as many as are too many."""
    lines = text.split("\n")
    while len(lines) > rows and not lines[-1].strip():
        lines.pop()
    while len(lines) > rows and not lines[0].strip():
        lines.pop(0)
    if len(lines) != rows:
        size = f"{len(lines)} lines" if len(lines) > 1 else f"one line of {len(lines[0])} characters"
        raise UserError(
            f"a {rows}x{columns} maze needs {rows} lines of {columns} characters, or all {rows * columns} "
            f"characters on one line; this text has {size}"
        )
    return lines


def _repaired(lines: list[str], number: int, columns: int) -> str:
    """Return line `number` with the end spaces that an editor trimmed, if nothing else can have been lost."""
    line = lines[number]
    if not line[columns:].strip(" "):
        line = line[:columns]
    end_trimmed = number == len(lines) - 1 or not any(other.endswith(" ") for other in lines)
    front_kept = line.startswith(" ") or (number > 0 and any(other.startswith(" ") for other in lines))
    if not line.strip(" ") or (end_trimmed and front_kept):
        return line.ljust(columns)
    return line


def _require_line(line: str, number: int, columns: int, *, dotted: bool) -> None:
    if len(line) != columns:
        hint = ""
        if dotted:
            hint = "; with '.' for open cells, spaces do not count"
        elif len(line) < columns:
            hint = "; if spaces were lost on the way, write open cells as '.'"
        raise UserError(f"maze row {number} has {len(line)} characters, it needs {columns}{hint}")
    for column, character in enumerate(line, 1):
        if character not in SYMBOLS + ".":
            raise UserError(
                f"maze row {number}, column {column}: {character!r} is none of '#' (wall), ' ' or '.' "
                "(open), 'S' (start), 'G' (goal), 'o' (path)"
            )
