"""How a task looks on the page, and examples of it from easy to hard.

The page draws Sudoku and mazes in their own way and any other task by its symbols; it knows their rules well
enough to say at once what is wrong with a puzzle, and asks the server for those of other tasks.
"""

from itertools import islice
from typing import Any

import numpy as np

from eqr.tasks.base import Instance, Task

DRAWN = 24
"""Puzzles generated to choose examples from."""
LEVELS = ("Easy", "Medium", "Hard", "Hardest")
FAMOUS = {
    "sudoku-9x9": (
        ("17 clues", "000000010400000000020000000000050407008000300001090000300400200050100000000806000"),
        ("Inkala 2012", "800000000003600000070090200050007000000045700000100030001000068008500010090000400"),
        (
            "Golden Nugget",
            "000000039000001005003050800008090006070002000100400000009080050020000600400700000",
        ),
    )
}
"""Puzzles that people know, from hard to among the hardest known."""
TITLES = {"mini-arc": "Mini-ARC"}
"""Names that are written in a way of their own."""


def look(task: Task) -> dict[str, Any]:
    """Describe a task to the page."""
    seen, symbols = task.look(), task.symbols
    empty = seen.empty or ("." if "." in symbols else symbols[0])
    fixed = seen.fixed
    if fixed is None:
        fixed = symbols.replace(".", "") if "." in symbols else ""
    return {
        "name": task.name,
        "title": title(task),
        "summary": task.summary,
        "rows": task.shape[0],
        "columns": task.shape[1],
        "symbols": symbols,
        "kind": seen.editor,
        "boxes": None if seen.box is None else list(seen.box),
        "empty": empty,
        "fixed": fixed,
        "words": seen.words,
        "hint": seen.hint or f"A character a cell: {' '.join(symbols)}.",
        "judged": not task.identities,
    }


def title(task: Task) -> str:
    """Return a task's name as one says it."""
    if task.name in TITLES:
        return TITLES[task.name]
    word, _, rest = task.name.partition("-")
    return f"{word.capitalize()} {rest.replace('x', ' × ') if rest[:1].isdigit() else rest}".strip()


def examples(task: Task, *, seed: int = 0) -> list[dict[str, str]]:
    """Return puzzles from easy to hard: generated ones by their rating, then famous ones."""
    drawn = list(islice(task.generate(np.random.default_rng(seed)), DRAWN))
    drawn.sort(key=lambda one: (one.rating, _blanks(task, one)))
    famous = FAMOUS.get(task.name, ())
    levels = LEVELS[: len(LEVELS) - 1] if famous else LEVELS
    places = np.linspace(0, len(drawn) - 1, len(levels)).round().astype(int)
    made = [
        {"label": level, "puzzle": "".join(task.symbols[token - 1] for token in drawn[place].puzzle)}
        for level, place in zip(levels, places, strict=True)
    ]
    return made + [{"label": label, "puzzle": puzzle} for label, puzzle in famous]


def _blanks(task: Task, one: Instance) -> int:
    return -int(task.clues(one.puzzle[None])[0]) if task.clues_name else 0
