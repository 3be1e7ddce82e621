"""The layers: normalisation, gated MLPs over channels and over tokens, attention.

All take and give token-major states (tokens, rows, width), add their own residual and normalise, so that a
block is their composition. Weights keep PyTorch's (out, in) shape; nothing is transposed in memory. What is
marked as an `operator` is defined here, and computed by other means where there are some.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from eqr.cpu.gated import GATED_MLP
from eqr.cpu.operators import operator
from eqr.cpu.sweeps import GATE
from eqr.model.config import ReasonerConfig
from eqr.model.counters import TRUNCATION, UNIT_SCALE
from eqr.model.positions import Rotation, rotation_tables

EPSILON = 1e-5


def normalise(h: Tensor, dim: int) -> Tensor:
    """R(h) = h / sqrt(mean(h^2) + eps) along `dim`, in at least float32, with neither gain nor bias."""
    wide = h.float() if h.dtype.itemsize < 4 else h
    if dim == 0:
        mean = wide.square().mean(dim=0, keepdim=True)
    else:  # along contiguous memory a norm needs one pass and no squares in memory
        mean = torch.linalg.vector_norm(wide, dim=dim, keepdim=True).square() / h.shape[dim]
    return (wide * torch.rsqrt(mean + EPSILON)).to(h.dtype)


@operator(cpu=GATE)
def gate(both: Tensor, dim: int) -> Tensor:
    """silu(g) * u for the two halves of a projection along `dim`, the gate g first."""
    g, u = both.chunk(2, dim=dim)
    return F.silu(g) * u


@operator(cpu=GATED_MLP)
def gated_mlp(h: Tensor, up: Tensor, down: Tensor, dim: int) -> Tensor:
    """R(h + W_down(silu(g) * u)) for a matrix h, mixing its channels (`dim` 1) or its tokens (`dim` 0)."""
    if dim == 1:
        return normalise(h + F.linear(gate(F.linear(h, up), dim), down), dim)
    return normalise(h + down @ gate(up @ h, dim), dim)


def _attend_by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(2, 3) * q.shape[3] ** -0.5, dim=3) @ v


@operator(transformed=_attend_by_hand)  # PyTorch's fused attention has no forward derivative
def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(size of a head)) v for (rows, heads, tokens, size of a head)."""
    return F.scaled_dot_product_attention(q, k, v)


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

    def __init__(self, config: ReasonerConfig, generator: torch.Generator) -> None:
        super().__init__()
        hidden = config.hidden(config.width)
        self.up = matrix(2 * hidden, config.width, generator)
        self.down = matrix(config.width, hidden, generator)

    def forward(self, h: Tensor) -> Tensor:
        """Mix channels."""
        return gated_mlp(h.flatten(0, 1), self.up, self.down, dim=1).view_as(h)


class ConvChannelMlp(nn.Module):
    """URM's gated MLP: a depthwise convolution over tokens (position t sees t-1 and t) before W_down."""

    def __init__(self, config: ReasonerConfig, generator: torch.Generator) -> None:
        super().__init__()
        hidden = config.hidden(config.width)
        self.up = matrix(2 * hidden, config.width, generator)
        bound = 2**-0.5  # PyTorch's default for one input channel and a kernel of two
        self.kernel = nn.Parameter(torch.empty(2, hidden).uniform_(-bound, bound, generator=generator))
        self.bias = nn.Parameter(torch.empty(hidden).uniform_(-bound, bound, generator=generator))
        self.down = matrix(config.width, hidden, generator)

    def forward(self, h: Tensor) -> Tensor:
        """Mix channels, with a glance at the token before."""
        gated = gate(F.linear(h.flatten(0, 1), self.up), dim=1).view(*h.shape[:2], -1)
        before = F.pad(gated[:-1], (0, 0, 0, 0, 1, 0))
        seen = torch.addcmul(self.bias + before * self.kernel[0], gated, self.kernel[1])
        return normalise(h + F.linear(F.silu(seen), self.down), dim=2)


class TokenMlp(nn.Module):
    """h <- R(h + W_down(silu(g) * u)) over the token axis, the same weights for every channel."""

    def __init__(self, config: ReasonerConfig, generator: torch.Generator) -> None:
        super().__init__()
        hidden = config.hidden(config.tokens)
        self.up = matrix(2 * hidden, config.tokens, generator)
        self.down = matrix(config.tokens, hidden, generator)

    def forward(self, h: Tensor) -> Tensor:
        """Mix tokens; the normalisation runs over tokens, per channel."""
        return gated_mlp(h.flatten(1), self.up, self.down, dim=0).view_as(h)


class AttentionLayer(nn.Module):
    """h <- R(h + W_out attention(h)), bidirectional, all heads from one packed projection."""

    cosines: Tensor | None
    sines: Tensor | None

    def __init__(self, config: ReasonerConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.heads = config.heads
        tables = rotation_tables(config)
        self.register_buffer("cosines", None if tables is None else tables[0], persistent=False)
        self.register_buffer("sines", None if tables is None else tables[1], persistent=False)
        self._parts = 2 if config.positions == "rotary-2d" else 1
        self.qkv = matrix(3 * config.width, config.width, generator)
        self.out = matrix(config.width, config.width, generator)

    def forward(self, h: Tensor) -> Tensor:
        """Let every token look at every token of its row."""
        projected = F.linear(h, self.qkv)
        q, k, v = projected.view(*h.shape[:2], 3, self.heads, -1).unbind(2)
        if self.cosines is not None and self.sines is not None:
            rotation = Rotation(self.cosines, self.sines, self._parts)
            q, k = rotation.turn(q), rotation.turn(k)
        # views only: (tokens, rows, heads, head) as (rows, heads, tokens, head)
        q, k, v = (part.permute(1, 2, 0, 3) for part in (q, k, v))
        seen = attend(q, k, v).permute(2, 0, 1, 3).flatten(2)
        return normalise(h + F.linear(seen, self.out), dim=2)


Application = Callable[[Tensor, Tensor | None], Tensor]
"""z, condition -> new z, all (tokens, rows, width); a block stack or a wrapper around one."""
