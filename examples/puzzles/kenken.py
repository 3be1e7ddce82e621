"""KenKen 4x4: a Latin square whose cages have a given sum, or a given product."""

import cpmpy as cp

import eqr

x = cp.intvar(1, 4, shape=(4, 4), name="x")
rules = [cp.AllDifferent(line) for line in (*x, *x.T)]
added = [[x[0, 0], x[0, 1], x[1, 0]], [x[0, 2], x[0, 3]], [x[2, 2], x[3, 2], x[3, 3]], [x[3, 0], x[3, 1]]]
multiplied = [[x[1, 1], x[2, 1]], [x[1, 2], x[1, 3]], [x[2, 0]], [x[2, 3]]]
results = cp.intvar(1, 16, shape=len(added) + len(multiplied), name="result")
rules += [cp.sum(cage) == result for cage, result in zip(added, results[:4], strict=True)]
for cage, result in zip(multiplied, results[4:], strict=True):
    rules += [cage[0] * cage[1] == result if len(cage) == 2 else cage[0] == result]
puzzle = eqr.puzzle("kenken", x, rules, given=results)
