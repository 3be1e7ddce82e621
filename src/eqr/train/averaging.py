"""Weight averaging: the smooth copy that is evaluated and saved."""

from typing import Annotated

from pydantic import Field
from torch import Tensor

from eqr.value import Value


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
