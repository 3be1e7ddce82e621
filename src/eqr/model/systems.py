"""The systems of the paper by name, each a function of a task that returns a `ReasonerConfig`.

Sizes are the published ones (spec of the paper's appendix D.1) unless overridden; variants are
`config.replace(...)`, never another file.
"""

from collections.abc import Callable
from typing import Any

from eqr.model.config import Positions, ReasonerConfig
from eqr.model.mixers import Attention
from eqr.model.operator import Feedforward, Perturbation, Recurrence, SingleState, TwoLevel
from eqr.model.state import FixedStart, RandomStart
from eqr.tasks.base import Task

EQR_PATH = Perturbation(damping=0.05, noise=0.01)
"""The paper's lambda and beta."""
ATTENTION_WITH_IDENTITY: dict[str, Any] = {
    "mixer": Attention(),
    "positions": Positions.ROTARY,
    "identity_tokens": 1,
    "identities": 1,
}
"""HRM and URM learn an identity vector even where all puzzles share the one of row 0."""


def feedforward(task: Task, *, blocks: int = 42, **fields: Any) -> ReasonerConfig:
    """Distinct blocks, each used once: 42 on Sudoku, 15 on mazes."""
    return _config(task, Feedforward(), blocks=blocks, **fields)


def weight_tied(task: Task, *, cycles: int = 3, applications: int = 7, **fields: Any) -> ReasonerConfig:
    """One state, one stack applied over and over."""
    return _config(task, SingleState(cycles=cycles, applications=applications), **fields)


def trm(task: Task, *, cycles: int = 3, scratch: int = 6, **fields: Any) -> ReasonerConfig:
    """Two states that share one stack, from a fixed start."""
    return _config(task, TwoLevel(cycles=cycles, scratch=scratch), **fields)


def hrm(task: Task, *, cycles: int = 2, scratch: int = 2, **fields: Any) -> ReasonerConfig:
    """Two states with a stack each, always attention with rotary positions and an identity token."""
    recurrence = TwoLevel(cycles=cycles, scratch=scratch, separate=True)
    return _config(task, recurrence, **{"blocks": 4, **ATTENTION_WITH_IDENTITY, **fields})


def urm(task: Task, *, cycles: int = 2, applications: int = 6, **fields: Any) -> ReasonerConfig:
    """One state and a convolution inside the gated MLP."""
    recurrence = SingleState(cycles=cycles, applications=applications)
    return _config(task, recurrence, convolution=True, **{"blocks": 4, **ATTENTION_WITH_IDENTITY, **fields})


def eqr(task: Task, *, cycles: int = 3, scratch: int = 6, **fields: Any) -> ReasonerConfig:
    """TRM with random starts, damping and path noise."""
    fields = {"start": RandomStart(), "path": EQR_PATH, **fields}
    return _config(task, TwoLevel(cycles=cycles, scratch=scratch), **fields)


SYSTEMS: dict[str, Callable[..., ReasonerConfig]] = {
    "feedforward": feedforward,
    "weight-tied": weight_tied,
    "trm": trm,
    "hrm": hrm,
    "urm": urm,
    "eqr": eqr,
}


def _config(task: Task, recurrence: Recurrence, **fields: Any) -> ReasonerConfig:
    rows, columns = task.shape
    fields = {"start": FixedStart(), "recurrence": recurrence, **fields}
    return ReasonerConfig(task=task.name, rows=rows, columns=columns, vocabulary=task.vocabulary, **fields)
