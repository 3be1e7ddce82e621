"""Whatever is held row by row is picked, overwritten, joined, cut and merged alike."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from eqr.dynamics.rows import chunk, each, join, leaves, merge, put, take, write


@dataclass(frozen=True)
class Latents:
    """Rows along the second axis of one tensor, along the first of the other."""

    wide: Tensor
    flat: Tensor
    absent: Tensor | None = None
    row_axes: ClassVar[dict[str, int]] = {"wide": 1}


def tree(rows: int, seed: int = 0):
    drawn = torch.Generator().manual_seed(seed)
    latents = Latents(torch.randn(3, rows, 2, generator=drawn), torch.randn(rows, generator=drawn))
    return latents, {"count": torch.arange(rows), "more": (torch.randn(rows, 4, generator=drawn), ())}


def same(one, other) -> bool:
    pairs = zip(leaves(one), leaves(other), strict=True)
    return all(axis == theirs and torch.equal(a, b) for (axis, a), (theirs, b) in pairs)


def test_rows_are_taken_and_put_back():
    whole, index = tree(5), torch.tensor([4, 1])
    part = take(whole, index)
    assert torch.equal(part[0].wide, whole[0].wide[:, [4, 1]])
    assert part[1]["count"].tolist() == [4, 1]
    other = tree(5, seed=1)
    put(other, index, part)
    assert same(take(other, index), part)
    untouched = torch.tensor([0, 2, 3])
    assert same(take(other, untouched), take(tree(5, seed=1), untouched))


def test_pieces_joined_are_the_whole():
    whole = tree(5)
    assert same(join([chunk(whole, slice(0, 2)), chunk(whole, slice(2, 5))]), whole)


def test_a_chunk_is_a_view_and_writing_is_in_place():
    whole = tree(5)
    write(chunk(whole, slice(1, 3)), tree(2, seed=2))
    assert same(chunk(whole, slice(1, 3)), tree(2, seed=2))


def test_merging_takes_new_rows_where_the_mask_holds():
    new, old = tree(4), tree(4, seed=1)
    mixed = merge(torch.tensor([True, False, False, True]), new, old)
    chosen, others = torch.tensor([0, 3]), torch.tensor([1, 2])
    assert same(take(mixed, chosen), take(new, chosen))
    assert same(take(mixed, others), take(old, others))


def test_gradients_flow_to_what_is_merged():
    new, old = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    merge(torch.tensor([True, False, True]), new, old).sum().backward()
    assert new.grad is not None
    assert new.grad.tolist() == [1.0, 0.0, 1.0]
    assert old.grad is not None
    assert old.grad.tolist() == [0.0, 1.0, 0.0]


def test_trees_of_other_makes_do_not_mix():
    with pytest.raises(ValueError, match="zip"):
        each(lambda axis, a, b: a + b, (torch.ones(1),), (torch.ones(1), torch.ones(1)))
