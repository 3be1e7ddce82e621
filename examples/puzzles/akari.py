"""Akari 5x5: lamps light their rows and columns up to a wall, all is lit and no lamp lights another.

Walls stand where they stand; the number on each is given, 5 meaning none.
"""

import cpmpy as cp

import eqr

BOARD = ("..#..", ".....", "#...#", ".....", "..#..")

lamp = cp.boolvar(shape=(5, 5), name="lamp")
white = [(r, c) for r in range(5) for c in range(5) if BOARD[r][c] == "."]
walls = [(r, c) for r in range(5) for c in range(5) if BOARD[r][c] == "#"]


def sight(r, c, down, right):
    """Return the cells that a lamp lights in one direction."""
    seen = []
    while (r := r + down, c := c + right) in white:
        seen.append(lamp[r, c])
    return seen


AROUND = ((0, 1), (1, 0), (0, -1), (-1, 0))
rules = []
for r, c in white:
    rules += [cp.any([lamp[r, c], *(seen for way in AROUND for seen in sight(r, c, *way))])]
    rules += [~(lamp[r, c] & other) for way in AROUND[:2] for other in sight(r, c, *way)]
number = cp.intvar(0, 5, shape=len(walls), name="number")
for wall, (r, c) in zip(number, walls, strict=True):
    beside = [lamp[r + down, c + right] for down, right in AROUND if (r + down, c + right) in white]
    rules += [(wall < 5).implies(cp.sum(beside) == wall)]
cells = [[lamp[r, c] if (r, c) in white else None for c in range(5)] for r in range(5)]
puzzle = eqr.puzzle("akari", cells, rules, given=number)
