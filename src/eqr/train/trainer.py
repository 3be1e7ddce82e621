"""`Trainer`: the optimizer step, and the state it carries from one step to the next.

It knows neither files nor time; `eqr.train.run` puts data, evaluation, checkpoints and signals around it.
"""

from dataclasses import dataclass
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from eqr.backends import Backend, Cpu
from eqr.data import Batches, GeneratedStream
from eqr.errors import UserError
from eqr.model.reasoner import Reasoner
from eqr.model.saving import require_shapes, shapes_of
from eqr.train.distributed import World
from eqr.train.optimizer import FlatParameters
from eqr.train.recipe import Recipe, computing
from eqr.train.step import STATS, Sums, TrainingRows, step_sums


class NotFinite(UserError):
    """The loss or its gradient is not a number; the weights are those of the step before."""


@dataclass(frozen=True)
class StopRequest:
    """Why a process would like the run to end; after a step, why any process does."""

    time_over: bool = False
    interrupted: bool = False


GO_ON = StopRequest()


@dataclass(frozen=True)
class StepResult:
    """What one step says about itself."""

    stats: dict[str, float]
    """Sums over the batch by the names in `STATS`, and the gradient's norm."""
    stop: StopRequest
    """Of all processes together, so that they end at the same step."""


class Trainer:
    """A model in training."""

    def __init__(
        self,
        recipe: Recipe,
        stream: Batches | GeneratedStream,
        *,
        world: World | None = None,
        device: torch.device | None = None,
        backend: Backend | None = None,
    ) -> None:
        """`backend` works on the rows; None makes one with the recipe's threads and cuts."""
        self.recipe, self.stream = recipe, stream
        self.world, self.device = world or World(), device or torch.device("cpu")
        self.model = Reasoner(recipe.trained_model, seed=recipe.seed).to(self.device)
        self._averaged = Reasoner(recipe.model).to(self.device)
        self.flat = FlatParameters(self.model)
        self.average = self.flat.vector.clone()
        self.memory = recipe.optimizer.start(self.flat)
        self.rows = TrainingRows.empty(self.world.share(recipe.rows), recipe.model, self.device)
        self.step_number = 0
        self._refills = [len(self.rows)] * self.world.size
        self.backend = backend or Cpu.training(
            recipe.model, self.device, workers=recipe.threads, rows_per_cut=recipe.rows_per_cut
        )
        if recipe.compile:
            for stack in (self.model.stack, self.model.answer_stack):
                if stack is not None:
                    stack.compile()

    def begin_with(self, weights: Reasoner) -> None:
        """Take over the weights of a model of the same shapes, before the first step.

        Families of groups may have other names: the first of theirs is the first of ours, and so on.
        """
        try:
            names = self.model.state_dict().keys()
            given = weights.state_dict()
            if len(given) == len(names):
                given = type(given)(zip(names, given.values(), strict=True))
            self.model.load_state_dict(given)
        except RuntimeError as error:
            reason = str(error).splitlines()[-1].strip()
            raise UserError(
                f"begin = {self.recipe.begin!r}: that model is built otherwise than the recipe's ({reason}); "
                "change the recipe's model to it, or leave begin out"
            ) from None
        self.average.copy_(self.flat.vector)

    def step(self, stop: StopRequest = GO_ON) -> StepResult:
        """Take one optimizer step; all processes learn why any would stop."""
        with self.backend.alone():
            return self._step(stop)

    def _step(self, stop: StopRequest) -> StepResult:
        self._refill()
        number = self.step_number + 1
        with computing(self.recipe.precision, self.device):
            depth = self.depth_limit(number)
            sums = step_sums(self.recipe, self.model, self.flat, self.backend, self.rows, depth)
        gradient, stats, stop = self._agree(sums, stop)
        if not isfinite(stats["loss"] + stats["gradient_norm"]):
            raise NotFinite(
                f"the loss is not finite at step {number} (loss {stats['loss']}, gradient norm "
                f"{stats['gradient_norm']}); lower optimizer.rate or raise rate.warmup"
            )
        factor = self.recipe.rate.factor(number, self.recipe.steps)
        optimizer, averaging = self.recipe.optimizer, self.recipe.averaging
        optimizer.step(self.flat, gradient, self.memory, number, optimizer.rate * factor)
        if averaging is not None:
            averaging.update(self.average, self.flat.vector, number)
        if sums.vectors is not None and self.model.identity_table is not None:
            identities, vectors = self.world.gather(self.rows.identities), self.world.gather(sums.vectors)
            self.recipe.identity_optimizer.step(self.model.identity_table, identities, vectors, factor)
        self.step_number = number
        return StepResult(stats, stop)

    def depth_limit(self, step: int) -> int:
        """Return how many segments a trajectory may have at a step."""
        depth, curriculum = self.recipe.schedule.depth, self.recipe.curriculum
        return depth if curriculum is None else curriculum.depth(step, self.recipe.steps, depth)

    def averaged(self) -> Reasoner:
        """Return the model to evaluate and save: averaged weights, in a copy that stays the same object."""
        weights = self.flat.vector if self.recipe.averaging is None else self.average
        parts = self.flat.views(weights) | dict(self.model.named_buffers())
        with torch.no_grad():
            for name, mine in [*self._averaged.named_parameters(), *self._averaged.named_buffers()]:
                mine.copy_(parts[name])
        return self._averaged

    def tensors(self) -> dict[str, Tensor]:
        """Return everything that changes from step to step; the rows of all processes, in order."""
        rows = self.rows.tensors().items()
        return self._own() | {name: self.world.gather(part) for name, part in rows}

    def _own(self) -> dict[str, Tensor]:
        """Return what every process holds whole: weights, average, the optimizer's memory, buffers."""
        memory = {f"optimizer.{name}": part for name, part in self.memory.items()}
        buffers = {f"model.{name}": part for name, part in self.model.named_buffers()}
        return {"weights": self.flat.vector, "average": self.average, **memory, **buffers}

    def record(self) -> dict[str, Any]:
        """Return the rest of the state as plain JSON data."""
        return {"stream": self.stream.state()}

    @torch.no_grad()
    def restore(self, step: int, tensors: dict[str, Tensor], record: dict[str, Any]) -> None:
        """Become what `tensors` and `record` were taken from, with any number of processes."""
        mine, parts = self._own(), self.rows.tensors()
        known = mine | parts
        whole = {name: (self.recipe.rows, *part.shape[1:]) for name, part in parts.items()}
        given = {name: tensor for name, tensor in tensors.items() if name in known}
        require_shapes(shapes_of(mine) | whole, shapes_of(given), where="the checkpoint")
        odd = [name for name, tensor in given.items() if tensor.dtype is not known[name].dtype]
        if odd:
            raise UserError(f"the checkpoint: {odd[0]} is {given[odd[0]].dtype}, not {known[odd[0]].dtype}")
        self._require_tokens(given)
        for name, part in mine.items():
            part.copy_(given[name])
        share = len(self.rows)
        self.rows.load(given, start=self.world.rank * share)
        self._refills = given["rows.halted"].view(-1, share).sum(dim=1).tolist()
        self.stream.restore(record["stream"])
        self.step_number = step

    def _require_tokens(self, tensors: dict[str, Tensor]) -> None:
        """Say which rows hold what the model has no embedding for, if any do."""
        config = self.model.config
        sizes = {"inputs": config.vocabulary, "labels": config.vocabulary}
        if config.identities:
            sizes["identities"] = config.identities
        for name, size in sizes.items():
            least, most = (int(end) for end in torch.aminmax(tensors[f"rows.{name}"]))
            if least < 0 or most >= size:
                raise UserError(
                    f"the checkpoint: rows.{name} hold {least} to {most}; this model has 0 to {size - 1}"
                )

    def _refill(self) -> None:
        """Give every halted row the next puzzle: rows in global order take positions in stream order."""
        rank, count = self.world.rank, self._refills[self.world.rank]
        self.stream.skip(sum(self._refills[:rank]))
        if count:
            halted = self.rows.halted.nonzero().squeeze(1)
            self.rows.refill(halted, self.stream.take(count), self.recipe.seed, self.model)
        self.stream.skip(sum(self._refills[rank + 1 :]))

    def _agree(self, sums: Sums, stop: StopRequest) -> tuple[Tensor, dict[str, float], StopRequest]:
        """Sum gradient and statistics over processes, and learn how many rows each will refill."""
        world, size = self.world, len(sums.gradient)
        if not self.recipe.schedule.carries:
            self.rows.halted.fill_(True)
        refills = torch.zeros(world.size, device=self.device)
        refills[world.rank] = self.rows.halted.sum()
        stops = torch.tensor([stop.time_over, stop.interrupted], dtype=torch.float32, device=self.device)
        gradient, rest = sums.gradient, torch.cat((sums.stats, stops, refills))
        if world.size > 1:
            everything = world.sum(torch.cat((gradient, rest)))
            gradient, rest = everything[:size], everything[size:]
        norm = torch.linalg.vector_norm(gradient)
        gradient_norm, *numbers = torch.cat((norm.view(1), rest)).tolist()  # the step's one host sync
        stats = dict(zip(STATS, numbers, strict=False))
        time_over, interrupted, *counts = numbers[len(STATS) :]
        self._refills = [int(count) for count in counts]
        agreed = StopRequest(time_over=time_over > 0, interrupted=interrupted > 0)
        return gradient, {**stats, "gradient_norm": gradient_norm}, agreed
