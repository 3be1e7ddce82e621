"""Server-sent events of one request: its segments as they happen, its answers, and how it ended."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from eqr.serve.desk import Event
from eqr.serve.problems import Problem
from eqr.solve import Answer, Glimpse, Refused
from eqr.solve.plain import plain_answer, plain_glimpse
from eqr.tasks.base import Task

EVENTS: dict[str, Any] = {
    "description": "Server-sent events: `segment` (puzzle, start, segment, grid, confidence in percent, "
    "residual, halt, done), `answer` (as of /v1/solve), then `end` or `problem`.",
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
}
STILL_HERE = ": still here\n\n"
"""A comment, so that nothing between takes a silent connection for dead."""


def refused_or_answer(task: Task, number: int, answer: Answer | Refused) -> dict[str, Any]:
    """Return what became of a puzzle as JSON."""
    if isinstance(answer, Refused):
        return {"puzzle": number, "refused": answer.reason}
    return plain_answer(task, number, answer)


async def lines_of(task: Task, news: AsyncGenerator[list[tuple[int, Event]], None]) -> AsyncIterator[str]:
    """Yield the lines of a stream; closing it closes `news`."""
    try:
        async with aclosing(news):
            async for batch in news:
                yield "".join(_event_line(task, number, event) for number, event in batch) or STILL_HERE
        yield _line("end", {})
    except Problem as problem:
        yield _line("problem", problem.document.model_dump())


def _event_line(task: Task, number: int, event: Event) -> str:
    if isinstance(event, Glimpse):
        return _line("segment", plain_glimpse(task, number, event))
    return _line("answer", refused_or_answer(task, number, event))


def _line(event: str, data: dict[str, Any]) -> str:
    return f"event: {event}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"
