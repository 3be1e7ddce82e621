"""What a run measures and writes down: means over steps, validation scores, `metrics.jsonl`, trackers."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import torch

from eqr.data import PuzzleSet, in_order
from eqr.dynamics.iterate import unroll
from eqr.errors import UserError, brief, with_extra
from eqr.files import append, flush, new_file
from eqr.model.definitions import row_key
from eqr.model.reasoner import Reasoner
from eqr.runs import RunFolder
from eqr.solve.budget import Budget
from eqr.solve.rollout import Inference
from eqr.tasks import task_named
from eqr.train.distributed import World
from eqr.train.loss import all_right
from eqr.train.recipe import Recipe, computing
from eqr.train.step import STATS

EXACT = "exact@"
ROWS = 128
"""Puzzles that are validated side by side."""


class Meter:
    """Averages step statistics between two log records; its sums are part of a checkpoint."""

    def __init__(self, sums: Mapping[str, float] | None = None) -> None:
        self.sums = dict(sums or {})
        if self.sums and not self.sums.keys() >= {*STATS, "gradient_norm", "steps", "rows"}:
            raise UserError(
                f"{brief(self.sums)} are no sums of a step's statistics; is the checkpoint eqr's?"
            )

    def add(self, stats: Mapping[str, float], rows: int) -> None:
        """Take one step's sums over a batch of `rows`."""
        for name, value in {**stats, "steps": 1.0, "rows": float(rows)}.items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    def flush(self) -> dict[str, float]:
        """Return means since the last flush and begin anew."""
        sums, self.sums = self.sums, {}
        steps, halted = sums["steps"], sums["halted"]
        means = {name: sums[name] / steps for name in ("loss", "answer_loss", "halt_loss", "gradient_norm")}
        means["right"] = sums["right"] / sums["rows"]
        if halted:
            means["exact"] = sums["halted_right"] / halted
            means["halt_depth"] = sums["halted_depth"] / halted
        return means


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


def evaluate(recipe: Recipe, model: Reasoner, puzzles: PuzzleSet, count: int, world: World) -> Score:
    """Score the first `count` puzzles as a recipe's plan says, from one start each, split over processes."""
    plan, task = recipe.evaluation, task_named(puzzles.task)
    inference = Inference(model, Budget(depth=max(plan.depths), seed=plan.seed), window=1)
    count = min(count, len(puzzles))
    solved = torch.zeros(len(plan.depths), dtype=torch.float64)
    chosen = puzzles.take(range(world.rank, count, world.size)) if count > world.rank else None
    for batch in in_order(chosen, ROWS) if chosen is not None else ():
        pairs = zip(batch.inputs, batch.identities.tolist(), strict=True)
        keys = [row_key(plan.seed, puzzle, 0, identity) for puzzle, identity in pairs]
        labels = torch.from_numpy(batch.labels).to(inference.device)
        with torch.inference_mode(), computing(recipe.precision, inference.device):
            rows = inference.begin(batch.inputs, keys, batch.identities)
            for depth, turn in enumerate(unroll(inference.dynamics, rows), start=1):
                if depth in plan.depths:
                    inputs = torch.from_numpy(batch.inputs)
                    targets = recipe.loss.targets(task, inputs, labels, turn.reading)
                    right = all_right(turn.reading, targets)
                    solved[plan.depths.index(depth)] += right.sum().double().cpu()
    solved = world.sum(solved.float().to(inference.device)).cpu()
    return Score({depth: float(n) / count for depth, n in zip(plan.depths, solved, strict=True)}, count)


class Journal:
    """Appends records to `metrics.jsonl` and passes their numbers on to the trackers asked for."""

    def __init__(self, folder: RunFolder, recipe: Recipe, *, step: int) -> None:
        """Open the journal of a run that stands at `step`; later records of a run cut short are dropped."""
        self.path = folder.metrics
        with new_file(self.path) as temporary:
            lines = takewhile(lambda entry: entry[1]["step"] <= step, folder.lines())
            temporary.write_text("".join(line for line, _ in lines), encoding="utf-8")
        self._trackers = [_tracker(name, folder, recipe) for name in recipe.saving.trackers]

    def write(self, kind: str, step: int, record: Mapping[str, Any]) -> None:
        """Append one record, whole."""
        append(self.path, json.dumps({"kind": kind, "step": step, **record}) + "\n")
        numbers = {f"{kind}/{name}": value for name, value in record.items() if isinstance(value, float)}
        for log, _ in self._trackers:
            log(numbers, step)

    def flush(self) -> None:
        """Return when the records are on the disk, where what builds on them may be written."""
        flush(self.path)

    def close(self) -> None:
        """Let the trackers write what is pending."""
        for _, close in self._trackers:
            close()


def _tracker(
    name: str, folder: RunFolder, recipe: Recipe
) -> tuple[Callable[[dict[str, float], int], None], Callable[[], None]]:
    """Open a tracker; return how it takes numbers by name at a step, and how it ends."""
    try:
        if name == "trackio":
            import trackio

            project = f"eqr-{recipe.name.replace('/', '-')}"
            trackio.init(project=project, name=folder.path.name, config=recipe.to_json())
            return lambda numbers, step: trackio.log({**numbers, "step": step}), trackio.finish
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError(
            f"saving.trackers names {name}, which is not installed; {with_extra('tracking')}"
        ) from None
    writer: Any = SummaryWriter(str(folder.tensorboard))

    def log(numbers: dict[str, float], step: int) -> None:
        for label, value in numbers.items():
            writer.add_scalar(label, value, step)

    return log, writer.close
