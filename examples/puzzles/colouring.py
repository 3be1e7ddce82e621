"""Graphs of nine nodes in three colours; which edges there are is given: R for none, G for one."""

from itertools import combinations

import cpmpy as cp

import eqr

node = cp.intvar(0, 2, shape=9, name="node")
pairs = list(combinations(range(9), 2))
edge = cp.boolvar(shape=len(pairs), name="edge")
rules = [there.implies(node[a] != node[b]) for there, (a, b) in zip(edge, pairs, strict=True)]
puzzle = eqr.puzzle("colouring", node, rules, given=edge, letters="RGB")
