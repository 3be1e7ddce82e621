"""What a recipe is and costs before it is trained: sizes, operations, bytes, and measured steps."""

import heapq
import tempfile
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

from eqr.experiments.looks import Cost, Found
from eqr.measure.accounting import flops_per_segment
from eqr.measure.bench_model import limit_gflops
from eqr.measure.training_cost import own_row, training_cost_rows, unit_costs
from eqr.model.config import ReasonerConfig, SingleState, TwoLevel
from eqr.model.reasoner import Reasoner
from eqr.runs import RunFolder
from eqr.train.recipe import Generated, Precision, Recipe
from eqr.train.sources import load_data, open_stream
from eqr.train.trainer import Trainer

GPU = 200e12
"""Operations a second that large products in bfloat16 sustain on one accelerator: an assumption, stated."""


def observe_shape(recipe: Recipe) -> Found:
    """Name the sizes of a recipe as the paper's table of hyper-parameters does."""
    model, recurrence = recipe.model, recipe.model.recurrence
    cycles = recurrence.cycles if isinstance(recurrence, TwoLevel | SingleState) else 1
    parameters = Reasoner(model).parameter_count()
    return Found(
        numbers={
            "parameters": parameters,
            "parameters (M)": parameters / 1e6,
            "blocks": model.blocks,
            "layers": model.layers_per_segment,
            "evaluated layers": model.layers_per_segment * max(recipe.evaluation.depths),
            "cycles": cycles,
            "scratch": recurrence.scratch if isinstance(recurrence, TwoLevel) else 0,
            "applications": model.applications,
            "segments": recipe.schedule.depth,
            "width": model.width,
            "rows": recipe.rows,
            "steps": recipe.steps,
            "rate": recipe.optimizer.rate,
        }
    )


def observe_cost(look: Cost, recipe: Recipe) -> Found:
    """Evaluate one row of the paper's cost table for a recipe, and measure it."""
    unit = unit_costs(_as_tied(recipe.model), rows=recipe.rows, tracked=_tracked(recipe))
    row = training_cost_rows(unit, depth=recipe.schedule.depth)[own_row(recipe) - 1]
    seconds, held = _measured(recipe, look.steps)
    return Found(
        numbers={
            "forward GFLOP": row.forward / 1e9,
            "backward GFLOP": row.backward / 1e9,
            "memory MB": row.memory / 1e6,
            "measured MB": held / 1e6,
            "measured ms": 1e3 * seconds,
        },
        data={"backward": row.backward_formula, "memory": row.memory_formula},
    )


def _as_tied(model: ReasonerConfig) -> ReasonerConfig:
    """Return a feedforward model's tied counterpart, in whose units the formulas count: a block a layer."""
    if model.recurrence.iterates:
        return model
    return model.replace(recurrence=SingleState(cycles=1, applications=model.blocks), blocks=1)


def _tracked(recipe: Recipe) -> int:
    return recipe.schedule.applications or max(recipe.model.applications // 3, 1)


def _measured(recipe: Recipe, steps: int) -> tuple[float, int]:
    """Return the median seconds of an optimizer step and the most bytes autograd held at once in one."""
    with tempfile.TemporaryDirectory() as folder:
        splits = load_data(recipe.data, RunFolder(Path(folder)), quiet=True)
        trainer = Trainer(recipe, open_stream(recipe, splits))
        times = []
        for _ in range(steps):
            began = time.process_time()
            trainer.step()
            times.append(time.process_time() - began)
        held = HeldBytes()
        with torch.autograd.graph.saved_tensors_hooks(held.pack, held.unpack):
            trainer.step()
    return median(times), held.most


class HeldBytes:
    """Counts the bytes that autograd holds for its backward pass, each storage once."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self._users: dict[int, int] = {}

    def pack(self, tensor: Tensor) -> "_Held":
        """Take note of a tensor that is being kept."""
        place, size = tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes()
        if not self._users.get(place):
            self.now += size
            self.most = max(self.most, self.now)
        self._users[place] = self._users.get(place, 0) + 1
        held = _Held(tensor.detach())
        weakref.finalize(held, self._drop, place, size)
        return held

    def unpack(self, held: "_Held") -> Tensor:
        """Give it back."""
        return held.tensor

    def _drop(self, place: int, size: int) -> None:
        self._users[place] -= 1
        if not self._users[place]:
            self.now -= size


class _Held:
    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def training_operations(recipe: Recipe) -> float:
    """Return the operations of a whole training: forward everywhere, twice that backward where tracked."""
    segment = recipe.rows * flops_per_segment(recipe.model)
    windows = recipe.schedule.windows(recipe.schedule.depth)
    share = (recipe.schedule.applications or recipe.model.applications) / recipe.model.applications
    per_step = sum(window.untracked + window.tracked * (1 + 2 * share) for window in windows) * segment
    return recipe.steps * per_step


def training_share(recipe: Recipe, *, rows: int = 4, rounds: int = 3) -> float:
    """Measure which share of the rate of large products on these cores a step of a recipe reaches.

    On few rows, in float32 and on generated puzzles: a step of a published recipe would take cores hours.
    """
    few = recipe.replace(
        rows=rows,
        data=Generated(task=recipe.data.task, train=2 * rows, validation=1, test=0),
        device="cpu",
        precision=Precision.FLOAT32,
        compile=False,
    )
    operations = training_operations(few) / few.steps
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(few, open_stream(few, load_data(few.data, RunFolder(Path(folder)), quiet=True)))
        trainer.step()
        shares = []
        for _ in range(rounds):  # the limit beside each step: a shared machine changes from second to second
            before = limit_gflops()
            began = time.perf_counter()
            trainer.step()
            rate = operations / (time.perf_counter() - began) / 1e9
            shares.append(2 * rate / (before + limit_gflops()))
    return median(shares)


def spread(hours: Sequence[float], places: int) -> float:
    """Return when the last of some runs ends: the longest begins first, each where a place is free first."""
    free = [0.0] * places
    for each in sorted(hours, reverse=True):
        heapq.heappush(free, heapq.heappop(free) + each)
    return max(free)
