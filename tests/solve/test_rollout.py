"""The loop: rows are independent, halted rows stay as they were, residuals are right from the start."""

import numpy as np
import pytest
import torch

from eqr.dynamics.iterate import unroll
from eqr.errors import UserError
from eqr.model import systems
from eqr.model.definitions import row_key
from eqr.model.reasoner import Reasoner
from eqr.solve import Budget, HaltHead, LowestResidual, ResidualBelow, Solver, Status, rollout
from eqr.solve.budget import usual_depth
from eqr.solve.rollout import Inference
from eqr.tasks import task_named
from settling import Settling, assert_equal_up_to_rounding, puzzles_4x4


@pytest.fixture(scope="module")
def reasoner() -> Reasoner:
    config = systems.eqr(
        task_named("sudoku-4x4"), width=16, round_hidden_to=16, cycles=1, scratch=2, blocks=1
    )
    return Reasoner(config, seed=3)


def test_depth_is_reached_without_a_rule(reasoner):
    ended = rollout(reasoner, puzzles_4x4(3).inputs, Budget(depth=5))
    assert (ended.depth == 5).all()
    assert (ended.status == Status.RAN_OUT).all()
    assert np.isfinite(ended.residuals).all()


def test_the_rules_are_those_of_the_models_own_task(reasoner):
    ended = rollout(reasoner, puzzles_4x4(3).inputs, Budget(depth=2, halting="valid"))
    assert ((ended.status == Status.HALTED) | (ended.depth == 2)).all()


def test_a_row_does_not_depend_on_its_neighbours(reasoner):
    puzzles = puzzles_4x4(6).inputs
    together = rollout(reasoner, puzzles, Budget(depth=4), restarts=np.arange(6))
    alone = rollout(reasoner, puzzles[4:5], Budget(depth=4), restarts=4)
    np.testing.assert_array_equal(together.tokens[4], alone.tokens[0])
    np.testing.assert_allclose(together.residuals[4], alone.residuals[0], rtol=1e-4)


def test_residuals_are_the_changes_of_states_and_logits_from_the_first_segment_on(reasoner):
    puzzle = puzzles_4x4(1).inputs
    ended = rollout(reasoner, puzzle, Budget(depth=3, seed=5), window=8)
    key = torch.tensor([row_key(5, puzzle[0], 0)])
    with torch.no_grad():
        x = reasoner.embed_tokens(torch.as_tensor(puzzle))
        state = reasoner.initial_state(x, key)
        for depth in range(3):
            after = reasoner.segment(state, x, key, torch.tensor([depth]))
            moved = reasoner.read(after, state).logits - reasoner.read(state, state).logits
            assert ended.residuals[0, depth] == pytest.approx(float(after.distance(state)), rel=1e-4)
            assert ended.logit_residuals[0, depth] == pytest.approx(
                float(moved.norm(dim=-1).mean()), rel=1e-4
            )
            state = after


def test_a_trajectory_does_not_depend_on_how_its_puzzle_is_held(reasoner):
    puzzles = puzzles_4x4(3).inputs
    budget = Budget(depth=3)
    small, wide = rollout(reasoner, puzzles, budget), rollout(reasoner, puzzles.astype(np.int64), budget)
    np.testing.assert_array_equal(small.residuals, wide.residuals)
    other = rollout(reasoner, puzzles, budget, identities=np.array([0, 1, 2], np.int32))
    assert (small.residuals == other.residuals).all(axis=1).tolist() == [True, False, False]


def test_only_the_last_residuals_are_kept(reasoner):
    puzzles = puzzles_4x4(2).inputs
    full = rollout(reasoner, puzzles, Budget(depth=6), window=100)
    assert full.residuals.shape == (2, 6)
    last = rollout(reasoner, puzzles, Budget(depth=6), window=2)
    np.testing.assert_array_equal(last.residuals, full.residuals[:, -2:])


def test_halted_rows_never_change_again():
    puzzles = puzzles_4x4(40)
    budget = Budget(depth=30, halting=HaltHead())
    ended = rollout(Settling(puzzles), puzzles.inputs, budget)
    assert len(np.unique(ended.depth)) > 5
    for depth in np.unique(ended.depth[ended.status == Status.HALTED]):
        rows = np.flatnonzero((ended.depth == depth) & (ended.status == Status.HALTED))
        stopped = rollout(Settling(puzzles), puzzles.inputs[rows], Budget(depth=int(depth)))
        np.testing.assert_array_equal(ended.tokens[rows], stopped.tokens)
        assert_equal_up_to_rounding(ended.halt[rows], stopped.halt)


def test_a_contraction_reaches_its_fixed_point_and_stops_there():
    puzzles = puzzles_4x4(20)
    calm = Budget(depth=500, halting=ResidualBelow(tolerance=1e-4, patience=2))
    ended = rollout(Settling(puzzles, wrong=0.0, stuck=0.0), puzzles.inputs, calm)
    assert (ended.status == Status.HALTED).all()
    np.testing.assert_array_equal(ended.tokens, puzzles.labels)
    assert (ended.residuals[:, -2:] < 1e-4).all()
    assert (ended.residuals[:, -3] >= 1e-4).all()


def test_noise_and_damping_are_arguments_of_a_run(reasoner):
    puzzles = puzzles_4x4(4).inputs
    quiet = rollout(reasoner, puzzles, Budget(depth=3, noise=0.0, damping=0.0))
    noisy = rollout(reasoner, puzzles, Budget(depth=3, noise=0.5))
    assert not np.allclose(quiet.residuals, noisy.residuals)
    assert reasoner.config.path == systems.EQR_PATH


def test_the_papers_score_is_the_residual_of_the_last_three_states(reasoner):
    """(1/L) sum over t = T-L+1 .. T of |f(z_t) - z_t|, by walking the states one by one."""
    puzzles = puzzles_4x4(4).inputs
    budget = Budget(depth=5, noise=0.0, probe=True)
    ended = rollout(reasoner, puzzles, budget)
    inference = Inference(reasoner, budget)
    keys = [row_key(budget.seed, puzzle, 0) for puzzle in puzzles]
    with torch.inference_mode():
        rows = inference.begin(puzzles, keys)
        states = [rows.state]
        for depth in range(6):
            depths = torch.full_like(rows.depths, depth)
            x, rule = rows.x.embedding, inference.operator.perturbation
            states.append(reasoner.segment(states[-1], x, rows.keys, depths, perturbation=rule))
    moved = [states[t + 1].distance(states[t]).numpy() for t in (3, 4, 5)]
    scores = LowestResidual(of="states").costs(ended[None])[0]
    np.testing.assert_allclose(scores, np.mean(moved, axis=0), rtol=1e-4)


def test_a_feedforward_model_has_depth_one(reasoner):
    config = systems.feedforward(task_named("sudoku-4x4"), width=16, round_hidden_to=16, blocks=2)
    forward = Reasoner(config)
    puzzles = puzzles_4x4(2).inputs
    assert rollout(forward, puzzles, Budget(depth=1)).depth.tolist() == [1, 1]
    with pytest.raises(UserError, match="depth 2: a feedforward model has nothing to iterate"):
        rollout(forward, puzzles, Budget(depth=2))
    assert Solver(forward).solve(puzzles[0]).depth == 1
    assert usual_depth(reasoner.config, 64) == 64


def test_the_probe_measures_without_noise_and_is_paid_for(reasoner):
    puzzles = puzzles_4x4(4).inputs
    ended = rollout(reasoner, puzzles, Budget(depth=3, probe=True))
    assert (ended.nfe == 4).all()
    inference = Inference(reasoner, Budget(depth=3))
    keys = [row_key(0, puzzle, 0) for puzzle in puzzles]
    *_, last = unroll(inference.dynamics, inference.begin(puzzles, keys))
    rows = last.rows
    with torch.no_grad():
        still = reasoner.config.path.replace(noise=0.0)
        moved = reasoner.segment(rows.state, rows.x.embedding, rows.keys, rows.depths, perturbation=still)
    np.testing.assert_allclose(ended.probe, moved.distance(rows.state).numpy(), rtol=1e-4)
    assert np.isnan(rollout(reasoner, puzzles, Budget(depth=3)).probe).all()


def test_inference_leaves_the_callers_modes_alone(reasoner):
    inference = Inference(reasoner, Budget(depth=2))
    turns = unroll(inference.dynamics, inference.begin(puzzles_4x4(1).inputs, [1]))
    next(turns)
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()


def test_nothing_to_do_is_said():
    puzzles = puzzles_4x4(1)
    with pytest.raises(UserError, match="no puzzles"):
        rollout(Settling(puzzles), puzzles.inputs[:0])
