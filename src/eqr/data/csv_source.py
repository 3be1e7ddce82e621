"""Puzzle sets from CSV files with columns `question,answer` and, if there are, `source` and `rating`.

This is the format of Sudoku-Extreme and Maze-1k. The file is streamed twice (count, then read), so that a
thousand rows can be drawn from four million without holding them all.
"""

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from eqr.data.puzzles import PuzzleSet, require_sound
from eqr.data.splits import chosen_rows
from eqr.errors import UserError, nearest
from eqr.files import regular_file
from eqr.progress import progress
from eqr.tasks.base import Task, Tokens
from eqr.tasks.registry import task_named

COLUMNS = ("source", "question", "answer", "rating")
REQUIRED = ("question", "answer")
LARGEST = {"rating": 2**31 - 1, "source names": 2**15}


class CsvRow(NamedTuple):
    """One line of the file as text."""

    line: int
    source: str
    question: str
    answer: str
    rating: str


def read_csv(
    path: Path,
    task: Task | None = None,
    *,
    count: int | None = None,
    seed: int = 0,
    columns: Mapping[str, str] | None = None,
    quiet: bool = True,
) -> PuzzleSet:
    """Read a CSV file, or `count` of its rows drawn without replacement; every row read is checked.

    Without a task the first row decides: its length and symbols. `columns` gives the file's own names for
    ours; then the columns that it does not name are left out.
    """
    renamed = _renamed(columns or {})
    first = next(_rows(path, renamed), None)
    if first is None:
        raise UserError(f"{path} has no rows below its header")
    total = sum(1 for _ in _rows(path, renamed))
    task = task or task_of_text(first.question, where=f"{path} line {first.line}")
    if count is not None and not 0 < count <= total:
        raise UserError(f"{path} has {total:,} rows; cannot draw {count:,} of them")
    wanted = np.arange(total) if count is None else chosen_rows(total, count, seed)
    inputs, labels = np.zeros((2, len(wanted), task.cells), np.uint8)
    ratings, sources, lines = np.zeros((3, len(wanted)), np.int64)
    names: dict[str, int] = {}
    places = {row: place for place, row in enumerate(wanted.tolist())}
    with progress(f"reading {path.name}", len(wanted), unit="rows", quiet=quiet) as shown:
        for number, row in enumerate(_rows(path, renamed)):
            place = places.get(number)
            if place is None:
                continue
            where = f"{path} line {row.line}"
            inputs[place] = _parsed(task, row.question, f"{where}, question")
            labels[place] = _parsed(task, row.answer, f"{where}, answer")
            ratings[place] = _rating(row.rating, where)
            sources[place] = names.setdefault(row.source, len(names))
            lines[place] = row.line
            shown.advance()
    if len(names) > LARGEST["source names"]:
        raise UserError(f"{path} names {len(names):,} sources; at most {LARGEST['source names']:,} fit")
    require_sound(task, inputs, labels, lambda row: f"{path} line {lines[row]}", quiet=quiet)
    metadata: dict[str, Any] = {"made_by": "eqr data import", "file": path.name, "rows": total}
    if count is not None:
        metadata["sample"] = {"seed": seed, "of": path.name, "indices": wanted.tolist()}
    return PuzzleSet.of(
        task.name,
        inputs,
        labels,
        ratings=ratings,
        sources=sources,
        source_names=tuple(names),
        metadata=metadata,
    )


def task_of_text(question: str, *, where: str) -> Task:
    """Guess the task from a puzzle written as one line: mazes have walls, the rest is Sudoku."""
    side = round(len(question) ** 0.5)
    if side * side == len(question) and side > 1:
        is_maze = "#" in question and "S" in question
        name = f"maze-1k-{side}x{side}" if is_maze else f"sudoku-{side}x{side}"
        try:
            return task_named("maze-1k" if name == "maze-1k-30x30" else name)
        except UserError:
            pass
    raise UserError(
        f"{where}: cannot tell the task from a puzzle of {len(question)} characters; name it with --task, "
        "or complete the row"
    )


def _renamed(columns: Mapping[str, str]) -> dict[str, str]:
    """Turn "ours: theirs" round; empty if the file goes by our names."""
    for name in columns:
        if name not in COLUMNS:
            raise UserError(f"--column {name}: no such column{nearest(name, COLUMNS)}")
    theirs = {columns.get(name, name): name for name in COLUMNS}
    if columns and len(theirs) != len(COLUMNS):
        raise UserError(f"--column: one column cannot be two of {', '.join(COLUMNS)}")
    return theirs if columns else {}


def _parsed(task: Task, text: str, where: str) -> Tokens:
    try:
        return task.parse(text)
    except UserError as error:
        raise UserError(f"{where}: {error}; is --task {task.name} right, and the row complete?") from None


def _rating(text: str, where: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 10 or int(text) > LARGEST["rating"]:
        raise UserError(f"{where}: rating {text!r} is not a whole number from 0 to {LARGEST['rating']}")
    return int(text)


def _rows(path: Path, renamed: Mapping[str, str]) -> Iterator[CsvRow]:
    """Stream the rows; bad columns, encoding or quoting are errors that name the line."""
    try:
        with regular_file(path).open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            columns = _columns(path, next(reader, []), renamed)
            for cells in reader:
                if len(cells) != len(columns):
                    raise UserError(
                        f"{path} line {reader.line_num} has {len(cells)} columns, the header {len(columns)}; "
                        "the file may be cut off: get or export it again"
                    )
                row = dict(zip(columns, cells, strict=True))
                row.pop("", None)
                yield CsvRow(reader.line_num, **{"source": "csv", "rating": "0", **row})
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text ({error.reason}); save it as UTF-8") from None
    except csv.Error as error:
        raise UserError(f"{path} line {reader.line_num} is not valid CSV: {error}; mend the line") from None


def _columns(path: Path, names: list[str], renamed: Mapping[str, str]) -> list[str]:
    """Return our name of each column of the header, nothing for one that is left out."""
    if renamed:
        absent = [
            name for name, ours in renamed.items() if name not in names and (name != ours or ours in REQUIRED)
        ]
        if absent:
            raise UserError(f"{path} has no column {absent[0]!r}{nearest(absent[0], names)}")
        if len(set(names)) != len(names):
            raise UserError(f"{path} names a column twice")
        return [renamed.get(name, "") for name in names]
    for name in names:
        if name not in COLUMNS:
            raise UserError(
                f"{path}: unknown column {name[:40]!r}{nearest(name, COLUMNS)}; name the file's own columns "
                "with --column, such as --column question=puzzle"
            )
    missing = [name for name in REQUIRED if name not in names]
    if missing or len(set(names)) != len(names):
        problem = f"has no column {missing[0]!r}" if missing else "names a column twice"
        raise UserError(f"{path} {problem}; the first line must be {','.join(COLUMNS)}")
    return names
