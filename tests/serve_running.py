"""Real servers for the tests: a small trained-enough model, behind uvicorn, in a thread or a process."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import uvicorn

from eqr.model.config import ReasonerConfig
from eqr.model.operator import Perturbation, TwoLevel
from eqr.model.reasoner import Reasoner
from eqr.serve.app import Served, make_app
from eqr.serve.messages import Limits
from eqr.serve.run import configured, listening
from eqr.tasks import task_named


def small_reasoner(task_name: str = "sudoku-4x4", *, seed: int = 3, **fields: Any) -> Reasoner:
    """An untrained model: what it answers is wrong, but always the same."""
    task = task_named(task_name)
    config = ReasonerConfig(
        task=task.name,
        rows=task.shape[0],
        columns=task.shape[1],
        vocabulary=task.vocabulary,
        width=16,
        blocks=1,
        round_hidden_to=8,
        recurrence=TwoLevel(cycles=1, scratch=1),
        path=Perturbation(damping=0.1, noise=0.02),
        **fields,
    )
    return Reasoner(config, seed=seed).requires_grad_(False)


def puzzles(count: int, *, task_name: str = "sudoku-4x4", seed: int = 0) -> list[str]:
    """Puzzles as text."""
    task = task_named(task_name)
    generated = task.generate(np.random.default_rng(seed))
    return ["".join(task.symbols[token - 1] for token in next(generated).puzzle) for _ in range(count)]


@contextmanager
def running(*models: Served, limits: Limits | None = None, **options: Any) -> Iterator[tuple[str, Any]]:
    """Serve on a free port in a thread; gives the address and the application's services."""
    app = make_app(models or [served()], limits, **options)
    server = uvicorn.Server(configured(app, limits or Limits()))
    with listening("127.0.0.1", 0) as sockets:
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets)))
        thread.start()
        try:
            while not server.started:
                thread.join(0.01)
                assert thread.is_alive()
            yield f"http://127.0.0.1:{sockets[0].getsockname()[1]}", app.state.services
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()


def served(task_name: str = "sudoku-4x4", **fields: Any) -> Served:
    """The small model under its task's name."""
    return Served(task_name, small_reasoner(task_name, **fields), task_named(task_name))


def of_families() -> Served:
    """A small model that knows three families of puzzles."""
    return served("mini-arc", identities=3, identity_tokens=1)
