"""A mixer of your own: every site hears the mean over all sites, through a gated MLP, and nothing else.

It knows no grid, no order and no size, so a model runs on any size of its task; it cannot tell places apart
either, so do not expect it to solve Sudoku.

    eqr --load examples/mixer.py train sudoku-4x4-tokens --set model.mixer=pooled --set model.mixer.hidden=64
"""

from typing import ClassVar, Literal

import torch
from pydantic import PositiveInt
from torch import Tensor, nn
from torch.nn import functional as F

from eqr.model.config import ReasonerConfig
from eqr.model.definitions import matrix
from eqr.model.mixers import Mixer
from eqr.registry import register


@register
class Pooled(Mixer):
    """Every site hears the mean of all."""

    sized: ClassVar[bool] = False
    reads_mean: ClassVar[bool] = True
    kind: Literal["pooled"] = "pooled"
    hidden: PositiveInt = 128

    def layer(self, config: ReasonerConfig, generator: torch.Generator) -> nn.Module:
        """Build the layer; weights are drawn from the generator, never from the global one."""
        return PooledMlp(config.width, self.hidden, generator)

    def multiply_adds(self, config: ReasonerConfig) -> int:
        """Gate, value and output, once a row."""
        return 3 * config.width * self.hidden

    def widest(self, config: ReasonerConfig) -> int:
        """The state itself."""
        return config.tokens * config.width


class PooledMlp(nn.Module):
    """h <- R(h + W_down(silu(g) * u)), gate and value seeing the mean over sites."""

    def __init__(self, width: int, hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        self.up = matrix(2 * hidden, width, generator)
        self.down = matrix(width, hidden, generator)

    def forward(self, h: Tensor) -> Tensor:
        """Mix sites; h is (sites, rows, width)."""
        gate, value = F.linear(h.mean(dim=0), self.up).chunk(2, dim=-1)
        return F.rms_norm(h + F.linear(F.silu(gate) * value, self.down), h.shape[-1:], eps=1e-5)
