"""Star Battle 6x6: a star in each row, column and region, no two of them touching."""

import cpmpy as cp

import eqr

star = cp.boolvar(shape=(6, 6), name="star")
rules = [cp.sum(line) == 1 for line in (*star, *star.T)]
rules += [cp.sum(star[r : r + 2, c : c + 3]) == 1 for r in (0, 2, 4) for c in (0, 3)]
rules += [cp.sum(star[r : r + 2, c : c + 2]) <= 1 for r in range(5) for c in range(5)]
puzzle = eqr.puzzle("star-battle", star, rules, letters="-*")
