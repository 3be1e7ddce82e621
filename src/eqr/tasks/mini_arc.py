"""Mini-ARC: 5x5 grids in ten colours; guess a task's rule from its demonstrations and apply it.

Here a demonstration is a training pair under the identity of its task, and a model learns one vector per
identity. Mini-ARC itself is a fixed public collection and is imported as data (`eqr.data.arc_json`); a few
rules in its spirit let the task be tried without its files.

A variant turns and recolours all grids of one task in the same way. What was learned about a task sits in its
identity's vector, so a variant has an identity, and a name, of its own. Names are those of the published ARC
builders: `task|||t3|||0214356789` (transform 3; colour c becomes digit c); the bare name is the original.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, field_validator

from eqr.errors import UserError, brief
from eqr.files import parse_json
from eqr.tasks.base import (
    PAD,
    VALID,
    Appearance,
    CellsAndTokens,
    Generate,
    Instance,
    Task,
    Tokens,
    Verdict,
    invalid,
)
from eqr.tasks.grids import INVERSE, dihedral
from eqr.value import Value

SIDE = 5
COLORS = 10
SEPARATOR = "|||"
_PALETTE = (16, 27, 196, 34, 226, 245, 201, 208, 117, 88)
"""Terminal colours (of 256) close to those ARC is usually shown in."""
_SEPARATORS = " \t\r\n,;|/"

LOOKS = (
    "#111111", "#0074D9", "#FF4136", "#2ECC40", "#FFDC00",
    "#AAAAAA", "#F012BE", "#FF851B", "#7FDBFF", "#870C25",
)  # fmt: skip
"""The colours ARC grids are usually shown in."""


class MiniArc(Task):
    """Token = colour + 1. A grid tells nothing of its rule, so rules come as puzzle identities."""

    name = "mini-arc"
    summary = "5x5 grids in ten colours: apply the rule that a task's demonstrations show"
    shape = (SIDE, SIDE)
    symbols = "0123456789"
    identities = True

    def parse(self, text: str) -> Tokens:
        """Read 25 digits with or without separators ('.' is 0), or JSON rows `[[0, 1, ...], ...]`."""
        colors = _from_json(text) if text.lstrip().startswith("[") else _from_digits(text)
        if len(colors) != self.cells:
            raise UserError(
                f"a Mini-ARC grid has {self.cells} colours (5 rows of 5), this text has {len(colors)}"
            )
        return np.array(colors, np.uint8) + np.uint8(1)

    def render(self, grid: Tokens, *, puzzle: Tokens | None = None, color: bool = False) -> str:
        """Draw digits, or blocks when `color`, where dots mark cells that differ from `puzzle`."""
        tokens = self.require_tokens(grid).tolist()
        before = tokens if puzzle is None else self.require_tokens(puzzle).tolist()
        if color:
            cells = [_block(token, changed=token != old) for token, old in zip(tokens, before, strict=True)]
        else:
            cells = ["?" if token == PAD else self.symbols[token - 1] for token in tokens]
        gap = "" if color else " "
        return "\n".join(gap.join(cells[row : row + SIDE]) for row in range(0, self.cells, SIDE))

    def check(self, puzzle: Tokens, answer: Tokens) -> Verdict:
        """Judge form only, a colour in every cell: whether the rule was met shows only against a label."""
        self.require_tokens(puzzle)
        return self._well_formed(answer)

    def check_many(self, puzzles: Tokens, answers: Tokens) -> NDArray[np.bool_]:
        """Judge the form of answers (count, cells)."""
        self.require_tokens(puzzles)
        filled: NDArray[np.bool_] = (self.require_tokens(answers) != PAD).all(axis=1)
        return filled

    def look(self) -> Appearance:
        """Painted, not written."""
        fills = dict(zip(self.symbols, LOOKS, strict=True))
        return Appearance(fills=fills, silent=self.symbols, editor="colours")

    def check_puzzle(self, puzzle: Tokens) -> Verdict:
        """Ask for a colour in every cell."""
        return self._well_formed(puzzle)

    def draw_symmetries(self, rng: np.random.Generator, count: int) -> CellsAndTokens:
        """Draw turns and recolourings, colour 0 fixed; they change the rule, so each needs an identity."""
        tables = dihedral(*self.shape)
        tokens = np.tile(np.arange(self.vocabulary, dtype=np.uint8), (count, 1))
        tokens[:, 2:] = rng.permuted(tokens[:, 2:], axis=1)
        return CellsAndTokens(tables[rng.integers(0, len(tables), count)], tokens)

    def generate(self, rng: np.random.Generator, options: Generate | None = None) -> Iterator[Instance]:
        """Yield pairs of the built-in rules; the fact `identity` is the rule's place in `RULES`, from 1."""
        del options
        while True:
            identity = int(rng.integers(len(RULES))) + 1
            before = _draw_grid(rng)
            after = RULES[identity - 1].apply(before)
            if not np.array_equal(before, after):
                puzzle, answer = (grid.reshape(-1) + np.uint8(1) for grid in (before, after))
                yield Instance(puzzle=puzzle, answer=answer, facts={"identity": identity})

    def _well_formed(self, grid: Tokens) -> Verdict:
        empty = np.flatnonzero(self.require_tokens(grid) == PAD)
        if len(empty):
            row, column = divmod(int(empty[0]), SIDE)
            return invalid(f"no colour at (row {row + 1}, column {column + 1})", *empty)
        return VALID


def _block(token: int, *, changed: bool) -> str:
    if token == PAD:
        return "??"
    return f"\x1b[48;5;{_PALETTE[token - 1]}m{'··' if changed else '  '}\x1b[0m"


def _from_digits(text: str) -> list[int]:
    colors = []
    for position, character in enumerate(text, 1):
        if character in _SEPARATORS:
            continue
        if character != "." and not ("0" <= character <= "9"):
            raise UserError(f"character {position}, {character!r}, is no colour; a grid is 25 digits 0-9")
        colors.append(0 if character == "." else int(character))
    return colors


def _from_json(text: str) -> list[int]:
    rows = parse_json(text, where="the grid")
    if all(isinstance(row, list) for row in rows):
        for number, row in enumerate(rows, 1):
            if len(row) != SIDE:
                raise UserError(f"row {number} of the grid has {len(row)} colours, it needs {SIDE}")
        rows = [color for row in rows for color in row]
    for position, color in enumerate(rows, 1):
        if type(color) is not int or color not in range(COLORS):
            raise UserError(f"cell {position} of the grid is {brief(color)}; colours are whole numbers 0-9")
    return list(rows)


class Rule(NamedTuple):
    """A named map of colour grids (5, 5); its pairs share an identity, its place in `RULES` from 1."""

    name: str
    apply: Callable[[Tokens], Tokens]


def _fall(grid: Tokens) -> Tokens:
    return np.take_along_axis(grid, np.argsort(grid != 0, axis=0, kind="stable"), axis=0)


def _next_color(grid: Tokens) -> Tokens:
    return np.where(grid == 0, 0, grid % 9 + 1).astype(np.uint8)


def _complete(grid: Tokens) -> Tokens:
    half = grid[:, : SIDE // 2]
    return np.concatenate([grid[:, : SIDE // 2 + 1], half[:, ::-1]], axis=1)


def _fill_background(grid: Tokens) -> Tokens:
    most_common = np.bincount(grid[grid != 0], minlength=1).argmax()
    return np.where(grid == 0, most_common, grid).astype(np.uint8)


RULES = (
    Rule("mirror left and right", np.fliplr),
    Rule("mirror top and bottom", np.flipud),
    Rule("quarter turn", np.rot90),
    Rule("transpose", np.transpose),
    Rule("fall down", _fall),
    Rule("next colour", _next_color),
    Rule("make symmetric", _complete),
    Rule("fill with the commonest colour", _fill_background),
)


def _draw_grid(rng: np.random.Generator) -> Tokens:
    """Draw colours 0-9, shape (5, 5): a background sprinkled with up to four colours."""
    palette = rng.choice(np.arange(1, 10, dtype=np.uint8), size=rng.integers(1, 5), replace=False)
    colored = rng.random((SIDE, SIDE)) < rng.uniform(0.2, 0.7)
    return np.where(colored, rng.choice(palette, size=(SIDE, SIDE)), 0).astype(np.uint8)


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
