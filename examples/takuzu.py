"""Takuzu 6x6 with all of its rules: three 0 and three 1 a line, never three alike side by side, no two rows
and no two columns alike. (examples/puzzles/takuzu.py leaves the last rule out: it is 1,920 rows of 2,028.)

    eqr --load examples/takuzu.py train takuzu-6x6
    eqr --load examples/takuzu.py solve runs/takuzu-6x6 ".1...0 ..0... ..1... 0..0.. ..1.1. 0.0..."
"""

from itertools import combinations

import cpmpy as cp

import eqr

x = cp.boolvar(shape=(6, 6), name="x")
rules = [cp.sum(line) == 3 for line in (*x, *x.T)]
for three in (line[at : at + 3] for line in (*x, *x.T) for at in range(4)):
    rules += [cp.sum(three) >= 1, cp.sum(three) <= 2]
for lines in (x, x.T):
    rules += [cp.any(one != other) for one, other in combinations(lines, 2)]
task = eqr.puzzle("takuzu-6x6", x, rules)
