"""What is done to whole states on the cpu, a compiled sweep each: draw them, perturb them, compare them."""

import torch
from torch import Tensor

from eqr.cpu.operators import Kernel
from eqr.cpu.sweeps import is_float32, small_enough


def _is_int64(tensor: Tensor) -> bool:
    return tensor.dtype is torch.int64 and tensor.is_contiguous()


def _uniform(keys: Tensor, tokens: int, width: int) -> Tensor:
    from eqr.cpu import kernels

    uniform = keys.new_empty(tokens, len(keys), width, dtype=torch.float32)
    kernels.uniform(keys.data_ptr(), uniform.data_ptr(), tokens, len(keys), width)
    return uniform


UNIFORM = Kernel(takes=lambda keys, *_: _is_int64(keys), run=_uniform)


def _choose(keys: Tensor, applications: int, tokens: int, size: int) -> Tensor:
    from eqr.cpu import kernels

    chosen = keys.new_empty(applications, tokens, len(keys))
    kernels.choose(keys.data_ptr(), chosen.data_ptr(), applications, tokens, len(keys), size - 1)
    return chosen


CHOOSE = Kernel(takes=lambda keys, *_: _is_int64(keys), run=_choose)


def _takes_noise(h: Tensor, vectors: Tensor, chosen: Tensor, _scale: float) -> bool:
    return is_float32(h, vectors) and _is_int64(chosen) and small_enough(h)


def _add_noise(h: Tensor, vectors: Tensor, chosen: Tensor, scale: float) -> Tensor:
    from eqr.cpu import kernels

    out, width = torch.empty_like(h), h.shape[2]
    addresses = h.data_ptr(), vectors.data_ptr(), chosen.data_ptr()
    kernels.add_chosen(*addresses, kernels.F4(scale), out.data_ptr(), h.numel() // width, width)
    return out


ADD_NOISE = Kernel(takes=_takes_noise, run=_add_noise)


def _takes_damped(z: Tensor, moved: Tensor, vectors: Tensor, chosen: Tensor, *_: float) -> bool:
    return is_float32(z, moved, vectors) and _is_int64(chosen) and small_enough(z)


def _damp_and_add_noise(
    z: Tensor, moved: Tensor, vectors: Tensor, chosen: Tensor, damping: float, scale: float
) -> Tensor:
    from eqr.cpu import kernels

    out, width = torch.empty_like(moved), moved.shape[2]
    kernels.damp_and_add_chosen(
        z.data_ptr(), moved.data_ptr(), kernels.F4(1.0 - damping), vectors.data_ptr(), chosen.data_ptr(),
        kernels.F4(scale), out.data_ptr(), moved.numel() // width, width,
    )  # fmt: skip
    return out


def _damped_gradient(
    towards: Tensor, _kept: tuple[Tensor, ...], *given: Tensor | float
) -> tuple[Tensor | None, ...]:
    damping = given[4]
    return towards * damping, towards * (1.0 - damping)


DAMP_AND_ADD_NOISE = Kernel(
    takes=_takes_damped,
    run=_damp_and_add_noise,
    forward=lambda *given: (_damp_and_add_noise(*given), ()),
    gradient=_damped_gradient,
)


def _square_distances(one: Tensor, other: Tensor) -> Tensor:
    from eqr.cpu import kernels

    squares = one.new_zeros(one.shape[1])
    kernels.square_distances(one.data_ptr(), other.data_ptr(), squares.data_ptr(), *one.shape)
    return squares


SQUARE_DISTANCES = Kernel(
    takes=lambda one, other: is_float32(one, other) and small_enough(one), run=_square_distances
)
