"""The `cpu` backend: compiled kernels where there are some, and the rows of a batch shared among threads."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import lru_cache
from typing import Self, TypeVar

import torch
from torch import Tensor

from eqr.backends.base import Backend
from eqr.backends.cpu.fused import Segment, fused, has_kernels
from eqr.backends.cpu.operators import MEANS, InOneGo
from eqr.backends.cpu.row_executor import RowExecutor, repeatable_executor, shared_executor
from eqr.model.config import ReasonerConfig
from eqr.model.definitions import computed_by
from eqr.model.operator import Perturbation
from eqr.model.reasoner import Reasoner
from eqr.model.state import State
from eqr.registry import register

T = TypeVar("T")

_ALL = slice(None)
_inside: ContextVar[bool] = ContextVar("inside", default=False)
"""Whether this is work on a piece, which is not cut again."""


@register
class Cpu(Backend):
    """Kernels, threads, and weights packed for a segment; everything else is left to the model."""

    name = "cpu"

    def __init__(self, executor: RowExecutor) -> None:
        """`executor` owns the threads and cuts the batch."""
        self.executor = executor

    @classmethod
    def solving(cls, config: ReasonerConfig, device: torch.device, *, workers: int | None = None) -> Self:
        """Share the threads of all models of this size."""
        if workers is None:
            return cls(shared_executor(config, device))
        return cls(repeatable_executor(config, device, workers))

    @classmethod
    def training(
        cls,
        config: ReasonerConfig,
        device: torch.device,
        *,
        workers: int | None = None,
        rows_per_cut: int | None = None,
    ) -> Self:
        """Have threads of its own; elsewhere than on a cpu a batch stays in one piece."""
        workers = workers if device.type == "cpu" else 1
        return cls(RowExecutor.for_model(config, workers=workers, rows_per_cut=rows_per_cut))

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
        """Run the kernels, on the pieces of a batch at once unless this is work on a piece."""
        alone = _inside.get() or (torch.is_grad_enabled() and _wants_gradient(model, state, x))
        how = {"perturbation": perturbation, "tracked": tracked, "executor": None if alone else self.executor}
        return advance(model, state, x, keys, depths, **how)  # type: ignore[arg-type]

    def map(self, work: Callable[[slice], T], rows: int) -> list[T]:
        """Share the pieces among the threads."""

        def inside(piece: slice) -> T:
            token = _inside.set(True)
            try:
                return work(piece)
            finally:
                _inside.reset(token)

        return self.executor.map(inside, rows)

    def alone(self) -> AbstractContextManager[None]:
        """Stay on the calling thread."""
        return self.executor.alone()


def advance(
    model: Reasoner,
    state: State,
    x: Tensor,
    keys: Tensor,
    depths: Tensor,
    *,
    perturbation: Perturbation | None = None,
    tracked: int | None = None,
    executor: RowExecutor | None = None,
) -> State:
    """Return what `model.segment` returns; an executor shares the rows, and then no graph is recorded."""
    state, perturbation = _contiguous(state), perturbation or model.config.path
    means = _in_one_go(perturbation) if type(perturbation) is Perturbation else perturbation

    def compose(state: State, x: Tensor, rows: slice = _ALL) -> State:
        where = x, keys[rows], depths[rows]
        with computed_by(MEANS):
            return model.segment(state, *where, perturbation=means, tracked=tracked)

    stacks = (model.stack,) if model.answer_stack is None else (model.stack, model.answer_stack)
    known = type(perturbation) is Perturbation and not perturbation.learned_noise
    if not known or type(model).segment is not Reasoner.segment or not has_kernels(stacks, state, x):
        return compose(state, x) if executor is None else _by_pieces(compose, state, x, executor)
    with computed_by(MEANS):
        noise, _ = model.noise(perturbation, keys, depths)
    segment = Segment(stacks, model.moves, perturbation.damping, noise, tracked, compose)
    return fused(segment, state, x.contiguous(), executor)


def _wants_gradient(model: Reasoner, state: State, x: Tensor) -> bool:
    return any(tensor.requires_grad for tensor in (x, *state.tensors(), *model.parameters()))


@lru_cache
def _in_one_go(perturbation: Perturbation) -> Perturbation:
    return InOneGo(**dict(perturbation))


def _contiguous(state: State) -> State:
    """A run of rows cut out of a batch must round as the same rows do alone."""
    return State(*(latent.contiguous() for latent in state.tensors()))


def _by_pieces(
    compose: Callable[[State, Tensor, slice], State], state: State, x: Tensor, executor: RowExecutor
) -> State:
    if len(executor.cuts(state.rows)) == 1:
        return executor.map(lambda rows: compose(state, x, rows), state.rows)[0]
    new = State(*(torch.empty_like(latent) for latent in state.tensors()))

    def work(rows: slice) -> None:
        moved = compose(_contiguous(state.chunk(rows)), x[:, rows], rows)
        for mine, theirs in zip(new.chunk(rows).tensors(), moved.tensors(), strict=True):
            mine.copy_(theirs)

    executor.map(work, state.rows)
    return new
