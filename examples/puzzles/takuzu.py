"""Takuzu: each line of 6 holds three 0 and three 1, and never three equal ones side by side."""

import cpmpy as cp

import eqr

x = cp.boolvar(shape=(6, 6), name="x")
lines = [*x, *x.T]
rules = [cp.sum(line) == 3 for line in lines]
for three in (line[at : at + 3] for line in lines for at in range(4)):
    rules += [cp.sum(three) >= 1, cp.sum(three) <= 2]
puzzle = eqr.puzzle("takuzu", x, rules)
