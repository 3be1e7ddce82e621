"""Variants of a Mini-ARC task, and the vote over what a model answers to them.

A variant turns and recolours all grids of one task in the same way. What was learned about a task sits in its
identity's vector, so a variant has an identity, and a name, of its own. Names are those of the published ARC
builders: `task|||t3|||0214356789` (transform 3; colour c becomes digit c); the bare name is the original.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field, field_validator

from eqr.errors import UserError
from eqr.tasks.base import CellsAndTokens, Tokens
from eqr.tasks.grids import INVERSE, dihedral
from eqr.tasks.mini_arc_rules import SIDE
from eqr.value import Value

SEPARATOR = "|||"
COLORS = 10


class Variant(Value):
    """A turn or reflection (see `grids`) together with a renaming of colours that keeps colour 0."""

    transform: int = Field(default=0, ge=0, lt=len(INVERSE))
    colors: tuple[int, ...] = tuple(range(COLORS))

    @field_validator("colors")
    @classmethod
    def _permutation(cls, colors: tuple[int, ...]) -> tuple[int, ...]:
        if sorted(colors) != list(range(COLORS)) or colors[0] != 0:
            raise ValueError(f"colours {colors} are no permutation of 0-9 that keeps 0")
        return colors

    def apply(self, grids: Tokens) -> Tokens:
        """Transform grids (count, 25) of one task."""
        return symmetries([self] * len(grids)).apply(grids)

    def inverse(self) -> "Variant":
        """Return the variant that undoes this one; turning and recolouring do not mind their order."""
        colors = tuple(self.colors.index(color) for color in range(COLORS))
        return Variant(transform=INVERSE[self.transform], colors=colors)

    def name(self, task: str) -> str:
        """Return the name of this variant of a task, which `from_name` takes back."""
        if SEPARATOR in task:
            raise UserError(f"task name {task!r} must not contain {SEPARATOR!r}; rename it")
        if self == ORIGINAL:
            return task
        return f"{task}{SEPARATOR}t{self.transform}{SEPARATOR}{''.join(map(str, self.colors))}"

    @classmethod
    def from_name(cls, name: str) -> tuple[str, Self]:
        """Return the task's name and the variant that a name tells."""
        match = re.fullmatch(r"(.*)\|\|\|t([0-7])\|\|\|(0[1-9]{9})", name, re.DOTALL)
        if match is None:
            if SEPARATOR in name:
                raise UserError(f"{name!r} names no variant; expected a form like task|||t3|||0214356789")
            return name, cls()
        data = {"transform": int(match[2]), "colors": [int(digit) for digit in match[3]]}
        return match[1], cls.from_json(data, where=f"variant {name!r}")


ORIGINAL = Variant()


def symmetries(chosen: Sequence[Variant]) -> CellsAndTokens:
    """Return the variants as relabellings, one per row; padding stays padding."""
    tokens = np.zeros((len(chosen), COLORS + 1), np.uint8)
    tokens[:, 1:] = np.array([variant.colors for variant in chosen], np.uint8).reshape(-1, COLORS) + 1
    transforms = np.array([variant.transform for variant in chosen], np.intp)
    return CellsAndTokens(dihedral(SIDE, SIDE)[transforms], tokens)


def variants(rng: np.random.Generator, grids: Tokens, count: int) -> list[Variant]:
    """Return the original and up to `count` other variants that all look different on a task's grids (n, 25).

    Fewer come back exactly when no more exist: at most eight variants (one per transform) can look the same,
    so 8 x (count + 1) draws without repetition suffice.
    """
    used = [int(token) - 1 for token in np.unique(grids) if token > 1]
    total = len(INVERSE) * math.perm(COLORS - 1, len(used))
    draws = rng.choice(total, size=min(total, len(INVERSE) * (count + 1)), replace=False)
    found = {grids.tobytes(): ORIGINAL}
    for draw in draws.tolist():
        if len(found) > count:
            break
        code, transform = divmod(draw, len(INVERSE))
        variant = Variant(transform=transform, colors=_recoloring(code, used))
        found.setdefault(variant.apply(grids).tobytes(), variant)
    return list(found.values())


def _recoloring(code: int, used: list[int]) -> tuple[int, ...]:
    """Decode a number below 9!/(9 - used)! into new colours for the used ones; the others follow in order."""
    free = list(range(1, COLORS))
    colors = {0: 0}
    for color in used:
        code, pick = divmod(code, len(free))
        colors[color] = free.pop(pick)
    for color in range(1, COLORS):
        if color not in colors:
            colors[color] = free.pop(0)
    return tuple(colors[color] for color in range(COLORS))


@dataclass(frozen=True, kw_only=True)
class Vote:
    """An answer to the original puzzle, how many variants gave it and their mean score."""

    answer: Tokens
    votes: int
    score: float


def vote(predictions: Tokens, chosen: Sequence[Variant], scores: ArrayLike) -> list[Vote]:
    """Undo each prediction's variant and rank the distinct answers by votes, then by mean score.

    What still ties is ordered by the answer's colours, so the order of the predictions never matters.
    """
    values = np.asarray(scores, np.float64)
    if not len(predictions) == len(chosen) == len(values):
        raise UserError(
            f"{len(predictions)} predictions, {len(chosen)} variants, {len(values)} scores: must agree"
        )
    answers = symmetries(chosen).inverse().apply(predictions)
    given: dict[bytes, list[int]] = {}
    for row, answer in enumerate(answers):
        given.setdefault(answer.tobytes(), []).append(row)
    ranked = [
        Vote(answer=answers[rows[0]], votes=len(rows), score=math.fsum(values[rows]) / len(rows))
        for _, rows in sorted(given.items())
    ]
    return sorted(ranked, key=lambda one: (-one.votes, -one.score))
