"""Which sites of some rows `segment` carries: all, or the open ones with tables of their own."""

from eqr.backends.cpu.fused import CarryPlan
from eqr.backends.cpu.kernels import F4, indices, inline_fast, matrix, table

_ZERO, _ABSENT = F4(0.0), -1


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
    numbers, alive = (
        indices(places, count * plan.sites),
        indices(places + 8 * count * plan.sites, plan.groups),
    )
    tables = places + 8 * (count * plan.sites + plan.groups)
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
        found, 1, plan.width, plan.blocks, plan.hidden, plan.wide, plan.tracked, 1, plan.arms, 0, made,
        tables + 8 * found * plan.most_memberships, plan.most_members, factors, tables,
        plan.most_memberships, 1,
    )  # fmt: skip


@inline_fast
def carried(plan, sizes, new_sizes, x, low, taken, items, places, factors):
    """Note which sites of rows `low` to `low + taken` are carried; return their sizes, tables and rows."""
    if plan.live != 0:
        return _open_sites(plan, sizes, new_sizes, x, low, taken, items, places, factors), 1
    for site in range(plan.sites):
        for row in range(taken):
            items[site * taken + row] = site * plan.rows + low + row
    for family in range(len(sizes)):
        new_sizes[family] = sizes[family]
    return plan, taken
