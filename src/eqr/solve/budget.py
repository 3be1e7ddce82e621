"""What a run may spend and how it iterates: arguments of a run, never edits to a model."""

from math import ceil
from typing import Annotated

from pydantic import Field, NonNegativeFloat, PositiveInt, model_validator

from eqr.model.config import Path, ReasonerConfig
from eqr.solve.halting import Halting
from eqr.value import Value


def gang_size(breadth: int, abreast: int) -> int:
    """Return the size of the fewest, nearly equal gangs of at most `abreast` that hold `breadth` starts."""
    return ceil(breadth / ceil(breadth / abreast))


def usual_depth(model: ReasonerConfig, depth: int) -> int:
    """Return the depth to use where nobody asked for one: `depth`, or what the model has at most."""
    return depth if model.greatest_depth is None else min(depth, model.greatest_depth)


class Budget(Value):
    """Depth x breadth, the rule that saves some of it, and the dynamics of the run."""

    depth: PositiveInt = 16
    """Segments a trajectory may run, D."""
    breadth: PositiveInt = 1
    """Independent starts per puzzle, B."""
    halting: Halting | None = None
    """Stops a row early; None runs every row to `depth`."""
    race: bool = False
    """Whether the first start of a puzzle that halts cancels the others."""
    abreast: PositiveInt = 8
    """Starts of one puzzle that race at once; the next ones begin when these have run out of depth.

    They advance in step, so who wins depends on the puzzle alone, not on slots, order or processes.
    """
    damping: Annotated[float, Field(ge=0.0, lt=1.0)] | None = None
    """Replaces the model's damping for this run."""
    noise: NonNegativeFloat | None = None
    """Replaces the model's path noise for this run."""
    probe: bool = False
    """Whether each candidate ends with one more segment without noise, whose change is its residual."""
    seed: int = 0
    """With the puzzle and the number of the restart, decides each start and its noise."""

    @model_validator(mode="after")
    def _race_needs_halting(self) -> "Budget":
        if self.race and self.halting is None:
            raise ValueError("a race is won by halting: give a halting rule, such as `head`")
        return self

    @property
    def gang(self) -> int:
        """Starts of one puzzle that enter and leave together."""
        return gang_size(self.breadth, self.abreast) if self.race else 1

    def path(self, model: Path) -> Path:
        """Return the dynamics of this run, given the model's own."""
        changes: dict[str, float | bool] = {}
        if self.damping is not None:
            changes["damping"] = self.damping
        if self.noise is not None:
            changes.update(noise=self.noise, learned_noise=False)
        return model.replace(**changes)
