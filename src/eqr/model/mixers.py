"""How the sites of a state exchange information inside a block, as values: a mixer builds its own layer.

A mixer is one value that says everything the rest must know about it: the layer it makes, what that costs,
whether its weights are tied to a grid size and what it needs from the task. The paper's systems mix by an MLP
over tokens or by attention, and must learn from data that a row is a row. `eqr.model.structured` has those
that are told.
"""

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import torch
from pydantic import BeforeValidator, SerializeAsAny
from torch import Tensor, nn
from torch.nn import functional as F

from eqr.model.definitions import transformed
from eqr.model.layers import gated_mlp, matrix, normalise
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

    def check_live(self, config: "ReasonerConfig") -> None:
        """Raise `ValueError` if this mixer cannot leave candidates out (`CandidateSites.live`)."""
        raise ValueError(
            f"sites.live needs the groups or the rules mixer, not {self.kind}; set live to false"
        )

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
        """Rotary positions have nothing to rotate here."""
        if config.positions.startswith("rotary"):
            raise ValueError("rotary positions act on attention; the token mixer has none to rotate")

    def layer(self, config: "ReasonerConfig", generator: torch.Generator) -> nn.Module:
        """Build a `TokenMlp`."""
        return TokenMlp(config, generator)

    def multiply_adds(self, config: "ReasonerConfig") -> int:
        """Gate, value and output, each tokens x hidden for every channel."""
        return 3 * config.tokens * config.hidden(config.tokens) * config.width

    def widest(self, config: "ReasonerConfig") -> int:
        """Gate and value."""
        return 2 * config.hidden(config.tokens) * config.width


class TokenMlp(nn.Module):
    """h <- R(h + W_down(silu(g) * u)) over the token axis, the same weights for every channel."""

    def __init__(self, config: "ReasonerConfig", generator: torch.Generator) -> None:
        super().__init__()
        hidden = config.hidden(config.tokens)
        self.up = matrix(2 * hidden, config.tokens, generator)
        self.down = matrix(config.tokens, hidden, generator)

    def forward(self, h: Tensor) -> Tensor:
        """Mix tokens; the normalisation runs over tokens, per channel."""
        return gated_mlp(h.flatten(1), self.up, self.down, 0).view_as(h)


class Attention(Mixer):
    """Every token looks at every token of its row; `positions` and `heads` are the config's."""

    kind: Literal["attention"] = "attention"

    def check(self, config: "ReasonerConfig") -> None:
        """Heads divide the width, and rotary positions the heads."""
        if config.width % (2 * config.heads):
            raise ValueError(f"width {config.width} must be a multiple of 2 x heads = {2 * config.heads}")
        if config.positions == "rotary-2d" and config.width % (4 * config.heads):
            raise ValueError(f"rotary-2d needs width to be a multiple of 4 x heads = {4 * config.heads}")

    def layer(self, config: "ReasonerConfig", generator: torch.Generator) -> nn.Module:
        """Build an `AttentionLayer`."""
        return AttentionLayer(config, generator)

    def multiply_adds(self, config: "ReasonerConfig") -> int:
        """Four projections, scores and weighted values."""
        tokens, width = config.tokens, config.width
        return 4 * tokens * width * width + 2 * tokens * tokens * width

    def widest(self, config: "ReasonerConfig") -> int:
        """Queries, keys and values."""
        return 3 * config.tokens * config.width


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(size of a head)) v for (rows, heads, tokens, size of a head)."""
    if transformed():  # PyTorch's fused attention has no forward derivative
        return torch.softmax(q @ k.transpose(2, 3) * q.shape[3] ** -0.5, dim=3) @ v
    return F.scaled_dot_product_attention(q, k, v)


class AttentionLayer(nn.Module):
    """h <- R(h + W_out attention(h)), bidirectional, all heads from one packed projection."""

    cosines: Tensor | None
    sines: Tensor | None

    def __init__(self, config: "ReasonerConfig", generator: torch.Generator) -> None:
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


THETA = 10_000.0


class Rotation:
    """Cosines and sines, each (tokens, 1, 1, head width), that turn queries and keys by position."""

    def __init__(self, cosines: Tensor, sines: Tensor, parts: int) -> None:
        self.cosines, self.sines = cosines, sines
        self.parts = parts
        """In how many equal parts the head is split, each rotated by a coordinate of its own."""

    def turn(self, x: Tensor) -> Tensor:
        """Rotate x (tokens, rows, heads, head width) in at least float32 and give it back in its own type."""
        wide = x.float() if x.dtype.itemsize < 4 else x
        halves = wide.view(*wide.shape[:-1], self.parts, 2, -1)
        swapped = torch.stack((-halves[..., 1, :], halves[..., 0, :]), dim=-2).flatten(-3)
        return (wide * self.cosines + swapped * self.sines).to(x.dtype)


def rotation_tables(config: "ReasonerConfig") -> tuple[Tensor, Tensor] | None:
    """Return the cosine and sine tables (tokens, 1, 1, head width) that a config asks for, if any."""
    head = config.width // config.heads
    if torch.get_default_device().type == "meta":
        return None  # only the shapes of weights are asked for, and these tables are none
    if config.positions == "rotary":
        angles = _angles(torch.arange(config.tokens), head)
    elif config.positions == "rotary-2d":
        cells = torch.arange(config.cells)
        grid = torch.cat(
            (_angles(cells // config.columns, head // 2), _angles(cells % config.columns, head // 2)), dim=-1
        )
        # identity tokens have no place on the grid: they are not rotated
        angles = torch.cat((torch.zeros(config.identity_tokens, head), grid))
    else:
        return None
    angles = angles.view(config.tokens, 1, 1, head)
    return angles.cos(), angles.sin()


def _angles(positions: Tensor, width: int) -> Tensor:
    """Angles (tokens, width), the two halves alike, as the half-split rotation needs them."""
    frequencies = 1.0 / THETA ** (torch.arange(0, width, 2, dtype=torch.float32) / width)
    angles = positions.float().unsqueeze(1) * frequencies
    return torch.cat((angles, angles), dim=1)


AnyMixer = Annotated[SerializeAsAny[Mixer], BeforeValidator(reads(MIXERS))]
"""A field that holds any mixer, yours included; JSON names it by its `kind`, or by that word alone."""
