"""Find hard 9x9 Sudoku puzzles by walking, for src/eqr/tasks/sudoku_hard.txt.

Hard means that single assumptions leave candidates open, as they do in the hardest known puzzles and in none
that is dug at random. An assumption tries a candidate, follows the singles it leads to (cells with one
candidate, digits with one place in a unit) and crosses it out at a contradiction. A move takes one or two
clues out of a puzzle, adds what it takes to have one solution again and digs it down to a minimal one. Fresh
puzzles climb towards ones that take more tries, like annealing; whatever tries cannot decide joins a
population whose members beget more of their kind, which is where nearly all come from. `--kin` begins with
the hard ones among earlier finds:

    python benchmarks/climb.py --seconds 600 --out hard.txt
"""

import argparse
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eqr.progress import progress
from eqr.tasks import task_named
from eqr.tasks.compiled import compiled
from eqr.tasks.sudoku_generate import LETTERS, solved_grid
from eqr.tasks.sudoku_search import all_digits, dig, search

STEPS = 20_000
OPEN = 1_000
"""What a puzzle scores that tries leave open, plus its open candidates; others score their tries."""
CLUES_ADDED = 12
CLIMBERS = 12
RECENT = 200
Digits = NDArray[np.uint8]
TASK = task_named("sudoku-9x9")
UNITS: NDArray[np.int64] = TASK.units  # type: ignore[attr-defined]  # of Sudoku tasks
CELLS = 81
ALL = 511
"""The candidates of an empty cell, one bit each."""


class Climb:
    """A population of hard puzzles and the climbers that found its first members."""

    def __init__(self, seed: int, kin: list[Digits]) -> None:
        self.rng = np.random.default_rng(seed)
        self.population = [puzzle for puzzle in kin if score(puzzle) >= OPEN]
        self.climbers = [self._fresh() for _ in range(CLIMBERS)]
        self._seen: set[bytes] = set()

    def move(self) -> Digits | None:
        """Make one move, of a climber or in the population; return a puzzle that is new and hard."""
        climbing = not self.population or self.rng.random() < 0.1
        found = self._climb() if climbing else self._beget()
        if found is None or score(found) < OPEN:
            return None
        kind = TASK.canonical(found[None] + np.uint8(1))[0].tobytes()
        if kind in self._seen:
            return None
        self._seen.add(kind)
        self.population.append(found)
        return found

    def _climb(self) -> Digits | None:
        place = self.rng.integers(len(self.climbers))
        puzzle, was = self.climbers[place]
        near = self._neighbour(puzzle)
        if near is None:
            return None
        now = score(near)
        if now >= was or self.rng.random() < np.exp((now - was) / (0.04 * was + 0.1)):
            self.climbers[place] = self._fresh() if now >= OPEN else (near, now)
        return near

    def _beget(self) -> Digits | None:
        first = max(0, len(self.population) - RECENT) if self.rng.random() < 0.5 else 0
        return self._neighbour(self.population[self.rng.integers(first, len(self.population))])

    def _fresh(self) -> tuple[Digits, int]:
        puzzle = solved_grid(self.rng, UNITS)
        dig(puzzle, self.rng.permutation(CELLS), UNITS, 0, STEPS)
        return puzzle, score(puzzle)

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


def score(puzzle: Digits) -> int:
    """Return how hard a puzzle is for single assumptions."""
    left, tries = undecided(puzzle, UNITS)
    return OPEN + left if left else min(tries, OPEN - 1)


def undecided(puzzle: NDArray[np.uint8], units: NDArray[np.int64]) -> tuple[int, int]:
    """Return how many spare candidates are left when no assumption leads to a contradiction, and the tries.

    `puzzle` (81,) has 0 for blanks; `units` (81, 3) names each cell's row, column and box. 0 spare candidates
    mean that the puzzle is solved, -1 that it has no solution.
    """
    digits = puzzle.astype(np.int64)
    candidates = np.where(digits > 0, 1 << np.maximum(digits - 1, 0), ALL)
    members = np.argsort(units, axis=0, kind="stable").T.reshape(-1, 9).astype(np.int64)
    left, tries = _assume_each(candidates, members, units)
    return int(left), int(tries)


@compiled
def _assume_each(
    candidates: NDArray[np.int64], members: NDArray[np.int64], units: NDArray[np.int64]
) -> tuple[int, int]:
    settled = np.zeros(81, np.bool_)
    tries = 0
    if not _follow_singles(candidates, settled, members, units):
        return -1, tries
    changed = True
    while changed:
        changed = False
        for cell in range(81):
            for digit in range(9):
                bit = 1 << digit
                if not candidates[cell] & bit or candidates[cell] == bit:
                    continue
                assumed = candidates.copy()
                assumed[cell] = bit
                tries += 1
                if _follow_singles(assumed, settled.copy(), members, units):
                    continue
                candidates[cell] &= ~bit
                changed = True
                if not _follow_singles(candidates, settled, members, units):
                    return -1, tries
    left = -81
    for cell in range(81):
        left += _count(candidates[cell])
    return left, tries


@compiled
def _follow_singles(
    candidates: NDArray[np.int64],
    settled: NDArray[np.bool_],
    members: NDArray[np.int64],
    units: NDArray[np.int64],
) -> bool:
    """Fill in what is forced, in place, until nothing is; False at a contradiction."""
    changed = True
    while changed:
        changed = False
        for cell in range(81):
            mask = candidates[cell]
            if mask == 0:
                return False
            if settled[cell] or mask & (mask - 1):
                continue
            settled[cell] = True
            changed = True
            for kind in range(3):
                for peer in members[units[cell, kind]]:
                    if peer != cell:
                        candidates[peer] &= ~mask
                        if candidates[peer] == 0:
                            return False
        for unit in members:
            once, twice = 0, 0
            for cell in unit:
                twice |= once & candidates[cell]
                once |= candidates[cell]
            if once != ALL:
                return False
            for cell in unit:
                alone = candidates[cell] & ~twice
                if alone and alone != candidates[cell]:
                    if alone & (alone - 1):
                        return False
                    candidates[cell] = alone
                    changed = True
    return True


@compiled
def _count(mask: int) -> int:
    count = 0
    while mask:
        mask &= mask - 1
        count += 1
    return count


def backtracks(puzzle: Digits) -> int:
    """Return what the library states as a puzzle's rating."""
    found = search(
        puzzle, np.zeros_like(puzzle), all_digits(CELLS), np.arange(CELLS), UNITS, 2, 100 * STEPS, 0
    )
    return int(found.backtracks)


def read(path: Path | None) -> list[Digits]:
    """Return the puzzles of a file that an earlier call wrote."""
    lines = [] if path is None else path.read_text(encoding="ascii").splitlines()
    return [np.array([LETTERS.index(letter) for letter in line.split()[0]], np.uint8) for line in lines]


def main() -> None:
    """Climb for a while and append what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--kin", type=Path, help="earlier finds to begin with")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("hard.txt"))
    options = parser.parse_args()
    climb, began, shown_at = Climb(options.seed, read(options.kin)), time.monotonic(), 0
    with (
        options.out.open("a", encoding="ascii") as file,
        progress("climbing", int(options.seconds), unit="s") as shown,
    ):
        while (seconds := time.monotonic() - began) < options.seconds:
            if (found := climb.move()) is not None:
                file.write("".join(LETTERS[digit] for digit in found) + f" {backtracks(found)}\n")
                file.flush()
            if int(seconds) > shown_at:
                shown.advance(int(seconds) - shown_at)
                shown_at = int(seconds)


if __name__ == "__main__":
    main()
