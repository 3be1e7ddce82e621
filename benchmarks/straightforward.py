"""A straightforward implementation of a segment, for `eqr bench model` to say how much faster ours is.

Batch-first latents (rows, tokens, width), transposes around the token mixer, one eager operation after the
other: the way one writes it first, for the mixers that are measured. Path noise is drawn from a generator of
its own, so that only still systems can be compared number by number.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from eqr.errors import UserError
from eqr.model.operator import Move, Perturbation
from eqr.model.reasoner import Reasoner
from eqr.model.structured import IMPOSSIBLE


@dataclass(frozen=True)
class PlainState:
    """Latents with the batch in front."""

    answer: Tensor
    scratch: Tensor | None = None


class PlainReasoner:
    """Runs the weights of a `Reasoner`."""

    def __init__(self, model: Reasoner) -> None:
        self.config = model.config
        self._noise = torch.Generator().manual_seed(0)
        self._weights = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        self._open: Tensor | float = 1.0

    def segment(
        self,
        state: PlainState,
        x: Tensor,
        *,
        perturbation: Perturbation | None = None,
        tracked: int | None = None,
    ) -> PlainState:
        """Advance by one segment; the last `tracked` applications (None: all) record a graph."""
        moves = self.config.recurrence.moves()
        untracked = 0 if tracked is None else len(moves) - tracked
        if self.config.live:
            self._open = self._find_open(x)
            given, x = x, x * self._open
            state = PlainState(
                state.answer * self._open, None if state.scratch is None else state.scratch * self._open
            )
        with torch.set_grad_enabled(torch.is_grad_enabled() and untracked == 0):
            for move in moves[:untracked]:
                state = self._move(move, state, x, perturbation or self.config.path)
        for move in moves[untracked:]:
            state = self._move(move, state, x, perturbation or self.config.path)
        if self.config.live:
            closed = given * (1 - self._open)
            return PlainState(
                state.answer + closed, None if state.scratch is None else state.scratch + closed
            )
        return state

    def _find_open(self, x: Tensor) -> Tensor:
        """1 for the sites that hold something and share a group with another that does, else 0."""
        there = (x.abs().sum(dim=2) > 0).to(x.dtype)
        company = torch.zeros_like(there)
        for members in self.config.mixer.families(self.config).values():
            for sites in members:
                sites = torch.from_numpy(sites[sites >= 0])
                company[:, sites] += (there[:, sites].sum(dim=1, keepdim=True) >= 2).to(x.dtype)
        return (there * (company > 0)).unsqueeze(2)

    def read(self, state: PlainState) -> tuple[Tensor, Tensor]:
        """Return logits (rows, cells, vocabulary) and both halt scores (rows, 2)."""
        config, states = self.config, state.answer
        logits = F.linear(states, self._weights["answer_head"])[:, config.identity_tokens :]
        if config.sites is not None:
            nothing = torch.full(
                (len(states), config.cells, config.sites.first), IMPOSSIBLE, dtype=states.dtype
            )
            if config.live:
                logits = torch.where(states.abs().sum(dim=2, keepdim=True) > 0, logits, IMPOSSIBLE)
            logits = torch.cat((nothing, logits.view(len(states), config.cells, config.symbols)), dim=-1)
        head = self._weights["halt_head.weight"], self._weights["halt_head.bias"]
        return logits, F.linear(states.mean(dim=1) if config.mixer.reads_mean else states[:, 0], *head)

    def _move(self, move: Move, state: PlainState, x: Tensor, perturbation: Perturbation) -> PlainState:
        z, scratch = state.answer, state.scratch
        if move is Move.SCRATCH:
            assert scratch is not None
            return PlainState(z, self._apply("stack", scratch, z + x, perturbation))
        condition = {Move.ANSWER: scratch, Move.INPUT: x, Move.ALONE: None}[move]
        stack = "answer_stack" if "answer_stack.blocks.0.channels.up" in self._weights else "stack"
        return PlainState(self._apply(stack, z, condition, perturbation), scratch)

    def _apply(self, stack: str, z: Tensor, condition: Tensor | None, perturbation: Perturbation) -> Tensor:
        h = z if condition is None else z + condition
        for index in range(self.config.blocks):
            block = f"{stack}.blocks.{index}."
            h = self._mix(h, block + self.config.mixer.kind + ".") * self._open
            h = _norm(h + self._mlp(h, block + "channels."))
        if perturbation.damping:
            h = z + (1.0 - perturbation.damping) * (h - z)
        if perturbation.noise:
            h = (
                h
                + perturbation.noise * torch.randn(z.shape, generator=self._noise, dtype=z.dtype) * self._open
            )
        return h

    def _mix(self, h: Tensor, name: str) -> Tensor:
        match self.config.mixer.kind:
            case "tokens":
                turned = h.transpose(1, 2)
                return _norm(turned + self._mlp(turned, name)).transpose(1, 2)
            case "neighbours":
                return _norm(h + self._mlp(self._cross(h), name))
            case "groups":
                return _norm(
                    h
                    + sum(
                        self._group(h, name, *family)
                        for family in self.config.mixer.families(self.config).items()
                    )
                )
            case other:
                raise UserError(f"mixer {other!r} has no plain form here")

    def _cross(self, h: Tensor) -> Tensor:
        rows, columns = self.config.rows, self.config.columns
        framed = F.pad(h.view(len(h), rows, columns, -1), (0, 0, 1, 1, 1, 1))
        arms = ((1, 1), (0, 1), (2, 1), (1, 0), (1, 2))
        return torch.cat([framed[:, i : i + rows, j : j + columns] for i, j in arms], dim=-1).flatten(1, 2)

    def _group(self, h: Tensor, name: str, family: str, members: NDArray[np.intp]) -> Tensor:
        belongs = torch.zeros(len(members), h.shape[1], dtype=h.dtype)
        for group, sites in enumerate(members):
            belongs[group, sites[sites >= 0]] = 1.0
        pooled = torch.einsum("gs,nsc->ngc", belongs, h) / belongs.sum(1).sqrt()[:, None]
        g, u = F.linear(pooled, self._weights[f"{name}up.{family}"]).chunk(2, dim=-1)
        said = F.linear(F.silu(g) * u, self._weights[f"{name}down.{family}"])
        return torch.einsum("gs,ngc->nsc", belongs, said)

    def _mlp(self, h: Tensor, name: str) -> Tensor:
        g, u = F.linear(h, self._weights[name + "up"]).chunk(2, dim=-1)
        return F.linear(F.silu(g) * u, self._weights[name + "down"])


def _norm(h: Tensor) -> Tensor:
    return h * torch.rsqrt(h.square().mean(dim=-1, keepdim=True) + 1e-5)
