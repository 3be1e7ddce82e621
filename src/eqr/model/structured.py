"""Layers that are told the structure of the puzzle: R(h + D(MLP(C(h)))).

C collects, for each place where an MLP acts, the sites it hears of; D delivers what it says. Both are linear
and given by tables (`eqr.model.exchange`), so that neither ever depends on the number of weights and a model
runs on any grid that has the tables.
"""

import torch
from torch import Tensor, nn

from eqr.model.config import ReasonerConfig
from eqr.model.exchange import Cross, Factors, exchange
from eqr.model.layers import matrix, scaled_normal
from eqr.model.live import holds


class NeighbourMlp(nn.Module):
    """h <- R(h + W_down(silu(g) * u)), gate and value seeing a cell and its four neighbours."""

    def __init__(self, config: ReasonerConfig, hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        self.up = matrix(2 * hidden, Cross.ARMS * config.width, generator)
        self.down = matrix(config.width, hidden, generator)
        self.along = Cross(config.rows, config.columns)

    def mlps(self) -> list[tuple[Tensor, Tensor]]:
        """Return up and down."""
        return [(self.up, self.down)]

    def forward(self, h: Tensor) -> Tensor:
        """Mix cells with their neighbours."""
        return exchange(h, self.along, [self.up], [self.down])


class GroupMlp(nn.Module):
    """h <- R(h + sum over the groups of a site of what each group's gated MLP says)."""

    def __init__(self, config: ReasonerConfig, hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        families = config.families()
        self.live = config.live
        self.along = Factors(tuple(families.values()), config.tokens)
        # pairs, because a dictionary would be sorted, and weights come in the order of the families
        self.up = nn.ParameterDict([(name, matrix(2 * hidden, config.width, generator)) for name in families])
        # each site hears several groups, so each speaks more softly
        self.down = nn.ParameterDict([(name, _softly(config.width, hidden, generator)) for name in families])

    def mlps(self) -> list[tuple[Tensor, Tensor]]:
        """Return up and down of each family, in the order of its places."""
        return list(zip(self.up.values(), self.down.values(), strict=True))

    def forward(self, h: Tensor) -> Tensor:
        """Let the members of every group exchange what they hold."""
        mixed = exchange(h, self.along, list(self.up.values()), list(self.down.values()))
        return torch.where(holds(h), mixed, 0.0) if self.live else mixed  # what holds nothing hears nothing


def _softly(rows: int, columns: int, generator: torch.Generator) -> nn.Parameter:
    """Make a weight (out, in) of half the usual size."""
    return nn.Parameter(scaled_normal(rows, columns, std=0.5 * columns**-0.5, generator=generator))
