"""What can be done to anything that is held row by row.

A tree is a tensor, a tuple or dict of trees, a dataclass of trees, or None. Its tensors count rows along
their first axis, unless the dataclass says otherwise (`row_axes`). Picking, overwriting, joining, cutting and
merging rows are written here, once: a rule that remembers something more, or a driver that keeps more columns
beside `Rows`, adds a field and nothing else.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor

Tree = TypeVar("Tree")
Work = Callable[..., Tensor]
"""Takes the axis of rows, then the tensors of each tree at one place."""

_FIRST: Mapping[str, int] = {}
"""The rows of a dataclass that says nothing lie along the first axis."""


def each(work: Work, *trees: Tree, axis: int = 0) -> Tree:
    """Return a tree of the same make from what `work` makes of the tensors at each place."""
    first: Any = trees[0]
    if isinstance(first, Tensor):
        made: Any = work(axis, *trees)
    elif isinstance(first, tuple):
        tuples: Any = trees
        made = tuple(each(work, *parts, axis=axis) for parts in zip(*tuples, strict=True))
    elif isinstance(first, dict):
        maps: Any = trees
        made = {name: each(work, *(tree[name] for tree in maps), axis=axis) for name in first}
    elif columns := _columns(first.__class__):
        axes = getattr(first, "row_axes", _FIRST)
        made = replace(
            first,
            **{
                name: each(work, *(getattr(tree, name) for tree in trees), axis=axes.get(name, 0))
                for name in columns
            },
        )
    else:
        made = first
    return made  # type: ignore[no-any-return]


def leaves(tree: Any, axis: int = 0) -> Iterator[tuple[int, Tensor]]:
    """Yield the tensors of a tree, each with its axis of rows."""
    if isinstance(tree, Tensor):
        yield axis, tree
    elif isinstance(tree, tuple):
        for part in tree:
            yield from leaves(part, axis)
    elif isinstance(tree, dict):
        for part in tree.values():
            yield from leaves(part, axis)
    else:
        axes = getattr(tree, "row_axes", _FIRST)
        for name in _columns(tree.__class__):
            yield from leaves(getattr(tree, name), axes.get(name, 0))


@cache
def _columns(kind: Any) -> tuple[str, ...]:
    """Names of a dataclass's fields; none for what holds no tensor."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()


def take(tree: Tree, rows: Tensor) -> Tree:
    """Copy out some rows by index."""
    return each(lambda axis, mine: mine.index_select(axis, rows), tree)


def put(tree: Any, rows: Tensor, other: Any) -> None:
    """Overwrite some rows in place; no two columns may share their memory."""
    for (axis, mine), (_, new) in zip(leaves(tree), leaves(other), strict=True):
        mine.index_copy_(axis, rows, new if new.dtype is mine.dtype else new.to(mine.dtype))


def write(tree: Any, other: Any) -> None:
    """Overwrite all rows in place."""
    for (_, mine), (_, new) in zip(leaves(tree), leaves(other), strict=True):
        mine.copy_(new)


def join(trees: Sequence[Tree]) -> Tree:
    """Put rows behind each other."""
    return each(lambda axis, *parts: torch.cat(parts, axis), *trees)


def chunk(tree: Tree, rows: slice) -> Tree:
    """View a run of rows without copying: what is written to it is written here."""
    return each(lambda axis, mine: mine.narrow(axis, rows.start, rows.stop - rows.start), tree)


def merge(mask: Tensor, new: Tree, old: Tree) -> Tree:
    """Take `new` where the mask (rows,) holds and `old` elsewhere; gradients flow to what is taken alone."""

    def chosen(axis: int, mine: Tensor, theirs: Tensor) -> Tensor:
        return torch.where(mask.view(*(1,) * axis, -1, *(1,) * (mine.dim() - axis - 1)), mine, theirs)

    return each(chosen, new, old)
