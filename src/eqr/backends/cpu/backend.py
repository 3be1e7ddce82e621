"""The `cpu` backend: compiled kernels where there are some, and the rows of a batch shared among threads.

A segment of a small structured model is one compiled call (`eqr.backends.cpu.segment`), gradient included, if
its tensors are plain float32 numbers and its perturbation the paper's own. Other segments are composed,
application by application, of kernels and definitions (`eqr.backends.cpu.operators`).
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache
from typing import Any, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eqr.backends.base import CPU, Backend, Segment
from eqr.backends.cpu import segment as kernels
from eqr.backends.cpu.kernels import F4
from eqr.backends.cpu.operators import (
    MEANS,
    InOneGo,
    gradients_of,
    is_plain,
    only_numbers,
    small_enough,
)
from eqr.backends.cpu.row_executor import RowExecutor, shared_executor
from eqr.model.config import ReasonerConfig
from eqr.model.definitions import EPSILON, computed_by
from eqr.model.operator import ChannelMlp, Move, Noise, Perturbation
from eqr.model.reasoner import Reasoner
from eqr.model.state import State
from eqr.model.structured import Cross, GroupMlp, NeighbourMlp
from eqr.registry import register

T = TypeVar("T")

LARGEST_WEIGHTS = 1 << 18
"""Numbers in the weights of an MLP that a core's cache holds beside a tile."""
CACHE_NUMBERS = 1 << 20
"""Numbers of all states of the rows that are carried together. Fewer would fit a smaller cache, but sums over
groups run along all rows at once and want some."""
_MOVES = {move: number for number, move in enumerate(Move)}
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
    def solving(
        cls, config: ReasonerConfig, device: torch.device = CPU, *, workers: int | None = None
    ) -> Self:
        """Share the threads of all models of this size."""
        return cls(shared_executor(config, device, workers))

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

    def compute(self, segment: Segment) -> State:
        """Run the kernels, on the pieces of a batch at once unless this is work on a piece."""
        known = type(segment.perturbation) is Perturbation
        perturbation = _in_one_go(segment.perturbation) if known else segment.perturbation
        state = segment.state.map(Tensor.contiguous)  # rows cut out of a batch round as they do alone
        segment = replace(segment, state=state, perturbation=perturbation)
        alone = _inside.get() or (torch.is_grad_enabled() and _wants_gradient(segment))
        executor = None if alone else self.executor
        if known and (weights := weights_for_one_call(segment)):
            return _in_one_call(segment, weights, executor)
        return _composed(segment) if executor is None else _by_pieces(segment, executor)

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


@lru_cache
def _in_one_go(perturbation: Perturbation) -> Perturbation:
    return InOneGo(**dict(perturbation))


def _wants_gradient(segment: Segment) -> bool:
    tensors = segment.x, *segment.state.tensors(), *segment.model.parameters()
    return any(tensor.requires_grad for tensor in tensors)


def _composed(segment: Segment) -> State:
    with computed_by(MEANS):
        return segment.composed()


def _by_pieces(segment: Segment, executor: RowExecutor) -> State:
    rows = segment.state.rows
    if len(executor.cuts(rows)) == 1:
        return executor.map(lambda _: _composed(segment), rows)[0]
    new = State(*map(torch.empty_like, segment.state.tensors()))

    def work(piece: slice) -> None:
        moved = _composed(segment.piece(piece))
        for mine, theirs in zip(new.chunk(piece).tensors(), moved.tensors(), strict=True):
            mine.copy_(theirs)

    executor.map(work, rows)
    return new


def weights_for_one_call(segment: Segment) -> list[Tensor]:
    """Return up and down of each MLP of each block, the channels' last; nothing where no kernel fits."""
    model, x = segment.model, segment.x
    if segment.perturbation.learned_noise or type(model).segment is not Reasoner.segment:
        return []
    found: list[Tensor] = []
    for block in (*model.stack.blocks, *(() if model.answer_stack is None else model.answer_stack.blocks)):
        mixer, channels = block.mixer, block.channels
        if not isinstance(channels, ChannelMlp) or not isinstance(mixer, NeighbourMlp | GroupMlp):
            return []
        for pair in (*_mlps(mixer), (channels.up, channels.down)):
            if sum(weight.numel() for weight in pair) > LARGEST_WEIGHTS:
                return []
            found += pair
    tensors = (*segment.state.tensors(), *found)
    fits = is_plain(*tensors) and x.dtype is torch.float32 and small_enough(x)
    return found if fits and only_numbers((*tensors, x)) else []


def _mlps(mixer: NeighbourMlp | GroupMlp) -> list[tuple[Tensor, Tensor]]:
    if isinstance(mixer, NeighbourMlp):
        return [(mixer.up, mixer.down)]
    return list(zip(mixer.up.values(), mixer.down.values(), strict=True))


def _in_one_call(segment: Segment, weights: list[Tensor], executor: RowExecutor | None) -> State:
    """Return the state after a segment; an executor shares the rows, and then no graph is recorded."""
    with computed_by(MEANS):
        noise, _ = segment.model.noise(segment.perturbation, segment.keys, segment.depths)
    segment = replace(segment, x=segment.x.contiguous())
    given = (*segment.state.tensors(), segment.x, *weights)
    if executor is None and torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given):
        return State(*_Recorded.apply(segment, noise, *given))  # type: ignore[no-untyped-call]
    return State(*_Call(segment, noise, given, first=len(segment.model.moves)).forward(executor))


class _Recorded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, segment: Segment, noise: Noise | None, *tensors: Tensor) -> tuple[Tensor, ...]:
        states = len(segment.state.tensors())
        first = 0 if segment.tracked is None else max(len(segment.model.moves) - segment.tracked, 0)
        call = _Call(segment, noise, tensors, first=first)
        new = call.forward(None)
        ctx.segment, ctx.states, ctx.first = segment, states, first
        ctx.save_for_backward(*tensors, call.kept)
        ctx.set_materialize_grads(False)
        return new

    @staticmethod
    def backward(ctx: Any, *towards: Tensor | None) -> tuple[Tensor | None, ...]:
        segment, states, (*tensors, kept) = ctx.segment, ctx.states, ctx.saved_tensors
        needed = ctx.needs_input_grad[2:]
        if torch.is_grad_enabled():  # the gradient is to be differentiated again
            again = replace(segment, state=State(*tensors[:states]), x=tensors[states])
            new = _composed(again).tensors()
            pairs = [(end, way) for end, way in zip(new, towards, strict=True) if way is not None]
            ends, ways = zip(*pairs, strict=True)
            return None, None, *gradients_of(ends, tensors, needed, ways)
        call = _Call(segment, None, tensors, first=ctx.first, kept=kept)
        # an application before the tracked ones cuts the state it changes from what it was
        cut = [move is Move.SCRATCH for move in segment.model.moves[: ctx.first]]
        wanted = [needed[which] and bool(which) not in cut for which in range(states)]
        return None, None, *call.backward([None if g is None else g.contiguous() for g in towards], wanted)


class _Call:
    """Addresses and sizes for one call of the kernels."""

    def __init__(
        self,
        segment: Segment,
        noise: Noise | None,
        given: Sequence[Tensor],
        *,
        first: int,
        kept: Tensor | None = None,
    ) -> None:
        """Take the states, x and the weights, and the first application whose gradient is wanted."""
        states, moves = len(segment.state.tensors()), segment.model.moves
        self.old, self.x, self.weights, self.noise = given[:states], given[states], given[states + 1 :], noise
        mixer = segment.model.stack.blocks[0].mixer
        assert isinstance(mixer, NeighbourMlp | GroupMlp)
        sites, rows, _ = self.x.shape
        self.share = F4(1.0 - segment.perturbation.damping)
        self.moves = np.array([_MOVES[move] for move in moves])
        self.sizes = np.array(mixer.along.sizes)
        self.plan, self._space, self._places = _plan(mixer, segment, self.weights, first)
        size = self.plan.kept * sites * rows * (len(moves) - first)
        self.kept = self.x.new_empty(size) if kept is None else kept

    def forward(self, executor: RowExecutor | None) -> tuple[Tensor, ...]:
        """Return the new states; the threads of an executor need Python's lock for nothing but the call."""
        new = tuple(torch.empty_like(latent) for latent in self.old)
        noise = self.noise
        noises = (0, 0, F4(0.0))
        if noise is not None:
            noises = noise.vectors.data_ptr(), noise.chosen.data_ptr(), F4(noise.scale)
        addresses = self._addresses(self.weights)

        def carry(rows: slice) -> None:
            space, places = self._room()
            kernels.forward(
                *_two(self.old), self.x.data_ptr(), *_two(new), rows.start, rows.stop, self.moves, self.plan,
                self.sizes, addresses, self.share, *noises, self.kept.data_ptr(), space.data_ptr(),
                places.data_ptr(), F4(EPSILON),
            )  # fmt: skip

        if executor is None:
            carry(slice(0, self.plan.rows))
        else:
            executor.map(carry, self.plan.rows)
        return new

    def backward(self, towards: Sequence[Tensor | None], wanted: Sequence[bool]) -> list[Tensor | None]:
        """Return the gradients of the old states, if they are wanted, of x and of the weights."""
        towards_answer = torch.zeros_like(self.x) if towards[0] is None else towards[0]
        to_old = [
            torch.empty_like(latent) if wish else None for latent, wish in zip(self.old, wanted, strict=True)
        ]
        space, places = self._room()
        to_x, to_weights = torch.empty_like(self.x), [torch.empty_like(weight) for weight in self.weights]
        kernels.backward(
            *_two([towards_answer, *towards[1:]]), self.x.data_ptr(), *_two(to_old), to_x.data_ptr(),
            self.moves, self.plan, self.sizes, self._addresses(self.weights), self._addresses(to_weights),
            self.share, self.kept.data_ptr(), space.data_ptr(), places.data_ptr(),
        )  # fmt: skip
        return [*to_old, to_x, *to_weights]

    def _room(self) -> tuple[Tensor, Tensor]:
        """Return working memory for one thread."""
        return self.x.new_empty(self._space), self.x.new_empty(self._places, dtype=torch.int64)

    def _addresses(self, weights: Sequence[Tensor]) -> NDArray[np.int64]:
        return np.array([weight.data_ptr() for weight in weights]).reshape(-1, 2 * len(self.sizes) + 2)


def _plan(
    mixer: NeighbourMlp | GroupMlp, segment: Segment, weights: Sequence[Tensor], first: int
) -> tuple[kernels.CarryPlan, int, int]:
    """Return sizes and tables, and how many numbers and indices of working memory a thread needs."""
    along, live = mixer.along, isinstance(mixer, GroupMlp) and mixer.live
    sites, rows, width = segment.x.shape
    blocks, groups, entries = len(segment.model.stack.blocks), 0, 0
    if isinstance(along, Cross):
        tables = {"arms": Cross.ARMS, "table": along.arms.data_ptr()}
    else:
        members, memberships = along.members, along.memberships
        groups, entries = len(members), members.numel() + memberships.numel()
        tables = {
            "groups": groups,
            "members": members.data_ptr(),
            "most_members": members.shape[1],
            "factors": along.factors.data_ptr(),
            "memberships": memberships.data_ptr(),
            "most_memberships": memberships.shape[1],
        }
    kept = (2 * blocks + 1) * width + 2 * blocks  # inputs and results of each half, and their scales
    space = ((kernels.STATES + kernels.SLOPES) * width + kept) * sites + (3 * width + 1) * groups
    together = min(max(CACHE_NUMBERS // space, 1), rows)
    places = 2 * sites + (entries if live else 0)
    plan = kernels.CarryPlan(
        sites=sites,
        rows=rows,
        width=width,
        blocks=blocks,
        hidden=weights[1].shape[1],
        wide=weights[2 * len(along.sizes) + 1].shape[1],
        tracked=first,
        together=together,
        kept=kept,
        live=int(live),
        **tables,
    )
    return plan, together * space, together * places + groups


def _two(latents: Sequence[Tensor | None]) -> tuple[int, int]:
    """Addresses of answer and scratch, 0 if there is none."""
    answer, scratch = latents if len(latents) > 1 else (latents[0], None)
    return 0 if answer is None else answer.data_ptr(), 0 if scratch is None else scratch.data_ptr()
