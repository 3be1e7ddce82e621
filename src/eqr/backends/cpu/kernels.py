"""The element-wise work around the products, compiled: one sweep over memory where PyTorch needs several.

A product leaves its result in the core's cache; what follows should read it once. Each kernel here works on
contiguous float32 arrays, on the calling thread alone, without Python's lock. Arrays come as addresses with
sizes: making a NumPy array of a tensor costs several calls, each of which fights the other cores' threads
for that lock. Only the other modules of `eqr.backends.cpu` call them, with tensors they have checked.

Importing this module loads numba, which carries its own code generator and keeps what it compiled on disk.
"""

import math
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types  # type: ignore[attr-defined]  # exported by a star
from numba.extending import intrinsic

from eqr.tasks.compiled import compiled

F4, I4 = np.float32, np.int32
COLUMNS = 128
"""How many columns are normalised together: with up to some 100 tokens they fit the first-level cache."""

# exp by Cephes: e^y = 2^n e^r with n = round(y / ln 2), |r| <= ln 2 / 2, a polynomial for e^r
_SHIFT = F4(1.5 * 2**23)  # adding it rounds to an integer, which then sits in the lowest bits
_SHIFT_BITS = I4(_SHIFT.view(I4))
_LOG2_E, _LN2_HIGH, _LN2_LOW = F4(1.44269504), F4(0.693359375), F4(-2.12194440e-4)
_P0, _P1, _P2 = F4(1.9875691500e-4), F4(1.3981999507e-3), F4(8.3334519073e-3)
_P3, _P4, _P5 = F4(4.1665795894e-2), F4(1.6666665459e-1), F4(5.0000001201e-1)
_LOWEST, _HIGHEST = F4(-87.0), F4(88.0)  # 2^n stays a normal number
_ONE, _ZERO, _BIAS, _MANTISSA = F4(1.0), F4(0.0), I4(127), I4(23)


def _reinterpret(source: Any, target: Any, kind: ir.Type) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return builder.bitcast(values[0], kind)

    @intrinsic
    def cast(typingctx: Any, value: Any) -> Any:  # noqa: ARG001 numba wants these names
        return target(source), generate

    return cast


def _address_as(target: Any, kind: ir.Type) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return builder.inttoptr(values[0], kind.as_pointer())

    @intrinsic
    def cast(typingctx: Any, address: Any) -> Any:  # noqa: ARG001 numba wants these names
        pointer = types.CPointer(target)
        return pointer(types.int64), generate

    return cast


_pointer_of = _address_as(types.float32, ir.FloatType())
_index_pointer_of = _address_as(types.int64, ir.IntType(64))
_bits_of = _reinterpret(types.float32, types.int32, ir.IntType(32))
_float_of = _reinterpret(types.int32, types.float32, ir.FloatType())

# sums may be reordered, which is what lets them use the vector unit; nothing else is loosened
compiled_fast: Any = partial(compiled, error_model="numpy", fastmath={"contract", "reassoc"})
inline_fast: Any = njit(error_model="numpy", fastmath={"contract", "reassoc"})
# reordering would cancel the rounding trick
_exact: Any = partial(compiled, error_model="numpy", fastmath={"contract"})


@njit(inline="always")
def _sigmoid(x):
    y = min(max(-x, _LOWEST), _HIGHEST)
    shifted = y * _LOG2_E + _SHIFT
    n = shifted - _SHIFT
    r = (y - n * _LN2_HIGH) - n * _LN2_LOW
    p = ((((_P0 * r + _P1) * r + _P2) * r + _P3) * r + _P4) * r + _P5
    power = _float_of(I4((_bits_of(shifted) - _SHIFT_BITS + _BIAS) << _MANTISSA))
    return _ONE / (_ONE + (p * (r * r) + r + _ONE) * power)


@njit(inline="always")
def matrix(address, rows, columns):
    """View float32 numbers at an address."""
    return carray(_pointer_of(address), (rows, columns))


@njit(inline="always")
def indices(address, count):
    """View int64 numbers at an address."""
    return carray(_index_pointer_of(address), (count,))


@njit(inline="always")
def table(address, rows, columns):
    """View int64 numbers at an address as a table."""
    return carray(_index_pointer_of(address), (rows, columns))


@_exact
def gate(both, gated, rows, width):
    """gated = silu(g) * u for `both` = (g, u) side by side, each (rows, width)."""
    sources, targets = matrix(both, rows, 2 * width), matrix(gated, rows, width)
    for row in range(rows):
        g, u, out = sources[row, :width], sources[row, width:], targets[row]
        for j in range(width):
            x = g[j]
            out[j] = x * _sigmoid(x) * u[j]


@_exact
def gate_gradient(both, towards, to_both, rows, width):
    """Write the gradient of `both` given that of `gated`; leave `gated` itself in place of `towards`."""
    sources, targets = matrix(both, rows, 2 * width), matrix(to_both, rows, 2 * width)
    gated = matrix(towards, rows, width)
    for row in range(rows):
        g, u, d = sources[row, :width], sources[row, width:], gated[row]
        to_g, to_u = targets[row, :width], targets[row, width:]
        for j in range(width):
            x, dy = g[j], d[j]
            s = _sigmoid(x)
            silu = x * s
            to_u[j] = dy * silu
            to_g[j] = dy * u[j] * (s + silu * (_ONE - s))
            d[j] = silu * u[j]


@_exact
def damp_and_add_chosen(z, moved, share, vectors, chosen, scale, out, rows, width):
    """out = z + share * (moved - z) + scale * vectors[chosen], row by row."""
    olds, news, targets = matrix(z, rows, width), matrix(moved, rows, width), matrix(out, rows, width)
    picked = indices(chosen, rows)
    for i in range(rows):
        vector = matrix(vectors + 4 * width * picked[i], 1, width)[0]
        old, new, target = olds[i], news[i], targets[i]
        for j in range(width):
            target[j] = old[j] + share * (new[j] - old[j]) + scale * vector[j]


@compiled_fast
def add_and_normalise_rows(h, plus, scales, rows, width, epsilon):
    """Add `plus` to h and divide each row by its root mean square, in place; keep the factors."""
    values, added = matrix(h, rows, width), matrix(plus, rows, width)
    factors = matrix(scales, 1, rows)[0]
    for i in range(rows):
        row, more = values[i], added[i]
        total = _ZERO
        for j in range(width):
            value = row[j] + more[j]
            row[j] = value
            total += value * value
        scale = _ONE / math.sqrt(total / F4(width) + epsilon)
        factors[i] = scale
        for j in range(width):
            row[j] *= scale


@compiled_fast
def add_and_normalise_columns(h, plus, scales, rows, width, epsilon):
    """The same along columns, a few dozen at a time."""
    values, added = matrix(h, rows, width), matrix(plus, rows, width)
    factors = matrix(scales, 1, width)[0]
    for low in range(0, width, COLUMNS):
        high = min(low + COLUMNS, width)
        block = factors[low:high]
        block[:] = _ZERO
        for i in range(rows):
            row, more = values[i, low:high], added[i, low:high]
            for j in range(high - low):
                value = row[j] + more[j]
                row[j] = value
                block[j] += value * value
        for j in range(high - low):
            block[j] = _ONE / math.sqrt(block[j] / F4(rows) + epsilon)
        for i in range(rows):
            row = values[i, low:high]
            for j in range(high - low):
                row[j] *= block[j]


@compiled_fast
def normalise_rows_gradient(towards, out, scales, inner, rows, width):
    """With y = h r, the gradient of h is r (dy - y mean(y dy))."""
    gradients, outs, inners = (
        matrix(towards, rows, width),
        matrix(out, rows, width),
        matrix(inner, rows, width),
    )
    factors = matrix(scales, 1, rows)[0]
    for i in range(rows):
        dy, y, dh, scale = gradients[i], outs[i], inners[i], factors[i]
        overlap = _ZERO
        for j in range(width):
            overlap += dy[j] * y[j]
        overlap /= F4(width)
        for j in range(width):
            dh[j] = scale * (dy[j] - y[j] * overlap)


@compiled_fast
def normalise_columns_gradient(towards, out, scales, inner, rows, width):
    """The same along columns."""
    gradients, outs, inners = (
        matrix(towards, rows, width),
        matrix(out, rows, width),
        matrix(inner, rows, width),
    )
    factors = matrix(scales, 1, width)[0]
    overlaps = np.empty(COLUMNS, dtype=F4)
    for low in range(0, width, COLUMNS):
        high = min(low + COLUMNS, width)
        overlap, scale = overlaps[: high - low], factors[low:high]
        overlap[:] = _ZERO
        for i in range(rows):
            dy, y = gradients[i, low:high], outs[i, low:high]
            for j in range(high - low):
                overlap[j] += dy[j] * y[j]
        for j in range(high - low):
            overlap[j] /= F4(rows)
        for i in range(rows):
            dy, y, dh = gradients[i, low:high], outs[i, low:high], inners[i, low:high]
            for j in range(high - low):
                dh[j] = scale[j] * (dy[j] - y[j] * overlap[j])


_G0, _G1, _G2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)
_MASK, _DROP = np.uint64((1 << 63) - 1), np.uint64(39)
_HALF, _UNIT = F4(0.5), F4(2.0**-24)


@njit(inline="always")
def _scramble(v):
    v = v * _G0
    v = (v ^ (v >> _S30)) * _G1
    v = (v ^ (v >> _S27)) * _G2
    return (v ^ (v >> _S31)) & _MASK


@_exact
def uniform(keys, out, tokens, rows, width):
    """out[t, r, c] in (0, 1] hashes keys[r] and the counter t * width + c, as `counters.scramble` does."""
    sources, targets = indices(keys, rows), matrix(out, tokens * rows, width)
    for r in range(rows):
        base = _scramble(np.uint64(sources[r]))
        for t in range(tokens):
            first, row = base + np.uint64(t * width), targets[t * rows + r]
            for c in range(width):
                row[c] = (F4(_scramble(first + np.uint64(c)) >> _DROP) + _HALF) * _UNIT


@_exact
def choose(keys, out, applications, tokens, rows, mask):
    """out[a, t, r] hashes keys[r], application a and token t to an index, as `counters.choose` does."""
    sources, targets = indices(keys, rows), indices(out, applications * tokens * rows)
    bits, bases = np.uint64(mask), np.empty(rows, dtype=np.uint64)
    for a in range(applications):
        for r in range(rows):
            bases[r] = _scramble(np.uint64(sources[r]) + np.uint64(a))
        for t in range(tokens):
            target = targets[(a * tokens + t) * rows : (a * tokens + t + 1) * rows]
            for r in range(rows):
                target[r] = np.int64(_scramble(bases[r] + np.uint64(t)) & bits)


@compiled_fast
def square_distances(one, other, out, tokens, rows, width):
    """out[r] += sum over tokens and channels of (one - other)^2."""
    mine, theirs = matrix(one, tokens * rows, width), matrix(other, tokens * rows, width)
    sums, totals = matrix(out, 1, rows)[0], np.zeros(rows)
    for t in range(tokens):
        for r in range(rows):
            a, b, total = mine[t * rows + r], theirs[t * rows + r], _ZERO
            for j in range(width):
                difference = a[j] - b[j]
                total += difference * difference
            totals[r] += total
    for r in range(rows):
        sums[r] += F4(totals[r])


@_exact
def halt_scores(h, weight, bias, out, tokens, rows, width, scores):
    """out[r] = the mean token of row r times each of the `scores` weights, plus their bias."""
    sources, weights = matrix(h, tokens * rows, width), matrix(weight, scores, width)
    biases, targets, totals = matrix(bias, 1, scores)[0], matrix(out, rows, scores), np.zeros((rows, width))
    for t in range(tokens):
        for r in range(rows):
            source, total = sources[t * rows + r], totals[r]
            for c in range(width):
                total[c] += source[c]
    for r in range(rows):
        for k in range(scores):
            score = 0.0
            for c in range(width):
                score += totals[r, c] * weights[k, c]
            targets[r, k] = F4(score / tokens) + biases[k]


@compiled_fast
def products(h, weight, out, count, width, columns):
    """out[n, k] = h[n] times weight[k]."""
    sources, weights, targets = (
        matrix(h, count, width),
        matrix(weight, columns, width),
        matrix(out, count, columns),
    )
    for n in range(count):
        source, target = sources[n], targets[n]
        for k in range(columns):
            row, total = weights[k], _ZERO
            for c in range(width):
                total += source[c] * row[c]
            target[k] = total


@compiled_fast
def pool(h, members, factors, out, groups, size, length):
    """out[g] = factors[g] * sum of h[members[g]], rows of `length`; no factors at address 0; -1 is nobody."""
    tables, targets = table(members, groups, size), matrix(out, groups, length)
    for g in range(groups):
        target = targets[g]
        target[:] = _ZERO
        for m in range(size):
            site = tables[g, m]
            if site >= 0:
                source = matrix(h + 4 * length * site, 1, length)[0]
                for j in range(length):
                    target[j] += source[j]
        if factors != 0:
            factor = matrix(factors, 1, groups)[0, g]
            for j in range(length):
                target[j] *= factor


@compiled_fast
def spread_and_normalise(h, messages, memberships, out, scales, sites, most, rows, width, epsilon):
    """out[s] = R(h[s] + sum of messages[memberships[s]]) for each row; keep the factors."""
    tables = table(memberships, sites, most)
    length = rows * width
    sources, targets, factors = (
        matrix(h, sites, length),
        matrix(out, sites, length),
        matrix(scales, sites, rows),
    )
    for s in range(sites):
        source, target = sources[s], targets[s]
        for j in range(length):
            target[j] = source[j]
        for m in range(most):
            group = tables[s, m]
            if group >= 0:
                message = matrix(messages + 4 * length * group, 1, length)[0]
                for j in range(length):
                    target[j] += message[j]
        for r in range(rows):
            row = target[r * width : (r + 1) * width]
            total = _ZERO
            for j in range(width):
                total += row[j] * row[j]
            scale = _ONE / math.sqrt(total / F4(width) + epsilon)
            factors[s, r] = scale
            for j in range(width):
                row[j] *= scale


@compiled_fast
def spread_scaled(h, messages, memberships, factors, sites, most, length):
    """h[s] += sum of factors[g] * messages[g] over the memberships g of s, in place."""
    tables = table(memberships, sites, most)
    targets = matrix(h, sites, length)
    for s in range(sites):
        target = targets[s]
        for m in range(most):
            group = tables[s, m]
            if group >= 0:
                factor = matrix(factors + 4 * group, 1, 1)[0, 0]
                message = matrix(messages + 4 * length * group, 1, length)[0]
                for j in range(length):
                    target[j] += factor * message[j]
