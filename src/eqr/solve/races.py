"""Races: starts of one puzzle that compete, so many abreast, until one of them wins.

They run in heats that enter together and advance in step; the next heat begins only when the last has run
out without a winner. Who wins therefore depends on the puzzle alone, not on slots, order or processes. The
engine runs races, `FirstToHalt` finds the winner among starts that all ran, and `replay` tells from such
starts what a race would have left: one definition, three uses.
"""

from math import ceil

import numpy as np
from numpy.typing import NDArray

from eqr.solve.candidates import Status


def heat_size(breadth: int, abreast: int) -> int:
    """Return the size of the fewest, nearly equal heats of at most `abreast` that hold `breadth` starts."""
    return ceil(breadth / ceil(breadth / abreast))


def finish(depths: NDArray[np.int32], abreast: int) -> NDArray[np.float64]:
    """Return when each start (puzzles, starts) of a race ends: by heat, then by depth; all below zero."""
    heats = np.arange(depths.shape[1]) // heat_size(depths.shape[1], abreast)
    longest = float(depths.max(initial=0)) + 1.0
    order: NDArray[np.float64] = heats * longest + depths - longest * (heats[-1] + 1)
    return order


def replay(halts: NDArray[np.int64], depth: int, abreast: int) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return where each start (puzzles, starts) ends in a race, and its status.

    `halts` says at which depth each start would halt by itself; above `depth` it never does.
    """
    ends = np.minimum(halts, depth)
    status = np.full(ends.shape, Status.RAN_OUT, np.uint8)
    heat = heat_size(ends.shape[1], abreast)
    won = np.zeros(len(ends), bool)
    for first in range(0, ends.shape[1], heat):
        part = slice(first, first + heat)
        ends[won, part], status[won, part] = 0, Status.NOT_RUN
        halted = (halts[:, part] <= depth) & ~won[:, None]
        winner = np.asarray(halted.any(axis=1))
        line = np.where(halted, ends[:, part], depth + 1).min(axis=1)[:, None]
        here = halted & (ends[:, part] == line)
        status[:, part] = np.where(here, Status.HALTED, status[:, part])
        status[:, part] = np.where((line < depth) & ~here, Status.CANCELLED, status[:, part])
        ends[:, part] = np.where(winner[:, None], line, ends[:, part])
        won |= winner
    return ends, status
