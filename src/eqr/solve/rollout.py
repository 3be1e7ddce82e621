"""The one loop: rows advance segment by segment until their halting rule or the depth stops them.

`RunningRows` and `advance` are what the loop and the engine share; the engine differs only in refilling.
A row that has stopped is taken out of the batch, so it can never change again.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Literal, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eqr.cpu.row_executor import RowExecutor, shared_executor
from eqr.errors import UserError
from eqr.model.config import Path, ReasonerConfig
from eqr.model.counters import row_key
from eqr.model.fast import advance
from eqr.model.reasoner import Reasoner
from eqr.model.start import RandomStarter
from eqr.model.state import Reading, State, join
from eqr.solve.assumptions import assumptions, frontier, require_assumable
from eqr.solve.budget import Budget
from eqr.solve.candidates import WINDOW, Candidates, Status
from eqr.solve.halting import Memory, each_tensor
from eqr.tasks import task_named
from eqr.tasks.base import Task, Tokens

TREES_KEPT = 256
"""Trees of guesses that are remembered, for starts that come one by one."""


@dataclass(frozen=True)
class RunningRows:
    """Trajectories under way side by side; row i of every tensor belongs to trajectory i."""

    x: Tensor
    """(tokens, rows, width): the embedded puzzles."""
    state: State
    keys: Tensor
    """(rows,) int64: stand for (seed, puzzle, restart)."""
    depths: Tensor
    """(rows,) int64: segments behind each row."""
    logits: Tensor
    """(rows, cells, vocabulary): the last reading's; before the first segment, those of the start."""
    residuals: Tensor
    """(rows, window, 2): changes of latents and of logits in the last segments, the latest last."""
    puzzles: Tensor
    """(rows, cells) uint8: as asked, for a rule that checks answers."""
    told: Tensor
    """(rows, cells) uint8: what each start begins with, the puzzle or a guess beyond it."""
    memory: Memory
    """What the halting rule remembers of each row."""

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, rows: Tensor) -> "RunningRows":
        """Copy out some rows by index."""
        by_row = {name: getattr(self, name).index_select(0, rows) for name in _BY_ROW}
        memory = each_tensor(lambda mine: mine.index_select(0, rows), self.memory)
        return RunningRows(
            x=self.x.index_select(1, rows), state=self.state.take(rows), memory=memory, **by_row
        )

    def put(self, rows: Tensor, other: "RunningRows") -> None:
        """Overwrite some rows in place."""
        self.x.index_copy_(1, rows, other.x)
        self.state.put(rows, other.state)
        for name in _BY_ROW:
            getattr(self, name).index_copy_(0, rows, getattr(other, name))
        each_tensor(lambda mine, theirs: mine.index_copy_(0, rows, theirs), self.memory, other.memory)

    @classmethod
    def joined(cls, parts: Sequence["RunningRows"]) -> "RunningRows":
        """Put rows behind each other."""
        by_row = {name: torch.cat([getattr(part, name) for part in parts]) for name in _BY_ROW}
        x = torch.cat([part.x for part in parts], dim=1)
        memory = each_tensor(lambda *tensors: torch.cat(tensors), *(part.memory for part in parts))
        return cls(x=x, state=join([part.state for part in parts]), memory=memory, **by_row)


_BY_ROW = [field.name for field in fields(RunningRows) if field.name not in ("x", "state", "memory")]


@dataclass(frozen=True)
class Advanced:
    """Rows after a segment."""

    rows: RunningRows
    reading: Reading
    halted: Tensor
    """Which rows the halting rule stops, bool (rows,)."""
    done: Tensor
    """Which rows end here, by the rule or for lack of depth."""


def starter(reasoner: Reasoner, budget: Budget) -> Callable[[Tensor, Tensor], State]:
    """Return what makes initial states: the model's own way, unless the budget replaces it."""
    if budget.start is None:
        return reasoner.start
    asked = {**reasoner.config.to_json(), "start": budget.start.to_json()}
    return RandomStarter(ReasonerConfig.from_json(asked, where="start"), budget.start)


class Dynamics:
    """A reasoner under a budget: how rows begin, advance and are probed in this run."""

    def __init__(
        self,
        reasoner: Reasoner,
        budget: Budget,
        *,
        window: int = WINDOW,
        task: Task | None = None,
        executor: RowExecutor | None = None,
    ) -> None:
        """`task` judges answers where the budget asks for that; None is the model's own.

        `executor` works on the rows; None is the one that all models of this size share.
        """
        most = reasoner.config.greatest_depth
        if most is not None and budget.depth > most:
            kind = reasoner.config.recurrence.kind
            raise UserError(
                f"depth {budget.depth}: a {kind} model has nothing to iterate; its depth is {most}"
            )
        self.reasoner, self.budget = reasoner, budget
        if task is None and (budget.uses_verifier or budget.assume) and reasoner.config.task is not None:
            task = task_named(reasoner.config.task)
        self.task = task
        """Judges answers and says what may be guessed; None where nobody asks."""
        if budget.assume:
            require_assumable(task)
            self._guesses = lru_cache(maxsize=TREES_KEPT)(self._guess)
        self._start = starter(reasoner, budget)
        self.window = min(window, budget.depth)
        self.path = budget.path(reasoner.config.path)
        self.device = reasoner.embedding.device
        self._executor = executor or shared_executor(reasoner.config, self.device)

    def given(self, puzzle: Tokens, starts: Sequence[int]) -> Tokens:
        """Return what some starts of a puzzle are told, (starts, cells): the puzzle as it is, or guesses."""
        if not self.budget.assume:
            return np.repeat(puzzle[None], len(starts), axis=0)
        if self.budget.retell is not None:  # all of them are here
            assert self.task is not None
            level = frontier(self.task, puzzle, len(starts))
            return np.asarray(level[np.arange(len(starts)) % len(level)])
        # rounded up, so that starts that come one by one find what was guessed before
        guesses = self._guesses(puzzle.tobytes(), 1 << max(starts).bit_length())
        told: Tokens = guesses[np.asarray(starts) % len(guesses)]
        return told

    def _guess(self, puzzle: bytes, breadth: int) -> Tokens:
        assert self.task is not None
        return assumptions(self.task, np.frombuffer(puzzle, np.uint8), breadth)

    def begin_again(self, puzzles: Tokens, told: Tokens, keys: Tensor, depths: Tensor) -> RunningRows:
        """Begin rows afresh that are told something else; the segments behind them still count."""
        return replace(self.begin(puzzles, keys.tolist(), told=told), depths=depths)

    def begin(
        self,
        puzzles: Tokens,
        keys: list[int],
        identities: NDArray[np.int32] | None = None,
        *,
        told: Tokens | None = None,
    ) -> RunningRows:
        """Embed what each row is told (rows, cells), if nothing else its puzzle; start it from its key."""
        device, halting = self.device, self.budget.halting
        asked = torch.as_tensor(puzzles, device=device).to(torch.uint8)
        given = asked if told is None else torch.as_tensor(told, device=device).to(torch.uint8)
        row_keys = torch.tensor(keys, dtype=torch.int64, device=device)
        vectors = None
        if identities is not None and self.reasoner.config.identities:
            vectors = self.reasoner.identity_vectors(torch.as_tensor(identities, device=device))
        with self._executor.alone():
            x = self.reasoner.embed(given, vectors)
            state = self._start(x, row_keys)
            logits = self.reasoner.decode(state)
        return RunningRows(
            x=x,
            state=state,
            keys=row_keys,
            depths=torch.zeros_like(row_keys),
            logits=logits,
            residuals=torch.full((len(asked), self.window, 2), torch.nan, device=device),
            puzzles=asked,
            told=given,
            memory=() if halting is None else halting.start(len(asked), device=device),
        )

    def advance(self, rows: RunningRows) -> Advanced:
        """Run one segment on every row and ask the halting rule."""
        with self._executor.alone():
            return self._judge(rows, *self._segment(rows, self.path))

    def _judge(self, rows: RunningRows, state: State, reading: Reading) -> Advanced:
        """Note how far each row has moved and which rows end."""
        moved = torch.linalg.vector_norm(reading.logits.float() - rows.logits.float(), dim=-1).mean(dim=-1)
        latest = torch.stack((reading.residual, moved), dim=1).unsqueeze(1)
        depths, memory, rule = rows.depths + 1, rows.memory, self.budget.halting
        halted = torch.zeros(len(rows), dtype=torch.bool, device=self.device)
        if rule is not None:
            if rule.uses_verifier:
                reading = replace(reading, accepted=self.accepts(rows.puzzles, reading.tokens))
            memory, halted = rule.update(memory, reading, depths)
        after = RunningRows(
            x=rows.x,
            state=state,
            keys=rows.keys,
            depths=depths,
            logits=reading.logits,
            residuals=torch.cat((rows.residuals[:, 1:], latest), dim=1),
            puzzles=rows.puzzles,
            told=rows.told,
            memory=memory,
        )
        return Advanced(
            rows=after, reading=reading, halted=halted, done=halted | (depths >= self.budget.depth)
        )

    def accepts(self, puzzles: Tensor, answers: Tensor) -> Tensor:
        """Ask the task's `check` about answers (rows, cells) to puzzles (rows, cells)."""
        if self.task is None:
            raise UserError("this model does not say which task it is for, so no answer can be checked")
        valid = self.task.check_many(puzzles.cpu().numpy(), answers.cpu().numpy())
        return torch.as_tensor(valid, device=self.device)

    def probe(self, rows: RunningRows) -> Tensor:
        """Return how far a segment without noise would move each row; the rows stay as they are."""
        still = self.path.replace(noise=0.0, learned_noise=False)
        return self._segment(rows, still)[1].residual

    def candidates(self, step: Advanced, chosen: Tensor, began: NDArray[np.float64]) -> Candidates:
        """Read off some rows of a step; `began` says when each of them entered (`time.perf_counter`)."""
        probe = torch.full((len(chosen),), torch.nan)
        if self.budget.probe:
            probe = self.probe(step.rows.take(chosen)).cpu()
        residuals = step.rows.residuals[chosen].cpu().numpy()
        halted = step.halted[chosen].cpu().numpy()
        return Candidates(
            tokens=step.reading.logits[chosen].argmax(dim=-1).to(torch.uint8).cpu().numpy(),
            status=np.where(halted, np.uint8(Status.HALTED), np.uint8(Status.RAN_OUT)),
            depth=step.rows.depths[chosen].to(torch.int32).cpu().numpy(),
            halt=step.reading.halt[chosen].cpu().numpy(),
            residuals=residuals[:, :, 0],
            logit_residuals=residuals[:, :, 1],
            probe=probe.numpy(),
            seconds=(time.perf_counter() - began).astype(np.float32),
        )

    def _segment(self, rows: RunningRows, path: Path) -> tuple[State, Reading]:
        return segment_and_read(
            self.reasoner, self._executor, rows.state, rows.x, rows.keys, rows.depths, path=path
        )


def segment_and_read(
    reasoner: Reasoner,
    executor: RowExecutor,
    state: State,
    x: Tensor,
    keys: Tensor,
    depths: Tensor,
    *,
    path: Path | None = None,
) -> tuple[State, Reading]:
    """Advance every row by one segment and read it, on the threads of `executor`; no graph is recorded."""
    with torch.no_grad():
        after = advance(reasoner, state, x, keys, depths, path=path, executor=executor)
        return after, reasoner.read(after, state)


@dataclass(frozen=True)
class Step:
    """One turn of the loop."""

    numbers: Tensor
    """Which of the rows that began are still here."""
    advanced: Advanced


@torch.inference_mode()
def unroll(dynamics: Dynamics, rows: RunningRows) -> Iterator[Step]:
    """Advance all rows until each has ended, yielding every segment's step."""
    numbers = torch.arange(len(rows), device=dynamics.device)
    while len(rows):
        step = Step(numbers, dynamics.advance(rows))
        yield step
        rows = step.advanced.rows
        if bool(step.advanced.done.any()):
            going = (~step.advanced.done).nonzero().squeeze(1)
            rows, numbers = rows.take(going), numbers[going]


@dataclass(frozen=True, kw_only=True)
class Trajectories:
    """Candidates with the latents they came through; a row that has ended stays where it is."""

    candidates: Candidates
    answer: Tensor
    """(rows, segments + 1, sites, width): the answer state z_H before and after every segment."""
    scratch: Tensor | None
    """The scratch state z_L likewise; None for systems with one state."""


@overload
def rollout(
    reasoner: Reasoner,
    puzzles: Tokens,
    budget: Budget | None = None,
    *,
    restarts: NDArray[np.int64] | int = 0,
    identities: NDArray[np.int32] | None = None,
    window: int = WINDOW,
    keep_states: Literal[False] = False,
) -> Candidates: ...


@overload
def rollout(
    reasoner: Reasoner,
    puzzles: Tokens,
    budget: Budget | None = None,
    *,
    restarts: NDArray[np.int64] | int = 0,
    identities: NDArray[np.int32] | None = None,
    window: int = WINDOW,
    keep_states: Literal[True],
) -> Trajectories: ...


def rollout(
    reasoner: Reasoner,
    puzzles: Tokens,
    budget: Budget | None = None,
    *,
    restarts: NDArray[np.int64] | int = 0,
    identities: NDArray[np.int32] | None = None,
    window: int = WINDOW,
    keep_states: bool = False,
) -> Candidates | Trajectories:
    """Run one trajectory per puzzle (rows, cells), all at once; `restarts` numbers each row's start.

    Breadth and racing are the engine's: here the budget's depth, halting, dynamics and seed count.
    `keep_states` returns the latents of every segment too.
    """
    budget = budget or Budget()
    if not len(puzzles):
        raise UserError("no puzzles to roll out")
    if budget.retell is not None:
        raise UserError("retell: what a start is told depends on the others; take `Engine` or `Solver.solve`")
    restarts = np.broadcast_to(np.asarray(restarts), len(puzzles))
    families = np.zeros(len(puzzles), np.int32) if identities is None else identities
    rows = zip(puzzles, restarts.tolist(), families.tolist(), strict=True)
    keys = [row_key(budget.seed, puzzle, restart, family) for puzzle, restart, family in rows]
    dynamics = Dynamics(reasoner, budget, window=window)
    ended = Candidates.empty(len(puzzles), cells=puzzles.shape[1], window=dynamics.window)
    began = np.full(len(puzzles), time.perf_counter())
    starts = zip(puzzles, restarts.tolist(), strict=True)
    told = np.concatenate([dynamics.given(puzzle, [start]) for puzzle, start in starts])
    with torch.inference_mode():
        begun = dynamics.begin(puzzles, keys, identities, told=told)
        states = [_copy(begun.state)] if keep_states else []
        for step in unroll(dynamics, begun):
            if keep_states:
                states.append(_copy(states[-1]))
                states[-1].put(step.numbers, step.advanced.rows.state)
            chosen = step.advanced.done.nonzero().squeeze(1)
            if len(chosen):
                numbers = step.numbers[chosen].cpu().numpy()
                ended.put(numbers, dynamics.candidates(step.advanced, chosen, began[numbers]))
    if not keep_states:
        return ended
    latents = zip(*(state.tensors() for state in states), strict=True)
    kept = [torch.stack(segments).permute(2, 0, 1, 3) for segments in latents]
    return Trajectories(candidates=ended, answer=kept[0], scratch=kept[1] if len(kept) > 1 else None)


def _copy(state: State) -> State:
    return State(*(latent.clone() for latent in state.tensors()))
