"""X-Sudoku: Sudoku whose two diagonals hold every digit once as well.

eqr --load examples/puzzles/x_sudoku.py train x-sudoku
eqr --load examples/puzzles/x_sudoku.py data build x-sudoku --out data/x-sudoku --count 100
"""

import cpmpy as cp

import eqr

x = cp.intvar(1, 9, shape=(9, 9), name="x")
rules = [cp.AllDifferent(line) for line in (*x, *x.T)]
rules += [cp.AllDifferent(x[r : r + 3, c : c + 3]) for r in range(0, 9, 3) for c in range(0, 9, 3)]
rules += [cp.AllDifferent(x.diagonal()), cp.AllDifferent(x[:, ::-1].diagonal())]
puzzle = eqr.puzzle("x-sudoku", x, rules)
