"""Estimates with 95% intervals, and the estimators that metrics are made of; NumPy only, no puzzles.

Shares get Wilson's interval, averages of other per-puzzle numbers a bootstrap over puzzles (starts of one
puzzle are not independent, puzzles are).
"""

from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eqr.result import Estimate
from eqr.solve.selection import vote

Z = 1.959963984540054
"""Two-sided 95%."""
RESAMPLES = 1000
_DRAWN_AT_ONCE = 4_000_000
"""Counts held at once, so that memory stays bounded however many distinct values there are."""


def share(values: NDArray[Any]) -> Estimate:
    """Estimate the mean of per-puzzle shares (puzzles,), or how often something is true: Wilson's interval.

    A share varies at most as much as a yes or no of the same mean, so the interval is never too narrow, and
    one number has one interval, whichever way it came about.
    """
    n = len(values)
    if n == 0:
        return Estimate(float("nan"), float("nan"), float("nan"), 0)
    p = min(max(float(values.mean()), 0.0), 1.0)  # sums of shares can stray by rounding
    middle = (p + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
    return Estimate(p, min(max(middle - half, 0.0), p), max(min(middle + half, 1.0), p), n)


def average(values: NDArray[Any], *, seed: int = 0) -> Estimate:
    """Estimate the mean of per-puzzle numbers (puzzles,), with a bootstrap interval over puzzles."""
    n = len(values)
    if n == 0:
        return Estimate(float("nan"), float("nan"), float("nan"), 0)
    # resampling puzzles is drawing how often each distinct value occurs, and those are few
    distinct, counts = np.unique(np.asarray(values, np.float64), return_counts=True)
    generator, at_once = np.random.default_rng(seed), max(_DRAWN_AT_ONCE // len(distinct), 1)
    sizes = [min(at_once, RESAMPLES - first) for first in range(0, RESAMPLES, at_once)]
    means = [generator.multinomial(n, counts / n, size=size) @ distinct / n for size in sizes]
    low, high = np.quantile(np.concatenate(means), (0.025, 0.975))
    mean = float(distinct @ counts / n)
    return Estimate(mean, min(float(low), mean), max(float(high), mean), n)


def average_distance(differences: NDArray[Any]) -> Estimate:
    """Estimate how far the mean of per-puzzle differences is from 0, in either direction."""
    mean = average(differences)
    ends = sorted((abs(mean.low), abs(mean.high)))
    return Estimate(abs(mean.value), 0.0 if mean.low <= 0.0 <= mean.high else ends[0], ends[1], mean.n)


def pass_at(k: int, right: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return per puzzle the chance that one of k starts drawn from (puzzles, starts) is right: unbiased."""
    starts = right.shape[1]
    wrong = starts - right.sum(axis=1)
    # C(wrong, k) / C(starts, k) as a product of small ratios
    steps = np.arange(k)
    ratios = (wrong[:, None] - steps) / (starts - steps)
    return np.asarray(1.0 - np.prod(np.clip(ratios, 0.0, 1.0), axis=1), np.float64)


def expected_of_lowest(costs: NDArray[np.float64], values: NDArray[Any], starts: int) -> NDArray[np.float64]:
    """Return per puzzle the mean value of the start with the lowest cost of a random `starts`: exact.

    Whether each start is right gives the chance of being right, the costs themselves the cost of the choice.
    Ties in cost go to the earlier start, as in `choose`.
    """
    held = costs.shape[1]
    order = np.argsort(costs, axis=1, kind="stable")
    ranked = np.take_along_axis(values, order, axis=1)
    # the i-th best is chosen if it is drawn and all others come from those behind it:
    # C(held - 1 - i, starts - 1) / C(held, starts)
    chance = np.zeros(held)
    chance[0] = starts / held
    for i in range(1, held - starts + 1):
        chance[i] = chance[i - 1] * (held - starts - i + 1) / (held - i)
    return np.asarray(ranked @ chance, np.float64)


def expected_of_vote(
    ids: NDArray[np.int64], right: NDArray[np.bool_], starts: int, *, draws: int = 64, seed: int = 0
) -> NDArray[np.float64]:
    """Return per puzzle how often the majority of a random `starts` is right, averaged over `draws`."""
    rng = np.random.default_rng(seed)
    held = ids.shape[1]
    if starts == 1:  # nobody to outvote: exact, and equal to every other rule
        return np.asarray(right.mean(axis=1), np.float64)
    if starts == held:
        draws = 1
    hits = np.zeros(len(ids))
    everyone = np.ones((len(ids), starts), np.bool_)
    for _ in range(draws):
        picked = np.sort(rng.permuted(np.tile(np.arange(held), (len(ids), 1)), axis=1)[:, :starts], axis=1)
        chosen = vote(np.take_along_axis(ids, picked, axis=1), everyone)
        start = np.take_along_axis(picked, chosen[:, None], axis=1)
        hits += np.take_along_axis(right, start, axis=1)[:, 0]
    return hits / draws


def powers_of_two(limit: int) -> list[int]:
    """Return 1, 2, 4, ... up to `limit`, and `limit` itself."""
    powers = [1 << exponent for exponent in range(limit.bit_length()) if 1 << exponent <= limit]
    return powers if powers[-1] == limit else [*powers, limit]


def auroc(scores: NDArray[np.float64], hits: NDArray[np.bool_]) -> float | None:
    """Return how often a hit scores above a miss, ties half; None without both."""
    from scipy.stats import rankdata

    count = int(hits.sum())
    if count in (0, len(hits)):
        return None
    above = rankdata(scores)[hits].sum() - count * (count + 1) / 2
    return float(above / (count * (len(hits) - count)))


def rank_correlation(one: NDArray[np.float64], two: NDArray[np.float64]) -> float | None:
    """Return Spearman's correlation; None where one of the two does not vary."""
    from scipy.stats import spearmanr

    if np.ptp(one) == 0 or np.ptp(two) == 0:
        return None
    return float(spearmanr(one, two).statistic)
