"""A whole segment of a small operator in one call: every application of every block, a few rows at a time.

Layer by layer a small model spends half its time between the products, on calls and on states that have left
the cache. Here a block of rows is copied in, carried through all applications, damping and noise included,
and copied out; of the tracked applications what the gradient needs is written besides.

States are (sites, rows, width); all is float32 or int64 at an address. A layer is a block of a stack: the
MLPs of its mixer, one for each family, then that of its channels. `weights` holds their addresses, (layers,
2 x MLPs), up and down in turn; the layers of an answer stack of its own come last. Importing loads numba.
"""

from typing import NamedTuple

from eqr.cpu.kernels import (
    F4,
    compiled_fast,
    indices,
    inline_fast,
    matrix,
    normalise_rows_gradient,
    pool,
    spread_and_normalise,
    spread_scaled,
)
from eqr.cpu.mlp import hand_over, laid_out, laid_out_back, no_sums, run, run_back

SCRATCH, ANSWER, INPUT, ALONE = range(4)
"""The moves of `eqr.model.config.Move`, in order."""
_ONE, _ZERO = F4(1.0), F4(0.0)
_STATES, _SLOPES = 4, 5


class Plan(NamedTuple):
    """Sizes and tables of a segment."""

    sites: int
    rows: int
    width: int
    blocks: int
    """Blocks in a stack."""
    hidden: int
    """Hidden size of the mixer's MLPs."""
    wide: int
    """Hidden size of the channels'."""
    tracked: int
    """Index of the first application that the gradient sees."""
    together: int
    """Rows of which all states fit a cache."""
    arms: int
    """Sites that each site hears, side by side."""
    table: int
    """Which they are, (sites, arms); 0 for an operator on groups."""
    groups: int
    members: int
    """(groups, most_members)."""
    most_members: int
    factors: int
    """(groups,): what the sum over a group is multiplied by."""
    memberships: int
    """(sites, most_memberships)."""
    most_memberships: int

    def space(self) -> int:
        """Numbers of working memory that `forward` and `backward` need."""
        states = (_STATES + _SLOPES) * self.width * self.sites
        return self.together * (states + self.kept_of_a_site() * self.sites + 3 * self.groups * self.width)

    def kept_of_a_site(self) -> int:
        """Numbers kept of one site in one application: inputs and results of each half, and their scales."""
        return (2 * self.blocks + 1) * self.width + 2 * self.blocks


@inline_fast
def _kept_of_a_site(plan):
    return (2 * plan.blocks + 1) * plan.width + 2 * plan.blocks


@inline_fast
def _copy(source, length, target):
    values, into = matrix(source, 1, length)[0], matrix(target, 1, length)[0]
    for j in range(length):
        into[j] = values[j]


@inline_fast
def _copy_in(source, plan, low, count, target):
    """Take rows `low` to `low + count` of (sites, rows, width)."""
    length = count * plan.width
    for site in range(plan.sites):
        _copy(source + 4 * plan.width * (site * plan.rows + low), length, target + 4 * length * site)


@inline_fast
def _copy_out(source, plan, low, count, target):
    length = count * plan.width
    for site in range(plan.sites):
        _copy(source + 4 * length * site, length, target + 4 * plan.width * (site * plan.rows + low))


@inline_fast
def _add(one, other, length, out):
    """out = one + other; `out` may be one of them."""
    a, b, target = matrix(one, 1, length)[0], matrix(other, 1, length)[0], matrix(out, 1, length)[0]
    for j in range(length):
        target[j] = a[j] + b[j]


@inline_fast
def _set(value, length, out):
    target = matrix(out, 1, length)[0]
    for j in range(length):
        target[j] = value


@inline_fast
def _step(z, moved, share, vectors, chosen, scale, plan, low, count):
    """z <- z + share (moved - z) + scale * noise."""
    width = plan.width
    for site in range(plan.sites):
        picks = indices(chosen + 8 * (site * plan.rows + low), count)
        for row in range(count):
            place = 4 * width * (site * count + row)
            old, new = matrix(z + place, 1, width)[0], matrix(moved + place, 1, width)[0]
            if share == _ONE:
                for j in range(width):
                    old[j] = new[j]
            else:
                for j in range(width):
                    old[j] = old[j] + share * (new[j] - old[j])
            if vectors != 0:
                vector = matrix(vectors + 4 * width * picks[row], 1, width)[0]
                for j in range(width):
                    old[j] = old[j] + scale * vector[j]


@inline_fast
def _mix(h, out, scales, laid, first, plan, sizes, count, room, epsilon):
    """out = R(h + what the mixer says), its MLPs being laid[first:]."""
    width = plan.width
    if plan.table != 0:
        ups, downs = laid[first]
        run(
            h, plan.table, plan.arms, plan.sites, count, width, ups, downs, plan.hidden, 0, out, scales,
            epsilon,
        )  # fmt: skip
        return
    length = count * width
    pooled, messages = room, room + 4 * length * plan.groups
    pool(h, plan.members, plan.factors, pooled, plan.groups, plan.most_members, length)
    begin = 0
    for part in range(len(sizes)):
        ups, downs = laid[first + part]
        offset = 4 * length * begin
        run(
            pooled + offset, 0, 1, sizes[part] * count, 1, width, ups, downs, plan.hidden,
            messages + offset, 0, 0, epsilon,
        )  # fmt: skip
        begin += sizes[part]
    spread_and_normalise(
        h, messages, plan.memberships, out, scales, plan.sites, plan.most_memberships, count, width, epsilon
    )


@inline_fast
def _mix_back(h, inner, to_h, back, sums, first, plan, sizes, count, room):
    """Turn the gradient of h + what the mixer says, `inner`, into that of h; `inner` is overwritten."""
    width, length = plan.width, count * plan.width
    if plan.table != 0:
        _copy(inner, plan.sites * length, to_h)
        (ups, upright, downs), (ups_sum, downs_sum) = back[first], sums[first]
        run_back(
            h, plan.table, plan.arms, plan.sites, count, width, ups, upright, downs, inner, 0, 0, to_h,
            ups_sum, downs_sum,
        )  # fmt: skip
        return
    each = 4 * length * plan.groups
    pooled, to_messages, to_pooled = room, room + each, room + 2 * each
    pool(h, plan.members, plan.factors, pooled, plan.groups, plan.most_members, length)
    pool(inner, plan.members, 0, to_messages, plan.groups, plan.most_members, length)
    begin = 0
    for part in range(len(sizes)):
        (ups, upright, downs), (ups_sum, downs_sum) = back[first + part], sums[first + part]
        offset = 4 * length * begin
        run_back(
            pooled + offset, 0, 1, sizes[part] * count, 1, width, ups, upright, downs,
            to_messages + offset, 0, 0, to_pooled + offset, ups_sum, downs_sum,
        )  # fmt: skip
        begin += sizes[part]
    _copy(inner, plan.sites * length, to_h)
    spread_scaled(to_h, to_pooled, plan.memberships, plan.factors, plan.sites, plan.most_memberships, length)


@compiled_fast
def forward(
    answer, scratch, x, new_answer, new_scratch, moves, plan, sizes, weights, share, vectors, chosen, scale,
    kept, space, epsilon,
):  # fmt: skip
    """Write where answer and scratch go; keep what `backward` needs of the tracked applications.

    `sizes` are the groups of each family (one, all sites, for neighbours); `vectors` is 0 without noise,
    `chosen` is (applications, sites, rows).
    """
    width, blocks, mlps, layers = plan.width, plan.blocks, len(sizes) + 1, len(weights)
    laid = [
        laid_out(
            weights[place // mlps, 2 * (place % mlps)],
            weights[place // mlps, 2 * (place % mlps) + 1],
            plan.arms * width if place % mlps < mlps - 1 else width,
            plan.hidden if place % mlps < mlps - 1 else plan.wide,
            width,
        )
        for place in range(layers * mlps)
    ]
    for low in range(0, plan.rows, plan.together):
        count = min(plan.together, plan.rows - low)
        items = plan.sites * count
        state = 4 * items * width  # bytes
        z_answer, z_scratch, z_x, context = space, space + state, space + 2 * state, space + 3 * state
        passing, room = space + _STATES * state, space + _STATES * state + 4 * items * _kept_of_a_site(plan)
        _copy_in(answer, plan, low, count, z_answer)
        _copy_in(x, plan, low, count, z_x)
        if scratch != 0:
            _copy_in(scratch, plan, low, count, z_scratch)
        fresh = True
        for index in range(len(moves)):
            move, here = moves[index], passing
            if index >= plan.tracked:
                before = plan.sites * ((len(moves) - plan.tracked) * low + (index - plan.tracked) * count)
                here = kept + 4 * before * _kept_of_a_site(plan)
            scales = here + (2 * blocks + 1) * state
            z = z_scratch if move == SCRATCH else z_answer
            if move == SCRATCH:
                if fresh:
                    _add(z_answer, z_x, items * width, context)
                    fresh = False
                _add(z, context, items * width, here)
            else:
                fresh = True
                if move == ALONE:
                    _copy(z, items * width, here)
                else:
                    _add(z, z_scratch if move == ANSWER else z_x, items * width, here)
            first = 0 if move == SCRATCH else (layers - blocks) * mlps
            for block in range(blocks):
                h, mixed = here + 2 * block * state, here + (2 * block + 1) * state
                factors = scales + 8 * block * items
                _mix(h, mixed, factors, laid, first, plan, sizes, count, room, epsilon)
                ups, downs = laid[first + mlps - 1]
                run(
                    mixed, 0, 1, items, 1, width, ups, downs, plan.wide, 0, mixed + state,
                    factors + 4 * items, epsilon,
                )  # fmt: skip
                first += mlps
            noise = chosen + 8 * index * plan.sites * plan.rows
            _step(z, here + 2 * blocks * state, share, vectors, noise, scale, plan, low, count)
        _copy_out(z_answer, plan, low, count, new_answer)
        if scratch != 0:
            _copy_out(z_scratch, plan, low, count, new_scratch)


@compiled_fast
def backward(
    towards_answer, towards_scratch, to_answer, to_scratch, to_x, moves, plan, sizes, weights, to_weights,
    share, kept, space,
):  # fmt: skip
    """Write the gradients of the old states, x and the weights, given those of the new states."""
    width, blocks, mlps, layers = plan.width, plan.blocks, len(sizes) + 1, len(weights)
    back = [
        laid_out_back(
            weights[place // mlps, 2 * (place % mlps)],
            weights[place // mlps, 2 * (place % mlps) + 1],
            plan.arms * width if place % mlps < mlps - 1 else width,
            plan.hidden if place % mlps < mlps - 1 else plan.wide,
            width,
        )
        for place in range(layers * mlps)
    ]
    sums = [
        no_sums(
            plan.arms * width if place % mlps < mlps - 1 else width,
            plan.hidden if place % mlps < mlps - 1 else plan.wide,
            width,
        )
        for place in range(layers * mlps)
    ]
    for low in range(0, plan.rows, plan.together):
        count = min(plan.together, plan.rows - low)
        items = plan.sites * count
        numbers, state = items * width, 4 * items * width
        on_answer, on_scratch, on_x = space, space + state, space + 2 * state
        moving, inner, onward, room = (
            space + 3 * state,
            space + 4 * state,
            space + 5 * state,
            space + 6 * state,
        )
        _copy_in(towards_answer, plan, low, count, on_answer)
        if to_scratch != 0:
            _copy_in(towards_scratch, plan, low, count, on_scratch)
        _set(_ZERO, numbers, on_x)
        for index in range(len(moves) - 1, plan.tracked - 1, -1):
            move = moves[index]
            before = plan.sites * ((len(moves) - plan.tracked) * low + (index - plan.tracked) * count)
            here = kept + 4 * before * _kept_of_a_site(plan)
            scales = here + (2 * blocks + 1) * state
            on_z = on_scratch if move == SCRATCH else on_answer
            own, towards = matrix(on_z, 1, numbers)[0], matrix(moving, 1, numbers)[0]
            for j in range(numbers):
                towards[j] = share * own[j]
                own[j] = (_ONE - share) * own[j]
            last = blocks if move == SCRATCH else layers
            for block in range(blocks - 1, -1, -1):
                last -= 1
                h, mixed = here + 2 * block * state, here + (2 * block + 1) * state
                factors = scales + 8 * block * items
                (ups, upright, downs), (ups_sum, downs_sum) = (
                    back[last * mlps + mlps - 1],
                    sums[last * mlps + mlps - 1],
                )
                run_back(
                    mixed, 0, 1, items, 1, width, ups, upright, downs, moving, mixed + state,
                    factors + 4 * items, onward, ups_sum, downs_sum,
                )  # fmt: skip
                normalise_rows_gradient(onward, mixed, factors, inner, items, width)
                _mix_back(h, inner, moving, back, sums, last * mlps, plan, sizes, count, room)
            _add(on_z, moving, numbers, on_z)
            if move == SCRATCH:
                _add(on_answer, moving, numbers, on_answer)
            elif move == ANSWER:
                _add(on_scratch, moving, numbers, on_scratch)
            if move in (SCRATCH, INPUT):
                _add(on_x, moving, numbers, on_x)
        _copy_out(on_answer, plan, low, count, to_answer)
        if to_scratch != 0:
            _copy_out(on_scratch, plan, low, count, to_scratch)
        _copy_out(on_x, plan, low, count, to_x)
    for place in range(layers * mlps):
        (ups_sum, downs_sum), mlp = sums[place], place % mlps
        hand_over(
            ups_sum, downs_sum, to_weights[place // mlps, 2 * mlp], to_weights[place // mlps, 2 * mlp + 1],
            plan.arms * width if mlp < mlps - 1 else width,
            plan.hidden if mlp < mlps - 1 else plan.wide, width,
        )  # fmt: skip
