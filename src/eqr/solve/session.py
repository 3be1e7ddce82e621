"""`Session`: puzzles handed in one by one, from any thread, and answers that come as they are found.

It reads and checks puzzles, gathers the candidates of each, chooses among them and judges the answer; all
puzzles under way share one engine. `Solver` is a session that ends, a server one that does not:

    session = Session(reasoner, task, Budget(depth=64, halting=SETTLED))

    def work():                          # in a thread of its own
        for event in session.serve():    # sleeps while there is nothing to do
            ...                          # `Answer`, and a `Glimpse` per start and segment of what is watched

    index = session.submit("53..7....6..195...", budget=Budget(depth=32, breadth=4), watch=True)
    session.cancel(index)                # nothing more is reported of it
    session.close()                      # `serve` ends once all is answered
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from html import escape
from itertools import count

import numpy as np

from eqr.errors import UserError
from eqr.model.reasoner import Reasoner
from eqr.solve.budget import Budget
from eqr.solve.candidates import Candidates, Status
from eqr.solve.cohort import Finished, Glimpse
from eqr.solve.engine import SLOTS, Engine
from eqr.solve.gather import Gather
from eqr.solve.line import Puzzle
from eqr.solve.rollout import Dynamics
from eqr.solve.selection import SelectionRule, VerifiedFirst, parse_selection, verifier
from eqr.tasks.base import Task, Tokens


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
    """From being handed in to the answer."""
    task: Task = field(repr=False, compare=False)
    """What kind of puzzle it is, so that the answer can be shown."""

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
        stopped = "halted" if self.halted else "ran out of depth"
        return f"{found}; depth {self.depth} ({stopped}), NFE {self.nfe}, residual {self.residual:.4f}"


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A puzzle that was not tried, and why."""

    index: int
    reason: str


@dataclass(frozen=True)
class _Request:
    tokens: Tokens
    select: SelectionRule
    gather: Gather
    began: float


class Session:
    """Answers puzzles of one task by one model; one thread drives it (`turn` or `serve`), any may submit."""

    def __init__(
        self,
        reasoner: Reasoner,
        task: Task,
        budget: Budget | None = None,
        *,
        select: SelectionRule | str | None = None,
        slots: int = SLOTS,
        identity: int = 0,
    ) -> None:
        """Budget, selection and identity are those of puzzles that bring none of their own."""
        reasoner = reasoner.for_task(task)
        self.task, self._reasoner = task, reasoner
        Dynamics(reasoner, budget or Budget(), task=task)  # says what does not fit
        self._select = _rule(select or VerifiedFirst())
        budget = _stopping(budget or Budget(), self._select)
        self.engine = Engine(reasoner, budget, slots=slots, task=task)
        self._identities = reasoner.config.identities
        self._identity = self._known(identity)
        self._requests: dict[int, _Request] = {}
        self._numbers = count()

    def submit(
        self,
        puzzle: str | Tokens,
        *,
        budget: Budget | None = None,
        select: SelectionRule | str | None = None,
        identity: int | None = None,
        watch: bool = False,
    ) -> int:
        """Hand in a puzzle and return its number; `UserError` says why it cannot be tried."""
        index = next(self._numbers)  # a puzzle that is refused counts too
        tokens = read_puzzle(self.task, puzzle)
        identity = self._identity if identity is None else self._known(identity)
        rule = self._select if select is None else _rule(select)
        if budget is not None:
            # what does not fit is said here, not on its way
            Dynamics(self._reasoner, budget, task=self.task, executor=self.engine.executor)
        budget = _stopping(budget or self.engine.budget, rule)
        gather = Gather(budget, cells=self.task.cells)
        request = _Request(tokens, rule, gather, time.perf_counter())
        self._requests[index] = request
        try:
            self.engine.add(Puzzle(index, tokens, identity, budget, watch))
        except RuntimeError:
            del self._requests[index]
            raise
        return index

    def cancel(self, index: int) -> None:
        """Forget a puzzle; from the next turn on nothing is reported of it."""
        if self._requests.pop(index, None) is not None:
            self.engine.cancel(index)

    def close(self) -> None:
        """Take no more puzzles; those handed in are still answered."""
        self.engine.close()

    @property
    def open(self) -> int:
        """Puzzles that have no answer yet."""
        return len(self._requests)

    def turn(self) -> Iterator[Answer | Glimpse]:
        """Advance every row by a segment and yield what came of it."""
        return self._answered(self.engine.turn())

    def serve(self) -> Iterator[Answer | Glimpse]:
        """Yield what there is to say, sleeping while there is nothing to do, until closed and done."""
        return self._answered(self.engine.serve())

    def _answered(self, events: Iterable[Finished | Glimpse]) -> Iterator[Answer | Glimpse]:
        for event in events:
            if isinstance(event, Glimpse):
                if event.puzzle in self._requests:
                    yield event
                continue
            for index in dict.fromkeys(event.puzzles.tolist()):
                request = self._requests.get(index)
                if request is None:  # cancelled in this turn
                    continue
                for block in request.gather.add(event.of(index)):
                    if self._requests.pop(index, None) is not None:
                        yield self._answer(index, request, block.candidates[:, :, -1])

    def _answer(self, index: int, request: _Request, candidates: Candidates) -> Answer:
        puzzle = request.tokens
        start = int(request.select.choose(candidates, verifier(self.task, puzzle[None]))[0])
        chosen = candidates[0, start]
        verdict = self.task.check(puzzle, chosen.tokens)
        return Answer(
            index=index,
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
            seconds=time.perf_counter() - request.began,
            task=self.task,
        )

    def _known(self, identity: int) -> int:
        last = max(self._identities - 1, 0)
        if not 0 <= identity <= last:
            raise UserError(f"identity {identity}: those of this model go from 0 (none) to {last}")
        return identity


def _rule(select: SelectionRule | str) -> SelectionRule:
    return parse_selection(select) if isinstance(select, str) else select


@lru_cache(maxsize=256)
def _stopping(budget: Budget, select: SelectionRule) -> Budget:
    """Who chooses a verified answer needs no more starts once there is one; others need all of them."""
    return budget.replace(until_verified=select.uses_verifier and budget.breadth > 1)


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
