"""Around a state: what is found on operators whose spectrum is known in closed form is that spectrum."""

import numpy as np
import pytest
import torch
from torch import Tensor

from eqr.diagnostics.stability import (
    LinearMap,
    correctness_bound,
    gap_constant,
    jacobian,
    output_margin,
    singular_values,
    spectral_radius,
    stability,
)
from eqr.model import systems
from eqr.model.operator import Perturbation
from eqr.model.reasoner import Reasoner
from eqr.model.state import State
from eqr.solve.budget import Budget
from eqr.solve.rollout import rollout
from eqr.tasks import task_named
from settling import puzzles_4x4

SIZE = 12


def with_spectrum(*eigenvalues: complex, seed: int = 0) -> Tensor:
    """A dense, non-normal real matrix with these eigenvalues (of complex ones, the pair) and small others."""
    blocks = []
    for value in eigenvalues:
        a, b = value.real, value.imag
        blocks.append(torch.tensor([[a, -b], [b, a]]) if b else torch.tensor([[a]]))
    rest = SIZE - sum(len(block) for block in blocks)
    blocks.append(torch.diag(torch.linspace(0.01, 0.1, rest)))
    core = torch.block_diag(*blocks).double()
    basis = torch.randn(SIZE, SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return basis @ core @ torch.linalg.inv(basis)


def as_map(*matrices: Tensor) -> LinearMap:
    stacked = torch.stack(matrices)
    return LinearMap(
        rows=len(matrices),
        size=SIZE,
        times=lambda v: torch.einsum("rij,rj->ri", stacked, v),
        transposed=lambda v: torch.einsum("rji,rj->ri", stacked, v),
    )


def test_the_spectral_radius_is_the_largest_eigenvalue_real_or_complex():
    matrices = as_map(
        with_spectrum(0.9, 0.4), with_spectrum(-1.3, 0.5), with_spectrum(0.6 + 0.6j, 0.3), with_spectrum(0.2)
    )
    found = spectral_radius(matrices, steps=400)
    np.testing.assert_allclose(found, [0.9, 1.3, 0.72**0.5, 0.2], rtol=0.01)


def test_singular_values_and_conditioning_are_those_of_the_matrix():
    matrices = [with_spectrum(0.9, 0.4, seed=1), with_spectrum(0.5 + 0.4j, seed=2)]
    for asked, exact in ((as_map(*matrices), matrices), (as_map(*matrices).minus_identity(), None)):
        known = exact or [torch.eye(SIZE, dtype=torch.float64) - matrix for matrix in matrices]
        values = torch.linalg.svdvals(torch.stack(known))
        least, most = singular_values(asked)
        np.testing.assert_allclose(most, values[:, 0], rtol=1e-6)
        np.testing.assert_allclose(least, values[:, -1], rtol=1e-3)


def test_few_steps_approach_from_inside():
    matrix = with_spectrum(0.9, 0.4, seed=3)
    values = torch.linalg.svdvals(matrix)
    least, most = singular_values(as_map(matrix), steps=4)
    assert values[-1] <= least[0] <= most[0] <= values[0] * (1 + 1e-12)


def test_products_with_the_jacobian_are_those_of_the_formed_one():
    def apply(z: Tensor) -> Tensor:
        return torch.tanh(z @ with_spectrum(0.9).t()) + z.square()

    at = torch.randn(2, SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    v = torch.randn(2, SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    found = jacobian(apply, at)
    for row in range(2):
        formed = torch.autograd.functional.jacobian(lambda z: apply(z[None])[0], at[row])
        np.testing.assert_allclose(found.times(v)[row], formed @ v[row], rtol=1e-9)
        np.testing.assert_allclose(found.transposed(v)[row], formed.t() @ v[row], rtol=1e-9)


def test_margin_gap_and_bound_by_hand():
    logits = torch.tensor([[[0.0, 3.0, 1.0], [0.0, 1.0, 4.0]], [[0.0, 1.0, 2.0], [5.0, 9.0, 9.5]]])
    label = torch.tensor([[1, 2], [2, 1]])
    assert output_margin(logits, label).tolist() == [2.0, -0.5]
    assert output_margin(logits, torch.tensor([[1, 0], [2, 0]])).tolist() == [2.0, 1.0], (
        "padding counts nowhere"
    )
    assert gap_constant(torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])) == pytest.approx(5.0)
    bounds = correctness_bound(torch.tensor([0.5, 1.5, 0.5, 1.5]), torch.tensor([2.0, 2.0, -2.0, -2.0]), 4.0)
    assert bounds.tolist() == [0.25, 0.0, 0.0, 0.0], "neither expansion nor a wrong answer bounds anything"


class Contracting(Reasoner):
    """z <- z + rate (goal - z), a fixed rate for each state: J = (1 - rate) I, in closed form."""

    rate = 0.75

    def segment(self, state, x, keys, depths, *, perturbation=None, tracked=None):
        return State(*(z + self.rate * (x - z) for z in state.tensors()))


def small(kind: type[Reasoner]) -> Reasoner:
    task = task_named("sudoku-4x4")
    return kind(systems.eqr(task, cycles=1, scratch=1, width=8, blocks=1, round_hidden_to=8), seed=2)


def test_a_uniform_contraction_is_found_exactly():
    puzzles = puzzles_4x4(3)
    found = stability(small(Contracting), puzzles.inputs, puzzles.labels, budget=Budget(depth=3), at_once=2)
    np.testing.assert_allclose(found.radius, 0.25, rtol=1e-9)
    np.testing.assert_allclose(found.contraction, 0.25, rtol=1e-9)
    np.testing.assert_allclose(found.conditioning, 1.0, rtol=1e-6)
    np.testing.assert_allclose(found.sensitivity, 1 / 0.75, rtol=1e-9)
    assert not (found.within_bound & ~found.right).any()


def test_a_right_answer_at_rest_is_within_its_bound():
    puzzles = puzzles_4x4(3)
    reasoner = small(Contracting)
    settled = stability(reasoner, puzzles.inputs, puzzles.labels, budget=Budget(depth=40))
    decoded = reasoner.decode(State(reasoner.embed_tokens(torch.as_tensor(np.array(puzzles.inputs))))).argmax(
        dim=-1
    )
    labels = decoded.to(torch.uint8).numpy()  # where the contraction ends, right by definition
    resting = stability(reasoner, puzzles.inputs, labels, budget=Budget(depth=40))
    assert resting.right.all()
    assert resting.within_bound.all()
    assert not settled.within_bound[~settled.right].any()


@pytest.mark.parametrize("mixer", ["tokens", "attention"])
def test_a_real_segments_products_equal_finite_differences(mixer):
    task = task_named("sudoku-4x4")
    config = systems.eqr(
        task, cycles=1, scratch=1, width=8, blocks=1, round_hidden_to=8, heads=2, mixer=mixer
    )
    reasoner = Reasoner(config, seed=1).double().requires_grad_(False)
    x = reasoner.embed_tokens(torch.as_tensor(np.array(puzzles_4x4(2).inputs)))
    keys = torch.zeros(2, dtype=torch.int64)
    shape = (16, 2, 8)

    def apply(flat: Tensor) -> Tensor:
        answer, scratch = (part.reshape(shape) for part in flat.t().reshape(2, -1, 2).unbind(0))
        after = reasoner.segment(
            State(answer, scratch), x, keys, keys, perturbation=Perturbation(damping=0.05)
        )
        return torch.stack([part.reshape(-1, 2) for part in after.tensors()]).reshape(-1, 2).t()

    generator = torch.Generator().manual_seed(0)
    at, v = (torch.randn(2, 256, dtype=torch.float64, generator=generator) for _ in range(2))
    step = 1e-6
    numeric = (apply(at + step * v) - apply(at - step * v)) / (2 * step)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        product = jacobian(apply, at).times(v)
    np.testing.assert_allclose(product, numeric, rtol=1e-5, atol=1e-7)


def test_the_state_looked_around_is_that_of_an_ordinary_trajectory():
    puzzles, budget = puzzles_4x4(2), Budget(depth=3, noise=0.0, probe=True)
    reasoner = small(Reasoner)
    found = stability(reasoner, puzzles.inputs, puzzles.labels, budget=budget)
    ended = rollout(reasoner, puzzles.inputs, budget)
    coordinates = 2 * reasoner.config.tokens * reasoner.config.width
    one = found.segments == 1
    np.testing.assert_allclose(found.residual[one], ended.probe[one] * coordinates**0.5, rtol=1e-4)
    np.testing.assert_array_equal(found.right, (ended.tokens == puzzles.labels).all(axis=1))
