"""A whole segment of a small operator in one call: every application of every block, a few rows at a time.

Layer by layer a small model spends half its time between the products, on calls and on states that have left
the cache. Here a block of rows is copied in, carried through all applications, damping and noise included,
and copied out; of the tracked applications what the gradient needs is written besides.

All sites of a row are carried, or with live candidates the open ones, with tables of their own.

States are (sites, rows, width); all is float32 or int64 at an address. A layer is a block of a stack: the
MLPs of its mixer, one for each family, then that of its channels. `weights` holds their addresses, (layers,
2 x MLPs), up and down in turn; the layers of an answer stack of its own come last. Importing loads numba.
"""

from typing import NamedTuple

import numpy as np

from eqr.backends.cpu.kernels import (
    F4,
    compiled_fast,
    indices,
    inline_fast,
    matrix,
    normalise_rows_gradient,
    pool,
    spread_and_normalise,
    spread_scaled,
    table,
)
from eqr.backends.cpu.mlp import hand_over, laid_out, run, run_back

SCRATCH, ANSWER, INPUT, ALONE = range(4)
"""The moves of `eqr.model.operator.Move`, in order."""
STATES, SLOPES = 4, 5
"""Arrays of the size of a state in working memory."""
_ONE, _ZERO, _ABSENT = F4(1.0), F4(0.0), -1


class CarryPlan(NamedTuple):
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
    kept: int
    """Numbers kept of one site in one application."""
    live: int
    """Whether only open sites are carried, see `_open_sites`."""
    arms: int = 1
    """Sites that each site hears, side by side."""
    table: int = 0
    """Which they are, (sites, arms); 0 for an operator on groups."""
    groups: int = 0
    members: int = 0
    """(groups, most_members)."""
    most_members: int = 0
    factors: int = 0
    """(groups,): what the sum over a group is multiplied by."""
    memberships: int = 0
    """(sites, most_memberships)."""
    most_memberships: int = 0


@inline_fast
def _number(plan, x, low, count, items, numbers, alive):
    """Number the open sites of some rows from 0, the others -1; return how many there are."""
    members = table(plan.members, plan.groups, plan.most_members)
    owned = table(plan.memberships, plan.sites, plan.most_memberships)
    found = 0
    for row in range(count):
        own = numbers[row * plan.sites : (row + 1) * plan.sites]
        for site in range(plan.sites):
            values = matrix(x + 4 * plan.width * (site * plan.rows + low + row), 1, plan.width)[0]
            own[site] = 0
            for j in range(plan.width):
                if values[j] != _ZERO:
                    own[site] = 1
                    break
        for group in range(plan.groups):
            alive[group] = 0
            for m in range(plan.most_members):
                if members[group, m] >= 0:
                    alive[group] += own[members[group, m]]
        for site in range(plan.sites):
            company = False
            for m in range(plan.most_memberships):
                if owned[site, m] >= 0 and alive[owned[site, m]] > 1:
                    company = True
            if own[site] == 1 and company:
                own[site] = found
                items[found] = site * plan.rows + low + row
                found += 1
            else:
                own[site] = _ABSENT
    return found


@inline_fast
def _open_sites(plan, sizes, new_sizes, x, low, count, items, places, factors):
    """Note the open sites of some rows; return them as the sites of one row, with tables of their own.

    A site whose input is zeros is ruled out. One that is alone in all its groups is settled: nothing it holds
    matters to another. The rest is open. Groups without an open site are left out.
    """
    places_of_groups = places + 8 * count * plan.sites
    numbers, alive = indices(places, count * plan.sites), indices(places_of_groups, plan.groups)
    tables = places_of_groups + 8 * plan.groups
    found = _number(plan, x, low, count, items, numbers, alive)
    members = table(plan.members, plan.groups, plan.most_members)
    old_factors = matrix(plan.factors, 1, plan.groups)[0]
    new_owned = table(tables, found, plan.most_memberships)
    new_members = table(tables + 8 * found * plan.most_memberships, count * plan.groups, plan.most_members)
    new_factors = matrix(factors, 1, count * plan.groups)[0]
    for site in range(found):
        for m in range(plan.most_memberships):
            new_owned[site, m] = _ABSENT
    made, begin = 0, 0
    for family in range(len(sizes)):
        first = made
        for row in range(count):
            own = numbers[row * plan.sites : (row + 1) * plan.sites]
            for group in range(begin, begin + sizes[family]):
                some = False
                for m in range(plan.most_members):
                    site = members[group, m]
                    number = own[site] if site >= 0 else _ABSENT
                    new_members[made, m] = number
                    if number >= 0:
                        some = True
                        place = 0
                        while new_owned[number, place] >= 0:
                            place += 1
                        new_owned[number, place] = made
                if some:
                    new_factors[made] = old_factors[group]
                    made += 1
        begin += sizes[family]
        new_sizes[family] = made - first
    return CarryPlan(
        found, 1, plan.width, plan.blocks, plan.hidden, plan.wide, plan.tracked, 1, plan.kept, 1, plan.arms,
        0, made, tables + 8 * found * plan.most_memberships, plan.most_members, factors, tables,
        plan.most_memberships,
    )  # fmt: skip


@inline_fast
def _carried(plan, sizes, new_sizes, x, low, taken, items, places, factors):
    """Note which sites of rows `low` to `low + taken` are carried; return their sizes, tables and rows."""
    if plan.live != 0:
        return _open_sites(plan, sizes, new_sizes, x, low, taken, items, places, factors), 1
    for site in range(plan.sites):
        for row in range(taken):
            items[site * taken + row] = site * plan.rows + low + row
    for family in range(len(sizes)):
        new_sizes[family] = sizes[family]
    return plan, taken


@inline_fast
def _copy(source, length, target):
    values, into = matrix(source, 1, length)[0], matrix(target, 1, length)[0]
    for j in range(length):
        into[j] = values[j]


@inline_fast
def _copy_in(source, items, count, width, target):
    for i in range(count):
        _copy(source + 4 * width * items[i], width, target + 4 * width * i)


@inline_fast
def _copy_out(source, items, count, width, target):
    for i in range(count):
        _copy(source + 4 * width * i, width, target + 4 * width * items[i])


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
def _step(z, moved, share, vectors, chosen, scale, items, count, width):
    """z <- z + share (moved - z) + scale * noise."""
    for i in range(count):
        old, new = matrix(z + 4 * width * i, 1, width)[0], matrix(moved + 4 * width * i, 1, width)[0]
        if share == _ONE:
            for j in range(width):
                old[j] = new[j]
        else:
            for j in range(width):
                old[j] = old[j] + share * (new[j] - old[j])
        if vectors != 0:
            pick = indices(chosen + 8 * items[i], 1)[0]
            vector = matrix(vectors + 4 * width * pick, 1, width)[0]
            for j in range(width):
                old[j] = old[j] + scale * vector[j]


@inline_fast
def _mix(h, out, scales, laid, first, plan, sizes, count, room, epsilon):
    """out = R(h + what the mixer says), its MLPs being laid[first:]."""
    width = plan.width
    if plan.table != 0:
        run(h, plan.table, plan.arms, plan.sites, count, width, laid[first], 0, out, scales, epsilon)
        return
    length = count * width
    pooled, messages = room, room + 4 * length * plan.groups
    pool(h, plan.members, plan.factors, pooled, plan.groups, plan.most_members, length)
    offset = 0
    for part in range(len(sizes)):
        said = messages + offset
        run(pooled + offset, 0, 1, sizes[part] * count, 1, width, laid[first + part], said, 0, 0, epsilon)
        offset += 4 * length * sizes[part]
    spread_and_normalise(
        h, messages, plan.memberships, out, scales, plan.sites, plan.most_memberships, count, width, epsilon
    )


@inline_fast
def _mix_back(h, inner, to_h, laid, first, plan, sizes, count, room):
    """Turn the gradient of h + what the mixer says, `inner`, into that of h."""
    width, length = plan.width, count * plan.width
    _copy(inner, plan.sites * length, to_h)
    if plan.table != 0:
        run_back(h, plan.table, plan.arms, plan.sites, count, width, laid[first], inner, 0, 0, to_h)
        return
    each, offset = 4 * length * plan.groups, 0
    pooled, to_messages, to_pooled = room, room + each, room + 2 * each
    pool(h, plan.members, plan.factors, pooled, plan.groups, plan.most_members, length)
    pool(inner, plan.members, 0, to_messages, plan.groups, plan.most_members, length)
    for part in range(len(sizes)):
        said, heard = to_messages + offset, to_pooled + offset
        run_back(pooled + offset, 0, 1, sizes[part] * count, 1, width, laid[first + part], said, 0, 0, heard)
        offset += 4 * length * sizes[part]
    spread_scaled(to_h, to_pooled, plan.memberships, plan.factors, plan.sites, plan.most_memberships, length)


@inline_fast
def _shape(plan, mlp, mlps):
    """Inputs and hidden size of an MLP of a layer: those of the mixer come first."""
    if mlp < mlps - 1:
        return plan.arms * plan.width, plan.hidden
    return plan.width, plan.wide


@inline_fast
def _all_laid_out(plan, weights, mlps, back):
    laid = []
    for place in range(len(weights) * mlps):
        layer, mlp = place // mlps, place % mlps
        inputs, hidden = _shape(plan, mlp, mlps)
        up, down = weights[layer, 2 * mlp], weights[layer, 2 * mlp + 1]
        laid.append(laid_out(up, down, inputs, hidden, plan.width, back))
    return laid


@inline_fast
def _blocks(here, laid, first, plan, sizes, count, room, epsilon):
    """Run a stack, whose MLPs are laid[first:], on what is `here`; each half's result is put behind it."""
    mlps, total = len(sizes) + 1, plan.sites * count
    state = 4 * total * plan.width
    for block in range(plan.blocks):
        h, mixed = here + 2 * block * state, here + (2 * block + 1) * state
        factors = here + (2 * plan.blocks + 1) * state + 8 * block * total
        _mix(h, mixed, factors, laid, first, plan, sizes, count, room, epsilon)
        first += mlps
        run(
            mixed, 0, 1, total, 1, plan.width, laid[first - 1], 0, mixed + state, factors + 4 * total, epsilon
        )


@inline_fast
def _blocks_back(here, moving, inner, onward, laid, last, plan, sizes, count, room):
    """Turn the gradient of what a stack makes, whose MLPs are laid[:last], into that of its input."""
    mlps, total = len(sizes) + 1, plan.sites * count
    state = 4 * total * plan.width
    for block in range(plan.blocks - 1, -1, -1):
        h, mixed = here + 2 * block * state, here + (2 * block + 1) * state
        factors = here + (2 * plan.blocks + 1) * state + 8 * block * total
        run_back(
            mixed, 0, 1, total, 1, plan.width, laid[last - 1], moving, mixed + state, factors + 4 * total,
            onward,
        )  # fmt: skip
        last -= mlps
        normalise_rows_gradient(onward, mixed, factors, inner, total, plan.width)
        _mix_back(h, inner, moving, laid, last, plan, sizes, count, room)


@inline_fast
def _share(on_z, share, length, moving):
    """Split a gradient among what moved and what stayed."""
    own, towards = matrix(on_z, 1, length)[0], matrix(moving, 1, length)[0]
    for j in range(length):
        towards[j] = share * own[j]
        own[j] = (_ONE - share) * own[j]


@inline_fast
def _hand_to_inputs(towards_answer, towards_scratch, to_answer, to_scratch, to_x, plan, low, taken):
    """Treat all sites as not carried, which are where their input is: it gets their gradients."""
    length = taken * plan.width
    for site in range(plan.sites):
        offset = 4 * plan.width * (site * plan.rows + low)
        _copy(towards_answer + offset, length, to_x + offset)
        if towards_scratch != 0:
            _add(to_x + offset, towards_scratch + offset, length, to_x + offset)
        if to_answer != 0:
            _set(_ZERO, length, to_answer + offset)
        if to_scratch != 0:
            _set(_ZERO, length, to_scratch + offset)


@compiled_fast
def forward(
    answer, scratch, x, new_answer, new_scratch, begin, end, moves, plan, sizes, weights, share, vectors,
    chosen, scale, kept, space, places, epsilon,
):  # fmt: skip
    """Write where answer and scratch of rows `begin` to `end` go; keep what `backward` needs of the tracked
    applications.

    `sizes` are the groups of each family (one, all sites, for neighbours); `vectors` is 0 without noise,
    `chosen` is (applications, sites, rows). A site that is not carried becomes its input.
    """
    width, blocks, mlps, layers = plan.width, plan.blocks, len(sizes) + 1, len(weights)
    laid = _all_laid_out(plan, weights, mlps, None)
    own_sizes = np.empty_like(sizes)
    for low in range(begin, end, plan.together):
        taken = min(plan.together, end - low)
        capacity = plan.sites * taken
        items, further = indices(places, capacity), places + 8 * capacity
        own, count = _carried(plan, sizes, own_sizes, x, low, taken, items, further, space)
        total = own.sites * count
        numbers, state = total * width, 4 * total * width
        z_answer = space + 4 * plan.groups * taken
        z_scratch, z_x, context = z_answer + state, z_answer + 2 * state, z_answer + 3 * state
        passing, room = z_answer + STATES * state, z_answer + STATES * state + 4 * total * plan.kept
        _copy_in(answer, items, total, width, z_answer)
        _copy_in(x, items, total, width, z_x)
        if scratch != 0:
            _copy_in(scratch, items, total, width, z_scratch)
        fresh = True
        for index in range(len(moves)):
            move, here = moves[index], passing
            if index >= plan.tracked:
                before = plan.sites * ((len(moves) - plan.tracked) * low + (index - plan.tracked) * taken)
                here = kept + 4 * before * plan.kept
            z = z_scratch if move == SCRATCH else z_answer
            if move == SCRATCH and fresh:
                _add(z_answer, z_x, numbers, context)
            fresh = move != SCRATCH
            if move == ALONE:
                _copy(z, numbers, here)
            elif move == SCRATCH:
                _add(z, context, numbers, here)
            else:
                _add(z, z_scratch if move == ANSWER else z_x, numbers, here)
            first = 0 if move == SCRATCH else (layers - blocks) * mlps
            _blocks(here, laid, first, own, own_sizes, count, room, epsilon)
            noise = chosen + 8 * index * plan.sites * plan.rows
            _step(z, here + 2 * blocks * state, share, vectors, noise, scale, items, total, width)
        if plan.live != 0:
            for site in range(plan.sites):
                offset = 4 * width * (site * plan.rows + low)
                _copy(x + offset, taken * width, new_answer + offset)
                if scratch != 0:
                    _copy(x + offset, taken * width, new_scratch + offset)
        _copy_out(z_answer, items, total, width, new_answer)
        if scratch != 0:
            _copy_out(z_scratch, items, total, width, new_scratch)


@compiled_fast
def backward(
    towards_answer, towards_scratch, x, to_answer, to_scratch, to_x, moves, plan, sizes, weights, to_weights,
    share, kept, space, places,
):  # fmt: skip
    """Write the gradients of the old states, x and the weights, given those of the new states.

    That of the new scratch state may be 0 for none, and so may those of the old states if nobody wants them.
    """
    width, blocks, mlps, layers = plan.width, plan.blocks, len(sizes) + 1, len(weights)
    laid = _all_laid_out(plan, weights, mlps, True)
    own_sizes = np.empty_like(sizes)
    for low in range(0, plan.rows, plan.together):
        taken = min(plan.together, plan.rows - low)
        capacity = plan.sites * taken
        items, further = indices(places, capacity), places + 8 * capacity
        own, count = _carried(plan, sizes, own_sizes, x, low, taken, items, further, space)
        total = own.sites * count
        numbers, state = total * width, 4 * total * width
        on_answer = space + 4 * plan.groups * taken
        on_scratch, on_x, moving = on_answer + state, on_answer + 2 * state, on_answer + 3 * state
        inner, onward, room = on_answer + 4 * state, on_answer + 5 * state, on_answer + 6 * state
        _copy_in(towards_answer, items, total, width, on_answer)
        if towards_scratch != 0:
            _copy_in(towards_scratch, items, total, width, on_scratch)
        else:
            _set(_ZERO, numbers, on_scratch)
        _set(_ZERO, numbers, on_x)
        for index in range(len(moves) - 1, plan.tracked - 1, -1):
            move = moves[index]
            before = plan.sites * ((len(moves) - plan.tracked) * low + (index - plan.tracked) * taken)
            here = kept + 4 * before * plan.kept
            on_z = on_scratch if move == SCRATCH else on_answer
            _share(on_z, share, numbers, moving)
            last = mlps * (blocks if move == SCRATCH else layers)
            _blocks_back(here, moving, inner, onward, laid, last, own, own_sizes, count, room)
            _add(on_z, moving, numbers, on_z)
            if move == SCRATCH:
                _add(on_answer, moving, numbers, on_answer)
            elif move == ANSWER:
                _add(on_scratch, moving, numbers, on_scratch)
            if move in (SCRATCH, INPUT):
                _add(on_x, moving, numbers, on_x)
        if plan.live != 0:
            _hand_to_inputs(towards_answer, towards_scratch, to_answer, to_scratch, to_x, plan, low, taken)
        if to_answer != 0:
            _copy_out(on_answer, items, total, width, to_answer)
        if to_scratch != 0:
            _copy_out(on_scratch, items, total, width, to_scratch)
        _copy_out(on_x, items, total, width, to_x)
    for place in range(len(laid)):
        layer, mlp = place // mlps, place % mlps
        inputs, hidden = _shape(plan, mlp, mlps)
        to_up, to_down = to_weights[layer, 2 * mlp], to_weights[layer, 2 * mlp + 1]
        hand_over(laid[place], to_up, to_down, inputs, hidden, width)
