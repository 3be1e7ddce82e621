"""Errors as RFC 9457 problem documents that name the field, the value and the fix."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from eqr.errors import brief, nearest

MEDIA_TYPE = "application/problem+json"
SHOWN = 80
"""Characters of a wrong value that are repeated."""
MOST_DETAIL = 1000
"""Characters of an explanation."""
MOST_FAULTS = 10
"""Faults of one request that are listed; of the others, their number."""


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


def require_known(data: Mapping[Any, Any], known: Collection[str]) -> None:
    """Refuse fields that a request does not have, before anything looks at their values."""
    unknown = [name for name in data if name not in known]
    if unknown:
        listed = [
            fault(name, data[name], f"there is no such field{nearest(name, known)}")
            for name in unknown[:MOST_FAULTS]
        ]
        raise invalid(listed, len(unknown))


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
