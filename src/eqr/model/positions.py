"""Where a token is: rotary tables for attention, in one dimension or over rows and columns.

Learned positions are a parameter added to the input (see `reasoner`); the token mixer needs none.
"""

import torch
from torch import Tensor

from eqr.model.config import Positions, ReasonerConfig

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


def rotation_tables(config: ReasonerConfig) -> tuple[Tensor, Tensor] | None:
    """Return the cosine and sine tables (tokens, 1, 1, head width) that a config asks for, if any."""
    head = config.width // config.heads
    if torch.get_default_device().type == "meta":
        return None  # only the shapes of weights are asked for, and these tables are none
    if config.positions is Positions.ROTARY:
        angles = _angles(torch.arange(config.tokens), head)
    elif config.positions is Positions.ROTARY_2D:
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
