"""Answers and glimpses as plain JSON, the same on the command line and over the wire."""

import math
from typing import Any

from eqr.solve.cohort import Glimpse
from eqr.solve.session import Answer
from eqr.tasks.base import Task, Tokens


def plain_answer(task: Task, number: int, answer: Answer) -> dict[str, Any]:
    """Return an answer; `number` is what its owner calls the puzzle."""
    return {
        "puzzle": number,
        "answer": text_of(task, answer.grid),
        "valid": answer.valid,
        "reason": answer.reason,
        "start": answer.start,
        "depth": answer.depth,
        "nfe": answer.nfe,
        "halted": answer.halted,
        "residual": finite(answer.residual),
        "halt": finite(answer.halt),
        "seconds": answer.seconds,
    }


def plain_glimpse(task: Task, number: int, glimpse: Glimpse) -> dict[str, Any]:
    """Return a segment; confidence in percent keeps a large grid's event small."""
    return {
        "puzzle": number,
        "start": glimpse.restart,
        "segment": glimpse.segment,
        "grid": text_of(task, glimpse.tokens),
        "confidence": [round(100 * share) if share == share else 0 for share in glimpse.confidence.tolist()],
        "residual": finite(glimpse.residual),
        "halt": finite(glimpse.halt),
        "done": glimpse.done,
    }


def text_of(task: Task, grid: Tokens) -> str:
    """Write a grid, a character a cell, `?` for padding."""
    return "".join(task.symbols[token - 1] if token else "?" for token in grid.tolist())


def finite(number: float) -> float | None:
    """JSON has no NaN: a state that blew up has no residual."""
    return number if math.isfinite(number) else None
