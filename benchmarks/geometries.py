"""How weights do on all-different puzzles they were never trained on: one start, and a race of eight.

    python benchmarks/geometries.py all-different sudoku-9x9-hard
    python benchmarks/geometries.py runs/all-different --kinds x windoku --puzzles 50

Puzzles have one answer and no spare clue, but for quasigroup completion: squares of order 10 with 42 cells
empty, judged by the rules. Weights that know groups by name, as Sudoku's, take regions and pairs for boxes
and all other groups for lines. Starts halt by the model's own head, at --depth at the latest.
"""

import argparse
import csv
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from eqr.data import PuzzleSet
from eqr.model.reasoner import Reasoner
from eqr.model.structured import Groups
from eqr.puzzles import Puzzle, generating
from eqr.puzzles.different import all_different, random_regions
from eqr.puzzles.search import dig
from eqr.registry import register
from eqr.results.evaluate import BudgetSweep, evaluate
from eqr.solve import Budget, FirstToHalt, LowestResidual, parse_halting
from eqr.tasks.filling import BLANK, FIRST

HALTING = parse_halting("head+stable:1")
STARTS = 8
HOLES = 42
NINE = np.arange(81).reshape(9, 9)


def lines(size: int) -> list[np.ndarray]:
    """Return the rows and columns of a square."""
    cells = np.arange(size * size).reshape(size, size)
    return [*cells, *cells.T]


def sudoku(*more: np.ndarray) -> list[np.ndarray]:
    """Return the groups of a Sudoku, and more."""
    boxes = [NINE[r : r + 3, c : c + 3].ravel() for r in range(0, 9, 3) for c in range(0, 9, 3)]
    return [*lines(9), *boxes, *more]


def knights() -> list[np.ndarray]:
    """Return the pairs of cells that are a knight's move apart."""
    pairs = []
    for down, right in ((1, 2), (2, 1)):
        pairs += [(NINE[:-down, :-right], NINE[down:, right:]), (NINE[:-down, right:], NINE[down:, :-right])]
    return [np.array(pair) for one, two in pairs for pair in zip(one.ravel(), two.ravel(), strict=True)]


windows = [NINE[r : r + 3, c : c + 3].ravel() for r in (1, 5) for c in (1, 5)]
KINDS = {
    "plain": (9, sudoku()),
    "x": (9, sudoku(NINE.diagonal(), NINE[:, ::-1].diagonal())),
    "windoku": (9, sudoku(*windows)),
    "irregular": (9, [*lines(9), *random_regions(np.random.default_rng(2025), 9)]),
    "anti-knight": (9, sudoku(*knights())),
    "latin-9": (9, lines(9)),
    "latin-12": (12, lines(12)),
    "quasigroup-10": (10, lines(10)),
}
"""Size and groups of each."""


def puzzles_of(task: Puzzle, count: int, *, holes: int | None) -> PuzzleSet:
    """Make puzzles of one answer without a spare clue, or such as leave so many cells of a grid empty."""
    rng = np.random.default_rng(0)
    made = []
    while len(made) < count:
        answer = generating.filled(rng, task.rows, task.tables, task.name)
        givens, order = answer.copy(), rng.permutation(task.cells)
        if holes is None:
            dig(givens, order, task.tables, 0, generating.DIG_STEPS)
        else:
            givens[order[:holes]] = -1
        puzzle = np.where(givens < 0, BLANK, givens + FIRST)
        made.append((puzzle.astype(np.uint8), (answer + FIRST).astype(np.uint8)))
    return PuzzleSet.of(task.name, *(np.stack(grids) for grids in zip(*made, strict=True)))


class Named(Puzzle):
    """The same puzzle for weights that know lines and boxes by name."""

    def groups(self) -> dict[str, np.ndarray]:
        """Return regions and smaller groups as boxes, of which there is at least an empty one."""
        size, groups = self.shape[0], [np.array(rule.cells) for rule in self.rules]
        region = np.array([len(group) < size or len({*group[1:] - group[:-1]}) > 1 for group in groups])
        boxes = [
            np.pad(groups[at], (0, size - len(groups[at])), constant_values=-1)
            for at in np.flatnonzero(region)
        ]
        return {
            "line": np.stack([groups[at] for at in np.flatnonzero(~region)]),
            "box": np.stack(boxes or [[-1]]),
        }


def measured(
    model: Reasoner, puzzles: PuzzleSet, depth: int, starts: list[int]
) -> Iterator[tuple[int, float, float, float, float]]:
    """Yield starts, share solved with its interval, and segments, of one start and of a race."""
    one = Budget(halting=HALTING), {"rule": LowestResidual()}
    several = Budget(halting=HALTING, race=True), {"rule": FirstToHalt(abreast=Budget().abreast)}
    for breadth in starts:
        budget, select = one if breadth == 1 else several
        sweep = BudgetSweep(budget=budget, depths=(depth,), breadths=(breadth,), select=select)
        with tempfile.TemporaryDirectory() as folder:
            found = evaluate(model, puzzles, sweep, Path(folder))
        assert found is not None
        valid = found.one("valid", rule="rule")
        yield (
            breadth,
            valid.value,
            valid.low,
            valid.high,
            found.one("nfe", depth=depth, breadth=breadth).value,
        )


def main() -> None:
    """Print a line for each kind, model and number of starts; write them with --out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--puzzles", type=int, default=200)
    parser.add_argument("--starts", type=int, nargs="+", default=[1, STARTS])
    parser.add_argument("--depth", type=int, default=64)
    parser.add_argument("--out", type=Path, help="CSV file to add to")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for kind in options.kinds:
        size, groups = KINDS[kind]
        task = register(all_different(f"zero-shot-{kind}", (size, size), groups, size))
        named = register(Named(f"named-{kind}", task.board, task.values, task.rules, task.rows))
        holes = HOLES if kind.startswith("quasigroup") else None
        puzzles = puzzles_of(task, options.puzzles, holes=holes)
        clues = float(task.clues(puzzles.inputs).mean())
        for name in options.models:
            model = Reasoner.from_pretrained(name)
            known = named if isinstance(model.config.mixer, Groups) else task
            sets = replace(puzzles, task=known.name)
            for line in measured(model.for_task(known), sets, options.depth, options.starts):
                row = [kind, name, len(puzzles), round(clues, 1), *(round(number, 4) for number in line)]
                print(*row, sep=",", flush=True)
                if options.out:
                    with options.out.open("a", encoding="utf-8", newline="") as file:
                        csv.writer(file, lineterminator="\n").writerow(row)


if __name__ == "__main__":
    main()
