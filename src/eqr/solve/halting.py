"""When a row stops: frozen rules that hold no run state, so that one rule serves rollout, engine and trainer.

A rule keeps what it must remember of each row (how many calm segments in a row, which answer it last saw) in
counters, an int64 tensor (rows, width) that its caller owns: rows can be picked out, dropped or set to zero
for a new trajectory without asking the rule. The greatest depth is the caller's, not a rule's.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal

import torch
from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt, SerializeAsAny
from torch import Tensor

from eqr.errors import UserError, nearest
from eqr.model.state import Reading
from eqr.value import Value


class HaltingRule(Value, ABC):
    """Decides after each segment which rows are done."""

    @property
    def width(self) -> int:
        """Number of counters the rule keeps for each row."""
        return 1

    def start(self, rows: int, *, device: torch.device | None = None) -> Tensor:
        """Return the counters of rows that have not begun: zeros, int64, shape (rows, width)."""
        return torch.zeros(rows, self.width, dtype=torch.int64, device=device)

    @abstractmethod
    def update(self, counters: Tensor, reading: Reading, depths: Tensor) -> tuple[Tensor, Tensor]:
        """Return new counters and which rows halt, bool (rows,).

        `depths` (rows,) counts the segments behind each row, the one just read included.
        """


def _in_a_row(counters: Tensor, calm: Tensor, patience: int) -> tuple[Tensor, Tensor]:
    """Count consecutive calm segments in the first counter."""
    counted = torch.where(calm, counters[:, 0] + 1, 0)
    return counted.unsqueeze(1), counted >= patience


class FixedDepth(HaltingRule):
    """Halt after `depth` segments; inside `AllOf` it means "not before"."""

    kind: Literal["depth"] = "depth"
    depth: PositiveInt

    @property
    def width(self) -> int:
        """Depth is known without remembering anything."""
        return 0

    def update(self, counters: Tensor, reading: Reading, depths: Tensor) -> tuple[Tensor, Tensor]:
        """Compare depths."""
        return counters, depths >= self.depth


class HaltHead(HaltingRule):
    """Halt when the halt score has been above `threshold` for `patience` segments in a row (ACT)."""

    kind: Literal["head"] = "head"
    threshold: float = 0.0
    patience: PositiveInt = 1
    over_go_on: bool = False
    """Whether the score is counted from the continue score, as in HRM's rule q_halt > q_continue."""

    def update(self, counters: Tensor, reading: Reading, depths: Tensor) -> tuple[Tensor, Tensor]:
        """Compare scores."""
        score = reading.halt - reading.go_on if self.over_go_on else reading.halt
        return _in_a_row(counters, score > self.threshold, self.patience)


class ResidualBelow(HaltingRule):
    """Halt when the latents have moved less than `tolerance` for `patience` segments in a row.

    Path noise puts a floor under the residual, so the tolerance must lie above it (or the noise be off).
    """

    kind: Literal["residual"] = "residual"
    tolerance: PositiveFloat
    patience: PositiveInt = 1

    def update(self, counters: Tensor, reading: Reading, depths: Tensor) -> tuple[Tensor, Tensor]:
        """Compare residuals."""
        return _in_a_row(counters, reading.residual < self.tolerance, self.patience)


class AnswerStable(HaltingRule):
    """Halt when the decoded answer has stayed the same over `patience` segments."""

    kind: Literal["stable"] = "stable"
    patience: PositiveInt = 2

    @property
    def width(self) -> int:
        """The count, and a hash of the last answer."""
        return 2

    def update(self, counters: Tensor, reading: Reading, depths: Tensor) -> tuple[Tensor, Tensor]:
        """Compare hashes of answers."""
        seen = fingerprint(reading.tokens)
        counted = torch.where(seen == counters[:, 1], counters[:, 0] + 1, 0)
        return torch.stack((counted, seen), dim=1), counted >= self.patience


def fingerprint(tokens: Tensor) -> Tensor:
    """Hash grids (rows, cells) to int64; a polynomial modulo 2^64, so that any changed cell shows."""
    return ((tokens.long() + 1) * torch.tensor(_powers(tokens.shape[1]), device=tokens.device)).sum(dim=1)


@cache
def _powers(count: int) -> tuple[int, ...]:
    powers = [pow(0x9E3779B97F4A7C15, exponent, 1 << 64) for exponent in range(count)]
    return tuple(power - (1 << 64) if power >= 1 << 63 else power for power in powers)


class _Together(HaltingRule, ABC):
    """Several rules side by side, each with its own counters."""

    rules: tuple["Halting", ...] = Field(min_length=1)

    @property
    def width(self) -> int:
        """All the rules' counters."""
        return sum(rule.width for rule in self.rules)

    def update(self, counters: Tensor, reading: Reading, depths: Tensor) -> tuple[Tensor, Tensor]:
        """Ask every rule."""
        parts = torch.split(counters, [rule.width for rule in self.rules], dim=1)
        asked = [rule.update(part, reading, depths) for rule, part in zip(self.rules, parts, strict=True)]
        return torch.cat([new for new, _ in asked], dim=1), self._decide([halted for _, halted in asked])

    @staticmethod
    @abstractmethod
    def _decide(halted: Sequence[Tensor]) -> Tensor: ...


class AnyOf(_Together):
    """Halt as soon as one rule says so."""

    kind: Literal["any"] = "any"

    @staticmethod
    def _decide(halted: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(halted)).any(dim=0)


class AllOf(_Together):
    """Halt when all rules say so at once."""

    kind: Literal["all"] = "all"

    @staticmethod
    def _decide(halted: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(halted)).all(dim=0)


def _from_plain(value: Any) -> Any:
    """Turn `{"kind": ...}` into the rule of that kind, your own subclasses included."""
    if not isinstance(value, Mapping):
        return value
    known = _kinds(HaltingRule.__subclasses__())
    kind = str(value.get("kind"))
    if kind not in known:
        raise ValueError(f"unknown halting kind {kind!r}{nearest(kind, known)}")
    try:
        return known[kind].from_json(value, where=kind)
    except UserError as error:
        raise ValueError(str(error)) from None


def _kinds(rules: Sequence[type[HaltingRule]]) -> dict[str, type[HaltingRule]]:
    kinds = {str(cls.model_fields["kind"].default): cls for cls in rules if "kind" in cls.model_fields}
    for cls in rules:
        kinds.update(_kinds(cls.__subclasses__()))
    return kinds


Halting = Annotated[SerializeAsAny[HaltingRule], BeforeValidator(_from_plain)]
"""A field that holds any halting rule and reads it from JSON by its `kind`."""
AnyOf.model_rebuild()
AllOf.model_rebuild()

_SYNTAX: dict[str, tuple[type[HaltingRule], tuple[str, ...]]] = {
    "depth": (FixedDepth, ("depth",)),
    "head": (HaltHead, ("threshold", "patience")),
    "residual": (ResidualBelow, ("tolerance", "patience")),
    "stable": (AnswerStable, ("patience",)),
}
SETTLED = AllOf(rules=(HaltHead(), AnswerStable(patience=1)))
"""`head+stable:1`: the head says done and the answer stands; the head alone is too often wrong at first."""


def parse_halting(text: str) -> HaltingRule | None:
    """Read a rule as typed: `head`, `residual:0.02:2`, `head+residual:0.05` (both), `head/stable:3` (either).

    `never` is None: every row runs to the greatest depth.
    """
    text = text.strip()
    if text == "never":
        return None
    for sign, together in (("/", AnyOf), ("+", AllOf)):  # "and" binds closer than "or"
        if sign in text:
            rules = [parse_halting(part) for part in text.split(sign)]
            if any(rule is None for rule in rules):
                raise UserError(f"--halt {text}: `never` stands alone")
            return together(rules=tuple(rule for rule in rules if rule is not None))
    word, *numbers = text.split(":")
    if word not in _SYNTAX:
        raise UserError(f"--halt {text}: unknown rule {word!r}{nearest(word, [*_SYNTAX, 'never'])}")
    cls, names = _SYNTAX[word]
    if len(numbers) > len(names):
        raise UserError(f"--halt {text}: {word} takes {' and '.join(names)}, not {len(numbers)} numbers")
    return cls.from_json(dict(zip(names, numbers, strict=False)), where=f"--halt {text}")
