"""Optimizers: published anchors, PyTorch's own as reference, the learning-rate curve and averaging."""

import math
from itertools import pairwise

import pytest
import torch
from torch import nn

from eqr.train.optimizer import (
    AdamAtan2,
    AdamW,
    Averaging,
    Decay,
    FlatParameters,
    Muon,
    Rate,
    SignDescent,
    orthogonal,
)


class Weights(nn.Module):
    """A matrix of a stack, and a vector beside it."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.stack = nn.Module()
        self.stack.up = nn.Parameter(torch.randn(6, 4, generator=generator))
        self.bias = nn.Parameter(torch.randn(4, generator=generator))


def one_weight():
    module = nn.Module()
    module.p = nn.Parameter(torch.tensor([1.0]))
    return FlatParameters(module)


def run(optimizer, flat, gradients):
    memory = optimizer.start(flat)
    seen = []
    for step, gradient in enumerate(gradients, start=1):
        optimizer.step(flat, gradient, memory, step, optimizer.rate)
        seen.append(flat.vector.clone())
    return seen


def test_adam_atan2_anchors():
    gradients = [torch.tensor([g]) for g in (0.5, -0.25, 0.1)]
    seen = run(AdamAtan2(rate=1e-4, weight_decay=1.0), one_weight(), gradients)
    assert [value.item() for value in seen] == pytest.approx([0.99980033, 0.99967354, 0.99954152], abs=1e-7)


def test_a_constant_gradient_settles_at_a_quarter_turn_of_adam_atan2():
    seen = run(AdamAtan2(rate=1e-2, weight_decay=0.0), one_weight(), [torch.tensor([3.0])] * 100)
    assert (1.0 - seen[0]).item() == pytest.approx(1e-2 * math.atan2(0.1, 1.0) / 0.1, rel=1e-4)
    assert (seen[-2] - seen[-1]).item() == pytest.approx(1e-2 * math.pi / 4, rel=1e-3)


def test_adamw_is_pytorchs():
    mine, theirs = Weights(), Weights()
    flat = FlatParameters(mine)
    generator = torch.Generator().manual_seed(1)
    gradients = [torch.randn(len(flat.vector), generator=generator) for _ in range(5)]
    run(AdamW(rate=1e-2, weight_decay=0.3, betas=(0.9, 0.95)), flat, gradients)
    reference = torch.optim.AdamW(theirs.parameters(), lr=1e-2, weight_decay=0.3, betas=(0.9, 0.95))
    for gradient in gradients:
        for part, parameter in zip(flat.views(gradient).values(), theirs.parameters(), strict=True):
            parameter.grad = part.clone()
        reference.step()
    for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_newton_schulz_pulls_singular_values_towards_one():
    matrix = torch.randn(12, 5, generator=torch.Generator().manual_seed(2))
    for shape in (matrix, matrix.t()):
        values = torch.linalg.svdvals(orthogonal(shape))
        assert values.min() > 0.6
        assert values.max() < 1.3


def test_muon_turns_matrices_and_leaves_the_rest_to_the_other_optimizer():
    module = Weights()
    flat = FlatParameters(module)
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    rest = AdamAtan2(rate=1e-3, weight_decay=0.0)
    muon = Muon(rate=1e-2, weight_decay=0.0, rest=rest)
    gradient = torch.randn(len(flat.vector), generator=torch.Generator().manual_seed(3))
    run(muon, flat, [gradient])
    turned = before["stack.up"] - module.stack.up.detach()
    expected = 1e-2 * 0.2 * math.sqrt(6) * orthogonal(flat.views(gradient)["stack.up"])
    torch.testing.assert_close(turned, expected, rtol=1e-4, atol=1e-6)
    alone = FlatParameters(Weights())
    run(rest, alone, [gradient])
    torch.testing.assert_close(alone.views(alone.vector)["bias"], module.bias.detach())


def test_sign_descent_sums_per_identity_and_leaves_others_alone():
    table = torch.ones(5, 2)
    identities = torch.tensor([3, 1, 3])
    gradients = torch.tensor([[1.0, -1.0], [2.0, 0.0], [-3.0, -1.0]])
    SignDescent(rate=0.1, weight_decay=0.5).step(table, identities, gradients, factor=0.5)
    kept = 1 - 0.05 * 0.5
    expected = torch.ones(5, 2)
    expected[1] = torch.tensor([kept - 0.05, kept])
    expected[3] = torch.tensor([kept + 0.05, kept + 0.05])
    torch.testing.assert_close(table, expected)


def test_parameters_are_views_of_the_flat_vector():
    module = Weights()
    flat = FlatParameters(module)
    flat.vector.fill_(2.0)
    assert all((parameter == 2.0).all() for parameter in module.parameters())


def test_warm_up_begins_at_step_one_and_stays():
    rate = Rate(warmup=4)
    assert [rate.factor(step, 100) for step in (1, 2, 4, 5, 100)] == [0.25, 0.5, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("decay", [Decay.LINEAR, Decay.COSINE])
def test_decay_reaches_the_floor_at_the_last_step(decay):
    rate = Rate(warmup=10, decay=decay, decay_from=0.5, floor=0.1)
    factors = [rate.factor(step, 100) for step in range(1, 101)]
    assert factors[9:50] == [1.0] * 41
    assert factors[-1] == pytest.approx(0.1)
    assert all(a >= b for a, b in pairwise(factors[49:]))


def test_averaging_is_exponential_and_a_warm_start_forgets_soon():
    weights, plain, warm = torch.ones(1), torch.zeros(1), torch.zeros(1)
    for step in range(1, 11):
        Averaging(decay=0.99).update(plain, weights, step)
        Averaging(decay=0.99, warm_start=True).update(warm, weights, step)
    assert plain.item() == pytest.approx(1 - 0.99**10, rel=1e-5)
    assert warm.item() == pytest.approx(1 - math.prod((1 + t) / (10 + t) for t in range(1, 11)), rel=1e-5)
