"""What goes over the wire: requests, answers and events, as the OpenAPI description shows them."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, WithJsonSchema, model_validator

from eqr.client import Reply
from eqr.serve.limits import MOST_CHARACTERS, Limits
from eqr.serve.problems import Problem, fault, invalid, require_known
from eqr.serve.service import Event, Pace
from eqr.solve import Snapshot
from eqr.solve.solver import SolveOptions
from eqr.tasks.base import Task

PuzzleText = Annotated[str, Field(max_length=MOST_CHARACTERS)]
PuzzleTexts = Annotated[
    list[Any],  # read one by one: a bad one does not cost the others, nor a million of them a million faults
    WithJsonSchema({"type": "array", "items": {"type": "string", "maxLength": MOST_CHARACTERS}}),
]


class SolveRequest(SolveOptions):
    """One puzzle or many, and what to spend on each."""

    model: str | None = Field(None, description="Name of a model; found by the first puzzle if not given.")
    puzzle: PuzzleText | None = Field(None, description="One puzzle as text.")
    puzzles: PuzzleTexts | None = Field(None, description="Or several.")
    seconds: PositiveFloat | None = Field(None, description="A deadline sooner than the server's own.")

    @model_validator(mode="before")
    @classmethod
    def _known_fields(cls, data: Any) -> Any:
        if isinstance(data, dict):
            require_known(data, cls.model_fields)
        return data

    def texts(self, limits: Limits) -> list[Any]:
        """Return the puzzles; `Problem` if there are none or too many, or their budget is too large."""
        if (self.puzzle is None) == (self.puzzles is None):
            both = "both" if self.puzzle is not None else "neither"
            raise _wrong("puzzle", both, "give either `puzzle` or `puzzles`")
        texts = [self.puzzle] if self.puzzle is not None else list(self.puzzles or [])
        if not 1 <= len(texts) <= limits.puzzles:
            raise _wrong("puzzles", len(texts), f"1 to {limits.puzzles} puzzles go into a request")
        depth = self.depth or 1  # one that is not named is made to fit
        for name, value, most in (
            ("depth", depth, limits.depth),
            ("breadth", self.breadth, limits.breadth),
            ("depth x breadth", depth * self.breadth, limits.segments),
        ):
            if value > most:
                raise _wrong(name, value, f"this server allows at most {most}")
        return texts


def _wrong(field: str, value: object, fix: str) -> Problem:
    return invalid([fault(field, value, fix)])


class CheckRequest(BaseModel):
    """A puzzle to look at without solving it."""

    model_config = ConfigDict(extra="forbid")
    model: str | None = None
    puzzle: PuzzleText

    @model_validator(mode="before")
    @classmethod
    def _known_fields(cls, data: Any) -> Any:
        if isinstance(data, dict):
            require_known(data, cls.model_fields)
        return data


class CheckReply(BaseModel):
    """Whether a puzzle can be tried."""

    valid: bool
    reason: str
    cells: list[int] = Field(description="Cells that the reason is about, row by row from 0.")


class SolveReply(BaseModel):
    """The answers, in the order of the puzzles."""

    model: str
    answers: list[Reply]
    seconds: float = Field(description="From the request's arrival to the last answer.")


class ModelsReply(BaseModel):
    """What is served."""

    models: list[dict[str, Any]]


EVENT = {"type": "object", "properties": {"event": {"type": "string"}, "data": {"type": "string"}}}
"""The schema of each."""
EVENTS: dict[str, Any] = {
    "description": "Server-sent events: `segment` (puzzle, start, segment, grid, confidence in percent, "
    "residual, halt, done, and how it ended: status), `answer` (as of /v1/solve), then `end` or `problem`.",
    "content": {"text/event-stream": {"schema": EVENT}},
}
STILL_HERE = ": still here\n\n"
"""A comment, so that nothing between takes a silent connection for dead."""


async def stream_lines(
    task: Task, events: AsyncGenerator[list[tuple[int, Event]], None]
) -> AsyncIterator[str]:
    """Yield the lines of a stream; closing it closes `events`."""
    try:
        async with aclosing(events):
            async for batch in events:
                pace = Pace()
                for number, event in batch:
                    await pace.pause()
                    yield _event_line(task, number, event)
                if not batch:
                    yield STILL_HERE
        yield _line("end", {})
    except Problem as problem:
        yield _line("problem", problem.document.model_dump())


def _event_line(task: Task, number: int, event: Event) -> str:
    if isinstance(event, Snapshot):
        return _line("segment", event.to_json(task, number))
    return _line("answer", event.to_json(number))


def _line(event: str, data: dict[str, Any]) -> str:
    return f"event: {event}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"
