"""Costs equal the published ones."""

import pytest

from eqr.model import systems
from eqr.model.config import Positions
from eqr.model.mixers import Attention
from eqr.results.costs import equivalent_layers, flops, flops_per_block, flops_per_segment
from eqr.tasks import task_named


def test_sudoku_segment_costs_9_36_giga_multiply_adds():
    config = systems.eqr(task_named("sudoku-9x9"))
    assert flops_per_segment(config) / 2 == pytest.approx(9.36e9, rel=1e-3)
    assert equivalent_layers(config, 1024) == 43_008
    assert equivalent_layers(config, 64 * 128) == 344_064


def test_maze_segment_costs_about_6_7_giga_multiply_adds():
    config = systems.eqr(
        task_named("maze-unique"),
        width=128,
        blocks=1,
        scratch=4,
        mixer=Attention(),
        positions=Positions.ROTARY,
    )
    assert config.layers_per_segment == 15
    assert flops_per_segment(config) / 2 == pytest.approx(6.7e9, rel=0.02)


def test_a_convolution_and_the_reading_cost_extra():
    config = systems.urm(task_named("sudoku-4x4"), width=64)
    assert flops_per_block(config) > flops_per_block(config.replace(convolution=False))
    assert flops(config, 10) > 10 * flops_per_segment(config)
