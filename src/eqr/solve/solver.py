"""`Solver`: puzzles in, answers out; everything of several puzzles overlaps in one engine.

    solver = Solver("runs/sudoku-6x6")
    print(solver.solve("53..7....6..195..."))

A puzzle that cannot be read or contradicts itself is refused in words; the others are still answered.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from eqr.errors import UserError
from eqr.model.counters import row_key
from eqr.model.reasoner import Reasoner
from eqr.solve.arriving import arriving
from eqr.solve.budget import Budget, usual_depth
from eqr.solve.cohort import Glimpse
from eqr.solve.engine import SLOTS, Engine
from eqr.solve.halting import SETTLED
from eqr.solve.line import Puzzle
from eqr.solve.loading import load_reasoner
from eqr.solve.rollout import Dynamics, unroll
from eqr.solve.selection import SelectionRule, VerifiedFirst, parse_selection
from eqr.solve.session import Answer, Refused, Session, read_puzzle
from eqr.tasks import task_named
from eqr.tasks.base import Task, Tokens

SOLVE_BUDGET = Budget(depth=64, halting=SETTLED)
"""What a single puzzle gets unless asked otherwise: deep, but only as deep as it needs."""


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One start's decoded grid after a segment."""

    segment: int
    grid: Tokens
    changed: tuple[int, ...]
    """Cells that differ from the frame before (from the puzzle, in the first)."""
    confidence: NDArray[np.float32]
    """(cells,): the probability that the model gives each token of the grid."""
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
        budget: Budget | None = None,
        select: SelectionRule | str | None = None,
        slots: int = SLOTS,
        identity: int = 0,
    ) -> None:
        """Take a reasoner, a model folder or a run folder; the task is the model's own unless given.

        Without a budget a puzzle gets `SOLVE_BUDGET`: deep, with early exit.
        `identity` numbers the family that the puzzles belong to, where the model knows families (Mini-ARC).
        """
        reasoner = model if isinstance(model, Reasoner) else load_reasoner(model)
        self.task = task or _task_of(reasoner)
        self.reasoner = reasoner.for_task(self.task)
        depth = usual_depth(self.reasoner.config, SOLVE_BUDGET.depth)
        self.budget = SOLVE_BUDGET.replace(depth=depth) if budget is None else budget
        self.slots, self.identity = slots, identity
        self.select = parse_selection(select) if isinstance(select, str) else select or VerifiedFirst()
        self.session()  # says what does not fit

    def session(self) -> Session:
        """Return a session of this model, budget and selection, for whoever hands in puzzles one by one."""
        return Session(
            self.reasoner,
            self.task,
            self.budget,
            select=self.select,
            slots=self.slots,
            identity=self.identity,
        )

    def solve(self, puzzle: str | Tokens) -> Answer:
        """Solve one puzzle; a puzzle that is refused raises `UserError`."""
        answer = next(self.solve_many([puzzle]))
        if isinstance(answer, Refused):
            raise UserError(answer.reason)
        return answer

    def solve_many(
        self, puzzles: Iterable[str | Tokens], *, in_order: bool = True, live: bool = False
    ) -> Iterator[Answer | Refused]:
        """Solve a stream of puzzles; answers come in their order or, without `in_order`, as they finish.

        Puzzles that are `live` come as they please, from a pipe or a socket: they are awaited on a thread of
        their own, so that no answer waits for the next puzzle.
        """
        answers = self._as_finished(puzzles, live)
        return _sorted(answers) if in_order else answers

    def trace(self, puzzle: str | Tokens, *, start: int = 0) -> Iterator[Frame]:
        """Solve one puzzle by one start and yield what it decodes to after every segment."""
        tokens = self.read(puzzle)
        if self.budget.retell is not None:
            yield from self._trace_among_others(tokens, start)
            return
        dynamics = Dynamics(self.reasoner, self.budget, window=1, task=self.task)
        key = row_key(self.budget.seed, tokens, start, self.identity)
        tokens = dynamics.given(tokens, [start])[0]
        with torch.inference_mode():
            rows = dynamics.begin(tokens[None], [key], np.array([self.identity], np.int32))
        before = tokens
        for step in unroll(dynamics, rows):
            reading = step.advanced.reading
            grid = reading.tokens[0].cpu().numpy()
            latent, logits = step.advanced.rows.residuals[0, -1].tolist()
            yield Frame(
                segment=int(step.advanced.rows.depths[0]),
                grid=grid,
                changed=tuple(np.flatnonzero(grid != before).tolist()),
                confidence=reading.logits[0].float().softmax(dim=-1).amax(dim=-1).cpu().numpy(),
                residual=latent,
                logit_residual=logits,
                halt=float(reading.halt[0]),
                halted=bool(step.advanced.halted[0]),
            )
            before = grid

    def _trace_among_others(self, tokens: Tokens, start: int) -> Iterator[Frame]:
        """Run all starts of a puzzle, where what they are told depends on one another, and watch one."""
        engine = Engine(self.reasoner, self.budget, slots=self.budget.breadth, task=self.task)
        engine.add(Puzzle(0, tokens, self.identity, watch=True))
        engine.close()
        before = tokens
        for event in engine.serve():
            if isinstance(event, Glimpse) and event.restart == start:
                yield Frame(
                    segment=event.segment,
                    grid=event.tokens,
                    changed=tuple(np.flatnonzero(event.tokens != before).tolist()),
                    confidence=event.confidence,
                    residual=event.residual,
                    logit_residual=event.logit_residual,
                    halt=event.halt,
                    halted=event.done and event.segment < self.budget.depth,
                )
                before = event.tokens
                if event.done:
                    return

    def read(self, puzzle: str | Tokens) -> Tokens:
        """Return a puzzle's tokens; `UserError` says what is wrong with it."""
        return read_puzzle(self.task, puzzle)

    def _as_finished(self, puzzles: Iterable[str | Tokens], live: bool) -> Iterator[Answer | Refused]:
        session = self.session()
        numbers = count()
        for puzzle in arriving(puzzles, lambda: not session.open) if live else puzzles:
            if puzzle is not None:
                number = next(numbers)
                try:
                    session.submit(puzzle)
                except UserError as error:
                    yield Refused(index=number, reason=str(error))
            if puzzle is None:  # nothing has come: go on meanwhile
                yield from _answers(session)
            while session.engine.full:
                yield from _answers(session)
        while session.open:
            yield from _answers(session)


def _answers(session: Session) -> Iterator[Answer]:
    return (event for event in session.turn() if isinstance(event, Answer))


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
