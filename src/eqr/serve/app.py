"""The application: routes over services, one service per model.

    app = make_app([served("runs/sudoku-6x6")], Limits())

`eqr serve` runs it with uvicorn (`run.py`); any ASGI server can.
"""

import asyncio
import gc
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse, PlainTextResponse, StreamingResponse
from starlette.middleware.cors import CORSMiddleware
from starlette.staticfiles import StaticFiles

from eqr import __version__
from eqr.errors import UserError
from eqr.model.lookup import FIRST, reads_as
from eqr.model.reasoner import Reasoner
from eqr.serve.access import Admission
from eqr.serve.messages import (
    EVENTS,
    CheckReply,
    CheckRequest,
    Json,
    Limits,
    ModelsReply,
    Problem,
    SolveReply,
    SolveRequest,
    documented,
    fault,
    install,
)
from eqr.serve.metrics import Metrics
from eqr.serve.page import STATIC, model_card
from eqr.serve.service import Event, Pace, Pending, Service
from eqr.solve import Budget, Refused, Session, Snapshot, Solver
from eqr.solve.engine import SLOTS
from eqr.tasks.base import Task

SILENCE = 15.0
"""Seconds after which a stream says that it is still there."""
STILL_HERE = ": still here\n\n"
"""A comment, so that nothing between takes a silent connection for dead."""
PAGES = {"/": "index.html", "/docs": "docs.html", "/style.css": "style.css", "/icon.svg": "icon.svg"}
COMMON = (400, 401, 404, 408, 413, 422)
WORK = (*COMMON, 429, 503, 504)


@dataclass(frozen=True)
class Served:
    """A model under the name clients call it by."""

    name: str
    reasoner: Reasoner
    task: Task


class Services:
    """The services of one application by model, their cards and metrics."""

    def __init__(self, models: Sequence[Served], limits: Limits, slots: int) -> None:
        self.limits = limits
        names = sorted(model.name for model in models)
        if len(set(names)) < len(names):
            raise UserError(f"two models have the same name: {', '.join(names)}; serve them apart")
        self.by_model = {
            one.name: Service(
                one.name, Session(one.reasoner, one.task, slots=slots), limits, one.reasoner.config
            )
            for one in models
        }
        self.cards = [model_card(model.name, model.reasoner, model.task, limits) for model in models]
        for model, about in zip(models, self.cards, strict=True):
            # what is compiled on first use, the task's own checks too: before a client waits for it
            solver = Solver(model.reasoner, task=model.task, budget=Budget(depth=1))
            solver.solve(about["examples"][0]["puzzle"]).to_json(0)
        self.metrics = Metrics(self.by_model.values())
        self.closing = False

    @property
    def ready(self) -> bool:
        """Whether new work is taken."""
        return not self.closing and all(service.works for service in self.by_model.values())

    def find(self, name: str | None, puzzle: object) -> Service:
        """Find a service by the name of its model; without one, the only or the first that reads a puzzle."""
        if name is None:
            services = sorted(self.by_model.values(), key=lambda service: service.name != FIRST)
            for service in services:
                task = service.session.task.name
                if len(services) == 1 or (isinstance(puzzle, str) and reads_as(task, puzzle)):
                    return service
        if name is None or name not in self.by_model:
            fix = "the puzzle reads like none of theirs" if name is None else "no such model"
            found = fault("model", name, f"{fix}; served: {', '.join(self.by_model)}")
            raise Problem(404, "no-such-model", f"model = {found.value!r}: {found.fix}", errors=[found])
        return self.by_model[name]

    async def follow(
        self, request: Request, body: SolveRequest, service: Service, pending: Pending
    ) -> AsyncGenerator[list[tuple[int, Event]], None]:
        """Yield what is new of a request, an empty list after some silence, until it is answered.

        Its rows are cancelled at the deadline, which is a `Problem`, and when the client has gone.
        """
        seconds = min(body.seconds or self.limits.seconds, self.limits.seconds)
        deadline = time.monotonic() + seconds
        gone = asyncio.ensure_future(_gone(request))
        gone.add_done_callback(lambda _: pending.abandon())
        try:
            while not pending.done or pending.unread:
                events: list[tuple[int, Event]] = []
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(SILENCE, deadline - time.monotonic())):
                        events = await pending.events()
                if pending.abandoned:
                    self.metrics.cancelled.labels("gone").inc()
                    return
                if not events and time.monotonic() >= deadline:
                    self.metrics.cancelled.labels("deadline").inc()
                    fix = "ask for less depth or breadth, or for fewer puzzles"
                    late = f"no answer within {seconds:g} s; the work was cancelled: {fix}"
                    raise Problem(504, "deadline", late)
                yield events
        finally:
            gone.cancel()
            service.cancel(pending)


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
    services = Services(models, limits or Limits(), slots)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        app.openapi()  # made once, and not while a client waits
        gc.collect()
        gc.freeze()  # a body of many lists has garbage looked for: not among what was loaded to stay
        for service in services.by_model.values():
            service.open()
        yield
        gc.unfreeze()
        services.closing = True
        for service in services.by_model.values():
            await service.close()

    app = FastAPI(
        title="eqr",
        version=__version__,
        summary="Equilibrium reasoners: puzzles in, answers out.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.services = services
    install(app)
    _add_work(app, services)
    _add_rest(app, services)
    app.add_middleware(Admission, limits=services.limits, metrics=services.metrics, key=key, hosts=hosts)
    allowed = list(origins)
    if allowed:
        app.add_middleware(
            CORSMiddleware, allow_origins=allowed, allow_methods=["GET", "POST"], allow_headers=["*"]
        )
    return app


async def _lines(task: Task, events: AsyncGenerator[list[tuple[int, Event]], None]) -> AsyncIterator[str]:
    """Yield the lines of a stream; closing it closes `events`."""

    def line(event: str, data: dict[str, Any]) -> str:
        return f"event: {event}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"

    try:
        async with aclosing(events):
            async for batch in events:
                pace = Pace()
                for number, event in batch:
                    await pace.pause()
                    if isinstance(event, Snapshot):
                        yield line("segment", event.to_json(task, number))
                    else:
                        yield line("answer", event.to_json(number))
                if not batch:
                    yield STILL_HERE
        yield line("end", {})
    except Problem as problem:
        yield line("problem", problem.document.model_dump())


async def _accepted(
    services: Services, body: SolveRequest, request: Request, *, watch: bool
) -> tuple[Service, Pending]:
    """Hand in a request's puzzles; a single one that cannot be tried is the request's own mistake."""
    texts = body.texts(services.limits)
    service = services.find(body.model, texts[0])
    client = request.client.host if request.client else ""
    pending = await service.accept(texts, body, client=client, watch=watch)
    refused = pending.answers[0]
    if body.puzzle is not None and isinstance(refused, Refused):
        found = fault("puzzle", body.puzzle, refused.reason)
        raise Problem(422, "invalid-puzzle", refused.reason, errors=[found])
    return service, pending


def _add_work(app: FastAPI, services: Services) -> None:
    @app.post("/v1/solve", response_model=SolveReply, responses=documented(*WORK))
    async def solve(body: SolveRequest, request: Request) -> Response:
        """Solve one puzzle or many; of many, those that cannot be tried are refused, the others answered."""
        began = time.perf_counter()
        service, pending = await _accepted(services, body, request, watch=False)
        async with aclosing(services.follow(request, body, service, pending)) as all_events:
            async for _ in all_events:
                pass
        answers, pace = [], Pace()
        for number, answer in enumerate(pending.answers):
            await pace.pause()
            if answer is not None:
                answers.append(answer.to_json(number))
        seconds = time.perf_counter() - began
        return Json({"model": service.name, "answers": answers, "seconds": seconds})

    @app.post(
        "/v1/solve/stream", response_class=StreamingResponse, responses={**documented(*WORK), 200: EVENTS}
    )
    async def stream(body: SolveRequest, request: Request) -> Response:
        """Solve and tell every segment: server-sent events `segment`, `answer`, then `end` or `problem`."""
        service, pending = await _accepted(services, body, request, watch=True)
        lines = _lines(service.session.task, services.follow(request, body, service, pending))
        return StreamingResponse(lines, media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    @app.post("/v1/check", response_model=CheckReply, responses=documented(*COMMON))
    async def check(body: CheckRequest) -> Response:
        """Say whether a puzzle can be tried and, if not, which cells are wrong."""
        task = services.find(body.model, body.puzzle).session.task
        try:
            tokens = task.parse(body.puzzle)
            verdict = task.check_puzzle(task.require_tokens(tokens))
            said = {"valid": verdict.valid, "reason": verdict.reason, "cells": list(verdict.cells)}
        except UserError as error:
            said = {"valid": False, "reason": str(error), "cells": []}
        return Json(said)


async def _file(path: Path, _: Request) -> Response:
    return FileResponse(path)


def _add_rest(app: FastAPI, services: Services) -> None:
    @app.get("/v1/models", response_model=ModelsReply, responses=documented(401))
    async def models() -> Response:
        """Return the cards of the models served: task, size, what was measured, limits, examples."""
        return Json({"models": services.cards})

    @app.get("/healthz", response_class=PlainTextResponse)
    async def health() -> str:
        """Say that the process answers."""
        return "alive\n"

    @app.get("/readyz", response_class=PlainTextResponse, responses=documented(503))
    async def ready() -> str:
        """Say whether new work is taken."""
        if not services.ready:
            raise Problem(503, "not-ready", "shutting down, or a model's thread has ended")
        return "ready\n"

    @app.get("/metrics", response_class=PlainTextResponse, responses=documented(401))
    async def metrics() -> Response:
        """Return counters and gauges for Prometheus."""
        return Response(services.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    # file by file, so that a wrong method elsewhere is still distinguished from a wrong path
    for path, file in PAGES.items():
        app.add_route(path, partial(_file, STATIC / file), include_in_schema=False)
    app.mount("/js", StaticFiles(directory=STATIC / "js"), name="modules")
