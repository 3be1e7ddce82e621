"""`Backend`: who computes a segment of a reasoner, and shares a batch among threads.

`eqr.model` says what a segment is; a backend is handed in from outside and computes the same, faster or not.
A class with a `name` of its own, registered by `eqr.registry.register`, is one more.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
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


class Backend(ABC):
    """Computes segments; holds threads and compiled code, never the state of a run."""

    name: ClassVar[str]

    @classmethod
    def solving(cls, config: ReasonerConfig, device: torch.device, *, workers: int | None = None) -> Self:
        """Return one for models of this config.

        With `workers` a batch is cut as that many threads would, so that its bits do not depend on how many
        this process has.
        """
        return cls()

    @classmethod
    def training(
        cls,
        config: ReasonerConfig,
        device: torch.device,
        *,
        workers: int | None = None,
        rows_per_cut: int | None = None,
    ) -> Self:
        """Return one for pieces of at most so many rows, `workers` at once, that are differentiated."""
        return cls()

    @abstractmethod
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
        """Return what `model.segment` returns.

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


@register
class Eager(Backend):
    """Runs, line by line, what stands in `eqr.model`."""

    name = "eager"

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
        """Ask the model, inside of another backend's calls too."""
        with computed_by({}):
            return model.segment(state, x, keys, depths, perturbation=perturbation, tracked=tracked)

    def alone(self) -> AbstractContextManager[None]:
        """Compute by definitions alone."""
        return computed_by({})
