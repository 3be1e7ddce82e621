"""Futoshiki 5x5: a Latin square with signs between neighbours, given as 0 (none), 1 (<) or 2 (>)."""

import cpmpy as cp

import eqr

x = cp.intvar(1, 5, shape=(5, 5), name="x")
rules = [cp.AllDifferent(line) for line in (*x, *x.T)]
pairs = [(line[at], line[at + 1]) for line in (*x, *x.T) for at in range(4)]
signs = cp.intvar(0, 2, shape=len(pairs), name="sign")
for sign, (one, other) in zip(signs, pairs, strict=True):
    rules += [(sign == 1).implies(one < other), (sign == 2).implies(one > other)]
puzzle = eqr.puzzle("futoshiki", x, rules, given=signs)
