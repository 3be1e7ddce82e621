"""Packed weights give the same products, only inside their context, and never outlive a change."""

import pytest
import torch
from fixtures import ATTENTION, puzzles_of, small
from torch.nn import functional as F

from eqr.model import packed as packing
from eqr.model import tiled
from eqr.model.config import STILL
from eqr.model.cut import RowPool, segment_and_read
from eqr.model.packed import packed, product
from eqr.model.reasoner import Reasoner

needs_mkl = pytest.mark.skipif(not packing._supported(), reason="PyTorch has no MKL here")


@pytest.fixture
def used(monkeypatch) -> list[int]:
    """Pack weights of any size, and note the rows of every packed product."""
    monkeypatch.setattr(packing, "SMALLEST_BYTES", 0)
    monkeypatch.setattr(tiled, "LARGEST_WEIGHTS", 0)
    found: list[int] = []
    multiply = torch.ops.mkl._mkl_linear

    def noted(h, *others):
        found.append(h.shape[0])
        return multiply(h, *others)

    monkeypatch.setattr(torch.ops.mkl, "_mkl_linear", noted)
    return found


@needs_mkl
@pytest.mark.parametrize("fields", [{}, ATTENTION])
def test_a_segment_is_the_same_with_packed_weights(used, fields):
    model = Reasoner(small("eqr", **fields))
    x, keys = model.embed(puzzles_of(model.config, 7)).detach(), torch.arange(7)
    depths = torch.zeros(7, dtype=torch.long)
    state = model.start(x, keys)
    pool = RowPool(2, 2)
    packed_state, _ = segment_and_read(model, pool, state, x, keys, depths, path=STILL)
    assert {count // model.config.tokens for count in used} == {1, 2}
    used.clear()
    with torch.no_grad():
        plain = model.segment(state, x, keys, depths, path=STILL)
    assert not used
    assert torch.allclose(packed_state.answer, plain.answer, atol=2e-4)


@needs_mkl
def test_a_changed_weight_is_seen_by_the_next_segment(used):
    model = Reasoner(small("eqr"))
    layer = model.stack.blocks[0].channels
    h = torch.randn(5, model.config.width)
    with torch.no_grad(), packed(model, [5]):
        first = product(h, layer.up)
    layer.up.data.mul_(2)  # behind autograd's back: no version counter tells
    with torch.no_grad(), packed(model, [5]):
        second = product(h, layer.up)
    assert used == [5, 5]
    assert torch.allclose(second, 2 * first)


@needs_mkl
def test_other_sizes_other_weights_and_graphs_use_the_weight_itself(used):
    model = Reasoner(small("eqr"))
    up, h = model.stack.blocks[0].channels.up, torch.randn(5, model.config.width)
    plain = F.linear(h, up)
    with packed(model, [5]):
        assert product(h, up).requires_grad
        with torch.no_grad():
            assert torch.equal(product(h[:4], up), F.linear(h[:4], up))
            assert torch.equal(product(h, up.clone()), plain)
    with torch.no_grad():
        assert torch.equal(product(h, up), plain)
    assert not used


@needs_mkl
def test_autocast_casts_as_ever(used):
    model = Reasoner(small("eqr", **ATTENTION))
    x, keys = model.embed(puzzles_of(model.config, 8)).detach(), torch.arange(8)
    depths, state = torch.zeros(8, dtype=torch.long), model.start(x, keys)
    with torch.autocast("cpu", dtype=torch.float16):
        _, reading = segment_and_read(model, RowPool(2, 2), state, x, keys, depths, path=STILL)
    assert not used
    assert reading.logits.isfinite().all()


def test_small_weights_are_left_alone():
    model = Reasoner(small("eqr"))
    with packed(model, [5]):
        assert packing._packing.get() is None
