"""Blocks and what they are made of: normalisation, gated MLPs, and f(z; c) = block_k(... block_1(z + c)).

All take and give token-major states (sites, rows, width), add their own residual and normalise. Conditioning
enters only by that first addition. Weights keep PyTorch's (out, in) shape; nothing is transposed in memory.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from eqr.model.counters import TRUNCATION, UNIT_SCALE
from eqr.model.definitions import definition

if TYPE_CHECKING:
    from eqr.model.config import ReasonerConfig

EPSILON = 1e-5


def normalise(h: Tensor, dim: int) -> Tensor:
    """R(h) = h / sqrt(mean(h^2) + eps) along `dim`, in at least float32, with neither gain nor bias."""
    wide = h.float() if h.dtype.itemsize < 4 else h
    if dim == 0:
        mean = wide.square().mean(dim=0, keepdim=True)
    else:  # along contiguous memory a norm needs one pass and no squares in memory
        mean = torch.linalg.vector_norm(wide, dim=dim, keepdim=True).square() / h.shape[dim]
    return (wide * torch.rsqrt(mean + EPSILON)).to(h.dtype)


@definition
def gate(both: Tensor, dim: int, /) -> Tensor:
    """silu(g) * u for the two halves of a projection along `dim`, the gate g first."""
    g, u = both.chunk(2, dim=dim)
    return F.silu(g) * u


@definition
def gated_mlp(h: Tensor, up: Tensor, down: Tensor, dim: int, /) -> Tensor:
    """R(h + W_down(silu(g) * u)) for a matrix h, mixing its channels (`dim` 1) or its tokens (`dim` 0)."""
    if dim == 1:
        return normalise(h + F.linear(gate(F.linear(h, up), dim), down), dim)
    return normalise(h + down @ gate(up @ h, dim), dim)


def scaled_normal(*shape: int, std: float, generator: torch.Generator) -> Tensor:
    """Draw a truncated normal whose realised standard deviation is `std`."""
    unit = torch.empty(*shape)
    if unit.is_meta:
        return unit  # only shapes are asked for
    nn.init.trunc_normal_(unit, a=-TRUNCATION, b=TRUNCATION, generator=generator)
    return unit * (std * UNIT_SCALE)


def matrix(rows: int, columns: int, generator: torch.Generator) -> nn.Parameter:
    """Make a weight (out, in) with standard deviation 1/sqrt(in)."""
    return nn.Parameter(scaled_normal(rows, columns, std=columns**-0.5, generator=generator))


class ChannelMlp(nn.Module):
    """h <- R(h + W_down(silu(g) * u)), a gated MLP over the channels of each token."""

    def __init__(self, config: "ReasonerConfig", generator: torch.Generator) -> None:
        super().__init__()
        hidden = config.hidden(config.width)
        self.up = matrix(2 * hidden, config.width, generator)
        self.down = matrix(config.width, hidden, generator)

    def forward(self, h: Tensor) -> Tensor:
        """Mix channels."""
        return gated_mlp(h.flatten(0, 1), self.up, self.down, 1).view_as(h)


class ConvChannelMlp(nn.Module):
    """URM's gated MLP: a depthwise convolution over tokens (position t sees t-1 and t) before W_down."""

    def __init__(self, config: "ReasonerConfig", generator: torch.Generator) -> None:
        super().__init__()
        hidden = config.hidden(config.width)
        self.up = matrix(2 * hidden, config.width, generator)
        bound = 2**-0.5  # PyTorch's default for one input channel and a kernel of two
        self.kernel = nn.Parameter(torch.empty(2, hidden).uniform_(-bound, bound, generator=generator))
        self.bias = nn.Parameter(torch.empty(hidden).uniform_(-bound, bound, generator=generator))
        self.down = matrix(config.width, hidden, generator)

    def forward(self, h: Tensor) -> Tensor:
        """Mix channels, with a glance at the token before."""
        gated = gate(F.linear(h.flatten(0, 1), self.up), 1).view(*h.shape[:2], -1)
        before = F.pad(gated[:-1], (0, 0, 0, 0, 1, 0))
        seen = torch.addcmul(self.bias + before * self.kernel[0], gated, self.kernel[1])
        return normalise(h + F.linear(F.silu(seen), self.down), dim=2)


class Block(nn.Module):
    """The config's mixer, then a channel mixer, both post-norm."""

    def __init__(self, config: "ReasonerConfig", generator: torch.Generator) -> None:
        super().__init__()
        self._mixer = config.mixer.kind
        # under the mixer's own name, by which saved weights know it
        self.add_module(self._mixer, config.mixer.layer(config, generator))
        make = ConvChannelMlp if config.convolution else ChannelMlp
        self.channels: nn.Module = make(config, generator)

    @property
    def mixer(self) -> nn.Module:
        """The layer in which sites look at one another."""
        return self.get_submodule(self._mixer)

    def forward(self, h: Tensor) -> Tensor:
        """Apply both mixers to h (sites, rows, width)."""
        mixed: Tensor = self.channels(self.mixer(h))
        return mixed


class Stack(nn.Module):
    """The shared blocks that one application runs through."""

    def __init__(self, config: "ReasonerConfig", generator: torch.Generator) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(config, generator) for _ in range(config.blocks))

    def forward(self, z: Tensor, condition: Tensor | None, index: int = 0) -> Tensor:
        """Return f(z; condition), whichever application of the segment it is."""
        h = z if condition is None else z + condition
        for block in self.blocks:
            h = block(h)
        return h
