"""What a person asks of a solution, in the words they type: the command line and the server read the same."""

from functools import lru_cache
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt, PositiveInt, ValidationInfo, field_validator

from eqr.errors import UserError
from eqr.model.config import ReasonerConfig, Segments, Spread
from eqr.solve.budget import Budget, parse_start, usual_depth
from eqr.solve.halting import parse_halting
from eqr.solve.selection import SelectionRule, parse_selection
from eqr.value import Value

USUAL_DEPTH = 64
"""Deep, for halting ends what is done."""
Number = Annotated[float, Field(allow_inf_nan=False)]


# cached, for most requests to a server ask for the same as the last one
_READERS = {
    "halt": lru_cache(256)(parse_halting),
    "select": lru_cache(256)(parse_selection),
    "start": lru_cache(256)(parse_start),
}


class Asked(Value):
    """Budget and selection as text and numbers; what does not parse is refused when it is made."""

    depth: PositiveInt | None = None
    """Most segments per trajectory; by default 64, or 1 for feedforward models."""
    breadth: PositiveInt = 1
    """Independent starts per puzzle."""
    halt: Annotated[str, Field(max_length=200)] = "head+stable:1"
    """Halting rule: `never`, `head`, `residual:0.02`, `stable:3`; `a+b` both, `a/b` either."""
    select: Annotated[str, Field(max_length=40)] = "verified"
    """Which start to believe: `verified`, `residual`, `majority`, `halt`, `first`, `probe`, ..."""
    race: bool = False
    """Whether the first start that halts cancels the rest."""
    assume: bool = False
    """Whether each start but the first is told another guess at a few cells."""
    retell: Segments | None = None
    """With `assume`: segments after which starts that have not settled are told further guesses."""
    noise: Spread | None = None
    """Path noise instead of the model's."""
    damping: Annotated[Number, Field(ge=0.0, lt=1.0)] | None = None
    """Damping instead of the model's."""
    start: Annotated[str, Field(max_length=80)] = "model"
    """Where trajectories begin: the `model`'s own starts, `random`, `random:0.5` or `random:1:0.5`."""
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)] = 0
    """Of the starts and the noise."""
    identity: NonNegativeInt = 0
    """The family a puzzle belongs to, where the model knows families (Mini-ARC)."""

    @field_validator("halt", "select", "start")
    @classmethod
    def _parses(cls, text: str, info: ValidationInfo) -> str:
        try:
            _READERS[info.field_name or ""](text)
        except UserError as error:
            raise ValueError(str(error)) from None
        return text

    @field_validator("race")
    @classmethod
    def _race_can_be_won(cls, race: bool, info: ValidationInfo) -> bool:
        if race and info.data.get("halt") == "never":
            raise ValueError("a race is won by halting: give a halting rule, such as `head`")
        return race

    def budget(self, model: ReasonerConfig) -> Budget:
        """Return what a run of this model may spend and how it iterates."""
        depth = self.depth or usual_depth(model, USUAL_DEPTH)
        probe = self.selection().needs_probe
        return _budget(
            depth,
            self.breadth,
            self.halt,
            race=self.race,
            assume=self.assume,
            retell=self.retell,
            noise=self.noise,
            damping=self.damping,
            start=self.start,
            probe=probe,
            seed=self.seed,
        )

    def selection(self) -> SelectionRule:
        """Return the rule that picks a start."""
        return parse_selection(self.select)


@lru_cache(maxsize=256)
def _budget(depth: int, breadth: int, halting: str, **others: Any) -> Budget:
    return Budget.from_json({"depth": depth, "breadth": breadth, "halting": halting, **others}, where="solve")
