"""What a run may spend and how it iterates: arguments of a run, never edits to a model."""

from math import ceil
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PositiveInt, model_validator

from eqr.dynamics.halting import OptionalHalting
from eqr.errors import UserError
from eqr.model.config import ReasonerConfig
from eqr.model.operator import Perturbation
from eqr.model.state import RandomStart, Segments, Spread
from eqr.value import Value

MOST_BREADTH = 1 << 30
MOST_ABREAST = 1 << 10
"""Rows that advance in step are in the slots all at once."""


def parse_start(text: str) -> RandomStart | None:
    """Read a start as typed: `model` (None: the model's own), `random`, `random:0.5`, `random:1:0.5`.

    The numbers are the standard deviations of the answer and of the scratch state; one is for both.
    """
    word, *numbers = text.strip().split(":")
    if word == "model" and not numbers:
        return None
    if word != "random" or len(numbers) > 2:
        raise UserError(f"--start {text}: give model, random, random:SCALE or random:ANSWER:SCRATCH")
    scales = dict(zip(("answer", "scratch"), numbers * (3 - len(numbers)), strict=False))
    return RandomStart.from_json(scales, where=f"--start {text}")


def _start_from_text(value: Any) -> Any:
    return parse_start(value) if isinstance(value, str) else value


def usual_depth(model: ReasonerConfig, depth: int) -> int:
    """Return the depth to use where nobody asked for one: `depth`, or what the model has at most."""
    return depth if model.greatest_depth is None else min(depth, model.greatest_depth)


class Budget(Value):
    """Depth x breadth, the rule that saves some of it, and the dynamics of the run.

    As it stands it never halts and never cancels: `eqr solve` and `Solver`, unless told otherwise, take depth
    1024 and halt by `head+stable:1/stable:64`.
    """

    depth: Segments = 16
    """Segments a trajectory may run, D."""
    breadth: Annotated[PositiveInt, Field(le=MOST_BREADTH)] = 1
    """Independent starts per puzzle, B."""
    halting: OptionalHalting = None
    """Stops a row early, as a rule or as it is typed (`"head"`); None runs every row to `depth`."""
    race: bool = False
    """Whether the first start of a puzzle that halts cancels the others."""
    until_verified: bool = False
    """Whether the first start that ends with an answer the task's `check` accepts cancels the others."""
    abreast: Annotated[PositiveInt, Field(le=MOST_ABREAST)] = 8
    """Starts of one puzzle that compete at once; the next ones begin when none of these has won.

    They advance in step, so who wins depends on the puzzle alone, not on slots, order or processes.
    """
    start: Annotated[RandomStart | None, BeforeValidator(_start_from_text)] = None
    """Replaces the model's starts by random ones (`"random"`), so that any model can use breadth."""
    damping: Annotated[float, Field(ge=0.0, lt=1.0)] | None = None
    """Replaces the model's damping for this run."""
    noise: Spread | None = None
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
    def competes(self) -> bool:
        """Whether one start can end the others."""
        return self.race or self.until_verified

    @property
    def round_size(self) -> int:
        """Starts of one puzzle that enter together."""
        return round_size(self.breadth, self.abreast) if self.competes else 1

    @property
    def uses_verifier(self) -> bool:
        """Whether answers are checked on the way, by rules that the model was never told."""
        return self.until_verified or (self.halting is not None and self.halting.uses_verifier)

    def perturbation(self, model: Perturbation) -> Perturbation:
        """Return damping and noise of this run, given the model's own."""
        changes: dict[str, float | bool] = {}
        if self.damping is not None:
            changes["damping"] = self.damping
        if self.noise is not None:
            changes.update(noise=self.noise, learned_noise=False)
        return model.replace(**changes)


def round_size(breadth: int, abreast: int) -> int:
    """Return the size of the fewest, nearly equal rounds of at most `abreast` that hold `breadth` starts.

    The starts of a race enter in rounds that advance in step; the next begins only when the last has run
    out without a winner. Who wins depends on the puzzle alone, not on slots, order or processes.
    """
    return ceil(breadth / ceil(breadth / abreast))
