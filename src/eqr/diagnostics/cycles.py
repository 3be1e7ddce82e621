"""Limit cycles: trajectories that do not come to rest but come back, with their period and amplitude.

A fixed point is the simplest attractor; a small set of states that is walked round for ever is another. Both
the decoded answers (any number of segments, from a candidates table) and the latents themselves (from a
landscape) are searched for the shortest period.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eqr.solve.selection import answer_ids
from eqr.tasks.base import Tokens

ROUNDS = 3
"""How often a cycle must have been walked round: two answers can alternate twice by chance."""


@dataclass(frozen=True, kw_only=True)
class Cycles:
    """The cycle of each of some trajectories; period 0 and amplitude 0 where there is none."""

    period: NDArray[np.int64]
    """Segments after which a trajectory is back where it was."""
    amplitude: NDArray[np.float64]
    """Of answers: share of the cells that change on the way round. Of latents: root-mean-square distance per
    coordinate from the middle of the cycle."""

    @property
    def found(self) -> NDArray[np.bool_]:
        """Which trajectories are on a cycle."""
        return self.period > 0


def answer_cycles(answers: Tokens, most: int = 8) -> Cycles:
    """Find cycles of at most `most` segments in decoded answers (trajectories, segments, cells).

    A period counts if the last `ROUNDS` rounds of it agree; a standing answer is no cycle.
    """
    count, segments, _ = answers.shape
    ids = answer_ids(answers)
    periods, amplitudes = np.zeros(count, np.int64), np.zeros(count)
    for period in range(min(most, segments // ROUNDS), 1, -1):  # the shortest is written last
        last = ids[:, -ROUNDS * period :]
        repeats = (last[:, period:] == last[:, :-period]).all(axis=1)
        periods[repeats & (last != last[:, :1]).any(axis=1)] = period
    for row in np.flatnonzero(periods):
        around = answers[row, -periods[row] :]
        amplitudes[row] = (around != around[:1]).any(axis=0).mean()
    return Cycles(period=periods, amplitude=amplitudes)


def latent_cycles(states: Tensor, *, rest: float, closing: float = 0.25, most: int = 8) -> Cycles:
    """Find cycles of at most `most` segments in latents (trajectories, segments, coordinates).

    A trajectory that moves at most `rest` per segment (root mean square per coordinate) has come to rest. Of
    the others, a period is the smallest number of segments after which the state is back: no farther from
    where it was than `closing` of the largest distance on the way (path noise keeps it from closing exactly).
    """
    count, segments, _ = states.shape
    lags = min(most, segments // 2)
    moved = torch.stack([_apart(states, lag, lags) for lag in range(1, lags + 1)], dim=1).cpu().numpy()
    going = moved[:, 0] > rest
    periods, amplitudes = np.zeros(count, np.int64), np.zeros(count)
    back = np.zeros_like(moved, bool)
    back[:, 1:] = moved[:, 1:] <= closing * np.maximum.accumulate(moved, axis=1)[:, :-1]
    found = going & back.any(axis=1)
    periods[found] = back[found].argmax(axis=1) + 1
    for row in np.flatnonzero(found):
        around = states[row, -int(periods[row]) :]
        amplitudes[row] = float((around - around.mean(dim=0)).square().mean().sqrt())
    return Cycles(period=periods, amplitude=amplitudes)


def _apart(states: Tensor, lag: int, over: int) -> Tensor:
    """Return the mean distance between states `lag` segments apart, over the last `over` segments."""
    later, earlier = states[:, -over:], states[:, -over - lag : -lag]
    return (later - earlier).square().mean(dim=2).sqrt().mean(dim=1)
