"""Rows that move by the same rules, side by side in one batch, and who sits in each.

The engine keeps a cohort for every way of iterating that is asked of it at the moment: usually one. Breadth,
seed and race do not matter here, they are the tickets'. A row that ends leaves its place at once; the next
rows to enter take it over, or the batch shrinks.
"""

import time
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from eqr.model.counters import row_key
from eqr.solve.assumptions import retold
from eqr.solve.candidates import Candidates, Status
from eqr.solve.line import Ticket
from eqr.solve.rollout import Advanced, Dynamics, RunningRows
from eqr.tasks.base import Tokens


@dataclass(frozen=True, kw_only=True)
class Finished:
    """Some rows that ended, or (`passing`) that reached one of the noted depths and go on."""

    puzzles: NDArray[np.int64]
    """Index of each row's puzzle."""
    restarts: NDArray[np.int64]
    candidates: Candidates
    won: NDArray[np.bool_]
    """Which rows end the search of their puzzle: the others are cancelled, those that wait never begin."""
    passing: bool = False

    def of(self, puzzle: int) -> "Finished":
        """Return the rows of one puzzle."""
        rows = np.flatnonzero(self.puzzles == puzzle)
        return Finished(
            puzzles=self.puzzles[rows],
            restarts=self.restarts[rows],
            candidates=self.candidates[rows],
            won=self.won[rows],
            passing=self.passing,
        )


@dataclass(frozen=True, kw_only=True)
class Glimpse:
    """What a watched row says after a segment."""

    puzzle: int
    """Index of its puzzle."""
    restart: int
    """Number of the start among those of its puzzle."""
    segment: int
    """Segments run, this one included."""
    tokens: Tokens
    """(cells,): the decoded grid."""
    confidence: NDArray[np.float32]
    """(cells,): the probability that the model gives each token of the grid."""
    residual: float
    """Change of the latents in this segment, root mean square per coordinate."""
    logit_residual: float
    halt: float
    """Halt score, a logit."""
    done: bool
    """Whether the row ends here."""


class Cohort:
    """Trajectories under one set of dynamics."""

    def __init__(self, dynamics: Dynamics, noted: NDArray[np.int64]) -> None:
        self._dynamics, self._noted = dynamics, noted
        self._rows: RunningRows | None = None
        self._seats = _Seats.none()
        self._vacant = np.zeros(0, np.intp)
        """Rows that have ended and whose place is free."""

    def __len__(self) -> int:
        return len(self._seats) - len(self._vacant)

    def drop(self, puzzles: NDArray[np.int64]) -> None:
        """Let the rows of some puzzles leave without a word."""
        gone = np.flatnonzero(np.isin(self._seats.puzzles, puzzles))
        self._vacant = np.union1d(self._vacant, gone)

    def admit(self, tickets: list[Ticket]) -> None:
        """Begin the rows of tickets, in the vacant places first; without enough tickets, shrink."""
        if not tickets and not len(self._vacant):
            return
        fresh = self._begin(tickets) if tickets else None
        self._seat(fresh, _Seats.of(tickets))

    def advance(self) -> tuple[list[Finished], list[Glimpse]]:
        """Run one segment on every row; return the rows that passed a noted depth or ended, and glimpses."""
        assert self._rows is not None
        seats = self._seats
        step = self._dynamics.advance(self._rows)
        self._rows = step.rows
        halted, done = step.halted.cpu().numpy(), step.done.cpu().numpy()
        won = seats.racing & halted
        if (seats.verifying & done).any():
            won = won | self._verified(step, seats.verifying & done)
        if won.any():
            done = done | np.isin(seats.puzzles, seats.puzzles[won])
        glimpses = self._glimpses(step, done) if seats.watched.any() else []
        reports = []
        if len(self._noted):
            passing = np.flatnonzero(np.isin(step.rows.depths.cpu().numpy(), self._noted) & ~done)
            if len(passing):
                reports.append(self._report(step, passing, won, passing=True))
        if done.any():
            self._vacant = np.flatnonzero(done)
            reports.append(self._report(step, self._vacant, won, passing=False))
        if (every := self._dynamics.budget.retell) is not None:
            self._retell(step, ~done, every)
        return reports, glimpses

    def _retell(self, step: Advanced, going: NDArray[np.bool_], every: int) -> None:
        """Note how sure rows are; every so many segments, tell the starts of a puzzle anew."""
        seats, dynamics = self._seats, self._dynamics
        depths = step.rows.depths.cpu().numpy()
        phase = depths % every
        # over half of the segments since a row was told: the first still find their way, one says too little
        counted, due = (phase == 0) | (phase > every // 2), going & (phase == 0)
        if counted.any():
            now = step.reading.logits.float().softmax(dim=-1).amax(dim=-1).mean(dim=-1).cpu().numpy()
            seats.sure[counted] += now[counted]
        if not due.any():
            return
        asked, told = step.rows.puzzles.cpu().numpy(), step.rows.told.cpu().numpy()
        assert dynamics.task is not None  # without one nothing is assumed
        staying, after = (step.reading.halt > 0).cpu().numpy(), told.copy()
        for puzzle in np.unique(seats.puzzles[due]):
            rows = np.flatnonzero(due & (seats.puzzles == puzzle))
            first = rows[0]  # they advance in step
            telling = int(depths[first]) // every
            after[rows] = retold(
                dynamics.task, asked[first], told[rows], seats.sure[rows], staying[rows], telling
            )
        seats.sure[due] = 0.0
        anew = np.flatnonzero((after != told).any(axis=1))
        if len(anew):
            index = torch.as_tensor(anew, device=dynamics.device)
            begun = dynamics.begin_again(
                asked[anew], after[anew], step.rows.keys[index], step.rows.depths[index]
            )
            step.rows.put(index, begun)

    def _begin(self, tickets: list[Ticket]) -> RunningRows:
        owners = [(t, restart) for t in tickets for restart in t.starts]
        return self._dynamics.begin(
            np.stack([ticket.puzzle.tokens for ticket, _ in owners]),
            [row_key(t.budget.seed, t.puzzle.tokens, restart, t.puzzle.identity) for t, restart in owners],
            np.array([ticket.puzzle.identity for ticket, _ in owners], np.int32),
            told=np.concatenate([self._dynamics.given(t.puzzle.tokens, t.starts) for t in tickets]),
        )

    def _seat(self, fresh: RunningRows | None, seats: "_Seats") -> None:
        rows, vacant, device = self._rows, self._vacant, self._dynamics.device
        self._vacant = np.zeros(0, np.intp)
        if rows is not None and fresh is not None and len(vacant):
            # into the vacant places as far as they go: to close a gap is to copy the latents of every row
            here, others = np.split(np.arange(len(fresh)), [len(vacant)])
            places, vacant = np.split(vacant, [len(here)])
            part = fresh.take(torch.as_tensor(here, device=device)) if len(others) else fresh
            rows.put(torch.as_tensor(places, device=device), part)
            self._seats.put(places, seats.take(here))
            fresh = fresh.take(torch.as_tensor(others, device=device)) if len(others) else None
            seats = seats.take(others)
        if len(vacant):
            staying = np.delete(np.arange(len(self._seats)), vacant)
            self._seats = self._seats.take(staying)
            assert rows is not None
            rows = rows.take(torch.as_tensor(staying, device=device)) if len(staying) else None
        self._seats = self._seats.joined(seats)
        if rows is not None and fresh is not None:
            rows = RunningRows.joined([rows, fresh])
        self._rows = rows if rows is not None else fresh

    def _verified(self, step: Advanced, asked: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which of the rows asked about end with an answer that the task's `check` accepts."""
        verified = asked.copy()
        index = torch.as_tensor(np.flatnonzero(asked), device=self._dynamics.device)
        answers = step.reading.tokens[index]
        verified[asked] = self._dynamics.accepts(step.rows.puzzles[index], answers).cpu().numpy()
        return verified

    def _report(
        self, step: Advanced, chosen: NDArray[np.intp], won: NDArray[np.bool_], *, passing: bool
    ) -> Finished:
        index = torch.as_tensor(chosen, device=self._dynamics.device)
        candidates = self._dynamics.candidates(step, index, self._seats.began[chosen])
        if not passing:
            short = candidates.depth < self._dynamics.budget.depth
            candidates.status[(candidates.status == Status.RAN_OUT) & short] = Status.CANCELLED
        return Finished(
            puzzles=self._seats.puzzles[chosen],
            restarts=self._seats.restarts[chosen],
            candidates=candidates,
            won=won[chosen],
            passing=passing,
        )

    def _glimpses(self, step: Advanced, done: NDArray[np.bool_]) -> list[Glimpse]:
        seats = self._seats
        watched = np.flatnonzero(seats.watched)
        index = torch.as_tensor(watched, device=self._dynamics.device)
        sure, tokens = step.reading.logits[index].float().softmax(dim=-1).max(dim=-1)
        moved = step.rows.residuals[index, -1].tolist()
        depths, halts = step.rows.depths[index].tolist(), step.reading.halt[index].tolist()
        grids, confidence = tokens.to(torch.uint8).cpu().numpy(), sure.cpu().numpy()
        return [
            Glimpse(
                puzzle=int(seats.puzzles[row]),
                restart=int(seats.restarts[row]),
                segment=depths[place],
                tokens=grids[place],
                confidence=confidence[place],
                residual=moved[place][0],
                logit_residual=moved[place][1],
                halt=halts[place],
                done=bool(done[row]),
            )
            for place, row in enumerate(watched)
        ]


@dataclass(frozen=True)
class _Seats:
    """Who sits in each row."""

    puzzles: NDArray[np.int64]
    restarts: NDArray[np.int64]
    began: NDArray[np.float64]
    racing: NDArray[np.bool_]
    verifying: NDArray[np.bool_]
    watched: NDArray[np.bool_]
    sure: NDArray[np.float64]
    """Probability that a row gives its symbols, the mean over cells, summed over its last segments."""

    @classmethod
    def of(cls, tickets: list[Ticket]) -> "_Seats":
        counts = [ticket.count for ticket in tickets]
        restarts = [np.array(ticket.starts, np.int64) for ticket in tickets]
        return cls(
            np.repeat(np.array([ticket.puzzle.index for ticket in tickets], np.int64), counts),
            np.concatenate(restarts) if restarts else np.zeros(0, np.int64),
            np.full(sum(counts), time.perf_counter()),
            np.repeat(np.array([ticket.budget.race for ticket in tickets], np.bool_), counts),
            np.repeat(np.array([ticket.budget.until_verified for ticket in tickets], np.bool_), counts),
            np.repeat(np.array([ticket.puzzle.watch for ticket in tickets], np.bool_), counts),
            np.zeros(sum(counts)),
        )

    @classmethod
    def none(cls) -> "_Seats":
        return cls.of([])

    def __len__(self) -> int:
        return len(self.puzzles)

    def put(self, rows: NDArray[np.intp], other: "_Seats") -> None:
        for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True):
            mine[rows] = theirs

    def take(self, rows: NDArray[np.intp]) -> "_Seats":
        return _Seats(*(column[rows] for column in vars(self).values()))

    def joined(self, other: "_Seats") -> "_Seats":
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return _Seats(*(np.concatenate(pair) for pair in pairs))
