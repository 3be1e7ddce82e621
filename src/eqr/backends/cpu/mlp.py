"""A gated MLP of small matrices, tile by tile, from input to normalised result without leaving the cache.

The projection, twice as wide as the hidden layer, is never written to memory; the gradient computes it again.
What a tile reads and what happens to what it says are addresses that may be 0:

- `table`: an input is gathered, side by side, from the sites that the table names; else it is a row of `h`;
- `out`: R(h + said) is written there with its `scales`; else what was said goes to `said`.

Weights are (out, in) as PyTorch has them, and laid out for the products at every call, which costs little
beside them. Everything is contiguous float32; hidden and output sizes are padded to whole vectors inside.

Small matrices are multiplied fastest with the result in registers, which loops over arrays do not express:
the compiler would store each sum after every step, and halve its vectors for fear of slowing the clock. So
the inner loops are emitted as vector instructions, `ROWS` rows of a tile at a time; there all sizes are in
vectors, addresses and strides in bytes. Sums run in order, so that a row's numbers never depend on the other
rows of its tile. Importing this module loads numba.
"""

import math
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from eqr.backends.cpu.kernels import F4, compiled_fast, indices, inline_fast, matrix
from eqr.tasks.compiled import compiled

_ZERO, _ONE = F4(0.0), F4(1.0)
_WIDE = bool(llvm.get_host_cpu_features().get("avx512f", False))
LANES = 16 if _WIDE else 8
"""Float32 numbers in a vector."""
BYTES = 4 * LANES
ROWS = 24
"""Rows of a tile; a multiple of the rows that any of the products below keeps in registers."""
_SUMS = 24 if _WIDE else 12
"""Vectors of sums kept in registers, out of 32 or 16."""

_emitted: Any = intrinsic  # its results are called with one argument less than numba's types say
_FLOAT, _INT32, _INT64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_VECTOR, _BITS = ir.VectorType(_FLOAT, LANES), ir.VectorType(_INT32, LANES)


def _load(builder: Any, address: Any, kind: Any = _VECTOR, offset: int = 0) -> Any:
    place = builder.add(address, ir.Constant(_INT64, offset))
    return builder.load(builder.inttoptr(place, kind.as_pointer()), align=4)


def _store(builder: Any, value: Any, address: Any, offset: int = 0) -> None:
    place = builder.add(address, ir.Constant(_INT64, offset))
    builder.store(value, builder.inttoptr(place, _VECTOR.as_pointer()), align=4)


def _all(value: float) -> Any:
    return ir.Constant(_VECTOR, [float(np.float32(value))] * LANES)


def _every(value: int) -> Any:
    return ir.Constant(_BITS, [value] * LANES)


def _multiply_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return builder.fadd(builder.fmul(a, b, flags=["contract"]), c, flags=["contract"])


def _spread(builder: Any, value: Any) -> Any:
    nothing = ir.Constant(_VECTOR, ir.Undefined)
    first = builder.insert_element(nothing, value, ir.Constant(_INT32, 0))
    return builder.shuffle_vector(first, nothing, _every(0))


def _emit_product(vectors: int) -> Any:
    """Make c (+)= a b for whole tiles of rows, what fits the registers, and so many vectors of columns."""
    rows_at_once = _SUMS // vectors

    def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        a, a_row, a_step, b, b_step, c, c_row, rows, steps, add = values
        places = [(i, j) for i in range(rows_at_once) for j in range(vectors)]
        sums = {place: cgutils.alloca_once(builder, _VECTOR) for place in places}
        tiles = builder.udiv(rows, ir.Constant(_INT64, rows_at_once))
        adding = builder.icmp_signed("!=", add, ir.Constant(_INT64, 0))
        with cgutils.for_range(builder, tiles) as tile:
            numbers = [
                builder.add(
                    builder.mul(tile.index, ir.Constant(_INT64, rows_at_once)), ir.Constant(_INT64, i)
                )
                for i in range(rows_at_once)
            ]
            a_rows = [builder.add(a, builder.mul(a_row, number)) for number in numbers]
            c_rows = [builder.add(c, builder.mul(c_row, number)) for number in numbers]
            with builder.if_else(adding) as (then, otherwise):
                with then:
                    for i, j in places:
                        builder.store(_load(builder, c_rows[i], offset=j * BYTES), sums[i, j])
                with otherwise:
                    for place in places:
                        builder.store(_all(0.0), sums[place])
            with cgutils.for_range(builder, steps) as step:
                b_row = builder.add(b, builder.mul(b_step, step.index))
                columns = [_load(builder, b_row, offset=j * BYTES) for j in range(vectors)]
                offset = builder.mul(a_step, step.index)
                for i in range(rows_at_once):
                    factor = _spread(builder, _load(builder, builder.add(a_rows[i], offset), _FLOAT))
                    for j, column in enumerate(columns):
                        total = _multiply_add(builder, factor, column, builder.load(sums[i, j]))
                        builder.store(total, sums[i, j])
            for i, j in places:
                _store(builder, builder.load(sums[i, j]), c_rows[i], j * BYTES)
        return context.get_dummy_value()

    @_emitted
    def product(typingctx, a, a_row, a_step, b, b_step, c, c_row, rows, steps, add):  # noqa: ARG001 numba's
        return types.void(*[types.int64] * 10), generate

    return product


_one, _two, _three, _four = (_emit_product(vectors) for vectors in (1, 2, 3, 4))


@compiled
def multiply(a, a_row, a_step, b, b_step, c, c_row, rows, vectors, steps, add):
    """c = a b, or c += a b; a[i, k] is at a + i a_row + k a_step, rows of b and c are contiguous."""
    while vectors > 0:
        if vectors >= 4:
            _four(a, a_row, a_step, b, b_step, c, c_row, rows, steps, add)
        elif vectors == 3:
            _three(a, a_row, a_step, b, b_step, c, c_row, rows, steps, add)
        elif vectors == 2:
            _two(a, a_row, a_step, b, b_step, c, c_row, rows, steps, add)
        else:
            _one(a, a_row, a_step, b, b_step, c, c_row, rows, steps, add)
        b, c, vectors = b + 4 * BYTES, c + 4 * BYTES, vectors - 4


_SHIFT = 1.5 * 2**23  # adding it rounds to an integer, which then sits in the lowest bits
_LOG2_E, _LOG2_E_REST = 1.4426950216293335, 1.925963033500e-8
_POWER_OF_TWO = (1.3276470981e-3, 9.6755413264e-3, 5.5507132766e-2, 2.4022119724e-1, 6.9314696706e-1, 1.0)
"""Polynomial for 2^r, |r| <= 1/2, highest power first, to 2e-7."""
_GUESS = 0x7EF311C7  # minus the bits of d: the bits of about 1 / d


def _sigmoid(builder: Any, x: Any) -> Any:
    """1 / (1 + 2^t) with t = -x log2(e) = n + r, n whole."""

    def fma(a: Any, b: Any, c: Any) -> Any:
        return _multiply_add(builder, a, b, c)

    for order, bound in ((">", _all(-86.0)), ("<", _all(87.0))):  # 2^n and 1 / d stay normal numbers
        x = builder.select(builder.fcmp_ordered(order, x, bound), x, bound)
    shifted = fma(x, _all(-_LOG2_E), _all(_SHIFT))
    n = builder.fsub(shifted, _all(_SHIFT))
    # not left to the compiler, which would round the product of the line before first
    kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
    fused = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{LANES}f32")
    r = builder.call(fused, (x, _all(-_LOG2_E), builder.fneg(n)))
    r = fma(x, _all(-_LOG2_E_REST), r)
    p = _all(_POWER_OF_TWO[0])
    for coefficient in _POWER_OF_TWO[1:]:
        p = fma(p, r, _all(coefficient))
    exponent = builder.shl(builder.bitcast(shifted, _BITS), _every(23))
    d = builder.bitcast(builder.add(builder.bitcast(p, _BITS), exponent), _VECTOR)
    d = builder.fadd(d, _all(1.0))
    # three steps of Newton cost less than a division
    minus = builder.fsub(_all(0.0), d)
    found = builder.bitcast(builder.sub(_every(_GUESS), builder.bitcast(d, _BITS)), _VECTOR)
    for _ in range(3):
        found = fma(found, fma(minus, found, _all(1.0)), found)
    return found


@_emitted
def gate_vector(typingctx, g, u, out):  # noqa: ARG001 numba wants these names
    """out = silu(g) * u."""

    def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        g, u = (_load(builder, address) for address in values[:2])
        _store(builder, builder.fmul(builder.fmul(g, _sigmoid(builder, g)), u), values[2])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@_emitted
def gate_gradient_vector(typingctx, g, u, towards):  # noqa: ARG001 as above
    """Put gradients in place of g and u, and silu(g) * u in place of its gradient."""

    def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        g, u, d = (_load(builder, address) for address in values)
        s = _sigmoid(builder, g)
        silu = builder.fmul(g, s)
        slope = _multiply_add(builder, silu, builder.fsub(_all(1.0), s), s)
        _store(builder, builder.fmul(builder.fmul(d, u), slope), values[0])
        _store(builder, builder.fmul(d, silu), values[1])
        _store(builder, builder.fmul(silu, u), values[2])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@_emitted
def add_vector(typingctx, source, target):  # noqa: ARG001 as above
    """target += source."""

    def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        total = builder.fadd(_load(builder, values[0]), _load(builder, values[1]))
        _store(builder, total, values[1])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


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
def _product(c, a, b, add):
    """c = a b, or c += a b; rows of b and c are contiguous and whole vectors, c has whole tiles of rows."""
    multiply(
        a.ctypes.data, a.strides[0], a.strides[1], b.ctypes.data, b.strides[0],
        c.ctypes.data, c.strides[0], c.shape[0], c.shape[1] // LANES, b.shape[0], add,
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


@inline_fast
def laid_out(up, down, inputs, hidden, width, back):
    """Lay weights out: up and down turned; to go `back` up turned, down, up, and zeros for their sums."""
    if back is None:  # so that forward compiles nothing of the rest
        return _both_turned(up, inputs, hidden, hidden), _turned(down, width, hidden)
    half, columns = _padded(hidden), _padded(inputs)
    downs, upright = np.zeros((width, half), dtype=F4), np.zeros((2 * half, columns), dtype=F4)
    downs[:, :hidden] = matrix(down, width, hidden)
    source = matrix(up, 2 * hidden, inputs)
    for j in range(hidden):  # row by row is a copy of memory, a whole matrix would go number by number
        upright[j, :inputs], upright[half + j, :inputs] = source[j], source[hidden + j]
    ups_sum = np.zeros((_tiled(2 * half, columns), columns), dtype=F4)
    return (
        _both_turned(up, inputs, hidden, half), downs, upright,
        ups_sum, np.zeros((_tiled(width, half), half), dtype=F4),
    )  # fmt: skip


@inline_fast
def run(h, table, arms, places, rows, width, laid, said, out, scales, epsilon):
    """`forward` with weights that are laid out already."""
    ups, downs = laid
    inputs, hidden, total = arms * width, len(downs), places * rows
    slack = np.zeros((ROWS + 1, ups.shape[1]), dtype=F4)
    tile, both = np.zeros((ROWS, _padded(inputs)), dtype=F4), slack[:ROWS]
    gated, spoken = np.empty((ROWS, _padded(hidden)), dtype=F4), np.empty((ROWS, _padded(width)), dtype=F4)
    for first in range(0, total, ROWS):
        count = min(ROWS, total - first)
        if table == 0 and count == ROWS:
            _product(both, matrix(h + 4 * width * first, ROWS, width), ups, False)
        else:
            _fill(tile, h, table, arms, first, count, rows, width)
            _product(both, tile, ups, False)
        _gate(both, gated, hidden)
        _product(spoken, gated, downs, False)
        _deliver(spoken, h, first, count, width, said, out, scales, epsilon)


@compiled_fast
def forward(h, table, arms, places, rows, width, up, down, hidden, said, out, scales, epsilon):
    """Run the MLP at places x rows; the inputs of one are `arms` rows of h, its output is one of `width`."""
    laid = laid_out(up, down, arms * width, hidden, width, None)
    run(h, table, arms, places, rows, width, laid, said, out, scales, epsilon)


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
def run_back(h, table, arms, places, rows, width, laid, towards, out, scales, to_h):
    """`gradient` with weights that are laid out, adding to the sums beside them."""
    ups, downs, upright, ups_sum, downs_sum = laid
    columns, half, total = upright.shape[1], downs.shape[1], places * rows
    # sums over a tile take its columns by whole tiles too, hence the slack behind them
    tile, inner = np.zeros((ROWS, columns), dtype=F4), np.zeros((ROWS + 1, _padded(width) + ROWS), dtype=F4)
    both, gated = np.zeros((ROWS + 1, 2 * half + ROWS), dtype=F4), np.empty((ROWS, half), dtype=F4)
    back = np.empty((ROWS, columns), dtype=F4)
    for first in range(0, total, ROWS):
        count = min(ROWS, total - first)
        _fill(tile, h, table, arms, first, count, rows, width)
        _fill_inner(inner, towards, out, scales, first, count, width)
        _product(both[:ROWS, : 2 * half], tile, ups, False)
        _product(gated, inner, downs, False)
        _gate_gradient(both, gated)
        _product(downs_sum, inner.T, gated, True)
        _product(ups_sum, both.T, tile, True)
        _product(back, both, upright, False)
        _hand_back(back, inner, to_h, table, arms, first, count, rows, width, out != 0)


@inline_fast
def hand_over(laid, to_up, to_down, inputs, hidden, width):
    """Write what `run_back` added up, without the padding."""
    _, downs, _, ups_sum, downs_sum = laid
    half, ups_out = downs.shape[1], matrix(to_up, 2 * hidden, inputs)
    for j in range(hidden):
        ups_out[j], ups_out[hidden + j] = ups_sum[j, :inputs], ups_sum[half + j, :inputs]
    matrix(to_down, width, hidden)[:] = downs_sum[:width, :hidden]


@compiled_fast
def gradient(
    h, table, arms, places, rows, width, up, down, hidden, towards, out, scales, to_h, to_up, to_down
):
    """Gradients of `forward`, given that of R(h + said) with its `out` and `scales`, or that of `said`.

    With a table, `towards` is that of what was said even so, and what the inputs get is added to `to_h`.
    """
    laid = laid_out(up, down, arms * width, hidden, width, True)
    run_back(h, table, arms, places, rows, width, laid, towards, out, scales, to_h)
    hand_over(laid, to_up, to_down, arms * width, hidden, width)
