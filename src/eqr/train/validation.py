"""Judging a model while it trains: exact accuracy on held-out puzzles at several depths, in one rollout."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from eqr.data import PuzzleSet, in_order
from eqr.dynamics.iterate import unroll
from eqr.errors import UserError, brief
from eqr.model.definitions import row_key
from eqr.model.reasoner import Reasoner
from eqr.solve.budget import Budget
from eqr.solve.rollout import Inference
from eqr.tasks import task_named
from eqr.train.distributed import World
from eqr.train.loss import Loss, all_right
from eqr.train.recipe import Precision, computing

EXACT = "exact@"
ROWS = 128
"""Puzzles that run side by side."""


@dataclass(frozen=True)
class Score:
    """Shares of puzzles solved exactly, by depth."""

    exact: dict[int, float]
    puzzles: int

    @property
    def best(self) -> float:
        """Accuracy at the greatest depth."""
        return self.exact[max(self.exact)]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data, an entry for each depth."""
        return {"puzzles": self.puzzles, **{f"{EXACT}{depth}": share for depth, share in self.exact.items()}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Score":
        """Take it back from among other data."""
        exact = {name.removeprefix(EXACT): share for name, share in data.items() if name.startswith(EXACT)}
        if not exact or not all(map(str.isdecimal, exact)) or "puzzles" not in data:
            raise UserError(
                f"{brief(dict(data))} is no score: it has no puzzles, or no exact@DEPTH of theirs"
            )
        return cls({int(depth): share for depth, share in exact.items()}, int(data["puzzles"]))


def evaluate(
    model: Reasoner,
    puzzles: PuzzleSet,
    depths: tuple[int, ...],
    *,
    loss: Loss,
    count: int,
    seed: int,
    world: World,
    precision: Precision = Precision.FLOAT32,
) -> Score:
    """Run the first `count` puzzles to the greatest depth, from one start each, split over processes."""
    inference = Inference(model, Budget(depth=max(depths), seed=seed), window=1)
    count, task = min(count, len(puzzles)), task_named(puzzles.task)
    solved = torch.zeros(len(depths), dtype=torch.float64)
    chosen = puzzles.take(range(world.rank, count, world.size)) if count > world.rank else None
    for batch in in_order(chosen, ROWS) if chosen is not None else ():
        pairs = zip(batch.inputs, batch.identities.tolist(), strict=True)
        keys = [row_key(seed, puzzle, 0, identity) for puzzle, identity in pairs]
        labels = torch.from_numpy(batch.labels).to(inference.device)
        with torch.inference_mode(), computing(precision, inference.device):
            rows = inference.begin(batch.inputs, keys, batch.identities)
            for depth, turn in enumerate(unroll(inference.dynamics, rows), start=1):
                if depth in depths:
                    inputs = torch.from_numpy(batch.inputs)
                    right = all_right(turn.reading, loss.targets(task, inputs, labels, turn.reading))
                    solved[depths.index(depth)] += right.sum().double().cpu()
    solved = world.sum(solved.float().to(inference.device)).cpu()
    return Score({depth: float(n) / count for depth, n in zip(depths, solved, strict=True)}, count)
