"""How a segment behaves around the state it has reached: the diagnostics of the paper's appendix A.1.

A segment without noise is a map f of the latents. At the reached state z of each row, from Jacobian-vector
products alone (J is never formed):

- spectral radius of J: below 1, nearby states are drawn in, in the long run (power iteration).
- local contraction factor L = |J|, the largest singular value: below 1, in every segment (Lanczos).
- conditioning of I - J, whose inverse (the resolvent) carries a change of the weights to the attractor.
- output margin, and the residual that would be small enough if L held all the way to the attractor:
  (1 - L) margin / gap. L is measured at one state, so this is a first-order indication, no certificate. As
  trained segments often stretch some directions before they shrink them, it is asked of several at once too.

The trajectory runs as usual, what is around its end in float64.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from eqr.dynamics.iterate import unroll
from eqr.model.definitions import row_key
from eqr.model.reasoner import Reasoner
from eqr.model.state import State
from eqr.solve.budget import Budget
from eqr.solve.rollout import Inference
from eqr.tasks.base import PAD, Tokens

Product = Callable[[Tensor], Tensor]
"""Takes vectors (rows, coordinates) to vectors, each row by a matrix of its own."""

POWER_STEPS, LANCZOS_STEPS = 60, 40
TOGETHER = (1, 4)
"""Numbers of segments in a row whose contraction is tried for the bound; the first is 1."""
_TINY, _EXHAUSTED = 1e-300, 1e-12


@dataclass(frozen=True, kw_only=True)
class LinearMap:
    """One matrix per row, known by its products."""

    rows: int
    size: int
    times: Product
    transposed: Product
    device: str | torch.device = "cpu"

    def minus_identity(self) -> "LinearMap":
        """Return I - A."""
        return LinearMap(
            rows=self.rows,
            size=self.size,
            times=lambda v: v - self.times(v),
            transposed=lambda v: v - self.transposed(v),
            device=self.device,
        )


def spectral_radius(matrix: LinearMap, *, steps: int = POWER_STEPS, seed: int = 0) -> Tensor:
    """Estimate the largest absolute eigenvalue of each row's matrix (rows,) by power iteration.

    The growth is averaged over the second half of the steps: with a leading complex pair single steps
    oscillate around it.
    """
    vectors = _begin(matrix, seed)
    growth = []
    for _ in range(steps):
        vectors = matrix.times(vectors)
        lengths = vectors.norm(dim=1)
        growth.append(lengths.clamp_min(_TINY).log())
        vectors = vectors / lengths.clamp_min(_TINY).unsqueeze(1)
    return torch.stack(growth[steps // 2 :]).mean(dim=0).exp()


def singular_values(matrix: LinearMap, *, steps: int = LANCZOS_STEPS, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Estimate the smallest and the largest singular value of each row's matrix, (rows,) both, by Lanczos.

    On the products of the matrix with its transpose, with full reorthogonalisation. The largest is approached
    from below, the smallest from above; both are exact once there are as many steps as coordinates.
    """
    steps = min(steps, matrix.size)
    basis = [_begin(matrix, seed)]
    diagonal: list[Tensor] = []
    beside: list[Tensor] = []
    going = torch.ones(matrix.rows, dtype=torch.bool, device=matrix.device)
    for step in range(steps):
        grown = matrix.transposed(matrix.times(basis[-1]))
        # a row whose space is exhausted repeats a value that lies within its range
        diagonal.append(torch.where(going, (grown * basis[-1]).sum(dim=1), diagonal[0] if diagonal else 0.0))
        span = torch.stack(basis)
        for _ in range(2):  # once is not enough in finite precision
            grown = grown - ((span * grown).sum(dim=2, keepdim=True) * span).sum(dim=0)
        if step + 1 < steps:
            length = grown.norm(dim=1)
            going = going & (length > _EXHAUSTED * torch.stack(diagonal).amax(dim=0))
            beside.append(torch.where(going, length, 0.0))
            basis.append(torch.where(going.unsqueeze(1), grown / length.clamp_min(_TINY).unsqueeze(1), 0.0))
    tridiagonal = torch.diag_embed(torch.stack(diagonal, dim=1))
    if beside:
        off = torch.stack(beside, dim=1)
        tridiagonal = tridiagonal + torch.diag_embed(off, 1) + torch.diag_embed(off, -1)
    values = torch.linalg.eigvalsh(tridiagonal).clamp_min(0.0).sqrt()
    return values[:, 0], values[:, -1]


def _begin(matrix: LinearMap, seed: int) -> Tensor:
    """Draw a vector of length 1 for each row."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(matrix.rows, matrix.size, dtype=torch.float64, generator=generator).to(matrix.device)
    lengths: Tensor = drawn.norm(dim=1, keepdim=True)
    return drawn / lengths.clamp_min(_TINY)


def jacobian(apply: Product, at: Tensor) -> LinearMap:
    """Return the Jacobians of a map of independent rows at points (rows, coordinates)."""
    back: Callable[[Tensor], tuple[Tensor]] = torch.func.vjp(apply, at)[1]

    def times(vectors: Tensor) -> Tensor:
        product: Tensor = torch.func.jvp(apply, (at,), (vectors,))[1]
        return product

    def transposed(vectors: Tensor) -> Tensor:
        product: Tensor = back(vectors)[0]
        return product

    return LinearMap(rows=at.shape[0], size=at.shape[1], times=times, transposed=transposed, device=at.device)


@dataclass(frozen=True, kw_only=True)
class Stability:
    """What holds around the reached state of each row; every array (rows,)."""

    radius: NDArray[np.float64]
    """Spectral radius of the segment's Jacobian."""
    contraction: NDArray[np.float64]
    """Local contraction factor L, the Jacobian's largest singular value."""
    conditioning: NDArray[np.float64]
    """Condition number of I - J; large where small changes of the weights move the attractor far."""
    sensitivity: NDArray[np.float64]
    """Norm of the resolvent, 1 over the smallest singular value of I - J."""
    margin: NDArray[np.float64]
    """Least lead of the label's logit over all others, over cells; below 0 where the answer is wrong."""
    segments: NDArray[np.int64]
    """How many segments in a row the next two numbers are about: those whose bound is most generous."""
    residual: NDArray[np.float64]
    """How far those segments move the state without noise: the paper's norm, not per coordinate."""
    bound: NDArray[np.float64]
    """(1 - L) margin / gap, 0 where it says nothing: a residual below it would make the answer right if L,
    which is measured at the state alone, held all the way to the attractor."""
    right: NDArray[np.bool_]

    @property
    def within_bound(self) -> NDArray[np.bool_]:
        """Which rows are as settled as their margin and their local contraction ask for."""
        return self.residual < self.bound


def output_margin(logits: Tensor, label: Tensor) -> Tensor:
    """Return the least lead of the label's logit over the best other one, over counted cells, (rows,).

    `logits` (rows, cells, vocabulary), `label` (rows, cells); padded cells do not count.
    """
    own = logits.gather(2, label.unsqueeze(2)).squeeze(2)
    others = logits.scatter(2, label.unsqueeze(2), -torch.inf).amax(dim=2)
    return (own - others).masked_fill(label == PAD, torch.inf).amin(dim=1)


def gap_constant(head: Tensor) -> float:
    """Return how fast any gap between two logits can change with the state: exact, the head being linear."""
    return float(torch.cdist(head, head).max())


def correctness_bound(contraction: Tensor, margin: Tensor, gap: float) -> Tensor:
    """Return the residual below which the decoded answer must be the label (paper, appendix A.1)."""
    return (1.0 - contraction).clamp_min(0.0) * margin.clamp_min(0.0) / gap


@torch.no_grad()
def stability(
    reasoner: Reasoner,
    puzzles: Tokens,
    labels: Tokens,
    *,
    budget: Budget | None = None,
    identities: NDArray[np.int32] | None = None,
    at_once: int = 8,
) -> Stability:
    """Run one start of each puzzle (rows, cells) to the budget's depth and look around where it ended."""
    budget = (budget or Budget(depth=64)).replace(breadth=1, halting=None, race=False)
    exact = copy.deepcopy(reasoner).double().requires_grad_(False)
    families = np.zeros(len(puzzles), np.int32) if identities is None else identities
    parts = []
    for first in range(0, len(puzzles), at_once):
        part = slice(first, first + at_once)
        parts.append(_around(reasoner, exact, puzzles[part], labels[part], budget, families[part]))
    return Stability(**{name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


def _around(
    reasoner: Reasoner,
    exact: Reasoner,
    puzzles: Tokens,
    labels: Tokens,
    budget: Budget,
    identities: NDArray[np.int32],
) -> dict[str, NDArray[np.generic]]:
    """Look around the final states of some puzzles; `exact` is the model in float64."""
    inference = Inference(reasoner, budget, window=1)
    pairs = zip(puzzles, identities.tolist(), strict=True)
    rows = inference.begin(
        puzzles, [row_key(budget.seed, puzzle, 0, identity) for puzzle, identity in pairs], identities
    )
    for turn in unroll(inference.dynamics, rows):
        rows = turn.rows
    row_keys, depths = rows.keys, rows.depths
    x, state = rows.x.embedding.double(), State(*(latent.double() for latent in rows.state.tensors()))
    still = inference.operator.perturbation.still

    def segments(flat: Tensor, count: int = 1) -> Tensor:
        there = state.like(flat)
        for _ in range(count):
            there = exact.segment(there, x, row_keys, depths, perturbation=still)
        return there.flat()

    at, label = state.flat(), torch.as_tensor(labels, dtype=torch.int64, device=x.device)
    margin, gap = output_margin(exact.decode(state), label), gap_constant(exact.answer_head)
    with sdpa_kernel(SDPBackend.MATH):  # fused attention has no forward derivative
        moves = jacobian(segments, at)
        least, most = singular_values(moves.minus_identity())
        residuals, factors = [], []
        for count in TOGETHER:
            several = partial(segments, count=count)
            residuals.append((several(at) - at).norm(dim=1))
            factors.append(singular_values(jacobian(several, at))[1])
        radius = spectral_radius(moves)
    bounds = torch.stack([correctness_bound(factor, margin, gap) for factor in factors])
    best = (bounds / torch.stack(residuals).clamp_min(_TINY)).argmax(dim=0, keepdim=True)
    found = {
        "radius": radius,
        "contraction": factors[0],
        "conditioning": most / least,
        "sensitivity": 1.0 / least,
        "margin": margin,
        "segments": torch.tensor(TOGETHER)[best[0].cpu()],
        "residual": torch.stack(residuals).gather(0, best)[0],
        "bound": bounds.gather(0, best)[0],
        "right": margin > 0,
    }
    return {name: value.cpu().numpy() for name, value in found.items()}
