"""Blocks and stacks: f_theta(z; c) = block_k(... block_1(z + c)).

Conditioning enters only by that addition.
"""

import torch
from torch import Tensor, nn

from eqr.model.config import Mixer, ReasonerConfig
from eqr.model.layers import Attention, ChannelMlp, ConvChannelMlp, TokenMlp
from eqr.model.positions import Rotation, rotation_tables


class Block(nn.Module):
    """A token mixer, then a channel mixer, both post-norm."""

    def __init__(self, config: ReasonerConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.tokens = TokenMlp(config, generator) if config.mixer is Mixer.TOKENS else None
        self.attention = Attention(config, generator) if config.mixer is Mixer.ATTENTION else None
        make = ConvChannelMlp if config.convolution else ChannelMlp
        self.channels: nn.Module = make(config, generator)

    def forward(self, h: Tensor, rotation: Rotation | None) -> Tensor:
        """Apply both mixers to h (tokens, rows, width)."""
        if self.tokens is not None:
            h = self.tokens(h)
        if self.attention is not None:
            h = self.attention(h, rotation)
        mixed: Tensor = self.channels(h)
        return mixed


class Stack(nn.Module):
    """The shared blocks that one application runs through."""

    cosines: Tensor | None
    sines: Tensor | None

    def __init__(self, config: ReasonerConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(config, generator) for _ in range(config.blocks))
        tables = rotation_tables(config)
        self.register_buffer("cosines", None if tables is None else tables[0], persistent=False)
        self.register_buffer("sines", None if tables is None else tables[1], persistent=False)
        self._parts = 2 if config.positions == "rotary-2d" else 1

    def forward(self, z: Tensor, condition: Tensor | None) -> Tensor:
        """Return f(z; condition)."""
        rotation = None
        if self.cosines is not None and self.sines is not None:
            rotation = Rotation(self.cosines, self.sines, self._parts)
        h = z if condition is None else z + condition
        for block in self.blocks:
            h = block(h, rotation)
        return h
