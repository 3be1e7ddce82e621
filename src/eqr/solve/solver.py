"""`Solver`: puzzles in, answers out; everything of several puzzles overlaps in one engine.

    solver = Solver("runs/sudoku-6x6")
    print(solver.solve("53..7....6..195..."))

A puzzle that cannot be read or contradicts itself is refused in words; the others are still answered.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from eqr.errors import UserError
from eqr.model.counters import row_key
from eqr.model.reasoner import Reasoner
from eqr.solve.budget import Budget
from eqr.solve.candidates import Status
from eqr.solve.engine import SLOTS, Engine, Puzzle
from eqr.solve.gather import Block, Gather
from eqr.solve.halting import SETTLED
from eqr.solve.loading import load_reasoner, require_fit
from eqr.solve.rollout import Dynamics, unroll
from eqr.solve.selection import SelectionRule, VerifiedFirst, verifier
from eqr.tasks import task_named
from eqr.tasks.base import Task, Tokens

SOLVE_BUDGET = Budget(depth=64, halting=SETTLED)
"""What a single puzzle gets unless asked otherwise: deep, but only as deep as it needs."""


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
    halted: bool
    """Whether the halting rule stopped it; otherwise it ran out of depth."""
    residual: float
    """Change of the latents in its last segment, root mean square per coordinate."""
    halt: float
    """Its halt score, a logit."""
    seconds: float
    """From entering the engine to the answer."""


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A puzzle that was not tried, and why."""

    index: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One start's decoded grid after a segment."""

    segment: int
    grid: Tokens
    changed: tuple[int, ...]
    """Cells that differ from the frame before (from the puzzle, in the first)."""
    residual: float
    logit_residual: float
    halt: float
    halted: bool


class Solver:
    """A model ready to solve puzzles of its task."""

    def __init__(
        self,
        model: Reasoner | str | Path,
        *,
        task: Task | None = None,
        budget: Budget = SOLVE_BUDGET,
        select: SelectionRule | None = None,
        slots: int = SLOTS,
        identity: int = 0,
    ) -> None:
        """Take a reasoner, a model folder or a run folder; the task is the model's own unless given.

        `identity` numbers the family that the puzzles belong to, where the model knows families (Mini-ARC).
        """
        self.reasoner = model if isinstance(model, Reasoner) else load_reasoner(model)
        self.task = task or _task_of(self.reasoner)
        require_fit(self.reasoner, self.task)
        last = max(self.reasoner.config.identities - 1, 0)
        if not 0 <= identity <= last:
            raise UserError(f"identity {identity}: those of this model go from 0 (none) to {last}")
        self.budget, self.slots, self.identity = budget, slots, identity
        self.select = select or VerifiedFirst()

    def solve(self, puzzle: str | Tokens) -> Answer:
        """Solve one puzzle; a puzzle that is refused raises `UserError`."""
        answer = next(self.solve_many([puzzle]))
        if isinstance(answer, Refused):
            raise UserError(answer.reason)
        return answer

    def solve_many(
        self, puzzles: Iterable[str | Tokens], *, in_order: bool = True
    ) -> Iterator[Answer | Refused]:
        """Solve a stream of puzzles; answers come in their order or, without `in_order`, as they finish."""
        answers = self._as_finished(puzzles)
        return _sorted(answers) if in_order else answers

    def trace(self, puzzle: str | Tokens, *, start: int = 0) -> Iterator[Frame]:
        """Solve one puzzle by one start and yield what it decodes to after every segment."""
        tokens = self.read(puzzle)
        dynamics = Dynamics(self.reasoner, self.budget, window=1)
        key = row_key(self.budget.seed, tokens.tobytes(), start)
        with torch.inference_mode():
            rows = dynamics.begin(tokens[None], [key], np.array([self.identity], np.int32))
        before = tokens
        for step in unroll(dynamics, rows):
            grid = step.advanced.reading.tokens[0].cpu().numpy()
            latent, logits = step.advanced.rows.residuals[0, -1].tolist()
            yield Frame(
                segment=int(step.advanced.rows.depths[0]),
                grid=grid,
                changed=tuple(np.flatnonzero(grid != before).tolist()),
                residual=latent,
                logit_residual=logits,
                halt=float(step.advanced.reading.halt[0]),
                halted=bool(step.advanced.halted[0]),
            )
            before = grid

    def read(self, puzzle: str | Tokens) -> Tokens:
        """Return a puzzle's tokens; `UserError` says what is wrong with it."""
        given = self.task.parse(puzzle) if isinstance(puzzle, str) else np.asarray(puzzle)
        if given.ndim != 1 or given.dtype.kind not in "ui":
            raise UserError(
                f"one puzzle is a vector of {self.task.cells} tokens, "
                f"not an array of {given.dtype} of shape {given.shape}"
            )
        tokens: Tokens = self.task.require_tokens(given).astype(np.uint8)
        if (tokens != given).any():
            raise UserError(f"{self.task.name} has no token {given.min()}; they count from 0")
        verdict = self.task.check_puzzle(tokens)
        if not verdict:
            raise UserError(f"no answer can exist: {verdict.reason}")
        return tokens

    def _as_finished(self, puzzles: Iterable[str | Tokens]) -> Iterator[Answer | Refused]:
        engine = Engine(self.reasoner, self.budget, slots=self.slots)
        gather = Gather(self.budget, cells=self.task.cells, window=engine.dynamics.window)
        refused: list[Refused] = []
        under_way: dict[int, tuple[Tokens, float]] = {}

        def readable() -> Iterator[Puzzle]:
            for index, puzzle in enumerate(puzzles):
                try:
                    tokens = self.read(puzzle)
                except UserError as error:
                    refused.append(Refused(index=index, reason=str(error)))
                    continue
                under_way[index] = (tokens, time.perf_counter())
                yield Puzzle(index, tokens, self.identity)

        for finished in engine.run(readable()):
            for block in gather.add(finished):
                yield self._answer(block, *under_way.pop(block.first))
            yield from refused
            refused.clear()
        yield from refused

    def _answer(self, block: Block, puzzle: Tokens, began: float) -> Answer:
        candidates = block.candidates[:, :, -1]
        start = int(self.select.choose(candidates, verifier(self.task, puzzle[None]))[0])
        chosen = candidates[0, start]
        verdict = self.task.check(puzzle, chosen.tokens)
        return Answer(
            index=block.first,
            puzzle=puzzle,
            grid=chosen.tokens,
            valid=verdict.valid,
            reason=verdict.reason,
            start=start,
            depth=int(chosen.depth),
            nfe=int(candidates.nfe.sum()),
            halted=bool(chosen.status == Status.HALTED),
            residual=float(chosen.residuals[-1]),
            halt=float(chosen.halt),
            seconds=time.perf_counter() - began,
        )


def _sorted(answers: Iterator[Answer | Refused]) -> Iterator[Answer | Refused]:
    """Hold back answers that came before their turn."""
    early: dict[int, Answer | Refused] = {}
    due = 0
    for answer in answers:
        early[answer.index] = answer
        while due in early:
            yield early.pop(due)
            due += 1


def _task_of(reasoner: Reasoner) -> Task:
    if reasoner.config.task is None:
        raise UserError("this model does not say which task it is for; add --task NAME (task=...)")
    return task_named(reasoner.config.task)
