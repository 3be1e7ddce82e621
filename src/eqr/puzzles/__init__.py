"""Puzzles declared by their rules: declare (CPMpy), compile to rows over candidates, and it is a task."""

from eqr.puzzles.declaring import compiled_puzzle, from_cpmpy, laid_out, puzzle
from eqr.puzzles.task import Puzzle

__all__ = ["Puzzle", "compiled_puzzle", "from_cpmpy", "laid_out", "puzzle"]
