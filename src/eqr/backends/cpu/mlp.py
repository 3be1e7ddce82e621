"""A gated MLP of small matrices, tile by tile, from input to normalised result without leaving the cache.

The projection, twice as wide as the hidden layer, is never written to memory; the gradient computes it again.
What a tile reads and what happens to what it says are addresses that may be 0:

- `table`: an input is gathered, side by side, from the sites that the table names; else it is a row of `h`;
- `out`: R(h + said) is written there with its `scales`; else what was said goes to `said`.

Weights are (out, in) as PyTorch has them, and laid out for the products at every call, which costs little
beside them. Everything is contiguous float32; hidden and output sizes are padded to whole vectors inside.
"""

import math

import numpy as np
from numba import njit

from eqr.backends.cpu.kernels import F4, compiled_fast, indices, inline_fast, matrix
from eqr.backends.cpu.vectors import (
    BYTES,
    LANES,
    ROWS,
    add_vector,
    gate_gradient_vector,
    gate_vector,
    multiply,
    multiply_add,
)

_ZERO, _ONE = F4(0.0), F4(1.0)


@njit(inline="always")
def _padded(size):
    return (size + LANES - 1) // LANES * LANES


@njit(inline="always")
def _tiled(size, columns):
    """Pad rows to whole tiles, which are smaller where columns are whole pairs or fours of vectors."""
    left = columns // LANES % 4
    tile = ROWS // 4 if left == 0 else ROWS // 2 if left == 2 else ROWS
    return (size + tile - 1) // tile * tile


@njit
def _set_product(c, a, b):
    """c = a b; rows of b and c are contiguous and whole vectors, c has whole tiles of rows."""
    multiply(
        a.ctypes.data, a.strides[0], a.strides[1], b.ctypes.data, b.strides[0],
        c.ctypes.data, c.strides[0], c.shape[0], c.shape[1] // LANES, b.shape[0],
    )  # fmt: skip


@njit
def _add_product(c, a, b):
    """c += a b."""
    multiply_add(
        a.ctypes.data, a.strides[0], a.strides[1], b.ctypes.data, b.strides[0],
        c.ctypes.data, c.strides[0], c.shape[0], c.shape[1] // LANES, b.shape[0],
    )  # fmt: skip


@njit
def _gate(both, gated, hidden):
    """What a last vector reads beyond the gates or the values is never used."""
    for i in range(ROWS):
        g, out = both.ctypes.data + i * both.strides[0], gated.ctypes.data + i * gated.strides[0]
        for j in range(0, gated.strides[0], BYTES):
            gate_vector(g + j, g + 4 * hidden + j, out + j)


@njit
def _gate_gradient(both, gated):
    half = gated.strides[0]
    for i in range(ROWS):
        g, towards = both.ctypes.data + i * both.strides[0], gated.ctypes.data + i * half
        for j in range(0, half, BYTES):
            gate_gradient_vector(g + j, g + half + j, towards + j)


@inline_fast
def _deliver(spoken, h, first, count, width, said, out, scales, epsilon):
    """Write what a tile says, or R(h + said)."""
    if out == 0:
        targets = matrix(said + 4 * width * first, count, width)
        for i in range(count):
            for j in range(width):
                targets[i, j] = spoken[i, j]
        return
    olds, targets = matrix(h + 4 * width * first, count, width), matrix(out + 4 * width * first, count, width)
    factors = matrix(scales + 4 * first, 1, count)[0]
    for i in range(count):
        source, old, squares = spoken[i], olds[i], _ZERO
        for j in range(width):
            value = source[j] + old[j]
            source[j] = value
            squares += value * value
        factors[i] = squares
    for i in range(count):  # apart from the sums, for roots and quotients of many rows at once
        factors[i] = _ONE / math.sqrt(factors[i] / F4(width) + epsilon)
    for i in range(count):
        source, target, factor = spoken[i], targets[i], factors[i]
        for j in range(width):
            target[j] = source[j] * factor


@njit
def _both_turned(up, inputs, hidden, wide):
    """Up as (inputs, gates and values), the values beginning at `wide`."""
    source, target = matrix(up, 2 * hidden, inputs), np.zeros((inputs, _padded(2 * wide)), dtype=F4)
    for half in range(2):
        for j in range(hidden):
            for k in range(inputs):
                target[k, half * wide + j] = source[half * hidden + j, k]
    return target


@njit
def _turned(down, width, hidden):
    source, target = matrix(down, width, hidden), np.zeros((hidden, _padded(width)), dtype=F4)
    for i in range(width):
        for j in range(hidden):
            target[j, i] = source[i, j]
    return target


@njit
def _halves_padded(up, inputs, hidden):
    wide = _padded(hidden)
    source, target = matrix(up, 2 * hidden, inputs), np.zeros((2 * wide, _padded(inputs)), dtype=F4)
    for half in range(2):
        for j in range(hidden):
            target[half * wide + j, :inputs] = source[half * hidden + j]
    return target


@njit
def _columns_padded(down, width, hidden):
    target = np.zeros((width, _padded(hidden)), dtype=F4)
    target[:, :hidden] = matrix(down, width, hidden)
    return target


@njit
def _fill(tile, h, table, arms, first, count, rows, width):
    """Read `count` rows of input from place `first` on; what lies behind them in the tile is zeros."""
    for i in range(count):
        target = tile[i]
        if table == 0:
            source = matrix(h + 4 * width * (first + i), 1, width)[0]
            for j in range(width):
                target[j] = source[j]
        else:
            site, row = (first + i) // rows, (first + i) % rows
            places = indices(table + 8 * arms * site, arms)
            for a in range(arms):
                arm = target[a * width : (a + 1) * width]
                if places[a] < 0:
                    arm[:] = _ZERO
                else:
                    source = matrix(h + 4 * width * (places[a] * rows + row), 1, width)[0]
                    for j in range(width):
                        arm[j] = source[j]
    tile[count:] = _ZERO


@inline_fast
def laid_out(up, down, inputs, hidden, width):
    """Lay weights out for `run`."""
    return _both_turned(up, inputs, hidden, hidden), _turned(down, width, hidden)


@inline_fast
def run(h, table, arms, places, rows, width, ups, downs, hidden, said, out, scales, epsilon):
    """`forward` with weights that are laid out already."""
    inputs, total = arms * width, places * rows
    slack = np.zeros((ROWS + 1, _padded(2 * hidden)), dtype=F4)
    tile, both = np.zeros((ROWS, _padded(inputs)), dtype=F4), slack[:ROWS]
    gated, spoken = np.empty((ROWS, _padded(hidden)), dtype=F4), np.empty((ROWS, _padded(width)), dtype=F4)
    for first in range(0, total, ROWS):
        count = min(ROWS, total - first)
        if table == 0 and count == ROWS:
            _set_product(both, matrix(h + 4 * width * first, ROWS, width), ups)
        else:
            _fill(tile, h, table, arms, first, count, rows, width)
            _set_product(both, tile, ups)
        _gate(both, gated, hidden)
        _set_product(spoken, gated, downs)
        _deliver(spoken, h, first, count, width, said, out, scales, epsilon)


@compiled_fast
def forward(h, table, arms, places, rows, width, up, down, hidden, said, out, scales, epsilon):
    """Run the MLP at places x rows; the inputs of one are `arms` rows of h, its output is one of `width`."""
    ups, downs = laid_out(up, down, arms * width, hidden, width)
    run(h, table, arms, places, rows, width, ups, downs, hidden, said, out, scales, epsilon)


@inline_fast
def _fill_inner(tile, towards, out, scales, first, count, width):
    """Read gradients of what was said: as they are, or through the normalisation."""
    for i in range(count):
        target, dy = tile[i], matrix(towards + 4 * width * (first + i), 1, width)[0]
        if out == 0:
            for j in range(width):
                target[j] = dy[j]
        else:
            y = matrix(out + 4 * width * (first + i), 1, width)[0]
            scale, overlap = matrix(scales + 4 * (first + i), 1, 1)[0, 0], _ZERO
            for j in range(width):
                overlap += dy[j] * y[j]
            overlap /= F4(width)
            for j in range(width):
                target[j] = scale * (dy[j] - y[j] * overlap)
    tile[count:] = _ZERO


@njit
def _add_to(target, source, length):
    """Add numbers at an address to those at another, whole vectors first."""
    whole = length // LANES * LANES
    for j in range(0, 4 * whole, BYTES):
        add_vector(source + j, target + j)
    values, sums = matrix(source, 1, length)[0], matrix(target, 1, length)[0]
    for j in range(whole, length):
        sums[j] += values[j]


@njit
def _hand_back(tile, inner, to_h, table, arms, first, count, rows, width, add_inner):
    """Write the gradient of each input row, or add it to the sites it was gathered from."""
    for i in range(count):
        source = tile[i]
        if table == 0:
            target, own = matrix(to_h + 4 * width * (first + i), 1, width)[0], inner[i]
            for j in range(width):
                target[j] = source[j] + own[j] if add_inner else source[j]
        else:
            site, row = (first + i) // rows, (first + i) % rows
            places = indices(table + 8 * arms * site, arms)
            for a in range(arms):
                if places[a] >= 0:
                    arm = tile.ctypes.data + i * tile.strides[0] + 4 * a * width
                    _add_to(to_h + 4 * width * (places[a] * rows + row), arm, width)


@inline_fast
def laid_out_back(up, down, inputs, hidden, width):
    """Lay weights out for `run_back`: both ways up, and down as it is, padded."""
    turned = _both_turned(up, inputs, hidden, _padded(hidden))
    return turned, _halves_padded(up, inputs, hidden), _columns_padded(down, width, hidden)


@inline_fast
def no_sums(inputs, hidden, width):
    """Zeros for `run_back` to add weights' gradients to: up's and down's, padded."""
    half = _padded(hidden)
    return (
        np.zeros((_tiled(2 * half, _padded(inputs)), _padded(inputs)), dtype=F4),
        np.zeros((_tiled(width, half), half), dtype=F4),
    )


@inline_fast
def hand_over(ups_sum, downs_sum, to_up, to_down, inputs, hidden, width):
    """Write what `run_back` added up, without the padding."""
    ups_out, downs_out = matrix(to_up, 2 * hidden, inputs), matrix(to_down, width, hidden)
    for j in range(hidden):
        ups_out[j] = ups_sum[j, :inputs]
        ups_out[hidden + j] = ups_sum[_padded(hidden) + j, :inputs]
    downs_out[:] = downs_sum[:width, :hidden]


@inline_fast
def run_back(
    h, table, arms, places, rows, width, ups, upright, downs, towards, out, scales, to_h, ups_sum, downs_sum
):
    """`gradient` with weights that are laid out, adding to sums of weights' gradients."""
    columns, half, total = _padded(arms * width), downs.shape[1], places * rows
    # sums over a tile take its columns by whole tiles too, hence the slack behind them
    tile, inner = np.zeros((ROWS, columns), dtype=F4), np.zeros((ROWS + 1, _padded(width) + ROWS), dtype=F4)
    both, gated = np.zeros((ROWS + 1, 2 * half + ROWS), dtype=F4), np.empty((ROWS, half), dtype=F4)
    back = np.empty((ROWS, columns), dtype=F4)
    for first in range(0, total, ROWS):
        count = min(ROWS, total - first)
        _fill(tile, h, table, arms, first, count, rows, width)
        _fill_inner(inner, towards, out, scales, first, count, width)
        _set_product(both[:ROWS, : 2 * half], tile, ups)
        _set_product(gated, inner, downs)
        _gate_gradient(both, gated)
        _add_product(downs_sum, inner.T, gated)
        _add_product(ups_sum, both.T, tile)
        _set_product(back, both, upright)
        _hand_back(back, inner, to_h, table, arms, first, count, rows, width, out != 0)


@compiled_fast
def gradient(
    h, table, arms, places, rows, width, up, down, hidden, towards, out, scales, to_h, to_up, to_down
):
    """Gradients of `forward`, given that of R(h + said) with its `out` and `scales`, or that of `said`.

    With a table, `towards` is that of what was said even so, and what the inputs get is added to `to_h`.
    """
    inputs = arms * width
    ups, upright, downs = laid_out_back(up, down, inputs, hidden, width)
    ups_sum, downs_sum = no_sums(inputs, hidden, width)
    run_back(
        h, table, arms, places, rows, width, ups, upright, downs, towards, out, scales, to_h,
        ups_sum, downs_sum,
    )  # fmt: skip
    hand_over(ups_sum, downs_sum, to_up, to_down, inputs, hidden, width)
