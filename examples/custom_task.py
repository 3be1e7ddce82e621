"""A kind of puzzle of your own, declared by its rules, trained and solved: 4x4 Latin squares.

Needs the extra `eqr[puzzles]`. Larger kinds are in examples/puzzles.

    python examples/custom_task.py                          # trains the default recipe, then solves a puzzle
    eqr --load examples/custom_task.py train latin-4x4      # the same on the command line
    eqr --load examples/custom_task.py solve runs/latin-4x4 "A..D .C.. .... D..."
"""

import sys
from pathlib import Path

import cpmpy as cp

import eqr

cells = cp.intvar(1, 4, shape=(4, 4), name="cell")
rules = [cp.AllDifferent(line) for line in (*cells, *cells.T)]
task = eqr.puzzle("latin-4x4", cells, rules, letters="ABCD")


def main(run: Path, settings: list[str]) -> None:
    """Train the default recipe, then solve one puzzle; settings are those of `eqr train --set`."""
    from eqr.train.run import train

    outcome = train(eqr.recipe_named(task.name).with_settings(settings), run, overwrite=True)
    best = outcome.summary.best
    print("exact accuracy by depth:", {name: best[name] for name in best if name.startswith("exact@")})
    print(eqr.Solver(run).solve("A..D .C.. .... D..."))


if __name__ == "__main__":
    main(Path("runs/latin-4x4"), sys.argv[1:])
