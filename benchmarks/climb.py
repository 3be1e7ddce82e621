"""Find hard 9x9 Sudoku puzzles by walking, for src/eqr/tasks/sudoku_hard.txt.

A move takes one or two clues out of a puzzle, adds what it takes to have one solution again and digs it down
to a minimal one. Fresh puzzles climb towards harder ones, like annealing; whatever needs `--floor` failed
guesses, in the quickest of three random orders of search, joins a population whose members beget more of
their kind. A few new puzzles a second on an idle core:

    python benchmarks/climb.py --seconds 600 --out hard.txt
"""

import argparse
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eqr.progress import progress
from eqr.tasks import task_named
from eqr.tasks.sudoku_generate import solved_grid
from eqr.tasks.sudoku_hard import LETTERS
from eqr.tasks.sudoku_search import all_digits, dig, search

STEPS = 20_000
ORDERS = 3
CLUES_ADDED = 12
CLIMBERS = 12
RECENT = 200
Digits = NDArray[np.uint8]
TASK = task_named("sudoku-9x9")
UNITS: NDArray[np.int64] = TASK.units  # type: ignore[attr-defined]  # of Sudoku tasks
CELLS = 81


class Climb:
    """A population of hard puzzles and the climbers that found its first members."""

    def __init__(self, seed: int, floor: int) -> None:
        self.rng, self.floor = np.random.default_rng(seed), floor
        self.population: list[Digits] = []
        self.climbers = [self._fresh() for _ in range(CLIMBERS)]
        self._seen: set[bytes] = set()

    def move(self) -> tuple[Digits, int] | None:
        """Make one move, of a climber or in the population; return a puzzle that is new and hard."""
        climbing = not self.population or self.rng.random() < 0.5
        found = self._climb() if climbing else self._beget()
        if found is None or found[1] < self.floor:
            return None
        kind = TASK.canonical(found[0][None] + np.uint8(1))[0].tobytes()
        if kind in self._seen:
            return None
        self._seen.add(kind)
        self.population.append(found[0])
        return found

    def _climb(self) -> tuple[Digits, int] | None:
        place = self.rng.integers(len(self.climbers))
        puzzle, rated = self.climbers[place]
        near = self._neighbour(puzzle)
        if near is None:
            return None
        now = self._rating(near, 9 * rated // 10)
        if now >= rated or self.rng.random() < np.exp((now - rated) / (0.04 * rated + 0.1)):
            self.climbers[place] = self._fresh() if now >= self.floor else (near, now)
        return near, now

    def _beget(self) -> tuple[Digits, int] | None:
        first = max(0, len(self.population) - RECENT) if self.rng.random() < 0.5 else 0
        near = self._neighbour(self.population[self.rng.integers(first, len(self.population))])
        return None if near is None else (near, self._rating(near, self.floor))

    def _fresh(self) -> tuple[Digits, int]:
        puzzle = solved_grid(self.rng, UNITS)
        dig(puzzle, self.rng.permutation(CELLS), UNITS, 0, STEPS)
        return puzzle, self._rating(puzzle, 0)

    def _solutions(self, puzzle: Digits, into: Digits, limit: int) -> tuple[int, int]:
        order, seed = self.rng.permutation(CELLS), int(self.rng.integers(1, 2**63 - 1))
        found = search(puzzle, into, all_digits(CELLS), order, UNITS, limit, 10 * STEPS, seed)
        return found.solutions, found.backtracks

    def _neighbour(self, puzzle: Digits) -> Digits | None:
        puzzle = puzzle.copy()
        puzzle[self.rng.choice(np.flatnonzero(puzzle), self.rng.integers(1, 3), replace=False)] = 0
        answer, other = np.zeros_like(puzzle), np.zeros_like(puzzle)
        self._solutions(puzzle, answer, 1)
        for _ in range(CLUES_ADDED):
            if self._solutions(puzzle, other, 2)[0] == 1:
                dig(puzzle, self.rng.permutation(CELLS), UNITS, 0, STEPS)
                return puzzle
            apart = np.flatnonzero(answer != other)
            cell = self.rng.choice(apart if apart.size else np.flatnonzero(puzzle == 0))
            puzzle[cell] = answer[cell]
        return None

    def _rating(self, puzzle: Digits, floor: int) -> int:
        least = 10 * STEPS
        for _ in range(ORDERS):
            least = min(least, self._solutions(puzzle, np.zeros_like(puzzle), 2)[1])
            if least < floor:
                break
        return least


def main() -> None:
    """Climb for a while and append what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--floor", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("hard.txt"))
    options = parser.parse_args()
    climb, began, shown_at = Climb(options.seed, options.floor), time.monotonic(), 0
    with (
        options.out.open("a", encoding="ascii") as file,
        progress("climbing", int(options.seconds), unit="s") as shown,
    ):
        while (seconds := time.monotonic() - began) < options.seconds:
            if (found := climb.move()) is not None:
                file.write("".join(LETTERS[digit] for digit in found[0]) + f" {found[1]}\n")
                file.flush()
            if int(seconds) > shown_at:
                shown.advance(int(seconds) - shown_at)
                shown_at = int(seconds)


if __name__ == "__main__":
    main()
