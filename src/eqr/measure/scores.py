"""What a model reached at one budget, as values; `to_json` is what `eqr evaluate --json` prints of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eqr.measure.statistics import Estimate
from eqr.solve.budget import Budget


def _plain(estimates: Mapping[Any, Estimate]) -> dict[str, Any]:
    return {str(key): estimate.to_json() for key, estimate in estimates.items()}


@dataclass(frozen=True, kw_only=True)
class Selected:
    """What the starts that a selection rule chose reached."""

    exact: Estimate
    valid: Estimate

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return _plain(vars(self))


@dataclass(frozen=True, kw_only=True)
class PathIndependence:
    """How far the mean over starts is from the first start."""

    per_puzzle: Estimate
    """Mean over puzzles of the absolute difference, as the paper defines it."""
    of_means: Estimate
    """Absolute difference of the two accuracies, of whose size the printed figures are."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return _plain(vars(self))


@dataclass(frozen=True, kw_only=True)
class RatingBin:
    """Accuracy on puzzles whose rating lies in a range, both ends included."""

    low: int
    high: int
    exact: Estimate

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {"from": self.low, "to": self.high, "exact": self.exact.to_json()}


@dataclass(frozen=True, kw_only=True)
class OverStarts:
    """What averages over all starts, which a race and starts that are told guesses do not have."""

    exact: Estimate
    token: Estimate
    valid: Estimate
    depth_used: Estimate
    by_rating: list[RatingBin]

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        means = {"exact": self.exact, "token": self.token, "valid": self.valid, "depth_used": self.depth_used}
        return {**_plain(means), "by_rating": [one.to_json() for one in self.by_rating]}


@dataclass(frozen=True, kw_only=True)
class OverBreadths:
    """What several starts are worth, by how many of them there are."""

    pass_at: dict[int, Estimate]
    oracle_any_correct: Estimate
    path_independence: PathIndependence
    expected: dict[str, dict[int, Estimate]]
    """By selection rule: accuracy over random subsets of the starts."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "pass_at": _plain(self.pass_at),
            "oracle_any_correct": self.oracle_any_correct.to_json(),
            "path_independence": self.path_independence.to_json(),
            "expected": {rule: _plain(curve) for rule, curve in self.expected.items()},
        }


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Every metric of one budget."""

    n: int
    """Puzzles that count."""
    nfe: Estimate
    """Segments per puzzle over all starts."""
    halted: float
    """Share of starts that the halting rule stopped."""
    selected: dict[str, Selected]
    starts: OverStarts | None
    """None for a race, whose starts did not all run to their end, and where each is told another guess."""
    breadths: OverBreadths | None
    """None with a single start, and where there is no average over starts."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data, one level for all there is."""
        return {
            "n": self.n,
            "nfe": self.nfe.to_json(),
            "halted": self.halted,
            "selected": {name: one.to_json() for name, one in self.selected.items()},
            **(self.starts.to_json() if self.starts else {}),
            **(self.breadths.to_json() if self.breadths else {}),
        }


@dataclass(frozen=True, kw_only=True)
class Scored:
    """One budget of an evaluation: what was reached, and what it cost."""

    budget: Budget
    scores: Scores
    variant_votes: dict[str, Estimate] | None
    """By how many tries a vote over variants has; None where no row is a variant of another."""
    equivalent_layers: float
    flops: float
    seconds: float
    """The run's own, by its share of the segments where it is a part of a larger run."""

    @property
    def depth(self) -> int:
        """Return the most segments that a start had."""
        return self.budget.depth

    @property
    def breadth(self) -> int:
        """Return how many starts a puzzle had."""
        return self.budget.breadth

    def to_json(self) -> dict[str, Any]:
        """Return plain data, one level for all there is."""
        halting = self.budget.halting
        return {
            "depth": self.depth,
            "breadth": self.breadth,
            "halting": None if halting is None else halting.to_json(),
            "race": self.budget.race,
            "assume": self.budget.assume,
            "retell": self.budget.retell,
            "uses_verifier": self.budget.uses_verifier,
            **self.scores.to_json(),
            **({} if self.variant_votes is None else {"variant_votes": _plain(self.variant_votes)}),
            "equivalent_layers": self.equivalent_layers,
            "flops": self.flops,
            "seconds": self.seconds,
        }


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """A model on puzzles, at every depth and breadth that was asked for."""

    task: str
    model: str
    """Digest of the weights."""
    data: str
    """Digest of the puzzles."""
    n: int
    """Puzzles."""
    budgets: tuple[Scored, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {**vars(self), "budgets": [one.to_json() for one in self.budgets]}
