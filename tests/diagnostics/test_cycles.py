"""Limit cycles are found with their period and amplitude, rest and wandering are not mistaken for them."""

import numpy as np
import pytest
import torch

from eqr.diagnostics.cycles import answer_cycles, latent_cycles


def answers(*sequence: int, segments: int = 24) -> np.ndarray:
    """One trajectory that repeats some answers of four cells, of which the first tells them apart."""
    grids = np.ones((segments, 4), np.uint8)
    grids[:, 0] = np.resize(sequence, segments)
    return grids


@pytest.mark.parametrize(
    ("sequence", "period"),
    [((1,), 0), ((1, 2), 2), ((1, 2, 2), 3), ((1, 1, 1, 1, 1, 1, 1, 2), 8), (tuple(range(9)), 0)],
)
def test_the_shortest_period_of_answers_is_found(sequence, period):
    found = answer_cycles(answers(*sequence)[None])
    assert found.period.tolist() == [period]
    assert found.amplitude.tolist() == [0.25 if period else 0.0]


def test_a_cycle_must_have_been_walked_round_three_times():
    grids = answers(1, 2)
    grids[:-5, 0] = 7  # the last five segments alternate
    assert not answer_cycles(grids[None]).found.any()
    grids[:-6, 0] = 7
    grids[-6:, 0] = [1, 2, 1, 2, 1, 2]
    assert answer_cycles(grids[None]).period.tolist() == [2]
    assert not answer_cycles(grids[None, -5:]).found.any(), "too few segments to tell"


def turning(period: float, radius: float, *, segments: int = 16, noise: float = 0.0) -> torch.Tensor:
    """States that go round a circle in the plane of the first two of 32 coordinates."""
    angles = 2 * torch.pi * torch.arange(segments) / period
    states = torch.zeros(segments, 32)
    states[:, 0], states[:, 1] = radius * angles.cos(), radius * angles.sin()
    return states + noise * torch.randn(states.shape, generator=torch.Generator().manual_seed(0))


def test_latents_on_a_circle_have_its_period_and_radius():
    states = torch.stack([turning(2, 5.0), turning(5, 5.0), turning(5, 5.0, noise=0.02), torch.zeros(16, 32)])
    found = latent_cycles(states, rest=0.05)
    assert found.period.tolist() == [2, 5, 5, 0]
    np.testing.assert_allclose(found.amplitude[:2], 5.0 / 32**0.5, rtol=1e-5)
    assert found.amplitude[2] == pytest.approx(5.0 / 32**0.5, rel=0.02)


def test_only_the_last_rounds_count():
    begun = torch.randn(20, 32, generator=torch.Generator().manual_seed(2))
    states = torch.cat((begun, turning(5, 5.0)))
    assert latent_cycles(states[None], rest=0.05).period.tolist() == [5]


def test_rest_drift_and_wandering_are_no_cycles():
    drift = 0.5 * torch.arange(16.0)[:, None].expand(16, 32)
    wandering = torch.randn(16, 32, generator=torch.Generator().manual_seed(1))
    resting = 0.01 * wandering
    assert not latent_cycles(torch.stack([drift, wandering, resting]), rest=0.05).found.any()
