"""Anti-knight Sudoku: cells a knight's move apart differ as well."""

import cpmpy as cp

import eqr

x = cp.intvar(1, 9, shape=(9, 9), name="x")
rules = [cp.AllDifferent(line) for line in (*x, *x.T)]
rules += [cp.AllDifferent(x[r : r + 3, c : c + 3]) for r in range(0, 9, 3) for c in range(0, 9, 3)]
for down, right in ((1, 2), (2, 1), (1, -2), (2, -1)):
    for r in range(9 - down):
        rules += [x[r, c] != x[r + down, c + right] for c in range(9) if 0 <= c + right < 9]
puzzle = eqr.puzzle("anti-knight", x, rules)
