"""Is an imported row what it claims to be: a puzzle with one answer, and a label that solves it?

Used by every source that reads files made elsewhere, so that a wrong row is met on import, by name, and not
as a ceiling on accuracy weeks later.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from eqr.errors import UserError
from eqr.progress import progress
from eqr.signals import deferred_interrupts
from eqr.tasks.base import PAD, Task, Tokens

CHUNK = 512


def require_sound(
    task: Task, inputs: Tokens, labels: Tokens, where: Callable[[int], str], *, quiet: bool = True
) -> None:
    """Raise a `UserError` for a row that is ill-formed, wrongly labelled or, if one answer is due, ambiguous.

    `where(row)` names the row in its file. Rows with ignored cells (label 0) have no whole answer to judge.
    """
    with progress(f"checking {task.name}", len(inputs), unit="puzzles", quiet=quiet) as shown:
        for start in range(0, len(inputs), CHUNK):
            rows = np.arange(start, min(start + CHUNK, len(inputs)))
            with deferred_interrupts():
                _require_sound(task, inputs, labels, rows, where)
            shown.advance(len(rows))


def _require_sound(
    task: Task, inputs: Tokens, labels: Tokens, rows: NDArray[np.intp], where: Callable[[int], str]
) -> None:
    bad = _unsolved(task, inputs[rows], labels[rows])
    if bad.any():
        row = int(rows[np.argmax(bad)])
        raise UserError(f"{where(row)}: {_reason(task, inputs[row], labels[row])}")
    for row in rows.tolist():  # one by one: a search that gives up is about the row that it was at
        _require_one_answer(task, inputs[row], where(row))


def _unsolved(task: Task, inputs: Tokens, labels: Tokens) -> NDArray[np.bool_]:
    padded = (inputs == PAD).any(axis=1)
    whole = (labels != PAD).all(axis=1)
    bad: NDArray[np.bool_] = padded | (whole & ~task.check_many(inputs, labels))
    return bad


def _reason(task: Task, puzzle: Tokens, answer: Tokens) -> str:
    if (puzzle == PAD).any():
        return f"cell {int(np.argmax(puzzle == PAD)) + 1} of the puzzle is padding; every cell needs a symbol"
    posed = task.check_puzzle(puzzle)
    if not posed:
        return f"the puzzle is not well formed: {posed.reason}; correct or remove the row"
    wrong = task.check(puzzle, answer).reason
    return f"the answer does not solve its puzzle: {wrong}; correct or remove the row"


def _require_one_answer(task: Task, puzzle: Tokens, where: str) -> None:
    try:
        answers = task.count_answers(puzzle[None])
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    if answers is None or answers[0] == 1:
        return
    many, then = ("several answers", task.if_ambiguous) if answers[0] else ("no answer", "remove the row")
    raise UserError(f"{where}: the puzzle has {many}, {task.name} promises exactly one; {then}")
