"""Exact answers by CP-SAT, for what the search in `search.py` leaves open: bounded in time, one thread.

Needs OR-tools (`eqr[puzzles]`). A candidate is a Boolean, a cell is "exactly one", and a row is a linear
constraint, so CP-SAT judges the same rows as everything else.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from eqr.errors import UserError, with_extra
from eqr.tasks.rows import Ints, Rows

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


def answers(
    rows: Rows, givens: NDArray[np.integer], *, limit: int, seconds: float, seed: int = 0
) -> tuple[list[Ints], bool]:
    """Return up to `limit` answers (cells) as value numbers, and whether there are no others below the limit.

    With a seed the search is random. Ctrl-C is heard when the call ends, `seconds` later at most.
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

    solver = _solver(seconds, seed)
    solver.parameters.enumerate_all_solutions = limit > 1
    status = solver.solve(model, Collect())
    return found, status in (cp_model.OPTIMAL, cp_model.INFEASIBLE) or len(found) >= limit


def _solver(seconds: float, seed: int) -> "cp_model.CpSolver":
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 1
    solver.parameters.catch_sigint_signal = False  # Python's own handler is heard, not swallowed
    if seed:
        solver.parameters.random_seed = seed % (1 << 31)
        solver.parameters.randomize_search = True
    return solver
