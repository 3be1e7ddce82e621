"""What a general compiler gets wrong, written in its own language: products and gates of tiles.

Small matrices are multiplied fastest with the result in registers, which loops over arrays do not express:
the compiler would store each sum after every step, and halve its vectors for fear of slowing the clock. So
the inner loops are emitted as vector instructions, `ROWS` rows of a tile at a time. Sums run in order, so
that a row's numbers never depend on the other rows of its tile.

All sizes in vectors, addresses and strides in bytes. Importing this module loads numba.
"""

from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from eqr.tasks.compiled import compiled

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


def _product(vectors: int, add: bool) -> Any:
    """Make c (+)= a b for as many rows as fit the registers, and `vectors` vectors of columns."""
    rows = _SUMS // vectors

    def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        a, a_row, a_step, b, b_step, c, c_row, steps = values
        places = [(i, j) for i in range(rows) for j in range(vectors)]
        sums = {place: cgutils.alloca_once(builder, _VECTOR) for place in places}
        a_rows, c_rows = (
            [builder.add(first, builder.mul(stride, ir.Constant(_INT64, i))) for i in range(rows)]
            for first, stride in ((a, a_row), (c, c_row))
        )
        for i, j in places:
            builder.store(_load(builder, c_rows[i], offset=j * BYTES) if add else _all(0.0), sums[i, j])
        with cgutils.for_range(builder, steps) as loop:
            b_row = builder.add(b, builder.mul(b_step, loop.index))
            columns = [_load(builder, b_row, offset=j * BYTES) for j in range(vectors)]
            offset = builder.mul(a_step, loop.index)
            for i in range(rows):
                factor = _spread(builder, _load(builder, builder.add(a_rows[i], offset), _FLOAT))
                for j, column in enumerate(columns):
                    total = _multiply_add(builder, factor, column, builder.load(sums[i, j]))
                    builder.store(total, sums[i, j])
        for i, j in places:
            _store(builder, builder.load(sums[i, j]), c_rows[i], j * BYTES)
        return context.get_dummy_value()

    @_emitted
    def product(typingctx, a, a_row, a_step, b, b_step, c, c_row, steps):  # noqa: ARG001 numba wants names
        return types.void(*[types.int64] * 8), generate

    return product


_set1, _set2, _set3, _set4 = (_product(vectors, add=False) for vectors in (1, 2, 3, 4))
_add1, _add2, _add3, _add4 = (_product(vectors, add=True) for vectors in (1, 2, 3, 4))
_R1, _R2, _R3, _R4 = (_SUMS // vectors for vectors in (1, 2, 3, 4))


@compiled
def multiply(a, a_row, a_step, b, b_step, c, c_row, rows, vectors, steps):
    """c = a b; a[i, k] is at a + i a_row + k a_step, rows of b and c are contiguous, `rows` whole tiles."""
    while vectors > 0:
        if vectors >= 4:
            for i in range(0, rows, _R4):
                _set4(a + i * a_row, a_row, a_step, b, b_step, c + i * c_row, c_row, steps)
        elif vectors == 3:
            for i in range(0, rows, _R3):
                _set3(a + i * a_row, a_row, a_step, b, b_step, c + i * c_row, c_row, steps)
        elif vectors == 2:
            for i in range(0, rows, _R2):
                _set2(a + i * a_row, a_row, a_step, b, b_step, c + i * c_row, c_row, steps)
        else:
            for i in range(0, rows, _R1):
                _set1(a + i * a_row, a_row, a_step, b, b_step, c + i * c_row, c_row, steps)
        b, c, vectors = b + 4 * BYTES, c + 4 * BYTES, vectors - 4


@compiled
def multiply_add(a, a_row, a_step, b, b_step, c, c_row, rows, vectors, steps):
    """c += a b."""
    while vectors > 0:
        if vectors >= 4:
            for i in range(0, rows, _R4):
                _add4(a + i * a_row, a_row, a_step, b, b_step, c + i * c_row, c_row, steps)
        elif vectors == 3:
            for i in range(0, rows, _R3):
                _add3(a + i * a_row, a_row, a_step, b, b_step, c + i * c_row, c_row, steps)
        elif vectors == 2:
            for i in range(0, rows, _R2):
                _add2(a + i * a_row, a_row, a_step, b, b_step, c + i * c_row, c_row, steps)
        else:
            for i in range(0, rows, _R1):
                _add1(a + i * a_row, a_row, a_step, b, b_step, c + i * c_row, c_row, steps)
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
