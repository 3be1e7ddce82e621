"""What goes over the wire: bounds, requests, answers, and errors as RFC 9457 problem documents.

Every error names the field, the value and the fix; the OpenAPI description shows the same classes.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, PositiveFloat, PositiveInt, WithJsonSchema, model_validator
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from eqr.client import Reply
from eqr.errors import brief, nearest
from eqr.solve.solver import SolveOptions
from eqr.value import Value

MEDIA_TYPE = "application/problem+json"
SHOWN = 80
"""Characters of a wrong value that are repeated."""
MOST_DETAIL = 1000
"""Characters of an explanation."""
MOST_FAULTS = 10
"""Faults of one request that are listed; of the others, their number."""
MOST_CHARACTERS = 10_000
"""Of a puzzle: 30 x 30 cells drawn with lines have about 4,000."""


class Limits(Value):
    """Bounds that hold whatever clients send."""

    body: PositiveInt = 1 << 18
    """Bytes of a request's body: as JSON they are read at once, while every other client waits."""
    body_seconds: PositiveFloat = 10.0
    """How long a body may take to arrive."""
    puzzles: PositiveInt = 256
    """Puzzles of one request."""
    depth: PositiveInt = 1024
    breadth: PositiveInt = 64
    segments: PositiveInt = 8192
    """Depth x breadth of one puzzle; a request that names no depth gets what its breadth leaves of it."""
    waiting: PositiveInt = 1024
    """Puzzles under way or waiting, per model; beyond them a request gets 429."""
    seconds: PositiveFloat = 60.0
    """From a request's arrival to its answer; then its rows are cancelled."""
    frames: PositiveInt = 256
    """Segments kept for a stream whose reader is slow; the oldest go first."""
    connections: PositiveInt = 2048
    connections_per_address: PositiveInt = 512
    header_seconds: PositiveFloat = 5.0
    """How long a request's headers may take to arrive."""


class Fault(BaseModel):
    """One thing that is wrong with a request."""

    field: str
    """Where it is, such as `depth` or `puzzles.3`."""
    value: str = Field(description="What was sent, shortened.")
    fix: str


class ProblemDocument(BaseModel):
    """What every error says (RFC 9457)."""

    type: str = Field(description="urn:eqr:problem: and a word that programs can tell apart")
    title: str
    status: int
    detail: str
    errors: list[Fault] = Field([], description=f"The first {MOST_FAULTS} faults; `detail` counts them all.")


class Json(JSONResponse):
    """JSON in ASCII: what a client sent may hold halves of characters, which UTF-8 cannot say."""

    def render(self, content: Any) -> bytes:
        """Return the content's bytes."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


class Problem(Exception):
    """An error on its way to the client."""

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        *,
        errors: Sequence[Fault] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.headers = status, dict(headers or {})
        self.document = ProblemDocument(
            type=f"urn:eqr:problem:{kind}",
            title=kind.replace("-", " ").capitalize(),
            status=status,
            detail=detail[:MOST_DETAIL],
            errors=list(errors),
        )

    def response(self) -> Json:
        """Return the document with its media type."""
        return Json(self.document.model_dump(), self.status, self.headers, MEDIA_TYPE)

    async def send(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer outside of any route."""
        await self.response()(scope, receive, send)


def fault(field: str, value: object, fix: str) -> Fault:
    """Return a fault with its value shortened."""
    text = value[:SHOWN] if isinstance(value, str) else brief(value)
    return Fault(field=_short(field), value=_short(text), fix=fix)


def _short(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) < SHOWN else text[: SHOWN - 1] + "…"


def invalid(faults: Sequence[Fault], count: int | None = None) -> Problem:
    """Return the problem of a request whose fields are wrong; `count` is the number of all its faults."""
    first, others = faults[0], (count or len(faults)) - 1
    more = f" (and {others:,} more)" if others else ""
    detail = f"{first.field} = {first.value!r}: {first.fix}{more}"
    return Problem(422, "invalid-field", detail, errors=faults[:MOST_FAULTS])


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe the problems that a route may answer with, for OpenAPI."""
    schema = {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}
    return {
        status: {"description": _MEANING[status], "content": {MEDIA_TYPE: schema}, "model": ProblemDocument}
        for status in statuses
    }


_MEANING = {
    400: "The request cannot be read",
    401: "The API key is missing or wrong",
    404: "No such model",
    408: "The body took too long to arrive",
    413: "The body is too large",
    422: "A field is wrong; `errors` names it, its value and the fix",
    429: "Too much is waiting; come back after `Retry-After` seconds",
    503: "The server is shutting down",
    504: "The deadline passed; the work was cancelled",
}


def install(app: FastAPI) -> None:
    """Turn every error of the application into a problem document."""

    @app.exception_handler(Problem)
    async def _problem(_: Request, error: Problem) -> Response:
        return error.response()

    @app.exception_handler(RequestValidationError)
    async def _invalid(_: Request, error: RequestValidationError) -> Response:
        return _from_validation(error).response()

    @app.exception_handler(HTTPException)
    async def _http(_: Request, error: HTTPException) -> Response:
        kind = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "bad-request")
        return Problem(
            error.status_code, kind, str(error.detail), headers=dict(error.headers or {})
        ).response()


def _from_validation(error: RequestValidationError) -> Problem:
    found = error.errors()
    if any(one["type"] == "json_invalid" for one in found):
        place = found[0]["loc"][-1]
        return Problem(400, "not-json", f"the body is not valid JSON (character {place})")
    faults = [
        fault(
            ".".join(str(part) for part in one["loc"][1:]) or "body",
            one["input"],
            str(one["msg"]).removeprefix("Value error, ").removeprefix("--"),
        )
        for one in found[:MOST_FAULTS]
    ]
    return invalid(faults, len(found))


PuzzleText = Annotated[str, Field(max_length=MOST_CHARACTERS)]
PuzzleTexts = Annotated[
    list[Any],  # read one by one: a bad one does not cost the others, nor a million of them a million faults
    WithJsonSchema({"type": "array", "items": {"type": "string", "maxLength": MOST_CHARACTERS}}),
]


class _Fields(BaseModel):
    """Refuses fields that a request does not have, before anything looks at their values."""

    @model_validator(mode="before")
    @classmethod
    def _require_known(cls, data: Any) -> Any:
        known = cls.model_fields
        unknown = [name for name in data if name not in known] if isinstance(data, dict) else []
        if unknown:
            listed = [
                fault(name, data[name], f"there is no such field{nearest(name, known)}")
                for name in unknown[:MOST_FAULTS]
            ]
            raise invalid(listed, len(unknown))
        return data


class SolveRequest(_Fields, SolveOptions):
    """One puzzle or many, and what to spend on each."""

    model: str | None = Field(None, description="Name of a model; found by the first puzzle if not given.")
    puzzle: PuzzleText | None = Field(None, description="One puzzle as text.")
    puzzles: PuzzleTexts | None = Field(None, description="Or several.")
    seconds: PositiveFloat | None = Field(None, description="A deadline sooner than the server's own.")

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


class CheckRequest(_Fields, extra="forbid"):
    """A puzzle to check without solving it."""

    model: str | None = None
    puzzle: PuzzleText


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
