"""Whether Anderson acceleration pays: segments until a share of valid answers is reached, with and without.

Every application is counted alike, so a segment costs the same either way; what acceleration adds (a few
products of states) is not counted in its disfavour. Accuracy is by the task's own check, on fresh puzzles.

Run: python benchmarks/acceleration.py MODEL [PUZZLES [DEPTH]]
"""

import sys
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eqr.dynamics.iterate import iterate
from eqr.model.operator import Application, Noise, Perturbation
from eqr.model.reasoner import Reasoner
from eqr.solve import load
from eqr.tasks import task_named

SHARES = (0.5, 0.8, 0.9, 0.95, 1.0)
"""Of the best accuracy that the plain model reaches at any depth."""


class Acceleration(Perturbation):
    """Anderson acceleration around damping and noise."""

    memory: int

    def around(self, application: Application, noise: Noise | None) -> Application:
        """Look back anew in every segment, so that what is looked back on is a row's own."""
        return Accelerated(super().around(application, noise), self.memory)


@dataclass(frozen=True)
class Accelerated:
    """Combines the last applications so that their changes cancel best, row by row.

    It looks back over at most `memory` applications that had the same condition: those of a cycle's scratch
    state, or of a single state through the whole segment. Where conditions differ it changes nothing.
    """

    application: Application
    memory: int
    ridge: float = 1e-4
    """Share of the mean squared change that is added to it, so that near-equal changes do not blow up."""
    _past: list[tuple[Tensor | None, Tensor, Tensor]] = field(default_factory=list, repr=False)
    """Condition, new state and change of each."""

    def __call__(self, z: Tensor, condition: Tensor | None, index: int) -> Tensor:
        """Apply and combine with what came before."""
        moved = self.application(z, condition, index)
        past = self._past
        if past and past[-1][0] is not condition:
            past.clear()
        past.append((condition, moved, moved - z))
        del past[: -self.memory]
        if len(past) == 1:
            return moved
        changes = torch.stack([change for _, _, change in past]).float()
        products = torch.einsum("isrw,jsrw->rij", changes, changes)
        size = products.diagonal(dim1=1, dim2=2).mean(dim=1)[:, None, None].clamp_min(1e-12)
        eye = torch.eye(len(past), device=z.device)
        weights = torch.linalg.solve(products + self.ridge * size * eye, torch.ones_like(products[:, :, 0]))
        weights = (weights / weights.sum(dim=1, keepdim=True)).to(z.dtype)
        return torch.einsum("ri,isrw->srw", weights, torch.stack([new for _, new, _ in past]))


def valid_by_depth(reasoner: Reasoner, puzzles: NDArray[np.uint8], depth: int) -> NDArray[np.float64]:
    """Return the share of valid answers after each segment, one start each."""
    assert reasoner.config.task is not None
    task = task_named(reasoner.config.task)
    with torch.inference_mode():
        x = reasoner.embed(puzzles)
        turns = iterate(reasoner, x, reasoner.start(x, seed=0), depth=depth)
        return np.array([task.check_many(puzzles, turn.reading.tokens.numpy()).mean() for turn in turns])


def main() -> None:
    """Print, for each memory, the depth at which it reaches each share of the plain model's best."""
    name, count, depth = [*sys.argv[1:], *("200", "32")[max(len(sys.argv) - 2, 0) :]]
    reasoner = load(name)
    made = task_named(str(reasoner.config.task)).generate(np.random.default_rng(7))
    puzzles = np.stack([next(made).puzzle for _ in range(int(count))])
    plain = valid_by_depth(reasoner, puzzles, int(depth))
    print(f"{name}: {count} puzzles, best {plain.max():.3f}; segments until a share of it is reached")
    print("memory  " + "".join(f"{share:>8.0%}" for share in SHARES) + "    best    last")
    for memory in (1, 2, 3, 5):
        found = plain
        if memory > 1:
            accelerated = Acceleration(memory=memory, **dict(reasoner.config.path))
            found = valid_by_depth(reasoner.perturbed_by(accelerated), puzzles, int(depth))
        reached = [np.flatnonzero(found >= share * plain.max()) for share in SHARES]
        cells = "".join(f"{int(first[0]) + 1 if len(first) else '-':>8}" for first in reached)
        print(
            f"{memory if memory > 1 else 'plain':<8}{cells}{found.max():>8.3f}{found[-1]:>8.3f}", flush=True
        )


if __name__ == "__main__":
    main()
