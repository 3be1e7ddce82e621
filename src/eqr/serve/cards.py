"""What is known about a served model: its card for programs and for the page, with examples.

The page draws Sudoku and mazes in their own way and any other task by its symbols; it knows their rules well
enough to say at once what is wrong with a puzzle, and asks the server for those of other tasks.
"""

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from eqr.model.export import noise_scales
from eqr.model.reasoner import Reasoner
from eqr.serve.limits import Limits
from eqr.solve.solver import USUAL_DEPTH, SolveOptions
from eqr.tasks.base import Instance, Task

STATIC = Path(__file__).parent / "static"
SHOWN_SETTINGS = ("depth", "breadth", "halt", "select", "race", "noise", "seed", "identity")
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


def model_card(name: str, reasoner: Reasoner, task: Task, limits: Limits) -> dict[str, Any]:
    """Describe a model: task, size, what was measured, what may be asked, and examples."""
    noise = noise_scales(reasoner)[0]
    deepest = min(limits.depth, reasoner.config.greatest_depth or limits.depth)
    defaults = SolveOptions(depth=min(USUAL_DEPTH, deepest)).to_json()
    return {
        "name": name,
        "title": _title(name, task),
        "said": _said(reasoner),
        "task": task_card(task),
        "parameters": reasoner.parameter_count(),
        "identities": reasoner.config.identities,
        "config": reasoner.config.to_json(),
        "measured": [number.to_json() for number in reasoner.measured],
        "noise": noise,
        "noisy": True,
        "defaults": {field: defaults[field] for field in SHOWN_SETTINGS},
        "limits": {
            "depth": deepest,
            "breadth": limits.breadth,
            "segments": limits.segments,
            "puzzles": limits.puzzles,
        },
        "examples": examples(task),
    }


def _title(name: str, task: Task) -> str:
    """Return what a person calls a model: its puzzles, and its own name as far as that says more."""
    if name in task.name:
        return title(task)
    own = name.removeprefix(task.name).removeprefix(task.name.partition("-")[0])
    return f"{title(task)}, {own.strip('-')}" if own != name else f"{title(task)} ({name})"


def _said(reasoner: Reasoner) -> str:
    """The best number known about a model, in words."""
    found = [number for number in reasoner.measured if number.metric == "exact"]
    if not found:
        return ""
    best = max(found, key=lambda number: number.value)
    return (
        f"It solves {100 * best.value:.1f} % of {best.n:,} held-out puzzles "
        f"at depth {best.depth}, breadth {best.breadth}."
    )


def task_card(task: Task) -> dict[str, Any]:
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
        "drawn": None if seen.drawn is None else list(seen.drawn),
        "places": list(seen.places),
        "areas": list(seen.areas),
        "shaded": list(seen.shaded),
        "cages": [list(cage) for cage in seen.cages],
        "links": [list(link) for link in seen.links],
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
