"""`Backend`: who computes a segment of a reasoner, and shares a batch among threads.

`eqr.model` says what a segment is; a backend is handed in from outside and computes the same, faster or not.
A class with a `name` of its own, registered by `eqr.registry.register`, is one more.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, TypeVar

import torch
from torch import Tensor

from eqr.model.config import ReasonerConfig
from eqr.model.definitions import computed_by
from eqr.model.operator import Perturbation
from eqr.model.reasoner import Reasoner
from eqr.model.state import State
from eqr.registry import Registry, register

T = TypeVar("T")
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Segment:
    """What `Reasoner.segment` is asked."""

    model: Reasoner
    state: State
    x: Tensor
    keys: Tensor
    depths: Tensor
    perturbation: Perturbation
    tracked: int | None = None

    def composed(self) -> State:
        """Ask the model, application by application."""
        return self.model.segment(
            self.state, self.x, self.keys, self.depths, perturbation=self.perturbation, tracked=self.tracked
        )

    def piece(self, rows: slice) -> "Segment":
        """Return some of the rows, contiguous, so that they round as the same rows do alone."""
        state = self.state.chunk(rows).map(Tensor.contiguous)
        return replace(self, state=state, x=self.x[:, rows], keys=self.keys[rows], depths=self.depths[rows])


class Backend(ABC):
    """Computes segments; holds threads and compiled code, never the state of a run."""

    name: ClassVar[str]

    @classmethod
    def solving(
        cls, config: ReasonerConfig, device: torch.device = CPU, *, workers: int | None = None
    ) -> Self:
        """Return one for models of this config.

        With `workers` a batch is cut as that many threads would, so that its bits do not depend on how many
        this process has.
        """
        return cls()

    def segment(
        self,
        model: Reasoner,
        state: State,
        x: Tensor,
        keys: Tensor,
        depths: Tensor,
        *,
        perturbation: Perturbation | None = None,
        tracked: int | None = None,
    ) -> State:
        """Return what `model.segment` returns."""
        rule = perturbation or model.config.path
        return self.compute(Segment(model, state, x, keys, depths, rule, tracked))

    @abstractmethod
    def compute(self, segment: Segment) -> State:
        """Return what `segment.composed` returns.

        Outside of `map`, rows may be shared among threads where no graph is recorded.
        """

    def map(self, work: Callable[[slice], T], rows: int) -> list[T]:
        """Run `work` on every piece of a batch, in the caller's modes, and return the results in order."""
        return [work(slice(0, rows))] if rows else []

    def alone(self) -> AbstractContextManager[None]:
        """Do the small things between two segments (embedding, starting, reading) as suits this backend."""
        return nullcontext()


def _name_of(thing: Any) -> str | None:
    return thing.name if isinstance(thing, type) and issubclass(thing, Backend) else None


BACKENDS: Registry[type[Backend]] = Registry("backends", _name_of)


def default_backend(
    config: ReasonerConfig, device: torch.device = CPU, *, workers: int | None = None
) -> Backend:
    """Return the fast one for models of this config."""
    return BACKENDS["cpu"].solving(config, device, workers=workers)


@register
class Eager(Backend):
    """Runs, line by line, what stands in `eqr.model`."""

    name = "eager"

    def compute(self, segment: Segment) -> State:
        """Ask the model, inside of another backend's calls too."""
        with computed_by({}):
            return segment.composed()

    def alone(self) -> AbstractContextManager[None]:
        """Compute by definitions alone."""
        return computed_by({})
