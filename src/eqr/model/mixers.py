"""How the sites of a state exchange information inside a block, as values: a mixer builds its own layer.

A mixer is one value that says everything the rest must know about it: the layer it makes, what that costs,
whether its weights are tied to a grid size and what it needs from the task. The paper's systems mix by an MLP
over tokens or by attention, and must learn from data that a row is a row. The structured ones are told:
`Neighbours` that a cell has four of them, `Groups` which cells constrain each other.
"""

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import BeforeValidator, PositiveInt, SerializeAsAny

from eqr.errors import UserError
from eqr.registry import Kind, kinds_of, reads, register

if TYPE_CHECKING:
    import torch
    from torch import nn

    from eqr.model.config import ReasonerConfig


class Mixer(Kind):
    """Makes the layer of a block in which sites look at one another."""

    sized: ClassVar[bool] = True
    """Whether the weights are tied to the number of sites; if not, a model runs on any size of its task."""
    reads_mean: ClassVar[bool] = False
    """Whether the halt head reads the mean over sites: one site of a local mixer sees little of the rest."""

    def check(self, config: "ReasonerConfig") -> None:
        """Raise `ValueError` if a config cannot be built with this mixer."""

    @abstractmethod
    def layer(self, config: "ReasonerConfig", generator: "torch.Generator") -> "nn.Module":
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

    def layer(self, config: "ReasonerConfig", generator: "torch.Generator") -> "nn.Module":
        """Build a `TokenMlp`."""
        from eqr.model.layers import TokenMlp

        return TokenMlp(config, generator)

    def multiply_adds(self, config: "ReasonerConfig") -> int:
        """Gate, value and output, each tokens x hidden for every channel."""
        return 3 * config.tokens * config.hidden(config.tokens) * config.width

    def widest(self, config: "ReasonerConfig") -> int:
        """Gate and value."""
        return 2 * config.hidden(config.tokens) * config.width


class Attention(Mixer):
    """Every token looks at every token of its row; `positions` and `heads` are the config's."""

    kind: Literal["attention"] = "attention"

    def check(self, config: "ReasonerConfig") -> None:
        """Heads divide the width, and rotary positions the heads."""
        if config.width % (2 * config.heads):
            raise ValueError(f"width {config.width} must be a multiple of 2 x heads = {2 * config.heads}")
        if config.positions == "rotary-2d" and config.width % (4 * config.heads):
            raise ValueError(f"rotary-2d needs width to be a multiple of 4 x heads = {4 * config.heads}")

    def layer(self, config: "ReasonerConfig", generator: "torch.Generator") -> "nn.Module":
        """Build an `AttentionLayer`."""
        from eqr.model.layers import AttentionLayer

        return AttentionLayer(config, generator)

    def multiply_adds(self, config: "ReasonerConfig") -> int:
        """Four projections, scores and weighted values."""
        tokens, width = config.tokens, config.width
        return 4 * tokens * width * width + 2 * tokens * tokens * width

    def widest(self, config: "ReasonerConfig") -> int:
        """Queries, keys and values."""
        return 3 * config.tokens * config.width


class Neighbours(Mixer):
    """A cell and its four neighbours, told apart, through a gated MLP; zeros stand outside the grid."""

    sized: ClassVar[bool] = False
    reads_mean: ClassVar[bool] = True
    kind: Literal["neighbours"] = "neighbours"
    hidden: PositiveInt | None = None
    """Hidden size of the gated MLP; None is the model's width."""

    def check(self, config: "ReasonerConfig") -> None:
        """Neighbours are those of grid cells."""
        _only_the_grid(self.kind, config)
        if config.sites is not None:
            raise ValueError("the neighbours mixer knows cells; leave sites at null")

    def layer(self, config: "ReasonerConfig", generator: "torch.Generator") -> "nn.Module":
        """Build a `NeighbourMlp`."""
        from eqr.model.structured import NeighbourMlp

        return NeighbourMlp(config, self.hidden or config.width, generator)

    def multiply_adds(self, config: "ReasonerConfig") -> int:
        """Gate and value from five cells, output to one."""
        return 11 * config.width * (self.hidden or config.width) * config.tokens

    def widest(self, config: "ReasonerConfig") -> int:
        """Five cells side by side, or gate and value."""
        return max(5 * config.width, 2 * (self.hidden or config.width)) * config.tokens


class Groups(Mixer):
    """Message passing on the task's factor graph: members pool into their group, a gated MLP answers them.

    The families are those of `Task.groups`, weights are one set for each family. With candidates as sites the
    groups are copied for every symbol, and the candidates of a cell are a family of their own.
    """

    sized: ClassVar[bool] = False
    reads_mean: ClassVar[bool] = True
    kind: Literal["groups"] = "groups"
    hidden: PositiveInt | None = None
    """Hidden size of each family's gated MLP; None is four times the model's width."""

    def check(self, config: "ReasonerConfig") -> None:
        """The task must have groups."""
        _only_the_grid(self.kind, config)
        try:
            config.families()
        except UserError as error:
            raise ValueError(str(error)) from None

    def layer(self, config: "ReasonerConfig", generator: "torch.Generator") -> "nn.Module":
        """Build a `GroupMlp`."""
        from eqr.model.structured import GroupMlp

        return GroupMlp(config, self._hidden(config), generator)

    def multiply_adds(self, config: "ReasonerConfig") -> int:
        """Gate, value and output at every group."""
        groups = sum(len(members) for members in config.families().values())
        return 3 * groups * config.width * self._hidden(config)

    def widest(self, config: "ReasonerConfig") -> int:
        """Gate and value of all groups, or the messages."""
        groups = sum(len(members) for members in config.families().values())
        return max(2 * self._hidden(config) * groups, config.width * config.tokens)

    def _hidden(self, config: "ReasonerConfig") -> int:
        return self.hidden or 4 * config.width


def _only_the_grid(kind: str, config: "ReasonerConfig") -> None:
    if config.identity_tokens:
        raise ValueError(f"the {kind} mixer has no place for identity tokens; set identity_tokens to 0")
    if config.positions != "none":
        raise ValueError(f"the {kind} mixer knows places by their structure; set positions to none")


AnyMixer = Annotated[SerializeAsAny[Mixer], BeforeValidator(reads(MIXERS))]
"""A field that holds any mixer, yours included; JSON names it by its `kind`, or by that word alone."""
for _mixer in (Tokens, Attention, Neighbours, Groups):
    register(_mixer)
MIXERS.close()
