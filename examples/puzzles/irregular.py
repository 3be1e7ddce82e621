"""Irregular Sudoku: rows, columns and six connected regions of odd shape hold every digit once."""

import cpmpy as cp
import numpy as np

import eqr

REGIONS = np.array([list(line) for line in ("AAABBB", "AACCBB", "ADCCBE", "DDCCEE", "DFFEEE", "DDFFFF")])

x = cp.intvar(1, 6, shape=(6, 6), name="x")
rules = [cp.AllDifferent(line) for line in (*x, *x.T)]
rules += [cp.AllDifferent(x[region == REGIONS]) for region in "ABCDEF"]
puzzle = eqr.puzzle("irregular", x, rules)
