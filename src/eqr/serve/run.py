"""The server's process: models by name, the address, bounded connections, and uvicorn with a graceful end.

A connection is uvicorn's h11 protocol with three bounds it does not have: a time for a request's headers, one
for its whole answer, and a number of connections, in all and per address, that idle clients cannot use up. A
connection beyond the number closes the oldest one that has no whole request under way; where there is none,
it may ask for health and metrics only. h11 itself bounds the size of headers, which uvicorn's other
parser does not.
"""

import asyncio
import errno
import signal
import socket
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import ClassVar

import uvicorn
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from eqr.errors import UserError
from eqr.model.lookup import shipped
from eqr.serve.app import Served
from eqr.serve.messages import Limits, Problem
from eqr.solve import Solver

ALWAYS_ANSWERED = ("/healthz", "/readyz", "/metrics")
READING_GRACE = 15.0
"""Seconds beyond the deadline of a request in which its client must have read the answer."""
SWITCH = 0.0003
"""Seconds until a thread lets another have the interpreter: those that advance rows ask for it after every
kernel, and would wait 5 ms for the one that reads requests."""
OTHER_FILES = 256
"""Files and sockets that the process needs beside its clients' connections."""
SHUTDOWN_GRACE = 5
"""Seconds beyond the deadline of requests that a shutdown waits."""


def load(names: Sequence[str], *, loaded: Callable[[], object] = lambda: None) -> list[Served]:
    """Open models by name; shipped ones keep theirs, others are called by task, or folder if tasks repeat."""
    solvers = []
    for name in names:
        solvers.append((name, Solver(name)))
        loaded()
    tasks = [solver.task.name for _, solver in solvers]

    def called(name: str, task: str) -> str:
        return name if name in shipped() else task if tasks.count(task) == 1 else Path(name).name

    return [Served(called(name, one.task.name), one.reasoner, one.task) for name, one in solvers]


@contextmanager
def listening(host: str, port: int) -> Iterator[list[socket.socket]]:
    """Take an address before anything is loaded; a `UserError` says why it cannot be had."""
    with ExitStack() as stack:
        yield [stack.enter_context(one) for one in _bound(host, port)]


def _bound(host: str, port: int) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    failed: list[OSError] = []
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        found, failed = [], [error]
    for family, kind, protocol, _, address in found:
        try:
            one = socket.socket(family, kind, protocol)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind((address[0], sockets[0].getsockname()[1] if sockets else port, *address[2:]))
            sockets.append(one)
        except OSError as error:  # localhost may have an address of a kind that this machine does not speak
            one.close()
            failed.append(error)
    taken = next((error for error in failed if error.errno == errno.EADDRINUSE), None)
    if taken or not sockets:
        for one in sockets:
            one.close()
        fix = "another server is there; choose another --port" if taken else "choose another --host or --port"
        raise UserError(f"cannot listen on {host}:{port}: {(taken or failed[0]).strerror}; {fix}")
    return sockets


class OpenConnections:
    """The open connections of one server by address, the oldest first."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._by_address: defaultdict[str, dict[Connection, None]] = defaultdict(dict)
        self._count = 0

    def enter(self, one: "Connection") -> bool:
        """Note a new connection; return False if there are too many and none of them is idle."""
        within = True
        if len(self._by_address[one.address]) >= self.limits.connections_per_address:
            within = self._close_idle(one.address)
        elif self._count >= self.limits.connections:
            crowded = sorted(self._by_address, key=lambda address: -len(self._by_address[address]))
            within = any(self._close_idle(address) for address in crowded)
        self._by_address[one.address][one] = None
        self._count += 1
        return within

    def leave(self, one: "Connection") -> None:
        """Forget a connection."""
        known = self._by_address.get(one.address, {})
        if one in known:
            del known[one]
            self._count -= 1
            if not known:
                del self._by_address[one.address]

    def _close_idle(self, address: str) -> bool:
        oldest = next((one for one in self._by_address[address] if not one.answering), None)
        if oldest is None:
            return False
        self.leave(oldest)
        oldest.transport.abort()
        return True


class Connection(H11Protocol):
    """One client's connection; each server has a class of its own, with its `opened`."""

    opened: ClassVar[OpenConnections]
    address = ""
    _timer: asyncio.TimerHandle | None = None

    @property
    def answering(self) -> bool:
        """Whether a whole request has come and its answer is not complete."""
        asked = self.cycle
        return asked is not None and not asked.more_body and not asked.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        if not self.opened.enter(self):
            self.app = self._too_many
        self._allow(self.opened.limits.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self._allow(None)
        self.opened.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; what has begun must become a request in time, however slowly its bytes come."""
        if self._timer is None:
            self._allow(self.opened.limits.header_seconds)
        asked = self.cycle
        super().data_received(data)
        self._watch(asked)

    def on_response_complete(self) -> None:
        """Wait for another request for as long as uvicorn keeps an idle connection."""
        self._allow(None)
        asked = self.cycle
        super().on_response_complete()
        self._watch(asked)

    def _watch(self, before: object) -> None:
        """Where a new request has come, allow it the time of its body, its deadline and its reading."""
        if self.cycle is not before and not self.cycle.response_complete:
            limits = self.opened.limits
            self._allow(limits.body_seconds + limits.seconds + READING_GRACE)

    def _allow(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)

    async def _too_many(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] in ALWAYS_ANSWERED:
            await self.config.loaded_app(scope, receive, send)
            return
        fix = "too many connections are open; close some, or come back in 5 s"
        headers = {"Retry-After": "5", "Connection": "close"}
        await Problem(503, "too-many-connections", fix, headers=headers).send(scope, receive, send)


def configured(app: FastAPI, limits: Limits) -> uvicorn.Config:
    """Return uvicorn's settings: everything has a bound, whatever else is installed beside it."""
    bounded = limits.replace(connections=_openable(limits.connections))
    return uvicorn.Config(
        app,
        http=type("Bounded", (Connection,), {"opened": OpenConnections(bounded)}),
        ws="none",
        log_level="error",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(limits.seconds) + SHUTDOWN_GRACE,
    )


def _openable(connections: int) -> int:
    """Return how many connections the process may hold, after raising its limit on files if need be."""
    if sys.platform == "win32":
        return connections
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        connections = max(soft - OTHER_FILES, 1)
    return connections


def run(
    app: FastAPI, limits: Limits, sockets: list[socket.socket], *, ready: Callable[[int], object]
) -> None:
    """Serve until SIGTERM or Ctrl-C: then take no more, finish what was accepted, and return."""
    sys.setswitchinterval(SWITCH)
    _Announced(configured(app, limits), ready).run(sockets)


class _Announced(uvicorn.Server):
    """Says on which port it listens, which matters where 0 asked for any free one, and ends quietly."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[int], object]) -> None:
        super().__init__(config)
        self._ready = ready

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End gracefully, a second Ctrl-C at once; to stop is no failure, so nothing is raised after."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then say so."""
        assert sockets
        await super().startup(sockets)
        self._ready(int(sockets[0].getsockname()[1]))
