"""The one loop: the same trajectory whoever drives it, rows that leave, functions, solvers, gradients."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

import eqr
from eqr.dynamics.halting import FixedDepth, ResidualBelow
from eqr.dynamics.iterate import iterate
from eqr.dynamics.rows import take
from eqr.errors import UserError
from eqr.model import systems
from eqr.model.operator import Perturbation
from eqr.model.reasoner import Reasoner
from eqr.solve import Budget, rollout
from eqr.tasks import task_named
from settling import puzzles_4x4

SMALL = {"width": 16, "round_hidden_to": 16, "blocks": 1}
TASK = task_named("sudoku-4x4")
MODELS = {
    "eqr": lambda: systems.eqr(TASK, cycles=1, scratch=2, **SMALL),
    "trm": lambda: systems.trm(TASK, cycles=1, scratch=2, **SMALL),
    "weight-tied": lambda: systems.weight_tied(TASK, cycles=1, applications=2, **SMALL),
}
TURN = 0.5 * torch.linalg.qr(torch.randn(8, 8, generator=torch.Generator().manual_seed(0)))[0]


@pytest.fixture(params=MODELS)
def model(request) -> Reasoner:
    return Reasoner(MODELS[request.param](), seed=3).requires_grad_(False)


def own(z, x):
    return torch.tanh(z @ TURN + x)


def inputs(rows: int) -> torch.Tensor:
    return torch.randn(rows, 8, generator=torch.Generator().manual_seed(1))


def test_four_names_run_the_trajectory_that_solving_runs(model):
    puzzles = puzzles_4x4(3).inputs
    x = model.embed(puzzles)
    z = model.start(x, seed=5)
    residuals = torch.stack([turn.residual for turn in iterate(model, x, z, depth=6)], dim=1)
    theirs = rollout(model, puzzles, Budget(depth=6, seed=5)).residuals
    np.testing.assert_array_equal(residuals.numpy(), theirs)


def test_copies_of_a_puzzle_are_its_restarts(model):
    puzzle = puzzles_4x4(1).inputs
    x = model.embed(puzzle, copies=3)
    *_, last = iterate(model, x, model.start(x), depth=4)
    theirs = rollout(model, puzzle.repeat(3, axis=0), Budget(depth=4), restarts=np.arange(3))
    np.testing.assert_array_equal(last.residual.numpy(), theirs.residuals[:, -1])


def test_an_iteration_goes_on_where_another_ended(model):
    x = model.embed(puzzles_4x4(2).inputs)
    *_, whole = iterate(model, x, model.start(x), depth=6)
    *_, half = iterate(model, x, model.start(x), depth=2)
    *_, rest = iterate(model, x, half.state, depth=4)
    assert torch.equal(whole.state.answer, rest.state.answer)
    assert rest.depths.tolist() == [6, 6]


def test_arithmetic_on_states_keeps_whose_they_are(model):
    x = model.embed(puzzles_4x4(2).inputs)
    z = model.start(x, seed=1)
    moved = z + 0.1 * z.map(torch.randn_like)
    assert torch.equal(moved.keys, z.keys)
    assert moved.distance(z).tolist() == pytest.approx([0.1, 0.1], rel=0.2)
    assert torch.equal((z - z).answer, torch.zeros_like(z.answer))


def test_the_model_is_the_operator_without_noise(model):
    x = model.embed(puzzles_4x4(2).inputs)
    z = model.start(x)
    (turn,) = iterate(model, x, z, depth=1, perturb=None, backend="eager")
    assert torch.equal(turn.state.answer, model(z, x).answer)


def test_rows_that_halt_leave():
    def slower(z, x):
        return z + x[:, :1] * (x - z)

    pace = torch.tensor([0.9, 0.5, 0.1]).view(3, 1).expand(3, 8).contiguous()
    seen = {}
    for turn in iterate(slower, pace, torch.zeros(3, 8), depth=100, halting="residual:0.001"):
        seen |= dict(zip(turn.numbers[turn.done].tolist(), turn.depths[turn.done].tolist(), strict=True))
    assert list(seen) == [0, 1, 2]
    assert len(turn.residual) == 1


def test_a_function_is_iterated_halted_and_measured_by_the_same_tools():
    x = inputs(5)
    turns = list(
        iterate(own, x, torch.zeros(5, 8), depth=200, halting=ResidualBelow(tolerance=1e-5, patience=2))
    )
    rest = turns[-1].state
    assert len(turns) < 200
    np.testing.assert_allclose(own(rest, x[turns[-1].numbers]), rest, atol=1e-4)
    first = turns[0]
    assert torch.allclose(first.residual, own(torch.zeros(5, 8), x).square().mean(1).sqrt())


def test_noise_of_a_function_belongs_to_the_row():
    x, noise = inputs(4), Perturbation(noise=0.1, damping=0.2)
    *_, together = iterate(own, x, torch.zeros(4, 8), depth=5, perturb=noise)
    *_, quiet = iterate(own, x, torch.zeros(4, 8), depth=5)
    assert not torch.allclose(together.state, quiet.state)
    *_, fewer = iterate(own, x[:2], torch.zeros(2, 8), depth=5, perturb=noise)
    assert torch.equal(together.state[:2], fewer.state)


def test_tuples_are_states_too():
    def pair(z, x):
        return own(z[0], x), z[0]

    *_, last = iterate(pair, inputs(3), (torch.zeros(3, 8), torch.zeros(3, 8)), depth=60)
    assert float((last.state[0] - last.state[1]).abs().max()) < 1e-4


@dataclass(frozen=True)
class Relaxed:
    """Goes beyond f(z), and remembers how often."""

    weight: float

    def start(self, z):
        return torch.zeros(len(z))

    def update(self, history, z, moved):
        return history + 1, torch.lerp(z, moved, self.weight)


def test_a_solver_moves_on_from_elsewhere_and_readings_are_those_of_f():
    x = inputs(4)
    z = torch.zeros(4, 8)
    for turn in iterate(own, x, z, depth=8, solver=Relaxed(1.3)):
        moved = own(z, x)
        assert torch.allclose(turn.state, moved)
        assert torch.allclose(turn.residual, (moved - z).square().mean(1).sqrt())
        z = turn.rows.state
    assert turn.rows.history.tolist() == [8.0] * 4


def test_what_a_solver_remembers_leaves_with_its_row():
    x = inputs(6)
    rule = ResidualBelow(tolerance=1e-3)
    ends = {}
    for turn in iterate(own, x, torch.zeros(6, 8), depth=90, halting=rule, solver=Relaxed(1.2)):
        ends |= dict(zip(turn.numbers[turn.done].tolist(), turn.state[turn.done], strict=True))
    for row, end in ends.items():
        *_, alone = iterate(
            own, x[row : row + 1], torch.zeros(1, 8), depth=90, halting=rule, solver=Relaxed(1.2)
        )
        np.testing.assert_allclose(alone.state[0], end, rtol=1e-5, atol=1e-6)


def test_gradients_flow_where_the_caller_wants_them(model):
    model.requires_grad_(True)
    x = model.embed(puzzles_4x4(2).inputs)
    z = model.start(x)
    *_, last = iterate(model, x, z, depth=2)
    by_iterate = torch.autograd.grad(last.reading.logits.clamp_min(-50).sum(), model.embedding)[0]
    x = model.embed(puzzles_4x4(2).inputs)
    state = z = model.start(x)
    for depth in range(2):
        state = model.segment(state, x.embedding, z.keys, torch.full_like(z.keys, depth))
    by_hand = torch.autograd.grad(model.decode(state).clamp_min(-50).sum(), model.embedding)[0]
    torch.testing.assert_close(by_iterate, by_hand, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        (turn,) = iterate(model, x, z, depth=1)
    assert not turn.state.answer.requires_grad


def test_what_does_not_fit_is_said(model):
    x = model.embed(puzzles_4x4(2).inputs)
    with pytest.raises(UserError, match="x has 2 rows and z 1"):
        next(iterate(model, x, take(model.start(x), torch.tensor([0])), depth=2))
    with pytest.raises(UserError, match="halting = head: this f has no heads"):
        iterate(own, inputs(2), torch.zeros(2, 8), halting="head")
    with pytest.raises(UserError, match="depth = 0"):
        iterate(own, inputs(2), torch.zeros(2, 8), depth=0)
    with pytest.raises(UserError, match="no tensor"):
        iterate(own, None, None)
    assert len(list(iterate(own, inputs(2), torch.zeros(2, 8), halting=FixedDepth(depth=3)))) == 3


def test_the_names_are_in_the_front():
    assert eqr.iterate is iterate
    assert callable(eqr.load)
