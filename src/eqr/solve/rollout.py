"""A reasoner under a budget: how rows of puzzles begin and advance, and what is read off them when they end.

`rollout` runs one trajectory per puzzle, all at once; `Engine` refills the slots of those that have ended.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eqr.backends import Backend, default_backend
from eqr.dynamics.iterate import Dynamics, Operator, Reasoning, Rows, Turn, unroll
from eqr.dynamics.rows import put, take
from eqr.errors import UserError, brief
from eqr.model.config import ReasonerConfig
from eqr.model.definitions import row_key
from eqr.model.reasoner import Reasoner
from eqr.model.state import Input, RandomStarter, Reading, State
from eqr.solve.budget import Budget
from eqr.solve.candidates import WINDOW, Candidates, Snapshot, Status, stopped_by
from eqr.tasks import task_named
from eqr.tasks.base import Task, Tokens


@dataclass(frozen=True)
class LastChanges:
    """An observer that keeps how far the last `window` segments moved the latents and the logits."""

    window: int

    def start(self, operator: Operator, z: State, rows: int) -> tuple[Tensor, Tensor]:
        """Begin with no changes, (rows, window, 2), and the logits of the start."""
        assert isinstance(operator, Reasoning)
        device = z.answer.device
        return torch.full((rows, self.window, 2), torch.nan, device=device), operator.model.decode(z)

    def update(self, noted: tuple[Tensor, Tensor], reading: Reading) -> tuple[Tensor, Tensor]:
        """Add the latest, at the end."""
        changes, before = noted
        moved = torch.linalg.vector_norm(reading.logits.float() - before.float(), dim=-1).mean(dim=-1)
        latest = torch.stack((reading.residual, moved), dim=1).unsqueeze(1)
        return torch.cat((changes[:, 1:], latest), dim=1), reading.logits


class Inference:
    """A reasoner under a budget."""

    def __init__(
        self,
        reasoner: Reasoner,
        budget: Budget,
        *,
        window: int = WINDOW,
        task: Task | None = None,
        backend: Backend | None = None,
    ) -> None:
        """`task` judges answers where the budget asks for that; None is the model's own."""
        most = reasoner.config.greatest_depth
        if most is not None and budget.depth > most:
            kind = reasoner.config.recurrence.kind
            raise UserError(
                f"depth {budget.depth}: a {kind} model has nothing to iterate; its depth is {most}"
            )
        self.reasoner, self.budget = reasoner, budget
        self.device = reasoner.embedding.device
        self._task, self._starter = task, None
        if budget.start is not None:
            fields = {**reasoner.config.to_json(), "start": budget.start.to_json()}
            self._starter = RandomStarter(ReasonerConfig.from_json(fields, where="start"), budget.start)
        backend = backend or default_backend(reasoner.config, self.device)
        self.operator = Reasoning(reasoner, budget.perturbation(reasoner.config.path), backend)
        self.window = min(window, budget.depth)
        self.dynamics = Dynamics(
            operator=self.operator,
            depth=budget.depth,
            halting=budget.halting,
            judge=lambda x, reading: self.accepts(x.puzzles, reading.tokens),
            observer=LastChanges(self.window),
        )

    def begin(
        self, puzzles: Tokens, keys: Sequence[int], identities: NDArray[np.int32] | None = None
    ) -> Rows:
        """Embed puzzles (rows, cells) and start each from its key."""
        tokens = torch.as_tensor(puzzles, device=self.device).to(torch.uint8)
        row_keys = torch.tensor(keys, dtype=torch.int64, device=self.device)
        vectors = None
        if identities is not None and self.reasoner.config.identities:
            vectors = self.reasoner.identity_vectors(torch.as_tensor(identities, device=self.device))
        with self.operator.alone():
            x = self.reasoner.embed_tokens(tokens, vectors)
            begin = self._starter or self.reasoner.initial_state
            return self.dynamics.start(Input(x, tokens), begin(x, row_keys), row_keys)

    def advance(self, rows: Rows) -> Turn:
        """Run one segment on every row and ask the halting rule; no graph is recorded."""
        with torch.no_grad():
            return self.dynamics.advance(rows)

    def accepts(self, puzzles: Tensor, answers: Tensor) -> Tensor:
        """Ask the task's `check` about answers (rows, cells) to puzzles (rows, cells)."""
        task, own = self._task, self.reasoner.config.task
        if task is None and own is None:
            raise UserError("this model does not say which task it is for, so no answer can be checked")
        task = task or task_named(str(own))
        valid = task.check_many(puzzles.cpu().numpy(), answers.cpu().numpy())
        return torch.as_tensor(valid, device=self.device)

    def candidates(self, turn: Turn, chosen: Tensor, began: NDArray[np.float64]) -> Candidates:
        """Read off some rows; `began` says when each of them entered (`time.perf_counter`)."""
        rows, reading = turn.rows, turn.reading
        probe = torch.full((len(chosen),), torch.nan)
        if self.budget.probe:
            probe = self._probe(take(rows, chosen)).cpu()
        changes = rows.noted[0][chosen].cpu().numpy()
        halted = turn.halted[chosen].cpu().numpy()
        return Candidates(
            tokens=reading.logits[chosen].argmax(dim=-1).to(torch.uint8).cpu().numpy(),
            status=np.where(halted, np.uint8(Status.HALTED), np.uint8(Status.RAN_OUT)),
            depth=rows.depths[chosen].to(torch.int32).cpu().numpy(),
            halt=reading.halt[chosen].cpu().numpy(),
            residuals=changes[:, :, 0],
            logit_residuals=changes[:, :, 1],
            probe=probe.numpy(),
            seconds=(time.perf_counter() - began).astype(np.float32),
        )

    def snapshots(
        self, turn: Turn, chosen: Tensor, puzzles: NDArray[np.int64], starts: NDArray[np.int64]
    ) -> list[Snapshot]:
        """Read off some rows what a person may watch; they are starts `starts` of puzzles `puzzles`."""
        reading, rows = turn.reading, turn.rows
        sure, tokens = reading.logits[chosen].float().softmax(dim=-1).max(dim=-1)
        grids, confidence = tokens.to(torch.uint8).cpu().numpy(), sure.cpu().numpy()
        columns = (rows.noted[0][:, -1], rows.depths, reading.halt, turn.halted, turn.done)
        plain = zip(*(column[chosen].tolist() for column in columns), strict=True)
        stopped = stopped_by(self.budget.halting)
        return [
            Snapshot(
                puzzle=int(puzzles[place]),
                start=int(starts[place]),
                segment=depth,
                grid=grids[place],
                confidence=confidence[place],
                residual=moved[0],
                logit_residual=moved[1],
                halt=halt,
                status=stopped if halted else Status.RAN_OUT if done else None,
            )
            for place, (moved, depth, halt, halted, done) in enumerate(plain)
        ]

    def _probe(self, rows: Rows) -> Tensor:
        """Return how far a segment without noise would move each row; the rows stay as they are."""
        still = Dynamics(operator=replace(self.operator, perturbation=self.operator.perturbation.still))
        with torch.no_grad():
            return still.read(still.step(rows), rows).residual


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


@torch.inference_mode()
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
    if np.asarray(puzzles).dtype.kind not in "ui":
        raise UserError(
            f"puzzles = {brief(puzzles)}: give tokens (rows, cells); Solver(...).read(text)[None] makes them"
        )
    if not len(puzzles):
        raise UserError("no puzzles to roll out")
    restarts = np.broadcast_to(np.asarray(restarts), len(puzzles))
    families = np.zeros(len(puzzles), np.int32) if identities is None else identities
    named = zip(puzzles, restarts.tolist(), families.tolist(), strict=True)
    keys = [row_key(budget.seed, puzzle, restart, family) for puzzle, restart, family in named]
    inference = Inference(reasoner, budget, window=window)
    ended = Candidates.empty(len(puzzles), cells=puzzles.shape[1], window=inference.window)
    began = np.full(len(puzzles), time.perf_counter())
    rows = inference.begin(puzzles, keys, identities)
    states = [_copy(rows.state)] if keep_states else []
    for turn in unroll(inference.dynamics, rows):
        assert turn.numbers is not None
        if keep_states:
            states.append(_copy(states[-1]))
            put(states[-1], turn.numbers, turn.moved)
        chosen = turn.done.nonzero().squeeze(1)
        if len(chosen):
            numbers = turn.numbers[chosen].cpu().numpy()
            ended.put(numbers, inference.candidates(turn, chosen, began[numbers]))
    if not keep_states:
        return ended
    latents = zip(*(state.tensors() for state in states), strict=True)
    kept = [torch.stack(segments).permute(2, 0, 1, 3) for segments in latents]
    return Trajectories(candidates=ended, answer=kept[0], scratch=kept[1] if len(kept) > 1 else None)


def _copy(state: State) -> State:
    return State(*(latent.clone() for latent in state.tensors()))
