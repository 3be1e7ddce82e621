"""Killer Sudoku 6x6: Sudoku whose cages add up to sums, which differ from puzzle to puzzle."""

import cpmpy as cp
import numpy as np

import eqr

CAGES = np.array([list(line) for line in ("AABCCD", "EABFDD", "EGGFHH", "IIJKLL", "MNJKOO", "MNNPPO")])

x = cp.intvar(1, 6, shape=(6, 6), name="x")
rules = [cp.AllDifferent(line) for line in (*x, *x.T)]
rules += [cp.AllDifferent(x[r : r + 2, c : c + 3]) for r in (0, 2, 4) for c in (0, 3)]
cages = [x[letter == CAGES] for letter in "ABCDEFGHIJKLMNOP"]
sums = cp.intvar(2, 16, shape=len(cages), name="sum")
rules += [cp.sum(cage) == total for cage, total in zip(cages, sums, strict=True)]
rules += [cp.AllDifferent(cage) for cage in cages]
puzzle = eqr.puzzle("killer", x, rules, given=sums)
