"""How the sites of a state exchange information inside a block, as values: a mixer builds its own layer.

A mixer says everything the rest must know about it: the layer it makes, what that costs, whether its weights
are tied to a grid size and what it needs from the task. The paper's systems mix by an MLP over tokens or by
attention, and must learn from data that a row is a row. `eqr.model.structured` has those that are told.
"""

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import torch
from pydantic import BeforeValidator, SerializeAsAny
from torch import Tensor, nn
from torch.nn import functional as F

from eqr.model.definitions import gated_mlp, matrix, normalise, transformed
from eqr.registry import Kind, kinds_of, reads

if TYPE_CHECKING:
    from eqr.model.config import ReasonerConfig


class Mixer(Kind):
    """Makes the layer of a block in which sites look at one another."""

    sized: ClassVar[bool] = True
    """Whether the weights are tied to the number of sites; if not, a model runs on any size of its task."""
    reads_mean: ClassVar[bool] = False
    """Whether the halt head reads the mean over sites: one site of a local mixer sees little of the rest."""

    def check(self, config: "ReasonerConfig") -> None:
        """Raise `ValueError` if a config cannot be built with this mixer."""

    def fits(self, config: "ReasonerConfig", task: str) -> bool:
        """Whether a layer of this config is also that of another task with grids of the same size."""
        return True

    @abstractmethod
    def layer(self, config: "ReasonerConfig", generator: torch.Generator) -> nn.Module:
        """Build the layer h -> R(h + mixed h), states being (sites, rows, width)."""

    @abstractmethod
    def multiply_adds(self, config: "ReasonerConfig") -> int:
        """Count the multiply-adds of the layer's products on one row."""

    @abstractmethod
    def widest(self, config: "ReasonerConfig") -> int:
        """Count the numbers of the layer's widest intermediate of one row."""


MIXERS = kinds_of(Mixer, "mixers")


class Tokens(Mixer):
    """An MLP over the token axis, the same for every channel; position enters through its weights."""

    kind: Literal["tokens"] = "tokens"

    def check(self, config: "ReasonerConfig") -> None:
        if config.positions.startswith("rotary"):
            raise ValueError("rotary positions act on attention; the token mixer has none to rotate")

    def layer(self, config: "ReasonerConfig", generator: torch.Generator) -> nn.Module:
        return TokenMlp(config, generator)

    def multiply_adds(self, config: "ReasonerConfig") -> int:
        return 3 * config.tokens * config.hidden(config.tokens) * config.width

    def widest(self, config: "ReasonerConfig") -> int:
        return 2 * config.hidden(config.tokens) * config.width


class TokenMlp(nn.Module):
    """h <- R(h + W_down(silu(g) * u)) over the token axis; the normalisation runs over tokens too."""

    def __init__(self, config: "ReasonerConfig", generator: torch.Generator) -> None:
        super().__init__()
        hidden = config.hidden(config.tokens)
        self.up = matrix(2 * hidden, config.tokens, generator)
        self.down = matrix(config.tokens, hidden, generator)

    def forward(self, h: Tensor) -> Tensor:
        return gated_mlp(h.flatten(1), self.up, self.down, 0).view_as(h)


class Attention(Mixer):
    """Every token looks at every token of its row; `positions` and `heads` are the config's."""

    kind: Literal["attention"] = "attention"

    def check(self, config: "ReasonerConfig") -> None:
        if config.width % (2 * config.heads):
            raise ValueError(f"width {config.width} must be a multiple of 2 x heads = {2 * config.heads}")
        if config.positions == "rotary-2d" and config.width % (4 * config.heads):
            raise ValueError(f"rotary-2d needs width to be a multiple of 4 x heads = {4 * config.heads}")

    def layer(self, config: "ReasonerConfig", generator: torch.Generator) -> nn.Module:
        return AttentionLayer(config, generator)

    def multiply_adds(self, config: "ReasonerConfig") -> int:
        tokens, width = config.tokens, config.width
        return 4 * tokens * width * width + 2 * tokens * tokens * width

    def widest(self, config: "ReasonerConfig") -> int:
        return 3 * config.tokens * config.width


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(size of a head)) v for (rows, heads, tokens, size of a head)."""
    if transformed():  # PyTorch's fused attention has no forward derivative
        return torch.softmax(q @ k.transpose(2, 3) * q.shape[3] ** -0.5, dim=3) @ v
    return F.scaled_dot_product_attention(q, k, v)


class AttentionLayer(nn.Module):
    """h <- R(h + W_out attention(h)), bidirectional, all heads from one packed projection."""

    rotation: Tensor | None
    """Cosines and sines, (2, tokens, 1, 1, head width), that turn queries and keys by position."""

    def __init__(self, config: "ReasonerConfig", generator: torch.Generator) -> None:
        super().__init__()
        self.heads = config.heads
        self.register_buffer("rotation", rotation_table(config), persistent=False)
        self._parts = 2 if config.positions == "rotary-2d" else 1
        self.qkv = matrix(3 * config.width, config.width, generator)
        self.out = matrix(config.width, config.width, generator)

    def forward(self, h: Tensor) -> Tensor:
        projected = F.linear(h, self.qkv)
        q, k, v = projected.view(*h.shape[:2], 3, self.heads, -1).unbind(2)
        if self.rotation is not None:
            q, k = rotated(q, self.rotation, self._parts), rotated(k, self.rotation, self._parts)
        # views only: (tokens, rows, heads, head) as (rows, heads, tokens, head)
        q, k, v = (part.permute(1, 2, 0, 3) for part in (q, k, v))
        seen = attend(q, k, v).permute(2, 0, 1, 3).flatten(2)
        return normalise(h + F.linear(seen, self.out), dim=2)


def rotated(x: Tensor, table: Tensor, parts: int) -> Tensor:
    """Rotate x (tokens, rows, heads, head width) in at least float32 and give it back in its own type.

    The head is split into so many equal `parts`, each rotated by a coordinate of its own.
    """
    wide = x.float() if x.dtype.itemsize < 4 else x
    halves = wide.view(*wide.shape[:-1], parts, 2, -1)
    swapped = torch.stack((-halves[..., 1, :], halves[..., 0, :]), dim=-2).flatten(-3)
    return (wide * table[0] + swapped * table[1]).to(x.dtype)


THETA = 10_000.0


def rotation_table(config: "ReasonerConfig") -> Tensor | None:
    """Return the cosines and sines, (2, tokens, 1, 1, head width), that a config asks for, if any."""
    head = config.width // config.heads
    if torch.get_default_device().type == "meta":
        return None  # only the shapes of weights are asked for, and this table is none
    if config.positions == "rotary":
        angles = _angles(torch.arange(config.tokens), head)
    elif config.positions == "rotary-2d":
        cells = torch.arange(config.cells)
        row, column = (_angles(at, head // 2) for at in (cells // config.columns, cells % config.columns))
        # identity tokens have no place on the grid: they are not rotated
        angles = torch.cat((torch.zeros(config.identity_tokens, head), torch.cat((row, column), dim=-1)))
    else:
        return None
    angles = angles.view(config.tokens, 1, 1, head)
    return torch.stack((angles.cos(), angles.sin()))


def _angles(positions: Tensor, width: int) -> Tensor:
    """Angles (tokens, width), the two halves alike, as the half-split rotation needs them."""
    frequencies = 1.0 / THETA ** (torch.arange(0, width, 2, dtype=torch.float32) / width)
    angles = positions.float().unsqueeze(1) * frequencies
    return torch.cat((angles, angles), dim=1)


AnyMixer = Annotated[SerializeAsAny[Mixer], BeforeValidator(reads(MIXERS))]
"""A field that holds any mixer, yours included; JSON names it by its `kind`, or by that word alone."""
