"""The small rows that figures draw and tables hold; one frozen dataclass per table.

A figure takes a list of these, so it can be drawn from a sweep (`eqr.measure.scaling`), from a CSV file or
from numbers typed in a notebook. Shares lie in 0..1; `low` and `high` bound a 95% interval.
"""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ResultRow:
    """One line of a table."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class ScalingRow(ResultRow):
    """What a depth and a breadth buy, choosing the start that has settled best (Top-1 converged)."""

    depth: int
    breadth: int
    nfe: int
    """Segments per puzzle."""
    exact: float
    low: float
    high: float
    residual: float
    """Mean residual of the chosen starts, over the same subsets of the starts as `exact`."""
    any_correct_oracle: float
    """Share of puzzles that some start solves: what a perfect selection would reach."""


@dataclass(frozen=True, kw_only=True)
class CostRow(ResultRow):
    """What a way of spending segments reaches, and at which price."""

    method: str
    depth: int
    """Greatest depth allowed."""
    breadth: int
    nfe: float
    """Mean segments per puzzle over all its starts."""
    exact: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class CompareRow(ResultRow):
    """A run at one budget beside the first run at the same; differences are None for the first itself."""

    run: str
    depth: int
    breadth: int
    rule: str
    """How an answer is chosen among the starts."""
    exact: float
    low: float
    high: float
    nfe: float
    equivalent_layers: float
    flops: float
    parameters: int
    difference: float | None = None
    """Accuracy less that of the first run, paired over puzzles, with its interval."""
    difference_low: float | None = None
    difference_high: float | None = None
    better: int | None = None
    """Puzzles on which it does better than the first run."""
    worse: int | None = None


@dataclass(frozen=True, kw_only=True)
class BreadthRow(ResultRow):
    """Expected accuracy of a selection rule over random subsets of `breadth` starts."""

    rule: str
    depth: int
    breadth: int
    exact: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class DifficultyRow(ResultRow):
    """Accuracy and depth used by puzzles whose rating lies in a range, both ends included."""

    rating_from: int
    rating_to: int
    puzzles: int
    exact: float
    low: float
    high: float
    depth_median: float
    depth_quarter: float
    depth_three_quarters: float


@dataclass(frozen=True, kw_only=True)
class ModeRow(ResultRow):
    """How many puzzles have a landscape mode; means over those puzzles, None without any."""

    mode: str
    puzzles: int
    of_all: float
    low: float
    high: float
    starts_right: float | None
    starts_spurious: float | None
    starts_cycling: float | None
    period: float | None
    """Median period of the cycles, in segments."""
    answers: float | None
    """Distinct final answers."""


@dataclass(frozen=True, kw_only=True)
class ModeShareRow(ResultRow):
    """Share of the puzzles that have a landscape mode at a step of training."""

    step: int
    mode: str
    share: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class TrackingRow(ResultRow):
    """How far training rows of one depth are from the attractor of the weights at that step."""

    step: int
    depth: int
    """Segments the rows have behind them."""
    rows: int
    distance: float
    """Root mean square per coordinate, mean over rows."""
    moved: float
    """How far the rows still move per segment where they were followed to: 0 if that is a fixed point."""


@dataclass(frozen=True, kw_only=True)
class StabilityRow(ResultRow):
    """What holds around the state that a start of one puzzle has reached (see `measure.stability`)."""

    puzzle: int
    right: bool
    radius: float
    contraction: float
    conditioning: float
    sensitivity: float
    margin: float
    segments: int
    residual: float
    bound: float
    within_bound: bool


@dataclass(frozen=True, kw_only=True)
class TrainingCostRow(ResultRow):
    """One row of the paper's training-cost table, evaluated per optimizer step of the whole batch."""

    variant: str
    backward_formula: str
    memory_formula: str
    forward: float
    """FLOPs of the forward pass."""
    backward: float
    """FLOPs of the backward pass and the update."""
    memory: float
    """Bytes of activations and parameter-side memory kept for the backward pass."""
    this_recipe: bool
