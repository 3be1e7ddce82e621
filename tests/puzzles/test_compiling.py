"""Rows say what CPMpy says, on every grid of small puzzles, for each sort of constraint or refuse it."""

from itertools import product

import numpy as np
import pytest

from eqr.errors import UserError
from eqr.puzzles import compiled_puzzle

cp = pytest.importorskip("cpmpy", reason="CPMpy is not installed: pip install 'eqr[puzzles]'")

x = cp.intvar(0, 3, shape=4, name="x")
y = cp.intvar(-2, 2, shape=(2, 2), name="y")
b = cp.boolvar(shape=5, name="b")

SAID = {
    "all different, every value": (x, [cp.AllDifferent(x)]),
    "all different, fewer cells": (x, [cp.AllDifferent(x[:3])]),
    "all different with a constant": (x, [cp.AllDifferent(x[0], x[1], 2)]),
    "all different but zero": (x, [cp.AllDifferentExcept0(x)]),
    "queens' diagonals": (x, [cp.AllDifferent([x[i] + i for i in range(4)]), cp.AllDifferent(x)]),
    "comparisons": (x, [x[0] < x[1], x[1] != x[2], x[3] >= x[2]]),
    "a sum": (x, [cp.sum(x) == 6]),
    "a weighted sum": (x, [2 * x[0] - x[1] + x[2] >= 1]),
    "a sum that differs": (x, [cp.sum(x) != 6]),
    "a product": (y, [y[0, 0] * y[0, 1] == y[1, 0] + y[1, 1]]),
    "a distance": (x, [abs(x[0] - x[1]) > 1]),
    "greatest": (x, [cp.Maximum(x) == 2]),
    "counts": (x, [cp.Count(x, 2) <= 1, cp.Among(x, [0, 1]) == 2]),
    "all counts": (x, [cp.GlobalCardinalityCount(x, [0, 1], [2, 1])]),
    "exactly two": (b, [cp.sum(b) == 2]),
    "a clause": (b, [cp.any([b[0], ~b[1], b[2]]), b[3].implies(b[4])]),
    "a clause over values": (x, [(x[2] == 3) | (x[3] < 2)]),
    "a condition before a sum": (b, [b[0].implies(cp.sum(b[1:]) >= 3)]),
    "a condition that a sum decides": (b, [b[0] == (cp.sum(b[1:]) >= 2)]),
    "parity": (b, [cp.Xor(list(b))]),
    "a cell alone": (x, [x[0] == 2, cp.InDomain(x[1], [1, 3])]),
    "truths": (b, [b[0], ~b[1], True]),
    "a table": (x, [cp.Table(list(x[:3]), [[0, 1, 2], [3, 3, 3], [1, 2, 0]])]),
    "two lines that differ": (x, [cp.any(x[:2] != x[2:])]),
    "an order": (x, [cp.Increasing(x), cp.LexLess(list(x[:2]), list(x[2:]))]),
    "a small circuit": (x, [cp.Circuit(x)]),
    "a conjunction": (x, [(x[0] == 1) & (x[1] != x[2]), [[x[3] > 0]]]),
}

z = cp.intvar(0, 20, shape=20, name="z")
REFUSED = {
    "Circuit: connectivity is not a sum over groups": cp.Circuit(z),
    "Regular: the states": cp.Regular(list(z), [("a", n, "a") for n in range(21)], "a", ["a"]),
    "Cumulative: a schedule": cp.Cumulative(z[:5], [2] * 5, None, [1] * 5, 2),
    "NValue: it is no sum": cp.NValue(z) == 4,
    "Multiplication: it is no sum": z[0] * z[1] * z[2] * z[3] * z[4] == 7,
    "!=: it is no sum": cp.sum(z) != 30,
    "x\\[0\\], which is no cell": x[0] < 3,
    "no grid can keep .*900": cp.sum(z) > 900,
    "20 cells for 18 values": cp.AllDifferent([*z, 3, 4, 5]),
    "False for every grid": False,
    "is no rule": z[0] + 1,
}


@pytest.mark.parametrize("name", SAID)
def test_rows_say_what_the_constraint_says(name):
    cells, rules = SAID[name]
    puzzle = compiled_puzzle(name, cells, rules)
    variables = list(np.array(cells, object).ravel())
    grids = np.array(list(product(*(range(v.lb, v.ub + 1) for v in variables))))
    right = []
    for grid in grids.tolist():
        for variable, value in zip(variables, grid, strict=True):
            variable._value = value
        right.append(all(_holds(rule) for rule in rules))
    tokens = (grids - puzzle.values[0] + 2).astype(np.uint8)
    blank = np.ones_like(tokens)
    assert 0 < sum(right) < len(right)
    assert puzzle.check_many(blank, tokens).tolist() == right
    for grid, verdict in list(zip(tokens, right, strict=True))[:100]:
        found = puzzle.check(blank[0], grid)
        assert bool(found) is verdict
        assert verdict or (found.reason and found.cells)


def _holds(rule):
    if isinstance(rule, list):
        return all(_holds(part) for part in rule)
    return bool(rule if isinstance(rule, bool) else rule.value())


@pytest.mark.parametrize("words", REFUSED)
def test_what_no_rows_say_is_refused_by_name(words):
    with pytest.raises(UserError, match=words):
        compiled_puzzle("refused", z, [REFUSED[words]])


def test_compiling_leaves_the_variables_as_they_were():
    cells = cp.intvar(0, 3, shape=2, name="kept")
    cells[0]._value = 7
    compiled_puzzle("kept", cells, [cells[0] * cells[1] < 4])
    assert cells[0].value() == 7
    assert cells[1].value() is None


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ([[x[0], x[0]]], "two cells"),
        ([[x[0], 3]], "'3' is no variable"),
        (cp.intvar(0, 999, shape=3), "more than 250 values"),
        (cp.intvar(0, 1, shape=(2, 2, 2)), "shape"),
        (cp.intvar(4, 4, shape=3), "wider bounds"),
    ],
)
def test_cells_that_make_no_puzzle_are_refused(cells, words):
    with pytest.raises(UserError, match=words):
        compiled_puzzle("refused", cells, [])


def test_ten_thousand_cells_compile_in_seconds():
    many = cp.boolvar(shape=(100, 100), name="many")
    rules = [cp.sum(line) == 50 for line in (*many, *many.T)]
    puzzle = compiled_puzzle("many", many, rules)
    assert len(puzzle.rows) == 200
    assert len(puzzle.symmetries.bands) == 2
    assert puzzle.symmetries.values == ((0, 1),)
