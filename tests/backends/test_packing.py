"""Packed weights give the same products, only inside their context, and never outlive a change."""

import pytest
import torch
from torch.nn import functional as F

from eqr.backends import Cpu
from eqr.backends.cpu import operators
from eqr.backends.cpu.operators import product
from eqr.backends.cpu.row_executor import RowExecutor
from eqr.model.operator import STILL
from eqr.model.reasoner import Reasoner
from fixtures import puzzles_of, small

needs_mkl = pytest.mark.skipif(not operators.can_pack(), reason="PyTorch has no MKL here")


@pytest.fixture
def used(monkeypatch) -> list[int]:
    """Pack weights of any size, and note the rows of every packed product."""
    monkeypatch.setattr(operators, "SMALLEST_BYTES", 0)
    monkeypatch.setattr(operators, "LARGEST_WEIGHTS", 0)
    found: list[int] = []
    multiply = torch.ops.mkl._mkl_linear

    def noted(h, *others):
        found.append(h.shape[0])
        return multiply(h, *others)

    monkeypatch.setattr(torch.ops.mkl, "_mkl_linear", noted)
    return found


@needs_mkl
def test_a_segment_is_the_same_with_packed_weights(used):
    model = Reasoner(small("eqr"))
    x, keys = model.embed_tokens(puzzles_of(model.config, 7)).detach(), torch.arange(7)
    depths = torch.zeros(7, dtype=torch.long)
    state = model.initial_state(x, keys)
    with torch.no_grad():
        packed_state = Cpu(RowExecutor(2, 2)).segment(model, state, x, keys, depths, perturbation=STILL)
    assert {count // model.config.tokens for count in used} == {1, 2}
    used.clear()
    unpacked = RowExecutor(2, 2, least_packed=8)
    with torch.no_grad():
        plain = Cpu(unpacked).segment(model, state, x, keys, depths, perturbation=STILL)
    assert not used, "seven rows are too few for this executor"
    assert torch.allclose(packed_state.answer, plain.answer, atol=2e-4)


@needs_mkl
def test_a_weight_is_packed_once_for_all_threads_and_anew_by_the_next_segment(used, monkeypatch):
    packed: list[int] = []
    pack = torch.ops.mkl._mkl_reorder_linear_weight
    monkeypatch.setattr(
        torch.ops.mkl, "_mkl_reorder_linear_weight", lambda *given: packed.append(given[1]) or pack(*given)
    )
    h, weight = torch.randn(5, 32), torch.randn(48, 32)

    def multiplied() -> list[torch.Tensor]:
        return RowExecutor(2, 1).map(lambda rows: product(h, weight), 6)

    first = multiplied()
    assert (packed, used) == ([5], [5] * 6)
    weight.mul_(2)
    second = multiplied()
    assert packed == [5, 5]
    assert all(torch.allclose(two, 2 * one) for one, two in zip(first, second, strict=True))


@needs_mkl
def test_every_number_of_rows_and_every_weight_has_its_own_copy(used):
    up, h = torch.randn(48, 32), torch.randn(5, 32)
    with operators.packing():
        for rows, weight in ((h, up), (h[:4], up), (h, up.clone() + 1)):
            assert torch.allclose(product(rows, weight), F.linear(rows, weight), atol=1e-5)
    assert used == [5, 4, 5]
    assert torch.equal(product(h, up), F.linear(h, up))
    assert len(used) == 3, "outside of the context nothing is packed"


@needs_mkl
def test_autocast_casts_as_ever(used):
    model = Reasoner(small("eqr"))
    x, keys = model.embed_tokens(puzzles_of(model.config, 8)).detach(), torch.arange(8)
    depths, state = torch.zeros(8, dtype=torch.long), model.initial_state(x, keys)
    with torch.autocast("cpu", dtype=torch.float16), torch.no_grad():
        after = Cpu(RowExecutor(2, 2)).segment(model, state, x, keys, depths, perturbation=STILL)
        reading = model.read(after, state)
    assert not used
    assert reading.logits.isfinite().all()


def test_small_weights_are_left_alone():
    h, weight = torch.randn(5, 32), torch.randn(48, 32)
    with operators.packing():
        assert torch.equal(product(h, weight), F.linear(h, weight))
