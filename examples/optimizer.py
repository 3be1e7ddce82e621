"""An optimizer of your own: Lion, which moves every weight by the same amount, in the direction of its sign.

eqr --load examples/optimizer.py train sudoku-4x4 --set optimizer=lion --set optimizer.rate=0.0005
"""

from typing import Literal

import torch
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor

from eqr.registry import register
from eqr.train.optimizer import Beta, FlatParameters, Memory, Optimizer


@register
class Lion(Optimizer):
    """p <- p (1 - lr wd) - lr sign(b1 m + (1 - b1) g), then m <- b2 m + (1 - b2) g."""

    kind: Literal["lion"] = "lion"
    rate: PositiveFloat = 5e-4
    weight_decay: NonNegativeFloat = 0.3
    betas: tuple[Beta, Beta] = (0.9, 0.99)

    def start(self, flat: FlatParameters) -> Memory:
        """The mean begins at zero."""
        return {"mean": torch.zeros_like(flat.vector)}

    def step(self, flat: FlatParameters, gradient: Tensor, memory: Memory, step: int, rate: float) -> None:
        """All parameters are one vector, so this is four calls."""
        direction = memory["mean"].lerp(gradient, 1.0 - self.betas[0]).sign_()
        flat.vector.mul_(1.0 - rate * self.weight_decay).add_(direction, alpha=-rate)
        memory["mean"].lerp_(gradient, 1.0 - self.betas[1])
