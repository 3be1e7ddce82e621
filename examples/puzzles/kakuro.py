"""Kakuro: runs of white cells hold different digits that add up to a given sum."""

import cpmpy as cp

import eqr

WHITE = ("##..", "#...", "...#", "..##")

x = cp.intvar(1, 9, shape=(4, 4), name="x")
cells = [[x[r, c] if WHITE[r][c] == "." else None for c in range(4)] for r in range(4)]
runs = [[cell for cell in line if cell is not None] for line in (*cells, *zip(*cells, strict=True))]
sums = cp.intvar(3, 24, shape=len(runs), name="sum")
rules = [cp.AllDifferent(run) for run in runs]
rules += [cp.sum(run) == total for run, total in zip(runs, sums, strict=True)]
puzzle = eqr.puzzle("kakuro", cells, rules, given=sums)
