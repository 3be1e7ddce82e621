"""`Solver`: puzzles in, answers out; and the `Session` that both it and a server are.

    solver = Solver("runs/sudoku-6x6")
    print(solver.solve("53..7....6..195..."))

A puzzle that cannot be read or contradicts itself is refused in words; the others are still answered.

A session takes puzzles one by one, from any thread, and yields answers as they are found. It reads and
checks puzzles, gathers the candidates of each, chooses among them and judges the answer; all puzzles
under way share one engine. `Solver` is a session that ends, a server one that does not:

    session = Session(reasoner, task, Budget(depth=64, halting=SETTLED))

    def work():                          # in a thread of its own
        for event in session.serve():    # sleeps while there is nothing to do
            ...                          # `Answer`, and a `Snapshot` per start and segment of what is watched

    index = session.submit("53..7....6..195...", budget=Budget(depth=32, breadth=4), watch=True)
    session.cancel(index)                # nothing more is reported of it
    session.close()                      # `serve` ends once all is answered
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from pathlib import Path
from queue import Empty, Queue
from threading import Event, Thread
from types import TracebackType
from typing import Annotated, Any, TypeVar

import numpy as np
import torch
from pydantic import Field, NonNegativeInt, PositiveInt, ValidationInfo, field_validator

from eqr.backends import Backend
from eqr.dynamics.halting import parse_halting
from eqr.dynamics.iterate import unroll
from eqr.errors import UserError
from eqr.model.config import ReasonerConfig
from eqr.model.definitions import row_key
from eqr.model.lookup import load
from eqr.model.reasoner import Reasoner
from eqr.model.state import Spread
from eqr.progress import computing
from eqr.solve.budget import Budget, parse_start, usual_depth
from eqr.solve.candidates import Answer, Candidates, Finished, Gather, Refused, Snapshot, Status, stopped_by
from eqr.solve.engine import SLOTS, Engine
from eqr.solve.queue import Puzzle
from eqr.solve.rollout import Inference
from eqr.solve.selection import SelectionRule, VerifiedFirst, parse_selection, verifier
from eqr.tasks import task_named
from eqr.tasks.base import Task, Tokens
from eqr.value import Value


@dataclass(frozen=True)
class _Request:
    tokens: Tokens
    select: SelectionRule
    gather: Gather
    stopped: Status
    """How a row that its halting rule stops has ended."""
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
        backend: Backend | None = None,
    ) -> None:
        """Budget, selection and identity are those of puzzles that bring none of their own."""
        reasoner = reasoner.for_task(task)
        self.task, self._reasoner = task, reasoner
        Inference(reasoner, budget or Budget(), task=task)  # says what does not fit
        self._select = _rule(select or VerifiedFirst())
        budget = _stopping(budget or Budget(), self._select)
        self.engine = Engine(reasoner, budget, slots=slots, task=task, backend=backend)
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
        client: str | None = None,
    ) -> int:
        """Hand in a puzzle and return its number; `UserError` says why it cannot be tried.

        Slots are shared fairly among clients (`eqr.solve.queue`).
        """
        index = next(self._numbers)  # a puzzle that is refused counts too
        tokens = read_puzzle(self.task, puzzle)
        identity = self._identity if identity is None else self._known(identity)
        rule = self._select if select is None else _rule(select)
        if budget is not None:
            # what does not fit is said here, not on its way
            Inference(self._reasoner, budget, task=self.task, backend=self.engine.backend)
        budget = _stopping(budget or self.engine.budget, rule)
        gather = Gather(budget, cells=self.task.cells)
        request = _Request(tokens, rule, gather, stopped_by(budget.halting), computing())
        self._requests[index] = request
        try:
            self.engine.add(Puzzle(index, tokens, identity, budget, watch, client))
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

    def turn(self) -> Iterator[Answer | Snapshot]:
        """Advance every row by a segment and yield what came of it."""
        return self._answered(self.engine.turn())

    def serve(self) -> Iterator[Answer | Snapshot]:
        """Yield what there is to say, sleeping while there is nothing to do, until closed and done."""
        return self._answered(self.engine.serve())

    def _answered(self, events: Iterable[Finished | Snapshot]) -> Iterator[Answer | Snapshot]:
        for event in events:
            if isinstance(event, Snapshot):
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
        status = Status(int(chosen.status))
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
            status=request.stopped if status is Status.HALTED else status,
            residual=float(chosen.residuals[-1]),
            halt=float(chosen.halt),
            seconds=computing() - request.began,
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
        same = {
            name: getattr(self, name) for name in ("breadth", "race", "noise", "damping", "start", "seed")
        }
        depth = self.depth or usual_depth(model, self.usual_depth)
        return _budget(depth=depth, halting=self.halt, probe=self.selection().needs_probe, **same)

    def selection(self) -> SelectionRule:
        """Return the rule that picks a start."""
        return parse_selection(self.select)


@lru_cache(maxsize=256)
def _budget(**fields: Any) -> Budget:
    return Budget.from_json(fields, where="solve")


SOLVE_BUDGET = Budget(depth=USUAL_DEPTH, halting=parse_halting(USUAL_HALT))
"""What a single puzzle gets unless asked otherwise: deep, but only as deep as it needs."""
T = TypeVar("T")
AHEAD = 64
"""Things read before anybody asks for them."""


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
        backend: Backend | None = None,
    ) -> None:
        """Take a reasoner, a model folder or a run folder; the task is the model's own unless given.

        Without a budget a puzzle gets `SOLVE_BUDGET`: deep, with early exit.
        `identity` numbers the family that the puzzles belong to, where the model knows families (Mini-ARC).
        """
        reasoner = model if isinstance(model, Reasoner) else load(model)
        self.task = task or _task_of(reasoner)
        self.reasoner = reasoner.for_task(self.task)
        depth = usual_depth(self.reasoner.config, SOLVE_BUDGET.depth)
        self.budget = SOLVE_BUDGET.replace(depth=depth) if budget is None else budget
        self.slots, self.identity, self.backend = slots, identity, backend
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
            backend=self.backend,
        )

    def solve(self, puzzle: str | Tokens) -> Answer:
        """Solve one puzzle; a puzzle that is refused raises `UserError`."""
        answer = next(self.solve_many([puzzle]))
        if isinstance(answer, Refused):
            raise UserError(answer.reason)
        return answer

    def solve_many(
        self,
        puzzles: Iterable[str | Tokens],
        *,
        in_order: bool = True,
        live: bool = False,
        watch: Callable[[Snapshot], object] | None = None,
    ) -> Iterator[Answer | Refused]:
        """Solve a stream of puzzles; answers come in their order or, without `in_order`, as they finish.

        Puzzles that are `live` come as they please, from a pipe or a socket: they are awaited on a thread of
        their own, so that no answer waits for the next puzzle. `watch` is called with every segment of every
        start.
        """
        if isinstance(puzzles, str):
            raise UserError("puzzles: give a list of them; solve(text) is for one")
        answers = self._as_finished(puzzles, live, watch)
        return _sorted(answers) if in_order else answers

    @torch.inference_mode()
    def trace(self, puzzle: str | Tokens, *, start: int = 0) -> Iterator[Snapshot]:
        """Solve one puzzle by one start and yield what it decodes to after every segment."""
        tokens = self.read(puzzle)
        inference = Inference(self.reasoner, self.budget, window=1, task=self.task, backend=self.backend)
        key = row_key(self.budget.seed, tokens, start, self.identity)
        first, number = torch.zeros(1, dtype=torch.int64, device=inference.device), np.array([start])
        rows = inference.begin(tokens[None], [key], np.array([self.identity], np.int32))
        for turn in unroll(inference.dynamics, rows):
            yield inference.snapshots(turn, first, np.zeros(1, np.int64), number)[0]

    def read(self, puzzle: str | Tokens) -> Tokens:
        """Return a puzzle's tokens; `UserError` says what is wrong with it."""
        return read_puzzle(self.task, puzzle)

    def _as_finished(
        self, puzzles: Iterable[str | Tokens], live: bool, watch: Callable[[Snapshot], object] | None
    ) -> Iterator[Answer | Refused]:
        session = self.session()
        numbers = count()
        for puzzle in arriving(puzzles, lambda: not session.open) if live else puzzles:
            if puzzle is not None:
                number = next(numbers)
                try:
                    session.submit(puzzle, watch=watch is not None)
                except UserError as error:
                    yield Refused(index=number, reason=str(error))
            if puzzle is None:  # nothing has come: go on meanwhile
                yield from _answers(session, watch)
            while session.engine.full:
                yield from _answers(session, watch)
        while session.open:
            yield from _answers(session, watch)


def _answers(session: Session, watch: Callable[[Snapshot], object] | None) -> Iterator[Answer]:
    for event in session.turn():
        if isinstance(event, Answer):
            yield event
        elif watch is not None:
            watch(event)


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


def arriving(things: Iterable[T], idle: Callable[[], bool]) -> Iterator[T | None]:
    """Read things that come as they please (a pipe, a socket) on a thread of their own.

    Yields what has come, and None when nothing has; while the caller is `idle`, waits instead.

    An error while reading is raised here, after all that was read before it.
    """
    read: Queue[tuple[T | None, BaseException | None]] = Queue(AHEAD)
    given_up = Event()

    def ended(
        _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        read.put((None, error or StopIteration()))
        return True

    def reader() -> None:
        with ExitStack() as stack:
            stack.push(ended)
            for thing in things:
                read.put((thing, None))
                if given_up.is_set():
                    return

    # a read of an open pipe cannot be broken off: the thread must not keep the process alive
    Thread(target=reader, name="arriving", daemon=True).start()
    try:
        while True:
            try:
                thing, error = read.get(block=idle())
            except Empty:
                yield None
                continue
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield thing
    finally:
        given_up.set()
        while not read.empty():  # lets a reader that waits for room see that it is not needed any more
            read.get_nowait()
