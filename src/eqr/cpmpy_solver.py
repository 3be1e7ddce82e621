"""`CPM_eqr`: a CPMpy solver that asks a trained model, so that whoever has a CPMpy model can try one.

    import cpmpy as cp
    from eqr.cpmpy_solver import CPM_eqr

    CPM_eqr(model, "runs/x-sudoku").solve(time_limit=10)

What it finds was checked against the rules before it is returned. A model proves nothing: where it finds
nothing the status is "unknown", never "unsatisfiable". Constraints that no model can express are refused.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
from cpmpy.solvers.solver_interface import ExitStatus, SolverInterface, SolverStatus
from cpmpy.transformations.get_variables import get_variables

from eqr.errors import UserError
from eqr.model.reasoner import Reasoner
from eqr.puzzles import Puzzle, laid_out
from eqr.puzzles import puzzle as declare
from eqr.solve import Answer, Budget, load
from eqr.solve.solver import Session
from eqr.tasks.base import Tokens
from eqr.tasks.filling import BLANK, FIRST
from eqr.tasks.rows import RowKind

BUDGET = Budget(depth=64, breadth=64, until_verified=True)


class CPM_eqr(SolverInterface):  # type: ignore[misc]  # CPMpy's own class  # and its naming
    """Solves CPMpy models by the weights of a trained model, by several starts until one keeps all rules."""

    def __init__(
        self,
        cpm_model: Any = None,
        subsolver: Reasoner | str | Path | None = None,
        *,
        budget: Budget = BUDGET,
    ) -> None:
        """`subsolver` is the trained model: a reasoner, a model folder or a run folder."""
        if subsolver is None:
            raise UserError('CPM_eqr needs a trained model: CPM_eqr(model, "runs/x-sudoku")')
        self._reasoner = subsolver if isinstance(subsolver, Reasoner) else load(subsolver)
        self._budget, self._constraints = budget, list[Any]()
        super().__init__(name="eqr", cpm_model=cpm_model)

    @staticmethod
    def supported() -> bool:
        """It is part of eqr."""
        return True

    def objective(self, expr: Any, minimize: bool) -> None:
        """Refuse: a model is trained to find answers, not best ones."""
        raise UserError("eqr finds answers, not best ones; remove the objective")

    def add(self, cpm_expr: Any) -> "CPM_eqr":
        """Keep a constraint, or a list of them, until `solve`."""
        self.user_vars |= set(get_variables(cpm_expr))
        self._constraints.append(cpm_expr)
        return self

    __add__ = add

    def solve(self, time_limit: float | None = None) -> bool:
        """Look for an answer for so many seconds; the variables hold it where it was found."""
        began = time.perf_counter()
        variables = get_variables(self._constraints)
        for variable in variables:
            variable.clear()
        puzzle = declare("cpmpy", laid_out(variables), self._constraints)
        answer = self._answer(puzzle, time_limit)
        found = answer is not None and answer.valid
        if answer is not None and found:
            named = {variable.name: variable for variable in variables}
            for name, token in zip(puzzle.cell_names, answer.grid.tolist(), strict=True):
                named[name]._value = puzzle.values[token - FIRST]
        self.cpm_status = SolverStatus(self.name)
        self.cpm_status.exitstatus = ExitStatus.FEASIBLE if found else ExitStatus.UNKNOWN
        self.cpm_status.runtime = time.perf_counter() - began
        return found

    def _answer(self, puzzle: Puzzle, time_limit: float | None) -> Answer | None:
        """Return the first answer that keeps the rules, or the last one tried; None if time ran out."""
        session, clues = Session(self._reasoner, puzzle, self._budget), clues_of(puzzle)
        if not puzzle.check_puzzle(clues):
            return None
        deadline = time.monotonic() + (np.inf if time_limit is None else time_limit)
        session.submit(clues)
        while session.open and time.monotonic() < deadline:
            for event in session.turn():
                if isinstance(event, Answer):
                    return event
        return None


def clues_of(puzzle: Puzzle) -> Tokens:
    """Return the puzzle in which a cell that has only one value left by its domain is given."""
    possible = np.ones((puzzle.cells, len(puzzle.values)), np.bool_)
    barred = puzzle.rows.members(RowKind.BARRED)
    possible.reshape(-1)[barred[barred >= 0]] = False
    clues = np.where(possible.sum(axis=1) == 1, possible.argmax(axis=1) + FIRST, BLANK)
    return clues.astype(np.uint8)
