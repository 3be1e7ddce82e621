"""Means over seeds with their intervals, and verdicts: computed from values by cell and seed, nothing else.

A verdict follows from the claim's declared contrasts. Each contrast is a sum of cells taken seed by seed
(rows that share a seed share their puzzles and the order of batches, so differences are paired), and the 95%
t-interval of its mean decides: wholly on the claimed side it is supported, wholly on the other refuted. Fewer
than three seeds decide nothing, whatever their interval.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import sqrt
from statistics import mean, stdev
from typing import Any

from eqr.experiments.experiment import Claim, Contrast

Values = Mapping[str, Mapping[int, float]]
"""Values by cell (`item | row | column`) and seed."""

LEAST_SEEDS = 3
T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
)  # fmt: skip
"""Student's t at 97.5% for 1, 2, ... degrees of freedom."""


@dataclass(frozen=True)
class SeedMean:
    """A mean over seeds; without a second seed there is no interval."""

    mean: float
    low: float | None
    high: float | None
    n: int


def summary(values: Sequence[float]) -> SeedMean | None:
    """Return mean and 95% t-interval; None without values."""
    if not values:
        return None
    middle, n = mean(values), len(values)
    if n == 1:
        return SeedMean(middle, None, None, 1)
    t = T95[n - 2] if n - 2 < len(T95) else 1.96 + 2.5 / (n - 1)
    half = t * stdev(values) / sqrt(n)
    return SeedMean(middle, middle - half, middle + half, n)


class ClaimVerdict(StrEnum):
    """What our runs say about a claim."""

    SUPPORTED = "supported"
    REFUTED = "refuted"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Judged:
    """A contrast with its verdict and the numbers that decided it."""

    contrast: Contrast
    verdict: ClaimVerdict
    found: SeedMean | None
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        numbers = None if self.found is None else vars(self.found)
        return {
            "contrast": self.contrast.text,
            "says": self.contrast.says,
            "verdict": str(self.verdict),
            "found": numbers,
            "reason": self.reason,
        }


def judge(contrast: Contrast, values: Values) -> Judged:
    """Decide a contrast."""
    signed = [(1, cell) for cell in contrast.plus] + [(-1, cell) for cell in contrast.minus]
    missing = [cell for _, cell in signed if not values.get(cell)]
    if missing:
        return Judged(contrast, ClaimVerdict.UNDECIDED, None, f"not run: {missing[0]}")
    seeds = sorted(set.intersection(*(set(values[cell]) for _, cell in signed)))
    found = summary([sum(sign * values[cell][seed] for sign, cell in signed) for seed in seeds])
    if found is None or found.low is None or found.high is None or found.n < LEAST_SEEDS:
        return Judged(
            contrast, ClaimVerdict.UNDECIDED, found, f"fewer than {LEAST_SEEDS} seeds have every cell"
        )
    return Judged(contrast, _side(contrast, found.low, found.high), found)


def _side(contrast: Contrast, low: float, high: float) -> ClaimVerdict:
    above = contrast.above if contrast.above is not None else float("-inf")
    below = contrast.below if contrast.below is not None else float("inf")
    if above < low and high < below:
        return ClaimVerdict.SUPPORTED
    # a difference of exactly nothing, such as two rows at 0%, is no evidence either way
    return ClaimVerdict.REFUTED if high < above or below < low else ClaimVerdict.UNDECIDED


def verdict(parts: Sequence[Judged]) -> ClaimVerdict:
    """Return the verdict of a claim: all its contrasts must hold, one that fails refutes it."""
    kinds = {part.verdict for part in parts}
    if ClaimVerdict.REFUTED in kinds:
        return ClaimVerdict.REFUTED
    return ClaimVerdict.SUPPORTED if kinds == {ClaimVerdict.SUPPORTED} else ClaimVerdict.UNDECIDED


def judge_claim(claim: Claim, values: Values) -> tuple[ClaimVerdict, list[Judged]]:
    """Decide a claim from values."""
    parts = [judge(contrast, values) for contrast in claim.contrasts]
    return verdict(parts), parts
