"""Random numbers by counting: what a row draws depends on its key, never on its neighbours in the batch.

A key stands for (seed, puzzle and identity, restart). Starts and path noise are computed from it by hashing
counters, on whatever device the model is, so that a trajectory is the same alone, in a batch, in a refilled
slot or on another rank.
"""

import hashlib
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eqr.model.definitions import definition

TRUNCATION = 2.0
UNIT_SCALE = 1.13685
"""A normal cut at +-2 times this has standard deviation 1 (its support is +-2.2737)."""

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

    A state of rows x tokens x width needs fresh noise at every application. Drawing it anew costs about as
    much as the matrix products of a small model; picking each token's vector by hashed index costs a copy.
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
