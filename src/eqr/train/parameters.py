"""All trained parameters as one flat vector, of which the model's parameters are views.

A step's overhead on a small model is the number of calls, not the arithmetic. Over one vector an optimizer
is eight calls, averaging one, the sum over ranks one, and a checkpoint a handful of tensors.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class ParameterSpan:
    """Where a parameter lies in the flat vector."""

    name: str
    start: int
    shape: torch.Size

    def view(self, flat: Tensor) -> Tensor:
        """Return this parameter's part of a flat vector, in its own shape."""
        return flat[self.start : self.start + self.shape.numel()].view(self.shape)


class FlatParameters:
    """Moves a module's parameters into one vector; the module keeps working on views of it."""

    def __init__(self, module: nn.Module) -> None:
        named = dict(module.named_parameters())
        self.parameters = list(named.values())
        self.places: list[ParameterSpan] = []
        start = 0
        for name, parameter in named.items():
            self.places.append(ParameterSpan(name, start, parameter.shape))
            start += parameter.numel()
        self.vector = self.join([parameter.detach() for parameter in self.parameters])
        for place, parameter in zip(self.places, self.parameters, strict=True):
            parameter.data = place.view(self.vector)

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Flatten one tensor per parameter (gradients, say) into a vector."""
        return torch.cat([part.flatten() for part in parts])

    def copy_to(self, module: nn.Module, vector: Tensor) -> None:
        """Overwrite the parameters of a module of the same shape with a flat vector's numbers."""
        named = dict(module.named_parameters())
        with torch.no_grad():
            for place in self.places:
                named[place.name].copy_(place.view(vector))
