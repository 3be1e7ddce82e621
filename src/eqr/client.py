"""`Client`: ask an eqr server from Python, with the standard library alone.

    client = Client("http://localhost:8000")
    print(client.solve("53..7....6..195...", breadth=4).answer)

A server that is full is asked again when it said so; anything else it refuses is a `ServerProblem`.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from http.client import HTTPException, HTTPResponse
from typing import Any, ClassVar, cast
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from eqr.errors import UserError


class ServerProblem(UserError):
    """What a server refused; `problem` is its RFC 9457 document."""

    def __init__(self, problem: Mapping[str, Any]) -> None:
        super().__init__(str(problem.get("detail") or problem.get("title")))
        self.problem = dict(problem)


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What the model says about one puzzle, or why it was not tried."""

    puzzle: int
    """Its number in the request, from 0."""
    status: str
    """`settled`: halted, and what it halted with stays as it is; `halted`: stopped by another rule; `out of
    segments`; `refused`: not tried."""
    answer: str | None = None
    """A character a cell, `?` for none."""
    valid: bool | None = None
    """Whether the task's own check accepts it."""
    reason: str = ""
    """Why the check does not accept it, or why it was not tried."""
    note: str = ""
    """What is to be known of the puzzle, such as that it has several answers."""
    start: int | None = None
    depth: int | None = None
    nfe: int | None = None
    residual: float | None = None
    halt: float | None = None
    seconds: float | None = None
    __pydantic_config__: ClassVar[dict[str, bool]] = {"use_attribute_docstrings": True}


@dataclass(frozen=True)
class Client:
    """A server by its address; options of the methods are those of `eqr solve`."""

    url: str = "http://127.0.0.1:8000"
    key: str | None = None
    """API key, where the server asks for one."""
    seconds: float = 90.0
    """How long to wait for the server to say something."""
    patience: float = 60.0
    """How long to come back to a server that is full."""

    def models(self) -> list[dict[str, Any]]:
        """Return the cards of the models served."""
        with self._ask("/v1/models", None) as response:
            return list(json.load(response)["models"])

    def solve(self, puzzle: str, **asked: Any) -> Reply:
        """Solve one puzzle; give `model`, `depth`, `breadth`, `halt`, `select`, `race`, `noise` or `seed`."""
        with self._ask("/v1/solve", {"puzzle": puzzle, **asked}) as response:
            return _reply(json.load(response)["answers"][0])

    def solve_many(self, puzzles: Sequence[str], **asked: Any) -> list[Reply]:
        """Solve several puzzles in one request."""
        with self._ask("/v1/solve", {"puzzles": list(puzzles), **asked}) as response:
            return [_reply(answer) for answer in json.load(response)["answers"]]

    def watch(self, puzzle: str, **asked: Any) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (`segment` or `answer`, its data) as they happen; closing it cancels the work."""
        with self._ask("/v1/solve/stream", {"puzzle": puzzle, **asked}) as response:
            for name, data in _events(response):
                if name == "problem":
                    raise ServerProblem(data)
                if name == "end":
                    return
                yield name, data

    def _ask(self, path: str, body: Mapping[str, Any] | None) -> HTTPResponse:
        headers = {"Content-Type": "application/json"}
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key}"
        data = None if body is None else json.dumps(body).encode()
        until = time.monotonic() + self.patience
        while True:
            try:
                request = Request(self.url.rstrip("/") + path, data, headers)
                return cast(HTTPResponse, urlopen(request, timeout=self.seconds))
            except HTTPError as error:
                wait = float(error.headers.get("Retry-After", 1))
                if error.code != 429 or time.monotonic() + wait > until:
                    raise _problem(error) from None
                time.sleep(wait)
            except (URLError, HTTPException, OSError) as error:
                why = getattr(error, "reason", error)
                raise UserError(
                    f"no server answers at {self.url}: {why}; start one with `eqr serve`"
                ) from None


def _problem(error: HTTPError) -> ServerProblem:
    try:
        return ServerProblem(json.load(error))
    except ValueError:
        return ServerProblem({"title": f"the server answers {error.code}", "status": error.code})


def _reply(data: Mapping[str, Any]) -> Reply:
    known = {field.name for field in fields(Reply)}
    return Reply(**{name: value for name, value in data.items() if name in known})


def _events(lines: HTTPResponse) -> Iterator[tuple[str, dict[str, Any]]]:
    name = ""
    for raw in lines:
        field, _, value = raw.decode().rstrip("\n").partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, json.loads(value)
