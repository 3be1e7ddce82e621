"""Running the application: loading models by name, and uvicorn around it with a graceful end."""

import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

import uvicorn
from fastapi import FastAPI

from eqr.errors import UserError
from eqr.model.lookup import shipped
from eqr.serve.app import Served
from eqr.serve.limits import Limits
from eqr.solve import Solver

SWITCH = 0.0003
"""Seconds until a thread lets another have the interpreter: those that advance rows ask for it after every
kernel, and would wait 5 ms for the one that reads requests."""
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


def run(app: FastAPI, limits: Limits, *, host: str, port: int, ready: Callable[[int], object]) -> None:
    """Serve until SIGTERM or Ctrl-C: then take no more, finish what was accepted, and return."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=limits.connections,
        timeout_graceful_shutdown=int(limits.seconds) + GRACE,
    )
    sys.setswitchinterval(SWITCH)
    server = _Announced(config, ready)
    server.run()
    if not server.started:
        raise UserError(f"cannot listen on {host}:{port}; is another server there? choose another --port")


class _Announced(uvicorn.Server):
    """Says on which port it listens, which matters where 0 asked for any free one, and ends quietly."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[int], object]) -> None:
        super().__init__(config)
        self._ready = ready

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End gracefully, a second Ctrl-C at once; to stop is no failure, so nothing is raised after."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def startup(self, sockets: object = None) -> None:
        """Listen, then say so."""
        await super().startup()
        if self.started:
            self._ready(int(self.servers[0].sockets[0].getsockname()[1]))
