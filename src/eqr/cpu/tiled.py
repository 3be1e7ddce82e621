"""Tensors handed to the tiled MLP of `eqr.cpu.mlp`.

Small weights stay in a core's nearest cache, and then nothing beats working through the rows a tile at a
time, from the input to the normalised result.
"""

import torch
from torch import Tensor

from eqr.cpu.sweeps import EPSILON

LARGEST_WEIGHTS = 1 << 16
"""Numbers in the weights of an MLP that are best worked through by tiles (width 64, 256 hidden). From width
96 on a library's products are faster, by 12 to 18% without a gradient."""


def is_small(up: Tensor, down: Tensor) -> bool:
    """Whether tiles are faster; larger weights are better multiplied by a library."""
    return up.numel() + down.numel() <= LARGEST_WEIGHTS


def mix(h: Tensor, up: Tensor, down: Tensor) -> tuple[Tensor, Tensor]:
    """R(h + MLP(h)) for a matrix h, and the factors that its gradient needs."""
    from eqr.cpu import kernels, mlp

    out, scale = torch.empty_like(h), h.new_empty(h.shape[:-1])
    mlp.forward(
        *_place(h), up.data_ptr(), down.data_ptr(), down.shape[1],
        0, out.data_ptr(), scale.data_ptr(), kernels.F4(EPSILON),
    )  # fmt: skip
    return out, scale


def mix_gradient(
    towards: Tensor, h: Tensor, up: Tensor, down: Tensor, out: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of h, up and down, given that of R(h + MLP(h))."""
    from eqr.cpu import mlp

    towards = towards.contiguous()
    to_h, to_up, to_down = torch.empty_like(h), torch.empty_like(up), torch.empty_like(down)
    mlp.gradient(
        *_place(h), up.data_ptr(), down.data_ptr(), down.shape[1], towards.data_ptr(),
        out.data_ptr(), scale.data_ptr(), to_h.data_ptr(), to_up.data_ptr(), to_down.data_ptr(),
    )  # fmt: skip
    return to_h, to_up, to_down


def _place(h: Tensor) -> tuple[int, int, int, int, int, int]:
    """Addresses and sizes of the input: h, no table of neighbours, one arm, places, rows, width."""
    places, width = h.shape
    return h.data_ptr(), 0, 1, places, 1, width
