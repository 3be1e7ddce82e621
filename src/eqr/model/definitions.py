"""Functions of tensors that the model is made of: normalisation, gated MLPs, first weights, random numbers.

    @definition
    def gate(both: Tensor, dim: int, /) -> Tensor: ...

marks one that a backend may compute by other means. The plain PyTorch here is what runs; inside
`computed_by({gate: faster})` a call goes to `faster` instead, in this thread and in those that run in a copy
of its context. Compilers and exporters always see the definition.

Random numbers are hashes of counters: what a row draws depends on its key, which stands for (seed, puzzle and
identity, restart), never on its neighbours in the batch. So a trajectory is the same alone, in a batch, in a
refilled slot, on another rank or on another device.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional as F

Function = TypeVar("Function", bound=Callable[..., Tensor])
Means = Mapping[Callable[..., Tensor], Callable[..., Tensor]]
"""What computes a definition, by definition."""

_means: ContextVar[Means | None] = ContextVar("means", default=None)


def definition(function: Function) -> Function:
    """Mark a function whose arguments are positional."""

    @wraps(function)
    def call(*given: Any) -> Tensor:
        if not torch.compiler.is_compiling():
            means = _means.get()
            found = None if means is None else means.get(call)
            if found is not None:
                return found(*given)
        return function(*given)

    return cast(Function, call)


@contextmanager
def computed_by(means: Means) -> Iterator[None]:
    """Compute definitions by these means while the context lasts."""
    token = _means.set(means)
    try:
        yield
    finally:
        _means.reset(token)


def transformed() -> bool:
    """Whether a function transform (`torch.func`) or a forward derivative is under way."""
    if torch.compiler.is_compiling():
        return False
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


EPSILON = 1e-5


def normalise(h: Tensor, dim: int) -> Tensor:
    """R(h) = h / sqrt(mean(h^2) + eps) along `dim`, in at least float32, with neither gain nor bias."""
    wide = h.float() if h.dtype.itemsize < 4 else h
    if dim == 0:
        mean = wide.square().mean(dim=0, keepdim=True)
    else:  # along contiguous memory a norm needs one pass and no squares in memory
        mean = torch.linalg.vector_norm(wide, dim=dim, keepdim=True).square() / h.shape[dim]
    return (wide * torch.rsqrt(mean + EPSILON)).to(h.dtype)


@definition
def gate(both: Tensor, dim: int, /) -> Tensor:
    """silu(g) * u for the two halves of a projection along `dim`, the gate g first."""
    g, u = both.chunk(2, dim=dim)
    return F.silu(g) * u


@definition
def gated_mlp(h: Tensor, up: Tensor, down: Tensor, dim: int, /) -> Tensor:
    """R(h + W_down(silu(g) * u)) for a matrix h, mixing its channels (`dim` 1) or its tokens (`dim` 0)."""
    if dim == 1:
        return normalise(h + F.linear(gate(F.linear(h, up), dim), down), dim)
    return normalise(h + down @ gate(up @ h, dim), dim)


TRUNCATION = 2.0
UNIT_SCALE = 1.13685
"""A normal cut at +-2 times this has standard deviation 1 (its support is +-2.2737)."""


def scaled_normal(*shape: int, std: float, generator: torch.Generator) -> Tensor:
    """Draw a truncated normal whose realised standard deviation is `std`."""
    unit = torch.empty(*shape)
    if unit.is_meta:
        return unit  # only shapes are asked for
    nn.init.trunc_normal_(unit, a=-TRUNCATION, b=TRUNCATION, generator=generator)
    return unit * (std * UNIT_SCALE)


def matrix(rows: int, columns: int, generator: torch.Generator, *, scale: float = 1.0) -> nn.Parameter:
    """Make a weight (out, in) with standard deviation scale / sqrt(in)."""
    return nn.Parameter(scaled_normal(rows, columns, std=scale * columns**-0.5, generator=generator))


_EDGE = math.erf(TRUNCATION / 2**0.5)
_MASK = (1 << 63) - 1


def row_key(seed: int, puzzle: NDArray[Any], restart: int, identity: int = 0) -> int:
    """Return the key of one trajectory of a puzzle (cells,), however its tokens are held in memory."""
    if puzzle.dtype != np.uint8 and puzzle.size and not 0 <= puzzle.min() <= puzzle.max() < 256:
        raise ValueError(f"tokens are 0..255, not {puzzle.min()}..{puzzle.max()}")
    family = f"{identity}/" if identity else ""  # a puzzle without an identity keeps the key it always had
    text = f"{seed}/{restart}/{family}".encode() + puzzle.astype(np.uint8, copy=False).tobytes()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") & _MASK


def scramble(values: Tensor) -> Tensor:
    """Hash int64 values elementwise (the finaliser of splitmix64, on 63 bits); the result is not negative."""
    values = values * -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed number
    values = (values ^ _shift(values, 30)) * -4658895280553007687
    values = (values ^ _shift(values, 27)) * -7723592293110705685
    return (values ^ _shift(values, 31)) & _MASK


def _shift(values: Tensor, bits: int) -> Tensor:
    return (values >> bits) & ((1 << (64 - bits)) - 1)


def truncated_normal(keys: Tensor, stream: int, tokens: int, width: int) -> Tensor:
    """Draw unit truncated normals, shape (tokens, rows, width), float32; `stream` separates uses of a key."""
    drawn = uniform(keys.long() + stream, tokens, width)
    return torch.erfinv((2.0 * drawn - 1.0).mul_(_EDGE)).mul_(2**0.5 * UNIT_SCALE)


@definition
def uniform(keys: Tensor, tokens: int, width: int, /) -> Tensor:
    """Hash keys and counters to numbers above 0, at most 1, (tokens, rows, width)."""
    counters = torch.arange(tokens * width, device=keys.device).view(tokens, 1, width)
    bits = scramble(scramble(keys).view(1, -1, 1) + counters) >> 39  # 24 bits: what float32 can tell apart
    return (bits.float() + 0.5) * 2.0**-24


@definition
def choose(keys: Tensor, applications: int, tokens: int, size: int, /) -> Tensor:
    """Hash keys to numbers below `size`, a power of two, (applications, tokens, rows)."""
    base = scramble(keys + torch.arange(applications, device=keys.device).view(-1, 1, 1))
    return scramble(base + torch.arange(tokens, device=keys.device).unsqueeze(1)) & (size - 1)


NOISE_VECTORS = 1 << 14


def choose_noise(
    keys: Tensor, depths: Tensor, applications: int, tokens: int, *, since: int | Tensor = 0
) -> Tensor:
    """Return which vectors applications of a segment add, (applications, tokens, rows), the first `since`."""
    return choose(keys + (depths << 20) + since, applications, tokens, NOISE_VECTORS)


def noise_vectors(width: int, device: torch.device) -> Tensor:
    """Return the standard normal vectors that path noise picks from, (NOISE_VECTORS, width), drawn once.

    Drawing fresh noise for a whole state costs about as much as the matrix products of a small model; picking
    each token's vector by hashed index costs a copy.
    """
    place = width, device
    if place not in _vectors:
        # drawn on a thread of its own: modes of tracing, transforms and inference end at its border
        with ThreadPoolExecutor(1) as aside:
            _vectors[place] = aside.submit(_draw_vectors, width, device).result()
    return _vectors[place]


_vectors: dict[tuple[int, torch.device], Tensor] = {}


def _draw_vectors(width: int, device: torch.device) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(NOISE_VECTORS, width, generator=generator, dtype=torch.float32).to(device)
