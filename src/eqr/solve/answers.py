"""What is asked of a solution and what is answered: `SolveOptions`, then `Answer`, `Refused` and `Snapshot`.

Each has one plain form, the same on the command line and over the wire.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from html import escape
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt, PositiveInt, ValidationInfo, field_validator

from eqr.dynamics.halting import parse_halting
from eqr.errors import UserError
from eqr.model.config import ReasonerConfig
from eqr.model.state import Spread
from eqr.solve.budget import Budget, parse_start, usual_depth
from eqr.solve.candidates import Status
from eqr.solve.selection import SelectionRule, parse_selection
from eqr.tasks.base import Task, Tokens
from eqr.value import Value

USUAL_HALT = "head+stable:1/stable:64"
"""The head says done and the answer stands; or the answer has stood so long that more would be wasted."""
USUAL_DEPTH = 1024
"""Deep, for halting ends what is done."""
DEPTH_WITHOUT_HALTING = 64
"""Where every segment is run."""
Number = Annotated[float, Field(allow_inf_nan=False)]


# cached, for most requests to a server ask for the same as the last one
_READERS = {
    "halt": lru_cache(256)(parse_halting),
    "select": lru_cache(256)(parse_selection),
    "start": lru_cache(256)(parse_start),
}


class SolveOptions(Value):
    """Budget and selection as text and numbers; what does not parse is refused when it is made."""

    depth: PositiveInt | None = None
    """Most segments per trajectory; by default 1024, 64 if nothing halts, 1 for feedforward models."""
    breadth: PositiveInt = 1
    """Independent starts per puzzle."""
    halt: Annotated[str, Field(max_length=200)] = USUAL_HALT
    """Halting rule: `never`, `head`, `residual:0.02`, `stable:3`; `a+b` both, `a/b` either."""
    select: Annotated[str, Field(max_length=40)] = "verified"
    """How to choose among starts: `verified`, `residual`, `majority`, `halt`, `first`, `probe`, ..."""
    race: bool = False
    """Whether the first start that halts cancels the rest."""
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

    @property
    def usual_depth(self) -> int:
        """The depth where none is asked for."""
        return DEPTH_WITHOUT_HALTING if self.halt == "never" else USUAL_DEPTH

    def budget(self, model: ReasonerConfig) -> Budget:
        """Return what a run of this model may spend and how it iterates."""
        depth = self.depth or usual_depth(model, self.usual_depth)
        probe = self.selection().needs_probe
        return _budget(
            depth,
            self.breadth,
            self.halt,
            race=self.race,
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


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the model says about one puzzle."""

    index: int
    """Number of the puzzle among those given, from 0."""
    puzzle: Tokens
    grid: Tokens
    """The chosen start's answer."""
    valid: bool
    """Whether the task's `check` accepts it."""
    reason: str
    """Why not, if not."""
    start: int
    """Which start was chosen."""
    depth: int
    """Segments the chosen start ran."""
    nfe: int
    """Segments all starts ran, probes included."""
    status: Status
    """How its trajectory ended: settled, halted or out of segments."""
    residual: float
    """Change of the latents in its last segment, root mean square per coordinate."""
    halt: float
    """Its halt score, a logit."""
    seconds: float
    """From being handed in to the answer."""
    task: Task = field(repr=False, compare=False)
    """What kind of puzzle it is, so that the answer can be shown."""

    @cached_property
    def note(self) -> str:
        """What is to be known of the puzzle besides: that it has several answers, or is unlike others."""
        return self.task.caution(self.puzzle, solved=self.valid)

    def examine(self) -> None:
        """Look at the puzzle now for what `note` says of it, instead of when it is asked for."""
        _ = self.note

    def to_json(self, number: int) -> dict[str, Any]:
        """Return plain data; `number` is what its owner calls the puzzle."""
        return {
            "puzzle": number,
            "answer": text_of(self.task, self.grid),
            "valid": self.valid,
            "reason": self.reason,
            "note": self.note,
            "start": self.start,
            "depth": self.depth,
            "nfe": self.nfe,
            "status": self.status.word,
            "residual": finite(self.residual),
            "halt": finite(self.halt),
            "seconds": self.seconds,
        }

    def __str__(self) -> str:
        """Draw the grid and say what is thought of it."""
        return f"{self.task.render(self.grid, puzzle=self.puzzle)}\n{self._verdict()}"

    def _repr_html_(self) -> str:
        """Draw the grid for a notebook, with what was given in bold."""
        rows, columns = self.task.shape
        cells = [
            f"<b>{escape(self._symbol(token))}</b>" if token == given else escape(self._symbol(token))
            for token, given in zip(self.grid.tolist(), self.puzzle.tolist(), strict=True)
        ]
        lines = (
            "".join(f"<td>{cell}</td>" for cell in cells[row * columns :][:columns]) for row in range(rows)
        )
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        return f"<table>{body}</table><p>{escape(self._verdict())}</p>"

    def _symbol(self, token: int) -> str:
        return self.task.symbols[token - 1] if token else "?"

    def _verdict(self) -> str:
        found = "valid" if self.valid else f"not valid: {self.reason}"
        return (
            f"{found}; depth {self.depth} ({self.status.word}), NFE {self.nfe}, residual {self.residual:.4f}"
        )


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A puzzle that was not tried, and why."""

    index: int
    reason: str

    def to_json(self, number: int) -> dict[str, Any]:
        """Return plain data; `number` is what its owner calls the puzzle."""
        return {"puzzle": number, "status": Status.REFUSED.word, "reason": self.reason}


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One start after one segment."""

    puzzle: int
    """Index of its puzzle."""
    start: int
    """Number of the start among those of its puzzle."""
    segment: int
    """Segments run, this one included."""
    grid: Tokens
    """(cells,): the decoded grid."""
    confidence: NDArray[np.float32]
    """(cells,): the probability that the model gives each token of the grid."""
    residual: float
    """Change of the latents in this segment, root mean square per coordinate."""
    logit_residual: float
    halt: float
    """Halt score, a logit."""
    status: Status | None
    """How it ends here; None if it goes on."""

    def to_json(self, task: Task, number: int) -> dict[str, Any]:
        """Return plain data; confidence in percent keeps a large grid's event small."""
        return {
            "puzzle": number,
            "start": self.start,
            "segment": self.segment,
            "grid": text_of(task, self.grid),
            "confidence": [round(100 * share) if share == share else 0 for share in self.confidence.tolist()],
            "residual": finite(self.residual),
            "halt": finite(self.halt),
            "done": self.status is not None,
            "status": self.status.word if self.status is not None else None,
        }


def changes(puzzle: Tokens, snapshots: Iterable[Snapshot]) -> list[list[int]]:
    """Return which cells each segment changed, the first compared with the puzzle."""
    before, found = puzzle, []
    for snapshot in snapshots:
        found.append(np.flatnonzero(snapshot.grid != before).tolist())
        before = snapshot.grid
    return found


def read_puzzle(task: Task, puzzle: str | Tokens) -> Tokens:
    """Return a puzzle's tokens; `UserError` says what is wrong with it."""
    given = task.parse(puzzle) if isinstance(puzzle, str) else np.asarray(puzzle)
    if given.ndim != 1 or given.dtype.kind not in "ui":
        raise UserError(
            f"one puzzle is a vector of {task.cells} tokens, "
            f"not an array of {given.dtype} of shape {given.shape}"
        )
    tokens: Tokens = task.require_tokens(given).astype(np.uint8)
    if (tokens != given).any():
        raise UserError(f"{task.name} has no token {given.min()}; they count from 0")
    verdict = task.check_puzzle(tokens)
    if not verdict:
        raise UserError(f"no answer can exist: {verdict.reason}")
    return tokens


def text_of(task: Task, grid: Tokens) -> str:
    """Write a grid, a character a cell, `?` for padding."""
    return "".join(task.symbols[token - 1] if token else "?" for token in grid.tolist())


def finite(number: float) -> float | None:
    """JSON has no NaN: a state that blew up has no residual."""
    return number if math.isfinite(number) else None
