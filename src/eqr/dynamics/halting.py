"""When a row stops: frozen rules that hold no run state, so that one rule serves every driver of rows.

What a rule must remember of each row (how many calm segments in a row, which answer it last saw) it keeps in
a memory that its caller owns: a tree of tensors that count rows first (`eqr.dynamics.rows`). So rows can be
picked out, dropped or begun afresh without asking the rule. The greatest depth is the caller's.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import torch
from pydantic import BeforeValidator, Field, PositiveFloat, SerializeAsAny
from torch import Tensor

from eqr.errors import UserError, nearest
from eqr.model.state import Reading, Segments
from eqr.registry import Kind, kinds_of, reads, register

Memory: TypeAlias = Any
"""What a rule remembers: a tensor (rows, ...) of any kind, or a tuple of memories."""


class HaltingRule(Kind, ABC):
    """Decides after each segment which rows are done."""

    numbers: ClassVar[tuple[str, ...]] = ()
    """Fields that may follow the kind when it is typed, as in `residual:0.02:3`."""

    @property
    def needs_heads(self) -> bool:
        """Whether the rule looks at answers or scores, which a function without heads does not have."""
        return True

    @property
    def uses_verifier(self) -> bool:
        """Whether the rule wants to know if the task's `check` accepts the answer (`Reading.accepted`)."""
        return False

    @property
    def settles(self) -> bool:
        """Whether a row that the rule halts has an answer or a state that stays as it is."""
        return False

    def start(self, rows: int, *, device: torch.device | None = None) -> Memory:
        """Return the memory of rows that have not begun; by default nothing is remembered."""
        return ()

    @abstractmethod
    def update(self, memory: Memory, reading: Reading, depths: Tensor) -> tuple[Memory, Tensor]:
        """Return the new memory and which rows halt, bool (rows,).

        `depths` (rows,) counts the segments behind each row, the one just read included.
        """


HALTING = kinds_of(HaltingRule, "halting")


class _Patient(HaltingRule, ABC):
    """Halts after `patience` calm segments in a row."""

    patience: Segments = 1

    def start(self, rows: int, *, device: torch.device | None = None) -> Memory:
        """Count from 0."""
        return torch.zeros(rows, dtype=torch.int64, device=device)

    def update(self, memory: Memory, reading: Reading, depths: Tensor) -> tuple[Memory, Tensor]:
        """Count the calm segments."""
        counted = torch.where(self._calm(reading), memory + 1, 0)
        return counted, counted >= self.patience

    @abstractmethod
    def _calm(self, reading: Reading) -> Tensor: ...


class FixedDepth(HaltingRule):
    """Halt after `depth` segments; inside `AllOf` it means "not before"."""

    numbers: ClassVar[tuple[str, ...]] = ("depth",)
    kind: Literal["depth"] = "depth"
    depth: Segments
    needs_heads: ClassVar[bool] = False

    def update(self, memory: Memory, reading: Reading, depths: Tensor) -> tuple[Memory, Tensor]:
        """Compare depths."""
        return memory, depths >= self.depth


class HaltHead(_Patient):
    """Halt when the halt score has been above `threshold` for `patience` segments in a row (ACT)."""

    numbers: ClassVar[tuple[str, ...]] = ("threshold", "patience")
    kind: Literal["head"] = "head"
    threshold: float = 0.0
    over_continue: bool = False
    """Whether the score is counted from the continue score, as in HRM's rule q_halt > q_continue."""

    def _calm(self, reading: Reading) -> Tensor:
        score = reading.halt - reading.continue_score if self.over_continue else reading.halt
        return score > self.threshold


class AnswerAccepted(_Patient):
    """Halt when a judge from outside accepts the answer: the rules of the puzzle, in training the label.

    When solving this uses a verifier: it knows the rules of the puzzle, which the model was never told.
    """

    numbers: ClassVar[tuple[str, ...]] = ("patience",)
    kind: Literal["valid"] = "valid"
    uses_verifier: ClassVar[bool] = True

    def _calm(self, reading: Reading) -> Tensor:
        if reading.accepted is None:
            raise UserError("halting `valid` needs the task's check; this run has no verifier")
        return reading.accepted


class ResidualBelow(_Patient):
    """Halt when the latents have moved less than `tolerance` for `patience` segments in a row.

    Path noise puts a floor under the residual, so the tolerance must lie above it (or the noise be off).
    """

    numbers: ClassVar[tuple[str, ...]] = ("tolerance", "patience")
    kind: Literal["residual"] = "residual"
    tolerance: PositiveFloat
    needs_heads: ClassVar[bool] = False
    settles: ClassVar[bool] = True

    def _calm(self, reading: Reading) -> Tensor:
        return reading.residual < self.tolerance


class AnswerStable(HaltingRule):
    """Halt when the decoded answer has stayed the same over `patience` segments."""

    numbers: ClassVar[tuple[str, ...]] = ("patience",)
    kind: Literal["stable"] = "stable"
    patience: Segments = 2
    settles: ClassVar[bool] = True

    def start(self, rows: int, *, device: torch.device | None = None) -> Memory:
        """The count, and a hash of the last answer."""
        zeros = torch.zeros(rows, dtype=torch.int64, device=device)
        return zeros, zeros.clone()

    def update(self, memory: Memory, reading: Reading, depths: Tensor) -> tuple[Memory, Tensor]:
        """Compare hashes of answers."""
        count, before = memory
        seen = fingerprint(reading.tokens)
        counted = torch.where(seen == before, count + 1, 0)
        return (counted, seen), counted >= self.patience


def fingerprint(tokens: Tensor) -> Tensor:
    """Hash grids (rows, cells) to int64; a polynomial modulo 2^64, so that any changed cell shows."""
    return ((tokens.long() + 1) * torch.tensor(_powers(tokens.shape[1]), device=tokens.device)).sum(dim=1)


@cache
def _powers(count: int) -> tuple[int, ...]:
    powers = [pow(0x9E3779B97F4A7C15, exponent, 1 << 64) for exponent in range(count)]
    return tuple(power - (1 << 64) if power >= 1 << 63 else power for power in powers)


class _Together(HaltingRule, ABC):
    """Several rules side by side, each with its own memory."""

    rules: tuple["Halting", ...] = Field(min_length=1)

    @property
    def needs_heads(self) -> bool:
        """Whether one of the rules does."""
        return any(rule.needs_heads for rule in self.rules)

    @property
    def uses_verifier(self) -> bool:
        """Whether one of the rules does."""
        return any(rule.uses_verifier for rule in self.rules)

    def start(self, rows: int, *, device: torch.device | None = None) -> Memory:
        """Let every rule begin its own."""
        return tuple(rule.start(rows, device=device) for rule in self.rules)

    def update(self, memory: Memory, reading: Reading, depths: Tensor) -> tuple[Memory, Tensor]:
        """Ask every rule."""
        updated = [rule.update(part, reading, depths) for rule, part in zip(self.rules, memory, strict=True)]
        return tuple(new for new, _ in updated), self._decide([halted for _, halted in updated])

    @staticmethod
    @abstractmethod
    def _decide(halted: Sequence[Tensor]) -> Tensor: ...


class AnyOf(_Together):
    """Halt as soon as one rule says so."""

    kind: Literal["any"] = "any"

    @property
    def settles(self) -> bool:
        """Whether all of the rules do, for any of them may halt a row."""
        return all(rule.settles for rule in self.rules)

    @staticmethod
    def _decide(halted: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(halted)).any(dim=0)


class AllOf(_Together):
    """Halt when all rules say so at once."""

    kind: Literal["all"] = "all"

    @property
    def settles(self) -> bool:
        """Whether one of the rules does."""
        return any(rule.settles for rule in self.rules)

    @staticmethod
    def _decide(halted: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(halted)).all(dim=0)


def _read(given: Any) -> Any:
    """Turn a rule as typed, or `{"kind": ...}`, into the rule."""
    return parse_halting(given) if isinstance(given, str) else reads(HALTING)(given)


Halting = Annotated[SerializeAsAny[HaltingRule], BeforeValidator(_read)]
"""A field that holds any halting rule and reads it from JSON by its `kind`, or as it is typed."""
OptionalHalting = Annotated[SerializeAsAny[HaltingRule] | None, BeforeValidator(_read)]
"""The same, where None (typed `never`) means that no rule stops a row."""
AnyOf.model_rebuild()
AllOf.model_rebuild()

for _rule in (FixedDepth, HaltHead, ResidualBelow, AnswerStable, AnswerAccepted, AnyOf, AllOf):
    register(_rule)
HALTING.close()
_SHORT: dict[str, tuple[str, dict[str, Any]]] = {"above-continue": ("head", {"over_continue": True})}
"""Words that stand for a rule with some fields set."""
SETTLED = AllOf(rules=(HaltHead(), AnswerStable(patience=1)))
"""`head+stable:1`: the head says done and the answer stands; the head alone is too often wrong at first."""


def parse_halting(text: str) -> HaltingRule | None:
    """Read a rule as typed: `head`, `residual:0.02:2`, `head+residual:0.05` (both), `head/stable:3` (either).

    `above-continue` is HRM's rule, halt score above continue score. `valid` uses the rules of the puzzle.
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
    kind, given = _SHORT.get(word, (word, {}))
    cls = HALTING.find(kind)
    if cls is None or cls in (AnyOf, AllOf):
        known = {*HALTING, *_SHORT, "never"} - {"any", "all"}
        raise UserError(f"--halt {text}: unknown rule {word!r}{nearest(word, known)}")
    names = cls.numbers
    if len(numbers) > len(names):
        takes = " and ".join(names) or "no number"
        raise UserError(f"--halt {text}: {word} takes {takes}, not {len(numbers)} numbers")
    fields = {**given, **dict(zip(names, numbers, strict=False))}
    rule: HaltingRule = cls.from_json(fields, where=f"--halt {text}")
    return rule
