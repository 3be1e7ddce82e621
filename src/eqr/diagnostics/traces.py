"""Candidates at every depth: what each start of each puzzle would have answered had it stopped there.

One run of the model holds every budget up to its own. Smaller depths and breadths are slices of it, and
halting rules and races are replayed on what was read after each segment, exactly as the engine would have
run them (a test holds the two equal). All figures of a report are computed from one such table.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from eqr.data import PuzzleSet
from eqr.diagnostics.landscape import MODE_RULES, ROUNDS, Basins, name_basins
from eqr.dynamics.halting import HaltingRule
from eqr.errors import UserError
from eqr.model.reasoner import Reasoner
from eqr.model.state import Reading
from eqr.results.evaluate import fill
from eqr.results.table import CandidateTable, Manifest
from eqr.solve.budget import Budget
from eqr.solve.candidates import Candidates, Status
from eqr.solve.selection import replay_race
from eqr.tasks import task_named
from eqr.tasks.base import PAD, Task

WINDOW = 3
"""Residuals kept at each depth: what Top-1 converged averages."""
PART = 32
"""Puzzles saved at a time, so that an interrupted run keeps most of what it has."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Traces:
    """Every start of every puzzle after every segment."""

    puzzles: PuzzleSet
    budget: Budget
    candidates: Candidates
    """Shape (puzzles, starts, depths); column d - 1 is depth d."""
    seconds: float = 0.0
    """What the run took."""
    _halts: dict[str, NDArray[np.int64]] = field(default_factory=dict, repr=False)
    """Where each halting rule asked about so far stops the starts, by the rule's digest."""

    @property
    def depth(self) -> int:
        """Greatest depth."""
        return self.budget.depth

    @property
    def breadth(self) -> int:
        """Starts per puzzle."""
        return self.budget.breadth

    @cached_property
    def task(self) -> Task:
        """The puzzles' task."""
        return task_named(self.puzzles.task)

    @cached_property
    def right(self) -> NDArray[np.bool_]:
        """(puzzles, starts, depths): whether every counted cell equals its label."""
        labels = self.puzzles.labels[:, None, None]
        return np.asarray(((self.candidates.tokens == labels) | (labels == PAD)).all(axis=-1))

    @property
    def residuals(self) -> NDArray[np.float32]:
        """(puzzles, starts, depths): change of the latents in each segment."""
        return self.candidates.residuals[..., -1]

    def halts(self, rule: HaltingRule) -> NDArray[np.int64]:
        """Return where a rule stops each start, (puzzles, starts); `depth` + 1 where it does not.

        The rule itself is asked, on readings put together from the table (HRM's continue score is not kept).
        """
        known = self._halts.get(rule.digest())
        if known is not None:
            return known
        rows, never = len(self.puzzles) * self.breadth, self.depth + 1
        puzzles = np.repeat(self.puzzles.inputs, self.breadth, axis=0)
        memory, halts = rule.start(rows), np.full(rows, never, np.int64)
        for depth in range(1, never):
            here = self.at(depth)
            grids = here.tokens.reshape(rows, -1)
            tokens = torch.from_numpy(grids.astype(np.int64))
            reading = Reading(
                logits=torch.nn.functional.one_hot(tokens, self.task.vocabulary).to(torch.uint8),
                halt=torch.from_numpy(here.halt.reshape(rows)),
                continue_score=torch.full((rows,), torch.nan),
                residual=torch.from_numpy(np.ascontiguousarray(here.residuals[..., -1]).reshape(rows)),
                accepted=torch.from_numpy(self.task.check_many(puzzles, grids))
                if rule.uses_verifier
                else None,
            )
            memory, halted = rule.update(memory, reading, torch.full((rows,), depth))
            halts[(halts == never) & halted.numpy()] = depth
        return self._halts.setdefault(rule.digest(), halts.reshape(-1, self.breadth))

    def at(self, depth: int, breadth: int | None = None) -> Candidates:
        """Return the candidates (puzzles, starts) of a smaller budget."""
        if not 1 <= depth <= self.depth:
            raise UserError(f"depth {depth}: these traces hold depths 1 to {self.depth}")
        return self.candidates[:, :breadth, depth - 1]


def run_traces(
    reasoner: Reasoner, puzzles: PuzzleSet, budget: Budget, folder: Path | None = None, *, quiet: bool = False
) -> Traces:
    """Run every start to the full depth, noting all depths; a `folder` keeps the table for the next call."""
    if budget.halting is not None:
        raise UserError("traces run to their full depth; halting rules are replayed on them afterwards")
    with _filled(reasoner, puzzles, budget, range(1, budget.depth + 1), folder, quiet) as table:
        joined = Candidates.joined([block.candidates for block in table.blocks()])
        return Traces(puzzles=puzzles, budget=budget, candidates=joined, seconds=table.seconds())


def run_basins(
    reasoner: Reasoner, puzzles: PuzzleSet, budget: Budget, folder: Path | None = None, *, quiet: bool = False
) -> list[Basins]:
    """Name every puzzle's landscape mode from the budget's many starts, of which only the ends are kept."""
    last = range(max(budget.depth - ROUNDS * MODE_RULES.longest, 0) + 1, budget.depth + 1)
    budget = budget.replace(halting=None, race=False)
    with _filled(reasoner, puzzles, budget, last, folder, quiet) as table:
        found = []
        for block in table.blocks():
            labels = puzzles.labels[block.first : block.first + len(block.candidates)]
            parts = zip(block.candidates.tokens, block.candidates.residuals[..., -1], labels, strict=True)
            found += [name_basins(*part) for part in parts]
        return found


@contextmanager
def _filled(
    reasoner: Reasoner, puzzles: PuzzleSet, budget: Budget, depths: range, folder: Path | None, quiet: bool
) -> Iterator[CandidateTable]:
    """Lend the complete table of a run; without a folder it is gone afterwards."""
    with tempfile.TemporaryDirectory() if folder is None else nullcontext(folder) as place:
        manifest = Manifest.of(reasoner, puzzles, budget, depths=depths, window=WINDOW, part=PART)
        table = CandidateTable.open(Path(place) / f"candidates-{manifest.digest()}", manifest)
        fill(table, reasoner, puzzles, quiet=quiet)
        yield table


def replay(traces: Traces, rule: HaltingRule, depth: int | None = None) -> Candidates:
    """Return the candidates (puzzles, starts) that a halting rule would have ended with, within a depth."""
    depth, halts = depth or traces.depth, traces.halts(rule)
    return _stopped(traces, np.minimum(halts, depth), halts <= depth)


def race(traces: Traces, rule: HaltingRule, depth: int, breadth: int, *, abreast: int = 8) -> Candidates:
    """Return the candidates (puzzles, breadth) of a race among the first starts (see `Budget.race`)."""
    ends, status = replay_race(traces.halts(rule)[:, :breadth], depth, abreast)
    chosen = _stopped(traces, ends, status == Status.HALTED)
    chosen.status[...] = status
    return chosen


def _stopped(traces: Traces, ends: NDArray[np.int64], halted: NDArray[np.bool_]) -> Candidates:
    puzzles, starts = np.indices(ends.shape)
    chosen = traces.candidates[puzzles, starts, np.maximum(ends, 1) - 1]
    chosen.status[...] = np.where(halted, Status.HALTED, Status.RAN_OUT)
    chosen.depth[...] = ends
    return chosen
