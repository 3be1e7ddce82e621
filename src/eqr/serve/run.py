"""Running the application: loading models by name, and uvicorn around it with a graceful end."""

import signal
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

import uvicorn
from fastapi import FastAPI

from eqr.model.lookup import shipped
from eqr.serve.app import Served
from eqr.serve.connections import connection_type
from eqr.serve.limits import Limits
from eqr.solve import Solver

SWITCH = 0.0003
"""Seconds until a thread lets another have the interpreter: those that advance rows ask for it after every
kernel, and would wait 5 ms for the one that reads requests."""
OTHER_FILES = 256
"""Files and sockets that the process needs beside its clients' connections."""
GRACE = 5
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


def configured(app: FastAPI, limits: Limits) -> uvicorn.Config:
    """Return uvicorn's settings: everything has a bound, whatever else is installed beside it."""
    return uvicorn.Config(
        app,
        http=connection_type(limits.replace(connections=_openable(limits.connections))),
        ws="none",
        log_level="error",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(limits.seconds) + GRACE,
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
