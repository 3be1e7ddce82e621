"""Exact search over rows: propagate bounds, try a candidate of the most constrained cell, go back.

A row's least and greatest sum follow from what its cells may still hold; a candidate that no sum within
bounds can contain is ruled out. Compiled by numba; every call ends after a number of steps (rows looked at),
so that nothing here runs for ever. CP-SAT (generating.py) decides what this leaves open.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eqr.tasks.compiled import compiled
from eqr.tasks.rows import Ints, Rows


class Tables(NamedTuple):
    """Rows as the search reads them."""

    cells: int
    leading: int
    """Cells that are decided first: others, such as the sums of cages, follow from them."""
    values: int
    starts: Ints
    sites: Ints
    owners: Ints
    """(entries): the cell of each site."""
    weights: Ints
    low: Ints
    high: Ints
    simple: NDArray[np.bool_]
    """(rows): whether each cell of a row has one entry, of weight 1."""
    wake_starts: Ints
    """(sites + 1)."""
    wake: Ints
    """Rows to look at when a site is ruled out, end to end."""
    told_starts: Ints
    """(sites + 1)."""
    told: Ints
    """Rows to look at when a site is chosen."""


CELLS_A_STEP = 64
"""Cells that may be looked through in the time of a row: what large grids cost counts as steps as well."""
TRAIL, QUEUE, STEPS, RANDOM = range(4)
"""Places in `State.sizes`."""


class State(NamedTuple):
    """Working memory of one search."""

    there: NDArray[np.uint8]
    """(sites): whether a candidate is still possible."""
    left: Ints
    """(cells): how many of its candidates are."""
    trail: Ints
    """Sites in the order in which they were ruled out."""
    queue: Ints
    """Rows to be looked at."""
    queued: NDArray[np.uint8]
    """(rows)."""
    sizes: Ints
    """Lengths of trail and queue, rows looked at so far, state of the random numbers."""


class Found(NamedTuple):
    """What a search says."""

    solutions: int
    complete: bool
    """Whether every possibility was looked at, or the limit of solutions reached."""
    backtracks: int
    steps: int


def tables(rows: Rows, cells: int, leading: int) -> Tables:
    """Prepare rows for the search."""
    sites = cells * rows.values
    cell_of = rows.sites // rows.values
    named = rows.row_of * cells + cell_of
    keys, counts = np.unique(named, return_counts=True)
    several = keys[counts > 1]  # a cell with several named values: any of its values matters to the row
    pairs = np.stack([rows.sites, rows.row_of], axis=1)
    spread = np.stack(
        [
            (several % cells)[:, None] * rows.values + np.arange(rows.values),
            np.repeat((several // cells)[:, None], rows.values, axis=1),
        ],
        axis=2,
    ).reshape(-1, 2)
    wake = np.unique(np.concatenate([pairs, spread]), axis=0)
    told = np.unique(pairs, axis=0)
    return Tables(
        cells=cells,
        leading=leading,
        values=rows.values,
        starts=rows.starts,
        sites=rows.sites,
        owners=cell_of,
        weights=rows.weights,
        low=rows.low,
        high=rows.high,
        simple=rows.is_count & ~np.isin(np.arange(len(rows)), several // cells),
        wake_starts=np.searchsorted(wake[:, 0], np.arange(sites + 1)),
        wake=np.ascontiguousarray(wake[:, 1]),
        told_starts=np.searchsorted(told[:, 0], np.arange(sites + 1)),
        told=np.ascontiguousarray(told[:, 1]),
    )


@compiled
def _draw(state: State, count: int) -> int:
    """Return a random number below `count`, by a linear congruence."""
    state.sizes[RANDOM] = (state.sizes[RANDOM] * 1103515245 + 12345) & 0x7FFFFFFF
    return int((state.sizes[RANDOM] >> 8) % count)


@compiled
def _rule_out(site: int, t: Tables, state: State) -> bool:
    """Rule a site out and put the rows that mind on the queue; False if its cell is left with nothing."""
    there, left, queue, queued, sizes = state.there, state.left, state.queue, state.queued, state.sizes
    there[site] = 0
    cell = site // t.values
    left[cell] -= 1
    state.trail[sizes[TRAIL]] = site
    sizes[TRAIL] += 1
    for place in range(t.wake_starts[site], t.wake_starts[site + 1]):
        row = t.wake[place]
        if not queued[row]:
            queued[row] = 1
            queue[sizes[QUEUE]] = row
            sizes[QUEUE] += 1
    if left[cell] == 1:
        first = cell * t.values
        last = first
        while not there[last]:
            last += 1
        for place in range(t.told_starts[last], t.told_starts[last + 1]):
            row = t.told[place]
            if not queued[row]:
                queued[row] = 1
                queue[sizes[QUEUE]] = row
                sizes[QUEUE] += 1
    return bool(left[cell] > 0)


@compiled
def _choose(site: int, t: Tables, state: State) -> bool:
    """Rule out all other candidates of a site's cell; False if the site itself is."""
    there = state.there
    if not there[site]:
        return False
    cell = site // t.values
    for other in range(cell * t.values, (cell + 1) * t.values):
        if other != site and there[other]:
            _rule_out(other, t, state)
    return True


@compiled
def _count(row: int, t: Tables, state: State) -> bool:
    """The same as `_look_at` for a simple row: only chosen and possible sites are to be counted."""
    there, left, sites, owners = state.there, state.left, t.sites, t.owners
    chosen, possible = 0, 0
    for place in range(t.starts[row], t.starts[row + 1]):
        if there[sites[place]]:
            possible += 1
            chosen += left[owners[place]] == 1
    if chosen > t.high[row] or possible < t.low[row]:
        return False
    if chosen == t.high[row] and possible > chosen:
        for place in range(t.starts[row], t.starts[row + 1]):
            if there[sites[place]] and left[owners[place]] > 1:
                _rule_out(sites[place], t, state)
    elif possible == t.low[row] and possible > chosen:
        for place in range(t.starts[row], t.starts[row + 1]):
            if there[sites[place]] and left[owners[place]] > 1:
                _choose(sites[place], t, state)
    return True


@compiled
def _look_at(row: int, t: Tables, state: State, named: NDArray[np.uint8]) -> bool:
    """Rule out what a row rules out; False if it cannot be kept."""
    there, left, sites, owners, weights = state.there, state.left, t.sites, t.owners, t.weights
    least, greatest, widest = 0, 0, 0
    begin, end = t.starts[row], t.starts[row + 1]
    place = begin
    while place < end:  # sums over cells, whose entries stand together
        cell = owners[place]
        low, high, count = 1 << 40, -(1 << 40), 0
        while place < end and owners[place] == cell:
            if there[sites[place]]:
                count += 1
                low, high = min(low, weights[place]), max(high, weights[place])
            place += 1
        if count < left[cell]:
            low, high = min(low, 0), max(high, 0)
        least, greatest, widest = least + low, greatest + high, max(widest, high - low)
    most, need = t.high[row] - least, greatest - t.low[row]
    if most < 0 or need < 0:
        return False
    if most >= widest and need >= widest:
        return True
    place = begin
    while place < end:
        first = place
        cell = owners[place]
        low, high, count = 1 << 40, -(1 << 40), 0
        while place < end and owners[place] == cell:
            if there[sites[place]]:
                count += 1
                low, high = min(low, weights[place]), max(high, weights[place])
            place += 1
        others = count < left[cell]
        if others:
            low, high = min(low, 0), max(high, 0)
        if high == low:
            continue
        for entry in range(first, place):
            site, weight = sites[entry], weights[entry]
            barred = weight - low > most or high - weight > need
            if there[site] and barred and not _rule_out(site, t, state):
                return False
        if others and (-low > most or high > need):
            for entry in range(first, place):
                named[sites[entry] - cell * t.values] = 1
            alive = True
            for value in range(t.values):
                site = cell * t.values + value
                if not named[value] and there[site] and alive:
                    alive = _rule_out(site, t, state)
            for entry in range(first, place):
                named[sites[entry] - cell * t.values] = 0
            if not alive:
                return False
    return True


@compiled
def _settle(t: Tables, state: State, named: NDArray[np.uint8]) -> bool:
    """Look at queued rows until nothing changes; False if one cannot be kept. Adds to the steps."""
    queue, queued, sizes = state.queue, state.queued, state.sizes
    fine = True
    while sizes[QUEUE]:
        sizes[QUEUE] -= 1
        row = queue[sizes[QUEUE]]
        queued[row] = 0
        if fine:
            sizes[STEPS] += 1
            fine = _count(row, t, state) if t.simple[row] else _look_at(row, t, state, named)
    return fine


@compiled
def _fresh(t: Tables, seed: int) -> State:
    """Return a state in which everything is possible and every row is to be looked at."""
    sites, rows = t.cells * t.values, len(t.low)
    sizes = np.zeros(4, np.int64)
    sizes[QUEUE], sizes[RANDOM] = rows, seed
    return State(
        np.ones(sites, np.uint8),
        np.full(t.cells, t.values),
        np.empty(sites, np.int64),
        np.arange(rows),
        np.ones(rows, np.uint8),
        sizes,
    )


@compiled
def _most_constrained(t: Tables, state: State, at_random: bool) -> int:
    """Return the undecided cell with fewest candidates, the first or any of them; -1 if all are decided."""
    left = state.left
    fewest, chosen, ties = t.values + 1, -1, 0
    for cell in range(t.cells):
        if cell == t.leading and chosen >= 0:
            break
        if left[cell] > 1 and left[cell] <= fewest:
            ties = 1 if left[cell] < fewest else ties + 1
            if left[cell] < fewest or (at_random and _draw(state, ties) == 0):
                chosen = cell
            fewest = left[cell]
    return chosen


@compiled
def _write(answer: Ints, t: Tables, state: State) -> None:
    """Write down what is left in each cell."""
    for cell in range(t.cells):
        value = 0
        while not state.there[cell * t.values + value]:
            value += 1
        answer[cell] = value


@compiled
def search(
    givens: Ints, barred: int, t: Tables, limit: int, most_steps: int, seed: int, answer: Ints
) -> tuple[int, bool, int, int]:
    """Look for up to `limit` solutions; the first is written to `answer`.

    `givens` (cells) are value numbers, -1 for none; `barred` is a site that is ruled out, or -1. A seed
    above 0 breaks ties between cells and between values at random. Returns what `Found` has, in its order.
    """
    cells, values = t.cells, t.values
    state, named = _fresh(t, seed), np.zeros(values, np.uint8)
    there, left, trail, sizes = state.there, state.left, state.trail, state.sizes
    look = cells // CELLS_A_STEP
    sizes[STEPS] += look
    fine = True
    if barred >= 0:
        fine = _rule_out(barred, t, state)
    for cell in range(cells):
        if fine and givens[cell] >= 0:
            fine = _choose(cell * values + givens[cell], t, state)
    fine = _settle(t, state, named) and fine
    tried, marks, level = np.empty(cells + 1, np.int64), np.empty(cells + 1, np.int64), 0
    solutions, backtracks = 0, 0
    while True:
        if sizes[STEPS] > most_steps:
            return solutions, False, backtracks, sizes[STEPS]
        if fine:
            chosen = _most_constrained(t, state, seed > 0)
            sizes[STEPS] += look
            if chosen < 0:
                solutions += 1
                if solutions == 1:
                    _write(answer, t, state)
                if solutions >= limit:
                    return solutions, True, backtracks, sizes[STEPS]
                fine, backtracks = False, backtracks - 1
            else:
                which = _draw(state, left[chosen]) if seed > 0 else 0
                site = chosen * values
                while not there[site] or which:
                    if there[site]:
                        which -= 1
                    site += 1
                tried[level], marks[level] = site, sizes[TRAIL]
                level += 1
                _choose(site, t, state)
                fine = _settle(t, state, named)
        if not fine:
            backtracks += 1
            if level == 0:
                return solutions, True, backtracks, sizes[STEPS]
            level -= 1
            while sizes[TRAIL] > marks[level]:
                sizes[TRAIL] -= 1
                there[trail[sizes[TRAIL]]] = 1
                left[trail[sizes[TRAIL]] // values] += 1
            fine = _rule_out(tried[level], t, state)
            fine = _settle(t, state, named) and fine


@compiled
def dig(givens: Ints, order: Ints, t: Tables, keep: int, most_steps: int) -> tuple[int, int]:
    """Take clues away in place, in order, while one answer is proven; returns (clues left, steps).

    Without a clue, the answer stays the only one if none holds another value in its cell.
    """
    clues, steps = (givens >= 0).sum(), 0
    answer = np.empty(t.cells, np.int64)
    for cell in order:
        if clues <= keep:
            break
        value = givens[cell]
        if value < 0:
            continue
        givens[cell] = -1
        solutions, complete, _, used = search(givens, cell * t.values + value, t, 1, most_steps, 0, answer)
        steps += used
        if solutions or not complete:
            givens[cell] = value
        else:
            clues -= 1
    return clues, steps


def find(
    rows: Tables, givens: NDArray[np.integer], *, limit: int, steps: int, seed: int = 0
) -> tuple[Found, Ints]:
    """Search for up to `limit` solutions; the second part is the first of them."""
    answer = np.zeros(rows.cells, np.int64)
    found = search(givens.astype(np.int64), -1, rows, limit, steps, seed, answer)
    return Found(*found), answer
