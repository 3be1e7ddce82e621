"""N-Queens completion: some queens stand on a board of 8x8, the others are to be placed, one a row."""

import cpmpy as cp

import eqr

column = cp.intvar(1, 8, shape=8, name="column")
rules = [
    cp.AllDifferent(column),
    cp.AllDifferent([column[row] + row for row in range(8)]),
    cp.AllDifferent([column[row] - row for row in range(8)]),
]
puzzle = eqr.puzzle("queens", column, rules)
