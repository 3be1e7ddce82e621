"""What rules come down to: rows `low <= sum of weights of the chosen candidates <= high`.

A candidate is a (cell, value); each cell chooses one. Every rule that eqr can be told is such rows exactly,
so that checking, searching, the symmetries and the groups a model is told all follow from one table. The
search and the operator read the same rows. Puzzles that are declared by their rules are made of them
(`eqr.puzzles`); tasks that say which cells differ have them too (`Task.constraints`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Sort(StrEnum):
    """What a rule says, for the words of a verdict and for whoever must know its rows."""

    DIFFERENT = "different"
    COUNT = "count"
    SUM = "sum"
    TABLE = "table"


class RowKind(StrEnum):
    """What a row asks for, by which an operator knows how to answer it."""

    ONCE = "once"
    """Exactly one of its candidates."""
    MOST = "most"
    """At most one."""
    COUNT = "count"
    """From `low` to `high` of them."""
    SUM = "sum"
    """Weights from `low` to `high`."""
    BARRED = "barred"
    """None: a cell cannot hold these values."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule as its author said it."""

    text: str
    sort: Sort
    cells: tuple[int, ...]
    described: bool = False
    """Whether the text is the author's own description, not the constraint spelled out."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row, before it is put into the table."""

    sites: Ints
    weights: Ints
    low: int
    high: int


@dataclass(frozen=True, eq=False)
class Rows:
    """All rows of a puzzle, their entries end to end and ordered by cell; a site is cell * values + value."""

    values: int
    """Number of values, which are numbered from 0."""
    starts: Ints
    """(rows + 1): where the entries of each row begin."""
    sites: Ints
    """(entries)."""
    weights: Ints
    """(entries)."""
    low: Ints
    """(rows)."""
    high: Ints
    """(rows)."""
    owner: Ints
    """(rows): the number of the rule that a row belongs to."""

    @classmethod
    def of(cls, values: int, rows: Sequence[tuple[int, Row]]) -> "Rows":
        """Put the rows of numbered rules into one table."""
        orders = [np.argsort(row.sites, kind="stable") for _, row in rows]
        return cls(
            values,
            np.cumsum([0, *(len(row.sites) for _, row in rows)]).astype(np.int64),
            _joined([row.sites[order] for (_, row), order in zip(rows, orders, strict=True)]),
            _joined([row.weights[order] for (_, row), order in zip(rows, orders, strict=True)]),
            np.array([row.low for _, row in rows], np.int64),
            np.array([row.high for _, row in rows], np.int64),
            np.array([owner for owner, _ in rows], np.int64),
        )

    @classmethod
    def different(cls, groups: Iterable[Ints], values: int) -> "Rows":
        """Return the rows of groups of cells in which no value stands twice, and every one where all fit."""
        rows = []
        for number, cells in enumerate(groups):
            ones = np.ones(len(cells), np.int64)
            low = int(len(cells) == values)
            for value in range(values):
                rows.append((number, Row(sites=cells * values + value, weights=ones, low=low, high=1)))
        return cls.of(values, rows)

    def __len__(self) -> int:
        return len(self.low)

    @cached_property
    def kinds(self) -> NDArray[np.str_]:
        """(rows): the `RowKind` of each."""
        single = self.is_count & (self.high == 1)
        return np.select(
            [
                self.is_count & (self.high == 0),
                single & (self.low == 1),
                single & (self.low <= 0),
                self.is_count,
            ],
            [RowKind.BARRED, RowKind.ONCE, RowKind.MOST, RowKind.COUNT],
            RowKind.SUM,
        )

    def members(self, kind: RowKind) -> NDArray[np.intp]:
        """Return the sites of the rows of a kind, (rows, sites), -1 filling up shorter rows."""
        rows = np.flatnonzero(self.kinds == kind)
        counts = np.diff(self.starts)[rows]
        table = np.full((len(rows), int(counts.max(initial=1))), -1, np.intp)
        places = np.arange(table.shape[1])
        there = places < counts[:, None]
        table[there] = self.sites[(self.starts[rows][:, None] + places)[there]]
        return table

    @cached_property
    def row_of(self) -> Ints:
        """(entries): the row of each entry."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    @property
    def is_count(self) -> NDArray[np.bool_]:
        """(rows): whether a row counts, all its weights being 1."""
        return np.asarray(self._per_row(self.weights != 1) == 0, np.bool_)

    def sums(self, grids: NDArray[np.integer]) -> Ints:
        """Return the sum of each row, (count, rows); grids (count, cells) hold value numbers, -1 for none."""
        cells, values = np.divmod(self.sites, self.values)
        chosen = np.where(grids[:, cells] == values, self.weights, 0)
        return self._per_row(chosen)

    def kept(self, grids: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Return which rows finished grids keep, (count, rows)."""
        sums = self.sums(grids)
        return (self.low <= sums) & (sums <= self.high)

    def reach(self, possible: NDArray[np.bool_]) -> tuple[Ints, Ints]:
        """Return the least and greatest sum of each row when cells keep the candidates (cells, values)."""
        cells, values = np.divmod(self.sites, self.values)
        terms = np.flatnonzero(np.diff(self.row_of, prepend=-1) | np.diff(cells, prepend=-1))
        if not len(terms):
            return np.zeros(len(self), np.int64), np.zeros(len(self), np.int64)
        there = possible[cells, values]
        listed = np.add.reduceat(there.astype(np.int64), terms)
        others = listed < possible.sum(axis=1)[cells[terms]]  # values that no entry names weigh nothing
        far = np.int64(1) << 40
        least = np.minimum.reduceat(np.where(there, self.weights, far), terms)
        greatest = np.maximum.reduceat(np.where(there, self.weights, -far), terms)
        least = np.where(others, np.minimum(least, 0), least)
        greatest = np.where(others, np.maximum(greatest, 0), greatest)
        rows = self.row_of[terms]
        low, high = np.zeros(len(self), np.int64), np.zeros(len(self), np.int64)
        np.add.at(low, rows, least)
        np.add.at(high, rows, greatest)
        return low, high

    def _per_row(self, numbers: NDArray[np.generic]) -> Ints:
        """Sum numbers (..., entries) over each row; no row is empty."""
        if not len(self):
            return np.zeros((*numbers.shape[:-1], 0), np.int64)
        return np.asarray(np.add.reduceat(numbers, self.starts[:-1], axis=-1, dtype=np.int64))


def _joined(parts: Sequence[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64)
