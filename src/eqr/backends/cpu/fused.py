"""A whole segment of a small structured operator in one compiled call, gradient included.

The kernels (`eqr.backends.cpu.segment`) are for plain float32 tensors on the cpu and the paper's own damping
and noise.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eqr.backends.cpu.operators import is_float32, only_numbers, small_enough
from eqr.backends.cpu.row_executor import RowExecutor
from eqr.model.definitions import EPSILON
from eqr.model.operator import ChannelMlp, Move, Noise, Stack
from eqr.model.state import State
from eqr.model.structured import Cross, Factors, GroupMlp, NeighbourMlp

CACHE_NUMBERS = 1 << 20
"""Numbers of all states of the rows that are carried together. Fewer would fit a smaller cache, but sums over
groups run along all rows at once and want some."""
LARGEST_WEIGHTS = 1 << 18
"""Numbers in the weights of an MLP that a core's cache holds beside a tile."""
_MOVES = {move: number for number, move in enumerate(Move)}


_STATES, _SLOPES = 4, 5


class CarryPlan(NamedTuple):
    """Sizes and tables of a segment."""

    sites: int
    rows: int
    width: int
    blocks: int
    """Blocks in a stack."""
    hidden: int
    """Hidden size of the mixer's MLPs."""
    wide: int
    """Hidden size of the channels'."""
    tracked: int
    """Index of the first application that the gradient sees."""
    together: int
    """Rows of which all states fit a cache."""
    arms: int
    """Sites that each site hears, side by side."""
    table: int
    """Which they are, (sites, arms); 0 for an operator on groups."""
    groups: int
    members: int
    """(groups, most_members)."""
    most_members: int
    factors: int
    """(groups,): what the sum over a group is multiplied by."""
    memberships: int
    """(sites, most_memberships)."""
    most_memberships: int
    live: int
    """Whether only open sites are carried, see `_open_sites`."""

    def space(self) -> int:
        """Numbers of working memory that `forward` and `backward` need."""
        states = (_STATES + _SLOPES) * self.width * self.sites
        groups = (3 * self.width + 1) * self.groups
        return self.together * (states + self.kept_of_a_site() * self.sites + groups)

    def places(self) -> int:
        """Indices of working memory that they need."""
        tables = self.groups * self.most_members + self.sites * self.most_memberships if self.live else 0
        return self.together * (2 * self.sites + tables) + self.groups

    def kept_of_a_site(self) -> int:
        """Numbers kept of one site in one application: inputs and results of each half, and their scales."""
        return (2 * self.blocks + 1) * self.width + 2 * self.blocks


@dataclass(frozen=True)
class Segment:
    """All of a segment but its tensors."""

    stacks: tuple[Stack, ...]
    """One, or scratch's and answer's."""
    moves: Sequence[Move]
    damping: float
    noise: Noise | None
    tracked: int | None
    compose: Callable[[State, Tensor], State]
    """The same application by application, for gradients that are differentiated again."""


def has_kernels(stacks: Sequence[Stack], state: State, x: Tensor) -> bool:
    """Whether the kernels are for a segment of these blocks on these tensors."""
    weights = _weights(stacks)
    tensors = (*state.tensors(), *weights)
    fits = is_float32(*tensors) and x.dtype is torch.float32 and small_enough(x)
    return bool(weights) and fits and only_numbers((*tensors, x))


def fused(segment: Segment, state: State, x: Tensor, executor: RowExecutor | None) -> State:
    """Return the state after a segment; an executor shares the rows, and then no graph is recorded."""
    given, weights = (*state.tensors(), x), _weights(segment.stacks)
    if executor is None and torch.is_grad_enabled() and any(t.requires_grad for t in (*given, *weights)):
        return State(*_Fused.apply(segment, *given, *weights))  # type: ignore[no-untyped-call]  # PyTorch's own
    return State(*_Run(segment, given, weights, first=len(segment.moves)).forward(executor))


def _weights(stacks: Sequence[Stack]) -> list[Tensor]:
    """Up and down of each MLP of each block, the channels' last; nothing if there is anything else."""
    found: list[Tensor] = []
    for block in (block for stack in stacks for block in stack.blocks):
        mixer, channels = block.mixer, block.channels
        if not isinstance(channels, ChannelMlp) or not isinstance(mixer, NeighbourMlp | GroupMlp):
            return []
        for pair in (*_mlps(mixer), (channels.up, channels.down)):
            if sum(weight.numel() for weight in pair) > LARGEST_WEIGHTS:
                return []
            found += pair
    return found


def _mlps(mixer: NeighbourMlp | GroupMlp) -> list[tuple[Tensor, Tensor]]:
    if isinstance(mixer, NeighbourMlp):
        return [(mixer.up, mixer.down)]
    return list(zip(mixer.up.values(), mixer.down.values(), strict=True))


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, segment: Segment, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.segment, ctx.states = segment, 2 if Move.SCRATCH in segment.moves else 1
        applications, tracked = len(segment.moves), segment.tracked
        ctx.first = 0 if tracked is None else max(applications - tracked, 0)
        run = _Run(segment, tensors[: ctx.states + 1], tensors[ctx.states + 1 :], first=ctx.first)
        new = run.forward(None)
        ctx.save_for_backward(*tensors, run.kept)
        ctx.set_materialize_grads(False)
        return new

    @staticmethod
    def backward(ctx: Any, *towards: Tensor | None) -> tuple[Tensor | None, ...]:
        segment, states, (*tensors, kept) = ctx.segment, ctx.states, ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient is to be differentiated again
            new = segment.compose(State(*tensors[:states]), tensors[states]).tensors()
            ends = [end for end, gradient in zip(new, towards, strict=True) if gradient is not None]
            given = [gradient for gradient in towards if gradient is not None]
            inputs = [tensor for tensor in tensors if tensor.requires_grad]
            found = iter(torch.autograd.grad(ends, inputs, given, create_graph=True, allow_unused=True))
            return None, *(next(found) if tensor.requires_grad else None for tensor in tensors)
        run = _Run(segment, tensors[: states + 1], tensors[states + 1 :], first=ctx.first, kept=kept)
        # an application before the tracked ones cuts the state it changes from what it was
        cut = [move is Move.SCRATCH for move in segment.moves[: ctx.first]]
        wanted = [ctx.needs_input_grad[1 + which] and bool(which) not in cut for which in range(states)]
        return None, *run.backward([None if g is None else g.contiguous() for g in towards], wanted)


class _Run:
    """Addresses and sizes for one call."""

    def __init__(
        self,
        segment: Segment,
        given: Sequence[Tensor],
        weights: Sequence[Tensor],
        *,
        first: int,
        kept: Tensor | None = None,
    ) -> None:
        """Take the states and x, the weights, and the first application whose gradient is wanted."""
        self.segment, self.old, self.x, self.weights = segment, given[:-1], given[-1], weights
        mixer = segment.stacks[0].blocks[0].mixer
        assert isinstance(mixer, NeighbourMlp | GroupMlp)
        along = mixer.along
        sites, rows, _ = self.x.shape
        self.plan = _plan(mixer, segment, self.x, weights, first)
        self.moves = np.array([_MOVES[move] for move in segment.moves])
        self.sizes = np.array(along.sizes)
        applications = len(segment.moves) - first
        self.kept = (
            self.x.new_empty(self.plan.kept_of_a_site() * sites * rows * applications)
            if kept is None
            else kept
        )

    def _room(self) -> tuple[Tensor, Tensor]:
        """Return working memory for one thread."""
        space = self.x.new_empty(self.plan.space())
        return space, self.x.new_empty(self.plan.places(), dtype=torch.int64)

    def forward(self, executor: RowExecutor | None) -> tuple[Tensor, ...]:
        """Return the new states; the threads of an executor need Python's lock for nothing but the call."""
        from eqr.backends.cpu import segment
        from eqr.backends.cpu.kernels import F4

        new = tuple(torch.empty_like(latent) for latent in self.old)
        noise = self.segment.noise
        noises = (0, 0, F4(0.0))
        if noise is not None:
            noises = noise.vectors.data_ptr(), noise.chosen.data_ptr(), F4(noise.scale)
        addresses, share = self._addresses(self.weights), F4(1.0 - self.segment.damping)

        def carry(rows: slice) -> None:
            space, places = self._room()
            segment.forward(
                *_two(self.old), self.x.data_ptr(), *_two(new), rows.start, rows.stop, self.moves, self.plan,
                self.sizes, addresses, share, *noises, self.kept.data_ptr(), space.data_ptr(),
                places.data_ptr(), F4(EPSILON),
            )  # fmt: skip

        if executor is None:
            carry(slice(0, self.plan.rows))
        else:
            executor.map(carry, self.plan.rows)
        return new

    def backward(self, towards: Sequence[Tensor | None], wanted: Sequence[bool]) -> list[Tensor | None]:
        """Return the gradients of the old states, if they are wanted, of x and of the weights."""
        from eqr.backends.cpu import segment
        from eqr.backends.cpu.kernels import F4

        towards_answer = torch.zeros_like(self.x) if towards[0] is None else towards[0]
        to_old = [
            torch.empty_like(latent) if wish else None for latent, wish in zip(self.old, wanted, strict=True)
        ]
        space, places = self._room()
        to_x, to_weights = torch.empty_like(self.x), [torch.empty_like(weight) for weight in self.weights]
        segment.backward(
            *_two([towards_answer, *towards[1:]]), self.x.data_ptr(), *_two(to_old), to_x.data_ptr(),
            self.moves, self.plan, self.sizes, self._addresses(self.weights), self._addresses(to_weights),
            F4(1.0 - self.segment.damping), self.kept.data_ptr(), space.data_ptr(),
            places.data_ptr(),
        )  # fmt: skip
        return [*to_old, to_x, *to_weights]

    def _addresses(self, weights: Sequence[Tensor]) -> NDArray[np.int64]:
        return np.array([weight.data_ptr() for weight in weights]).reshape(-1, 2 * len(self.sizes) + 2)


def _plan(
    mixer: NeighbourMlp | GroupMlp, segment: Segment, x: Tensor, weights: Sequence[Tensor], first: int
) -> CarryPlan:
    along, live = mixer.along, isinstance(mixer, GroupMlp) and mixer.live
    sites, rows, width = x.shape
    plan = CarryPlan(
        sites=sites,
        rows=rows,
        width=width,
        blocks=len(segment.stacks[0].blocks),
        hidden=weights[1].shape[1],
        wide=weights[2 * len(along.sizes) + 1].shape[1],
        tracked=first,
        together=1,
        live=int(live),
        **_tables(along),
    )
    return plan._replace(together=min(max(CACHE_NUMBERS // plan.space(), 1), rows))


def _tables(along: Cross | Factors) -> dict[str, int]:
    """Return the addresses and sizes by which a plan knows the tables of a mixer."""
    if isinstance(along, Cross):
        names = "groups", "members", "most_members", "factors", "memberships", "most_memberships"
        return {"arms": Cross.ARMS, "table": along.arms.data_ptr(), **dict.fromkeys(names, 0)}
    return {
        "arms": 1,
        "table": 0,
        "groups": len(along.members),
        "members": along.members.data_ptr(),
        "most_members": along.members.shape[1],
        "factors": along.factors.data_ptr(),
        "memberships": along.memberships.data_ptr(),
        "most_memberships": along.memberships.shape[1],
    }


def _two(latents: Sequence[Tensor | None]) -> tuple[int, int]:
    """Addresses of answer and scratch, 0 if there is none."""
    answer, scratch = latents if len(latents) > 1 else (latents[0], None)
    return 0 if answer is None else answer.data_ptr(), 0 if scratch is None else scratch.data_ptr()
