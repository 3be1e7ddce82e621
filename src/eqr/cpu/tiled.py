"""Tensors handed to the tiled MLP of `eqr.cpu.mlp`: which may be, and how.

Small weights stay in a core's cache, and then nothing beats working through the rows a tile at a time, from
the input to the normalised result. Only plain float32 tensors on cpu come here (`swept`).
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from eqr.cpu.operators import only_numbers
from eqr.cpu.sweeps import EPSILON, is_float32, small_enough

LARGEST_WEIGHTS = 1 << 18
"""Numbers in the weights of an MLP that a core's cache holds beside a tile."""


def fits(h: Tensor, weights: Iterable[Tensor]) -> bool:
    """Whether an MLP of these weights on h runs tile by tile."""
    return swept(h, *weights)


def swept(h: Tensor, *others: Tensor) -> bool:
    """Whether the calling thread should sweep h by a compiled kernel, by the addresses of all."""
    tensors = (h, *others)
    return only_numbers(tensors) and is_float32(*tensors) and small_enough(h)


def is_small(up: Tensor, down: Tensor) -> bool:
    """Whether the weights fit a core's cache; larger ones are better multiplied by a library."""
    return up.numel() + down.numel() <= LARGEST_WEIGHTS


def mix(h: Tensor, up: Tensor, down: Tensor, table: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """R(h + MLP(h)), and the factors that its gradient needs; a table says of whom each site hears."""
    out, scale = torch.empty_like(h), h.new_empty(h.shape[:-1])
    _forward(h, up, down, table, None, out, scale)
    return out, scale


def say(inputs: Tensor, up: Tensor, down: Tensor, said: Tensor) -> None:
    """Write MLP(inputs) to `said`."""
    _forward(inputs, up, down, None, said, None, None)


def _forward(
    h: Tensor,
    up: Tensor,
    down: Tensor,
    table: Tensor | None,
    said: Tensor | None,
    out: Tensor | None,
    scale: Tensor | None,
) -> None:
    from eqr.cpu import kernels, mlp

    mlp.forward(
        *_place(h, table), up.data_ptr(), down.data_ptr(), down.shape[1],
        _address(said), _address(out), _address(scale), kernels.F4(EPSILON),
    )  # fmt: skip


def mix_gradient(
    towards: Tensor, h: Tensor, up: Tensor, down: Tensor, out: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of h, up and down, given that of R(h + MLP(h))."""
    return _gradient(towards.contiguous(), h, up, down, None, out, scale, torch.empty_like(h))


def say_gradient(
    towards: Tensor, h: Tensor, up: Tensor, down: Tensor, *, into: Tensor, table: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Gradients of up and down, given that of MLP(h); that of h goes to `into`, with a table is added."""
    return _gradient(towards, h, up, down, table, None, None, into)[1:]


def _gradient(
    towards: Tensor,
    h: Tensor,
    up: Tensor,
    down: Tensor,
    table: Tensor | None,
    out: Tensor | None,
    scale: Tensor | None,
    to_h: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    from eqr.cpu import mlp

    to_up, to_down = torch.empty_like(up), torch.empty_like(down)
    mlp.gradient(
        *_place(h, table), up.data_ptr(), down.data_ptr(), down.shape[1], towards.data_ptr(),
        _address(out), _address(scale), to_h.data_ptr(), to_up.data_ptr(), to_down.data_ptr(),
    )  # fmt: skip
    return to_h, to_up, to_down


def _place(h: Tensor, table: Tensor | None) -> tuple[int, int, int, int, int, int]:
    """Addresses and sizes of the input: h, table, arms, places, rows, width."""
    width = h.shape[-1]
    if table is None:
        return h.data_ptr(), 0, 1, h.numel() // width, 1, width
    return h.data_ptr(), table.data_ptr(), table.shape[1], len(table), h.shape[1], width


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()
