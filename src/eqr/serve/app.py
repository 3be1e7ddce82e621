"""The application: routes over desks, one desk per model.

    app = make_app([served("runs/sudoku-6x6")], Limits())

`eqr serve` runs it with uvicorn (`run.py`); any ASGI server can.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, StreamingResponse
from starlette.middleware.cors import CORSMiddleware
from starlette.staticfiles import StaticFiles

from eqr import __version__
from eqr.errors import UserError
from eqr.model.reasoner import Reasoner
from eqr.serve.desk import Desk, Event, Order
from eqr.serve.gate import Gate
from eqr.serve.limits import Limits
from eqr.serve.messages import CheckReply, CheckRequest, ModelsReply, SolveReply, SolveRequest
from eqr.serve.metrics import Metrics
from eqr.serve.problems import Problem, documented, fault, install
from eqr.serve.shown import STATIC, card
from eqr.serve.stream import EVENTS, lines_of, refused_or_answer
from eqr.solve import Budget, Refused, Session, rollout
from eqr.solve.engine import SLOTS
from eqr.tasks.base import Task

SILENCE = 15.0
"""Seconds after which a stream says that it is still there."""
PAGES = {"/": "index.html", "/docs": "docs.html", "/style.css": "style.css", "/icon.svg": "icon.svg"}
COMMON = (400, 401, 404, 408, 413, 422)
WORK = (*COMMON, 429, 503, 504)


@dataclass(frozen=True)
class Served:
    """A model under the name clients call it by."""

    name: str
    reasoner: Reasoner
    task: Task


class Office:
    """The desks and cards of one application."""

    def __init__(self, models: Sequence[Served], limits: Limits, slots: int) -> None:
        self.limits = limits
        self.models = {model.name: model for model in models}
        if len(self.models) < len(models):
            names = sorted(model.name for model in models)
            raise UserError(f"two models have the same name: {', '.join(names)}; serve them apart")
        self.desks = {
            model.name: Desk(
                model.name,
                Session(model.reasoner, model.task, slots=slots),
                limits,
                model.reasoner.config,
            )
            for model in models
        }
        self.cards = [card(model.name, model.reasoner, model.task, limits) for model in models]
        for model, about in zip(models, self.cards, strict=True):
            # kernels are compiled on first use: before the first client comes, not while it waits
            tokens = model.task.parse(about["examples"][0]["puzzle"])
            rollout(model.reasoner, tokens[None], Budget(depth=1))
        self.metrics = Metrics(self.desks.values())
        self.closing = False

    @property
    def ready(self) -> bool:
        """Whether new work is taken."""
        return not self.closing and all(desk.works for desk in self.desks.values())

    def desk(self, name: str | None) -> Desk:
        """Find a desk by the name of its model; without a name, the only one."""
        if name is None and len(self.desks) == 1:
            return next(iter(self.desks.values()))
        if name is None or name not in self.desks:
            known = f"one of {', '.join(self.desks)}"
            raise Problem(
                404, "no-such-model", f"model = {name!r}: {known}", errors=[fault("model", name, known)]
            )
        return self.desks[name]

    async def follow(
        self, request: Request, asked: SolveRequest, desk: Desk, order: Order
    ) -> AsyncGenerator[list[tuple[int, Event]], None]:
        """Yield what is new of an order, an empty list after some silence, until all is said.

        Its rows are cancelled at the deadline, which is a `Problem`, and when the client has gone.
        """
        seconds = min(asked.seconds or self.limits.seconds, self.limits.seconds)
        deadline = time.monotonic() + seconds
        gone = asyncio.ensure_future(_gone(request))
        gone.add_done_callback(lambda _: order.leave())
        try:
            while not order.done or order.unread:
                news: list[tuple[int, Event]] = []
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(SILENCE, deadline - time.monotonic())):
                        news = await order.news()
                if order.left:
                    self.metrics.cancelled.labels("gone").inc()
                    return
                if not news and time.monotonic() >= deadline:
                    self.metrics.cancelled.labels("deadline").inc()
                    raise _late(seconds)
                yield news
        finally:
            gone.cancel()
            desk.cancel(order)


def _late(seconds: float) -> Problem:
    return Problem(
        504,
        "deadline",
        f"no answer within {seconds:g} s; the work was cancelled: "
        "ask for less depth or breadth, or for fewer puzzles",
    )


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def make_app(
    models: Sequence[Served],
    limits: Limits | None = None,
    *,
    slots: int = SLOTS,
    key: str | None = None,
    origins: Iterable[str] = (),
    hosts: Iterable[str] | None = None,
) -> FastAPI:
    """Build the application; `key` protects it, `origins` are pages elsewhere that may ask (CORS)."""
    office = Office(models, limits or Limits(), slots)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        for desk in office.desks.values():
            desk.open()
        yield
        office.closing = True
        for desk in office.desks.values():
            await desk.close()

    app = FastAPI(
        title="eqr",
        version=__version__,
        summary="Equilibrium reasoners: puzzles in, answers out.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.office = office
    install(app, list(SolveRequest.model_fields))
    _add_work(app, office)
    _add_rest(app, office)
    app.add_middleware(Gate, limits=office.limits, metrics=office.metrics, key=key, hosts=hosts)
    allowed = list(origins)
    if allowed:
        app.add_middleware(
            CORSMiddleware, allow_origins=allowed, allow_methods=["GET", "POST"], allow_headers=["*"]
        )
    return app


async def _taken(office: Office, desk: Desk, asked: SolveRequest, *, watch: bool) -> Order:
    """Hand in a request's puzzles; a single one that cannot be tried is the request's own mistake."""
    order = await desk.take(asked.texts(office.limits), asked, watch=watch)
    refused = order.answers[0]
    if asked.puzzle is not None and isinstance(refused, Refused):
        found = fault("puzzle", asked.puzzle, refused.reason)
        raise Problem(422, "invalid-puzzle", refused.reason, errors=[found])
    return order


def _add_work(app: FastAPI, office: Office) -> None:
    @app.post("/v1/solve", response_model=SolveReply, responses=documented(*WORK))
    async def solve(asked: SolveRequest, request: Request) -> Response:
        """Solve one puzzle or many; of many, those that cannot be tried are refused, the others answered."""
        began = time.perf_counter()
        desk = office.desk(asked.model)
        order = await _taken(office, desk, asked, watch=False)
        async with aclosing(office.follow(request, asked, desk, order)) as all_news:
            async for _ in all_news:
                pass
        answers = [
            refused_or_answer(desk.session.task, number, answer)
            for number, answer in enumerate(order.answers)
            if answer is not None
        ]
        seconds = time.perf_counter() - began
        return JSONResponse({"model": desk.name, "answers": answers, "seconds": seconds})

    @app.post(
        "/v1/solve/stream", response_class=StreamingResponse, responses={**documented(*WORK), 200: EVENTS}
    )
    async def stream(asked: SolveRequest, request: Request) -> Response:
        """Solve and tell every segment: server-sent events `segment`, `answer`, then `end` or `problem`."""
        desk = office.desk(asked.model)
        order = await _taken(office, desk, asked, watch=True)
        lines = lines_of(desk.session.task, office.follow(request, asked, desk, order))
        return StreamingResponse(lines, media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    @app.post("/v1/check", response_model=CheckReply, responses=documented(*COMMON))
    async def check(asked: CheckRequest) -> Response:
        """Say whether a puzzle can be tried and, if not, which cells are wrong."""
        task = office.desk(asked.model).session.task
        said = {"valid": True, "reason": "", "cells": []}
        try:
            tokens = task.parse(asked.puzzle)
            verdict = task.check_puzzle(task.require_tokens(tokens))
            said = {"valid": verdict.valid, "reason": verdict.reason, "cells": list(verdict.cells)}
        except UserError as error:
            said = {"valid": False, "reason": str(error), "cells": []}
        return JSONResponse(said)


async def _file(path: Path, _: Request) -> Response:
    return FileResponse(path)


def _add_rest(app: FastAPI, office: Office) -> None:
    @app.get("/v1/models", response_model=ModelsReply, responses=documented(401))
    async def models() -> Response:
        """Return the cards of the models served: task, size, what was measured, limits, examples."""
        return JSONResponse({"models": office.cards})

    @app.get("/healthz", response_class=PlainTextResponse)
    async def health() -> str:
        """Say that the process answers."""
        return "alive\n"

    @app.get("/readyz", response_class=PlainTextResponse, responses=documented(503))
    async def ready() -> str:
        """Say whether new work is taken."""
        if not office.ready:
            raise Problem(503, "not-ready", "shutting down, or a model's thread has ended")
        return "ready\n"

    @app.get("/metrics", response_class=PlainTextResponse, responses=documented(401))
    async def metrics() -> Response:
        """Return counters and gauges for Prometheus."""
        return Response(office.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    # file by file, so that a wrong method elsewhere is still told apart from a wrong path
    for path, file in PAGES.items():
        app.add_route(path, partial(_file, STATIC / file), include_in_schema=False)
    app.mount("/js", StaticFiles(directory=STATIC / "js"), name="modules")
