"""Verdicts on the paper's claims: computed from values by cell, seed and puzzle, nothing else.

A test is first asked whether its regime can show the claim at all: every check must hold. Then its one
primary contrast decides, by the rules that `preregistered.py` states. Secondary contrasts are judged
alike, at probabilities that Holm's procedure adjusts.

Every arm is trained from the same seeds and answers the same puzzles, so a contrast is a matrix of
differences (seeds, puzzles) with two crossed sources of chance: another seed, and another puzzle. The
random-effects model d = mean + seed + puzzle + rest is estimated by its mean squares; the variance of the
grand mean is (MS_seeds + MS_puzzles - MS_rest) / (seeds x puzzles), with Satterthwaite's degrees of freedom.
A number that is no mean over puzzles, such as an AUROC, has one value a seed and Student's interval.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf, log
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from eqr.paper.experiment import Check, ClaimTest, Contrast
from eqr.result import Result
from eqr.results.metrics import auroc

Values = Mapping[str, Mapping[int, float]]
"""Values by cell (`item | row | column`) and seed."""
PuzzleValues = Mapping[str, Mapping[int, NDArray[np.float64]]]
"""Values of every puzzle by cell and seed, for cells that are means over puzzles."""

LEAST_SEEDS = 4
POWER = 0.8
"""With which the smallest detectable effect would have been seen."""


@dataclass(frozen=True)
class Effect:
    """An estimate with its standard error and the degrees of freedom of Student's t that belongs to it."""

    value: float
    error: float
    freedom: float
    seeds: int
    puzzles: int | None
    """None for a number that is no mean over puzzles."""

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return both ends."""
        half = self.error * float(stdtrit(self.freedom, 0.5 + level / 2))
        return self.value - half, self.value + half

    def p_above(self, bound: float) -> float:
        """Return the one-sided p of what we see or more, were the truth at `bound`; small: it lies above."""
        if self.error == 0.0:
            return 0.5  # equal in every seed: chance was not seen, so nothing is said about it
        return float(stdtr(self.freedom, (bound - self.value) / self.error))

    def p_below(self, bound: float) -> float:
        """Return the same for a truth that lies below."""
        return 1.0 - self.p_above(bound)

    def p_within(self, low: float, high: float) -> float:
        """Return the p of two one-sided tests; small: the truth lies between the two."""
        return max(self.p_above(low), self.p_below(high))

    @property
    def detectable(self) -> float:
        """The effect that a two-sided test at 5% would have seen with 80% power."""
        return self.error * float(stdtrit(self.freedom, 0.975) + stdtrit(self.freedom, POWER))


def effect(differences: NDArray[Any]) -> Effect:
    """Estimate the mean of differences, (seeds,) or (seeds, puzzles), two seeds or more."""
    seeds = len(differences)
    if seeds < 2:
        raise ValueError(f"{seeds} seed: an effect needs two or more")
    if differences.ndim == 1:
        error = float(differences.std(ddof=1)) / seeds**0.5
        return Effect(float(differences.mean()), error, seeds - 1, seeds, None)
    puzzles = differences.shape[1]
    mean, by_seed, by_puzzle = differences.mean(), differences.mean(axis=1), differences.mean(axis=0)
    rest = differences - by_seed[:, None] - by_puzzle[None] + mean
    count = seeds * puzzles
    free = np.array([seeds - 1, puzzles - 1, (seeds - 1) * (puzzles - 1)])
    squares = np.array(
        [((by_seed - mean) ** 2).sum() * puzzles, ((by_puzzle - mean) ** 2).sum() * seeds, (rest**2).sum()]
    )
    parts = squares / free / count
    # what seeds or puzzles add to the rest cannot be negative, whatever their mean squares say by chance
    variance = max(parts[0], parts[2]) + max(parts[1] - parts[2], 0.0)
    if variance == 0.0:
        return Effect(float(mean), 0.0, seeds - 1, seeds, puzzles)
    freedom = variance**2 / (parts**2 / free).sum()
    return Effect(float(mean), float(variance**0.5), float(max(freedom, seeds - 1)), seeds, puzzles)


def holm(probabilities: Sequence[float]) -> list[float]:
    """Return p values adjusted by Holm's step-down procedure, in the order given."""
    adjusted, least = [0.0] * len(probabilities), 0.0
    for rank, index in enumerate(sorted(range(len(probabilities)), key=probabilities.__getitem__)):
        least = max(least, min(1.0, (len(probabilities) - rank) * probabilities[index]))
        adjusted[index] = least
    return adjusted


def over_seeds(metric: str, values: Sequence[float]) -> Result | None:
    """Return mean and 95% t-interval, none of a single value; None without values."""
    if len(values) < 2:
        return Result(metric=metric, value=values[0], n=1) if values else None
    low, high = effect(np.array(values)).interval()
    return Result(metric=metric, value=mean(values), low=low, high=high, n=len(values))


class ClaimVerdict(StrEnum):
    """What our runs say about a claim."""

    SUPPORTED = "supported"
    REFUTED = "refuted"
    NO_EFFECT = "no effect"
    """The claimed difference is smaller, either way, than the smallest that would matter."""
    UNDECIDED = "undecided"
    CANNOT_SHOW = "cannot show here"
    """The regime fails its check."""
    NOT_RUN = "to be run"

    @property
    def decided(self) -> bool:
        """Whether the runs answer the question."""
        return self in (ClaimVerdict.SUPPORTED, ClaimVerdict.REFUTED, ClaimVerdict.NO_EFFECT)


@dataclass(frozen=True)
class Judged:
    """A contrast with its verdict and the numbers that decided it."""

    contrast: Contrast
    verdict: ClaimVerdict
    found: Effect | None
    p: float | None = None
    """Two-sided, of a secondary contrast adjusted."""
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain data, numbers to six digits, which is what processors agree on."""
        record: dict[str, Any] = {
            "contrast": self.contrast.text,
            "says": self.contrast.says,
            "verdict": str(self.verdict),
        }
        if self.found is not None:
            names = ("mean", "low", "high", "detectable")
            numbers = (self.found.value, *self.found.interval(), self.found.detectable)
            record |= {name: float(f"{value:.6g}") for name, value in zip(names, numbers, strict=True)}
            record |= {"seeds": self.found.seeds, "puzzles": self.found.puzzles}
        if self.p is not None:
            record["p"] = float(f"{self.p:.3g}")
        return record | ({"reason": self.reason} if self.reason else {})


@dataclass(frozen=True)
class Checked:
    """A check of a regime with what was found."""

    check: Check
    found: float | None

    @property
    def held(self) -> bool:
        """Whether the regime passes."""
        return self.found is not None and self.check.low <= self.found <= self.check.high

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        found = None if self.found is None else float(f"{self.found:.6g}")
        bounds = [self.check.low, self.check.high]
        return {"says": self.check.says, "found": found, "bounds": bounds, "held": self.held}


@dataclass(frozen=True)
class JudgedTest:
    """A claim as tested with one operator."""

    test: ClaimTest
    verdict: ClaimVerdict
    checks: tuple[Checked, ...]
    primary: Judged
    secondary: tuple[Judged, ...]
    planned: int
    reason: str = ""
    """Why there is no verdict."""

    @property
    def interim(self) -> bool:
        """Whether fewer seeds are there than planned."""
        return self.primary.found is not None and self.primary.found.seeds < self.planned

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "operator": self.test.operator,
            "verdict": str(self.verdict),
            "interim": self.interim,
            "planned_seeds": self.planned,
            "reason": self.reason,
            "unit": self.test.unit,
            "of_interest": self.test.of_interest,
            "paper": self.test.paper,
            "primary": self.primary.to_json(),
            "secondary": [part.to_json() for part in self.secondary],
            "checks": [part.to_json() for part in self.checks],
        }


def judge_test(
    test: ClaimTest, values: Values, puzzles: PuzzleValues, seeds: Mapping[str, int]
) -> JudgedTest:
    """Decide a claim for one operator; `seeds` are those planned, by study."""
    checks = tuple(Checked(check, _check(check, values)) for check in test.checks)
    primary = judge(test.primary, test, values, puzzles, peers=test.peers)
    others = [judge(contrast, test, values, puzzles) for contrast in test.secondary]
    planned = min(seeds[item] for item in test.primary.items)
    verdict, reason = primary.verdict, primary.reason
    if not any(values.get(cell) for cell in (*test.primary.plus, *test.primary.minus)):
        verdict, reason = ClaimVerdict.NOT_RUN, ""
    failed = [part for part in checks if part.found is not None and not part.held]
    missing = [part for part in checks if part.found is None]
    if verdict is not ClaimVerdict.NOT_RUN and failed:
        verdict = ClaimVerdict.CANNOT_SHOW
        reason = "; ".join(f"not so: {part.check.says} (found {part.found:.3g})" for part in failed)
    elif verdict.decided and missing:
        verdict, reason = ClaimVerdict.UNDECIDED, f"not checked yet: {missing[0].check.says}"
    return JudgedTest(test, verdict, checks, primary, tuple(_adjusted(others, test)), planned, reason)


def _check(check: Check, values: Values) -> float | None:
    here, other = values.get(check.cell), values.get(check.minus) if check.minus else None
    if not here or (check.minus and not other):
        return None
    return mean(here.values()) - (mean(other.values()) if other else 0.0)


def judge(
    contrast: Contrast, test: ClaimTest, values: Values, puzzles: PuzzleValues, *, peers: bool = False
) -> Judged:
    """Decide a contrast, leaving its regime aside."""
    differences = _over_peers(contrast, puzzles) if peers else _differences(contrast, test, values, puzzles)
    if differences is None or len(differences) < 2:
        return Judged(contrast, ClaimVerdict.UNDECIDED, None, reason="fewer than two seeds have every cell")
    found = effect(differences)
    if found.seeds < LEAST_SEEDS:
        return Judged(contrast, ClaimVerdict.UNDECIDED, found, reason=f"fewer than {LEAST_SEEDS} seeds")
    verdict, p = _decided(contrast, test, found)
    return Judged(contrast, verdict, found, p)


def _decided(
    contrast: Contrast, test: ClaimTest, found: Effect, level: float = 0.05
) -> tuple[ClaimVerdict, float]:
    """Return the verdict at a level and the p of the side that the effect is on."""
    low = contrast.above if contrast.above is not None else -inf
    high = contrast.below if contrast.below is not None else inf
    if low > -inf and high < inf:
        alike, apart = found.p_within(low, high), 2 * min(found.p_above(high), found.p_below(low))
        if alike < level:
            return ClaimVerdict.SUPPORTED, alike
        return (ClaimVerdict.REFUTED if apart < level else ClaimVerdict.UNDECIDED), min(alike, apart)
    for_it = found.p_above(low) if low > -inf else found.p_below(high)
    p = 2 * min(for_it, 1.0 - for_it)
    if p < level:
        return (ClaimVerdict.SUPPORTED if for_it < 0.5 else ClaimVerdict.REFUTED), p
    nothing = test.of_interest if 0.0 in (low, high) else 0.0
    if nothing and found.p_within(-nothing, nothing) < level:
        return ClaimVerdict.NO_EFFECT, p
    return ClaimVerdict.UNDECIDED, p


def _adjusted(parts: Sequence[Judged], test: ClaimTest) -> list[Judged]:
    """Judge secondary contrasts again, each at the level that Holm's procedure leaves it."""
    adjusted = iter(holm([part.p for part in parts if part.p is not None]))
    told = []
    for part in parts:
        if part.p is not None and part.found is not None:
            p = next(adjusted)
            level = 0.05 * part.p / p if p > 0.0 else 0.05
            part = replace(part, verdict=_decided(part.contrast, test, part.found, level)[0], p=p)
        told.append(part)
    return told


def _differences(
    contrast: Contrast, test: ClaimTest, values: Values, puzzles: PuzzleValues
) -> NDArray[np.float64] | None:
    """Return a contrast seed by seed, (seeds,), or by puzzle too, (seeds, puzzles)."""
    signed = [(1, cell) for cell in contrast.plus] + [(-1, cell) for cell in contrast.minus]
    rows = {cell: _row(cell, test, values) for _, cell in signed}
    seeds = sorted(set.intersection(*(set(row) for row in rows.values())))
    if not seeds:
        return None
    if not test.log and all(seed in puzzles.get(cell, {}) for cell in rows for seed in seeds):
        return np.array([sum(sign * puzzles[cell][seed] for sign, cell in signed) for seed in seeds])
    scale = log if test.log else float
    return np.array([sum(sign * scale(rows[cell][seed]) for sign, cell in signed) for seed in seeds])


def _row(cell: str, test: ClaimTest, values: Values) -> Mapping[int, float]:
    """Return a cell's values, those that were not reached filled in for seeds that its row has."""
    own = values.get(cell, {})
    if test.unreached is None:
        return own
    row = cell.rpartition(" | ")[0]
    run = {seed for other, by_seed in values.items() if other.startswith(f"{row} | ") for seed in by_seed}
    return dict.fromkeys(run, test.unreached) | dict(own)


def _over_peers(contrast: Contrast, puzzles: PuzzleValues) -> NDArray[np.float64] | None:
    """Return by seed how much better the other seeds' successes tell what is solved than the rating does."""
    solved, ratings = (puzzles.get(cells[0], {}) for cells in (contrast.plus, contrast.minus))
    told = []
    for seed, hits in solved.items():
        others = [other for at, other in solved.items() if at != seed]
        if others and seed in ratings:
            peers, rating = (auroc(score, hits > 0) for score in (np.mean(others, axis=0), -ratings[seed]))
            if peers is not None and rating is not None:
                told.append(peers - rating)
    return np.array(told) if told else None
