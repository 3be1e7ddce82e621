"""The paper's training costs: its identities hold, and memory is what autograd really keeps."""

from itertools import pairwise

import pytest

from eqr.model.config import ReasonerConfig
from eqr.model.operator import TwoLevel
from eqr.model.reasoner import Reasoner
from eqr.model.structured import Neighbours
from eqr.results.costs import flops_per_segment, kept_bytes, training_cost_rows, unit_costs

CONFIG = ReasonerConfig(
    rows=4,
    columns=4,
    vocabulary=6,
    width=16,
    blocks=1,
    round_hidden_to=8,
    recurrence=TwoLevel(cycles=2, scratch=2),
)


def rows(depth=16, tracked=3):
    return training_cost_rows(unit_costs(CONFIG, rows=4, tracked=tracked), depth=depth)


def test_a_full_backward_pass_is_two_products_for_each_forward_one():
    unit = unit_costs(CONFIG, rows=4, tracked=None)
    forward = 4 * flops_per_segment(CONFIG)
    for segments in (1, 2, 16):
        chain = segments * unit.parameters + (segments - 1) * unit.state
        assert chain == pytest.approx(2 * segments * forward - forward / CONFIG.applications)
    assert unit.parameters_truncated == unit.parameters
    assert unit.activations_truncated == unit.activations


def test_the_eight_rows_order_as_the_paper_says():
    one, two, three, four, five, six, seven, eight = rows()
    assert four.backward > three.backward > two.backward == five.backward == seven.backward > eight.backward
    assert one.memory > two.memory  # nothing is shared
    assert four.forward == five.forward == six.forward == 16 * seven.forward
    assert six.memory > 10 * seven.memory > 10 * eight.memory
    assert seven.memory == five.memory == two.memory
    unit = unit_costs(CONFIG, rows=4, tracked=3)
    assert six.memory - seven.memory == pytest.approx(15 * (unit.activations + unit.loss_activations))


def test_memory_grows_with_what_is_tracked_and_with_nothing_else():
    reasoner = Reasoner(CONFIG)
    kept = [kept_bytes(reasoner, tracked) for tracked in range(1, CONFIG.applications + 1)]
    steps = [after - before for before, after in pairwise(kept)]
    assert all(step > 0 for step in steps)
    assert max(steps) < 1.5 * min(steps)
    smallest = CONFIG.cells * CONFIG.width * 4  # one state
    assert kept[0] > 3 * smallest


def test_a_loss_keeps_logits_and_their_gradient_for_every_cell():
    unit = unit_costs(CONFIG, rows=3, tracked=None)
    logits = 3 * CONFIG.cells * CONFIG.vocabulary
    assert unit.loss_activations == 2 * 4 * logits  # float32


def test_trajectory_supervision_pays_for_every_segment_and_updates_once():
    unit = unit_costs(CONFIG, rows=4, tracked=3)
    for depth in (1, 5):
        losses = sum(unit.loss + unit.parameters for _ in range(depth))
        assert rows(depth)[5].backward == losses + (depth - 1) * unit.sharing + unit.update


def test_a_structured_operator_keeps_what_its_kernels_keep():
    config = CONFIG.replace(mixer=Neighbours(), recurrence=TwoLevel(cycles=2, scratch=2))
    reasoner = Reasoner(config)
    one, all_of_them = kept_bytes(reasoner, 1), kept_bytes(reasoner, config.applications)
    state = config.cells * config.width * 4
    assert one > 3 * state
    assert all_of_them > one + (config.applications - 1) * state
