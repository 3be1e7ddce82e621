"""Which sites of some rows `eqr.cpu.segment` carries: all, or the open ones with tables of their own."""

from typing import NamedTuple

from eqr.cpu.kernels import F4, indices, inline_fast, matrix, table

_ZERO, _ABSENT = F4(0.0), -1
_STATES, _SLOPES = 4, 5


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
    live: int
    """Whether only open sites are carried, see `_open_sites`."""

    def space(self) -> int:
        """Numbers of working memory that `forward` and `backward` need."""
        states = (_STATES + _SLOPES) * self.width * self.sites
        groups = (3 * self.width + 1) * self.groups
        return self.together * (states + self.kept_of_a_site() * self.sites + groups)

    def places(self) -> int:
        """Indices of working memory that they need."""
        tables = self.groups * self.most_members + self.sites * self.most_memberships if self.live else 0
        return self.together * (2 * self.sites + tables) + self.groups

    def kept_of_a_site(self) -> int:
        """Numbers kept of one site in one application: inputs and results of each half, and their scales."""
        return (2 * self.blocks + 1) * self.width + 2 * self.blocks


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
