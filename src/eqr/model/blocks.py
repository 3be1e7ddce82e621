"""Blocks and stacks: f_theta(z; c) = block_k(... block_1(z + c)).

Conditioning enters only by that addition.
"""

import torch
from torch import Tensor, nn

from eqr.model.config import ReasonerConfig
from eqr.model.layers import ChannelMlp, ConvChannelMlp


class Block(nn.Module):
    """The config's mixer, then a channel mixer, both post-norm."""

    def __init__(self, config: ReasonerConfig, generator: torch.Generator) -> None:
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

    def __init__(self, config: ReasonerConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(config, generator) for _ in range(config.blocks))

    def forward(self, z: Tensor, condition: Tensor | None) -> Tensor:
        """Return f(z; condition)."""
        h = z if condition is None else z + condition
        for block in self.blocks:
            h = block(h)
        return h
