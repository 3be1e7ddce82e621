"""Making puzzles with one answer: fill the grid at random, then take clues away while one answer is proven.

Every search is bounded, so that options no puzzle meets, and rules no grid keeps, end in an error. What the
search leaves open, CP-SAT decides from the same rows in bounded time (OR-tools, `eqr[puzzles]`).
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from eqr.errors import UserError, with_extra
from eqr.tasks.base import Instance
from eqr.tasks.filling import BLANK, FIRST, PuzzleOptions
from eqr.tasks.rows import Ints, Rows

if TYPE_CHECKING:
    from eqr.puzzles.search import Tables

FILL_STEPS, FILL_TRIES = 50_000, 40
"""Rows that one try at a random grid may look at, and tries before CP-SAT is asked."""
DIG_STEPS = 100_000
"""The same to decide whether one clue can go; where it is not enough the clue stays."""
MOST_DIG_STEPS = 20_000_000
"""The same for all clues of a puzzle, some ten seconds; what is left then stays."""
SLICE = 16
"""Clues decided in one compiled call: Ctrl-C is heard between two."""
RATE_STEPS = 2_000_000
"""The same to rate a puzzle; the backtracks of a search that is longer are those seen by then."""
SECONDS = 20.0
"""What CP-SAT may take for one question."""
ATTEMPTS = 2_000
"""Puzzles looked at for one that fits the options."""


def filled(rng: np.random.Generator, rows: Rows, tables: "Tables", name: str) -> Ints:
    """Return a random grid that keeps the rules, as value numbers."""
    from eqr.puzzles.search import find

    empty = np.full(tables.cells, -1)
    impossible = UserError(f"{name}: no grid keeps all rules; they contradict each other")
    for _ in range(FILL_TRIES):
        seed = int(rng.integers(1, 1 << 31))
        found, answer = find(tables, empty, limit=1, steps=FILL_STEPS, seed=seed)
        if found.solutions:
            return answer
        if found.complete:
            raise impossible
    seed = int(rng.integers(1, 1 << 31))
    answers, complete = answers_by_cp_sat(rows, empty, limit=1, seconds=SECONDS, seed=seed)
    if answers:
        return answers[0]
    if complete:
        raise impossible
    raise UserError(
        f"{name}: no grid that keeps all rules was found in {SECONDS:g} s; "
        "make the puzzle smaller, or check that its rules do not contradict each other"
    )


def count(rows: Rows, tables: "Tables", givens: Ints, name: str) -> int:
    """Count the answers of a puzzle, 2 for more; `UserError` where that cannot be decided."""
    from eqr.puzzles.search import find

    found, _ = find(tables, givens, limit=2, steps=RATE_STEPS)
    if found.complete:
        return found.solutions
    answers, complete = answers_by_cp_sat(rows, givens, limit=2, seconds=SECONDS)
    if not complete:
        raise UserError(
            f"{name}: whether a puzzle has one answer was not decided in {SECONDS:g} s; add clues"
        )
    return len(answers)


def take_away(givens: Ints, order: NDArray[np.int64], tables: "Tables", clues: int) -> None:
    """Take clues away in place, in order, while one answer is proven and more than `clues` are left."""
    from eqr.puzzles.search import dig

    keep = clues + tables.cells - tables.leading  # others are always given
    spent = 0
    for first in range(0, len(order), SLICE):
        left, steps = dig(givens, order[first : first + SLICE], tables, keep, DIG_STEPS)
        spent += steps
        if left <= keep or spent > MOST_DIG_STEPS:
            break


def fitting(
    rng: np.random.Generator, options: PuzzleOptions, rows: Rows, tables: "Tables", name: str
) -> Instance:
    """Draw puzzles until one fits the options."""
    from eqr.puzzles.search import find

    ratings: list[int] = []
    for _ in range(ATTEMPTS):
        answer = filled(rng, rows, tables, name)
        givens = answer.copy()
        take_away(givens, rng.permutation(tables.leading), tables, options.clues or 0)
        rated, _ = find(tables, givens, limit=2, steps=RATE_STEPS)
        ratings.append(rated.backtracks)
        if options.fits(rated.backtracks):
            puzzle = np.where(givens < 0, BLANK, givens + FIRST).astype(np.uint8)
            return Instance(puzzle=puzzle, answer=(answer + FIRST).astype(np.uint8), rating=rated.backtracks)
    raise UserError(
        f"{name}: no puzzle with {options} in {ATTEMPTS:,} attempts (ratings seen: {min(ratings)} to "
        f"{max(ratings)}); widen the range"
    )


def answers_by_cp_sat(
    rows: Rows, givens: NDArray[np.integer], *, limit: int, seconds: float, seed: int = 0
) -> tuple[list[Ints], bool]:
    """Return up to `limit` answers (cells) by CP-SAT, and whether there are no others below the limit.

    A candidate is a Boolean, a cell is "exactly one", and a row is a linear constraint. With a seed the
    search is random. Ctrl-C is heard when the call ends, `seconds` later at most.
    """
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        raise UserError(f"this puzzle needs an exact solver to decide it: {with_extra('puzzles')}") from None
    model = cp_model.CpModel()
    chosen = [
        [model.new_bool_var(f"{cell}={value}") for value in range(rows.values)] for cell in range(len(givens))
    ]
    flat = [variable for cell in chosen for variable in cell]
    for cell, given in zip(chosen, givens.tolist(), strict=True):
        model.add_exactly_one(cell)
        if given >= 0:
            model.add(cell[given] == 1)
    for row in range(len(rows)):
        entries = slice(rows.starts[row], rows.starts[row + 1])
        variables = [flat[site] for site in rows.sites[entries]]
        total = cp_model.LinearExpr.weighted_sum(variables, rows.weights[entries].tolist())
        model.add_linear_constraint(total, int(rows.low[row]), int(rows.high[row]))
    if seed:
        values = np.random.default_rng(seed).integers(rows.values, size=len(chosen))
        for cell, value in zip(chosen, values, strict=True):
            model.add_hint(cell[value], True)
    found: list[Ints] = []

    class Collect(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]  # not installed: Any
        def on_solution_callback(self) -> None:
            held = [[self.boolean_value(variable) for variable in cell] for cell in chosen]
            found.append(np.array(held).argmax(axis=1))
            if len(found) >= limit:
                self.stop_search()

    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 1
    solver.parameters.catch_sigint_signal = False  # Python's own handler is heard, not swallowed
    solver.parameters.enumerate_all_solutions = limit > 1
    if seed:
        solver.parameters.random_seed = seed % (1 << 31)
        solver.parameters.randomize_search = True
    status = solver.solve(model, Collect())
    return found, status in (cp_model.OPTIMAL, cp_model.INFEASIBLE) or len(found) >= limit
