"""Selection equals its definition as a loop, ignores what did not finish, and breaks ties in order."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqr.errors import UserError
from eqr.solve import (
    Candidates,
    First,
    FirstToHalt,
    HighestHalt,
    LowestResidual,
    MajorityVote,
    Status,
    VerifiedFirst,
    parse_selection,
)


def table(seed: int, puzzles: int = 6, starts: int = 5, cells: int = 3, window: int = 4) -> Candidates:
    """Draw candidates with few distinct answers and numbers, so that ties are common."""
    rng = np.random.default_rng(seed)
    shape = (puzzles, starts)
    status = rng.choice([Status.RAN_OUT, Status.HALTED, Status.CANCELLED, Status.NOT_RUN], shape)
    status[:, rng.integers(starts)] = Status.RAN_OUT
    depth = rng.integers(1, 6, shape)
    missing = np.arange(window) < window - depth[..., None]
    return Candidates(
        tokens=rng.integers(0, 2, (*shape, cells)).astype(np.uint8),
        status=status.astype(np.uint8),
        depth=depth.astype(np.int32),
        halt=rng.integers(-2, 3, shape).astype(np.float32),
        residuals=np.where(missing, np.nan, rng.integers(1, 4, (*shape, window))).astype(np.float32),
        logit_residuals=np.where(missing, np.nan, rng.integers(1, 4, (*shape, window))).astype(np.float32),
        probe=rng.integers(1, 4, shape).astype(np.float32),
        seconds=np.zeros(shape, np.float32),
    )


def brute(candidates: Candidates, cost) -> list[int]:
    """The first finished start of least cost, puzzle by puzzle."""
    chosen = []
    for row in range(len(candidates)):
        finished = [s for s in range(candidates.status.shape[1]) if candidates.complete[row, s]]
        chosen.append(min(finished, key=lambda s: (cost(candidates[row, s]), s)))
    return chosen


@given(st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_rules_equal_their_definitions(seed):
    drawn = table(seed)

    def mean(trace, window):
        last = [value for value in trace[-window:].tolist() if not np.isnan(value)]
        return sum(last) / len(last)

    assert First().choose(drawn).tolist() == brute(drawn, lambda c: 0)
    assert HighestHalt().choose(drawn).tolist() == brute(drawn, lambda c: -c.halt)
    assert LowestResidual().choose(drawn).tolist() == brute(drawn, lambda c: mean(c.residuals, 3))
    assert LowestResidual(of="logits", window=2).choose(drawn).tolist() == brute(
        drawn, lambda c: mean(c.logit_residuals, 2)
    )
    assert LowestResidual(of="probe").choose(drawn).tolist() == brute(drawn, lambda c: c.probe)
    assert LowestResidual(of="states").choose(drawn).tolist() == brute(
        drawn, lambda c: mean(np.append(c.residuals, c.probe), 3)
    )
    assert FirstToHalt().choose(drawn).tolist() == brute(
        drawn,
        lambda c: (c.status != Status.HALTED, c.depth if c.status == Status.HALTED else mean(c.residuals, 3)),
    )


@given(st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_the_majority_is_counted_and_ties_go_to_the_first_seen(seed):
    drawn = table(seed)
    chosen = MajorityVote().choose(drawn)
    for row in range(len(drawn)):
        votes = Counter(drawn.tokens[row, s].tobytes() for s in np.flatnonzero(drawn.complete[row]))
        winner = votes.most_common(1)[0][0]  # Counter keeps the order of first sight
        assert drawn.tokens[row, chosen[row]].tobytes() == winner
        assert drawn.complete[row, chosen[row]]


def test_verified_takes_the_first_accepted_and_else_the_best_settled():
    drawn = table(1)

    def verify(candidates):
        return candidates.tokens.sum(axis=-1) == 2

    assert VerifiedFirst.uses_verifier
    assert not LowestResidual.uses_verifier
    chosen = VerifiedFirst().choose(drawn, verify)
    for row, start in enumerate(chosen):
        accepted = np.flatnonzero(verify(drawn)[row] & drawn.complete[row])
        assert start == (accepted[0] if len(accepted) else LowestResidual().choose(drawn)[row])
    with pytest.raises(UserError, match="verifier"):
        VerifiedFirst().choose(drawn)


def test_what_was_not_kept_cannot_be_asked_for():
    drawn = table(2)
    with pytest.raises(UserError, match="only the last 4"):
        LowestResidual(window=5).choose(drawn)
    drawn.probe[:] = np.nan
    for of in ("probe", "states"):
        with pytest.raises(UserError, match="--probe"):
            LowestResidual(of=of).choose(drawn)


def test_rules_as_typed():
    assert parse_selection("residual:5") == LowestResidual(window=5)
    assert parse_selection("logits") == LowestResidual(of="logits")
    assert parse_selection("converged:2") == LowestResidual(of="states", window=2)
    assert parse_selection("majority") == MajorityVote()
    with pytest.raises(UserError, match="did you mean 'majority'"):
        parse_selection("majorty")
    with pytest.raises(UserError, match="takes no"):
        parse_selection("first:2")
    with pytest.raises(UserError, match="window"):
        parse_selection("residual:0")


def test_a_start_that_lost_its_numbers_is_not_the_calmest():
    drawn = table(4)
    drawn.status[:] = Status.RAN_OUT
    drawn.residuals[:, 1] = np.nan  # as after a state that blew up
    chosen = LowestResidual(window=4).choose(drawn)
    assert 1 not in chosen
    assert len(set(chosen.tolist())) > 1
