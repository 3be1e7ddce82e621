"""Optimizers over the flat parameter vector, the learning-rate curve, and sign descent for the sparse table.

An optimizer is a value: `start` makes its memory, `step` changes weights and memory in place. Decay is
decoupled and reaches every parameter, embeddings and biases included, as in the published code.
"""

from abc import abstractmethod
from collections.abc import Sequence
from enum import StrEnum
from math import cos, pi, sqrt
from typing import Annotated, Literal

import torch
from pydantic import BeforeValidator, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, SerializeAsAny
from torch import Tensor, nn

from eqr.registry import Kind, kinds_of, reads, register
from eqr.value import Value


class FlatParameters:
    """Moves a module's parameters into one vector; the module keeps working on views of it."""

    def __init__(self, module: nn.Module) -> None:
        named = dict(module.named_parameters())
        self.parameters = list(named.values())
        self.shapes = {name: parameter.shape for name, parameter in named.items()}
        self.vector = self.join([parameter.detach() for parameter in self.parameters])
        for name, part in self.views(self.vector).items():
            named[name].data = part

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Flatten one tensor per parameter (gradients, say) into a vector."""
        return torch.cat([part.flatten() for part in parts])

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """Return the part of a flat vector that belongs to each parameter, in its shape, by name."""
        parts = torch.split(flat, [shape.numel() for shape in self.shapes.values()])
        return {name: part.view(self.shapes[name]) for name, part in zip(self.shapes, parts, strict=True)}


class Averaging(Value):
    """An exponential moving average of the weights, updated after every step."""

    decay: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.999
    warm_start: bool = False
    """Forget the first, untrained weights soon: the decay is at most (1 + t) / (10 + t)."""

    def decay_at(self, step: int) -> float:
        """Return the decay used after optimizer step `step`, counted from 1."""
        return min(self.decay, (1 + step) / (10 + step)) if self.warm_start else self.decay

    def update(self, average: Tensor, weights: Tensor, step: int) -> None:
        """Move the average towards the weights, in place."""
        average.lerp_(weights, 1.0 - self.decay_at(step))


Memory = dict[str, Tensor]
"""An optimizer's state: flat vectors by name."""

Beta = Annotated[float, Field(ge=0.0, lt=1.0)]


class Decay(StrEnum):
    """How the learning rate falls after warm-up."""

    NONE = "none"
    LINEAR = "linear"
    COSINE = "cosine"


class Rate(Value):
    """The learning rate over steps as a share of its peak; it depends on steps, never on time."""

    warmup: NonNegativeInt = 2000
    """Steps of linear rise: step t has t / warmup of the peak."""
    decay: Decay = Decay.NONE
    decay_from: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Share of the steps after which the fall begins."""
    floor: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Share of the peak that is left at the end."""

    def factor(self, step: int, steps: int) -> float:
        """Return the share of the peak rate at optimizer step `step`, counted from 1."""
        rise = min(step / self.warmup, 1.0) if self.warmup else 1.0
        begin = max(self.decay_from * steps, self.warmup)
        if self.decay is Decay.NONE or step <= begin:
            return rise
        done = min((step - begin) / max(steps - begin, 1.0), 1.0)
        fall = 1.0 - done if self.decay is Decay.LINEAR else 0.5 * (1.0 + cos(pi * done))
        return rise * (self.floor + (1.0 - self.floor) * fall)


class Optimizer(Kind):
    """Changes the weights by the gradient."""

    rate: PositiveFloat = 1e-4
    """Peak learning rate."""
    weight_decay: NonNegativeFloat = 1.0

    @abstractmethod
    def start(self, flat: FlatParameters) -> Memory:
        """Return the memory before the first step."""

    @abstractmethod
    def step(self, flat: FlatParameters, gradient: Tensor, memory: Memory, step: int, rate: float) -> None:
        """Take optimizer step number `step`, from 1, at learning rate `rate`, in place."""


OPTIMIZERS = kinds_of(Optimizer, "optimizers")


class Adaptive(Optimizer):
    """Keeps running means of the gradient and of its square."""

    betas: tuple[Beta, Beta] = (0.9, 0.95)

    def start(self, flat: FlatParameters) -> Memory:
        return {"mean": torch.zeros_like(flat.vector), "square": torch.zeros_like(flat.vector)}

    def step(self, flat: FlatParameters, gradient: Tensor, memory: Memory, step: int, rate: float) -> None:
        """Decay, update the means, move."""
        mean, square = memory["mean"], memory["square"]
        flat.vector.mul_(1.0 - rate * self.weight_decay)
        mean.lerp_(gradient, 1.0 - self.betas[0])
        square.mul_(self.betas[1]).addcmul_(gradient, gradient, value=1.0 - self.betas[1])
        scale = square.sqrt().div_(sqrt(1.0 - self.betas[1] ** step))
        flat.vector.add_(self.direction(mean, scale), alpha=-rate / (1.0 - self.betas[0] ** step))

    @abstractmethod
    def direction(self, mean: Tensor, scale: Tensor) -> Tensor:
        """Return the step's direction from the gradient's mean and its root mean square; may use `scale`."""


class AdamAtan2(Adaptive):
    """p <- p - lr / (1 - b1^t) atan2(m, sqrt(v / (1 - b2^t))): no epsilon, bounded steps.

    The first moment's correction is outside the arctangent, as in the kernel the published runs used.
    """

    kind: Literal["adam-atan2"] = "adam-atan2"

    def direction(self, mean: Tensor, scale: Tensor) -> Tensor:
        return torch.atan2(mean, scale, out=scale)


class AdamW(Adaptive):
    """Adam with decoupled weight decay."""

    kind: Literal["adamw"] = "adamw"
    epsilon: PositiveFloat = 1e-8

    def direction(self, mean: Tensor, scale: Tensor) -> Tensor:
        return torch.div(mean, scale.add_(self.epsilon), out=scale)


AnyOptimizer = Annotated[SerializeAsAny[Optimizer], BeforeValidator(reads(OPTIMIZERS))]
register(AdamAtan2)
register(AdamW)


class Muon(Optimizer):
    """Orthogonalised momentum for the matrices of the stacks, another optimizer for all the rest.

    Nesterov momentum, five Newton-Schulz steps, updates scaled to the root mean square of Adam's (0.2).
    Written here because PyTorch's Muon multiplies in bfloat16, which not every processor can.
    """

    kind: Literal["muon"] = "muon"
    rate: PositiveFloat = 1e-3
    weight_decay: NonNegativeFloat = 0.1
    momentum: Beta = 0.95
    rest: AnyOptimizer = AdamAtan2(rate=1e-3, weight_decay=0.1)
    """Optimizer of embeddings, heads and vectors; its rate follows the same curve."""

    def start(self, flat: FlatParameters) -> Memory:
        return {"momentum": torch.zeros_like(flat.vector), **self.rest.start(flat)}

    def step(self, flat: FlatParameters, gradient: Tensor, memory: Memory, step: int, rate: float) -> None:
        """Step the rest as a whole, then the matrices; the rest's move of a matrix is undone by its copy."""
        weights, kept = flat.views(flat.vector), {}
        for name, part in weights.items():
            # a matrix of a block stack; a convolution's kernel is none
            if "stack." in name and part.dim() == 2 and not name.endswith("kernel"):
                kept[name] = part.clone()
        self.rest.step(flat, gradient, memory, step, rate * self.rest.rate / self.rate)
        momentum = memory["momentum"].lerp_(gradient, 1.0 - self.momentum)
        ahead = flat.views(gradient.lerp(momentum, self.momentum))
        for name, matrix in kept.items():
            size = 0.2 * sqrt(max(matrix.shape))
            matrix.mul_(1.0 - rate * self.weight_decay).add_(orthogonal(ahead[name]), alpha=-rate * size)
            weights[name].copy_(matrix)


def orthogonal(matrix: Tensor, iterations: int = 5) -> Tensor:
    """Return about the nearest orthogonal matrix, by the quintic Newton-Schulz iteration Muon uses."""
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.t() if tall else matrix
    x = x / torch.linalg.matrix_norm(x).clamp(min=1e-7)
    for _ in range(iterations):
        gram = x @ x.t()
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    nearest: Tensor = x.t() if tall else x
    return nearest


register(Muon)
OPTIMIZERS.close()


class SignDescent(Value):
    """For the sparse table of identities: p <- p (1 - lr wd) - lr sign(g), for the ids of the batch only."""

    rate: PositiveFloat = 1e-4
    weight_decay: NonNegativeFloat = 1.0

    def step(self, table: Tensor, identities: Tensor, gradients: Tensor, factor: float) -> None:
        """Step the rows `identities` (n,) of the table; gradients (n, width) of the same id are summed."""
        present, where = torch.unique(identities, return_inverse=True)
        summed = torch.zeros(len(present), gradients.shape[1], device=gradients.device)
        summed.index_add_(0, where, gradients)
        rate = self.rate * factor
        rows = table.index_select(0, present) * (1.0 - rate * self.weight_decay) - rate * summed.sign()
        table.index_copy_(0, present, rows)
