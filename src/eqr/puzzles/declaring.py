"""`eqr.puzzle` and `eqr.from_cpmpy`: a task from CPMpy variables and constraints."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from eqr.errors import UserError, brief, with_extra
from eqr.puzzles.task import Puzzle
from eqr.registry import register
from eqr.tasks.filling import Board, box_of
from eqr.tasks.rows import Rows

MOST_VALUES = 250
MOST_SITES = 200_000
"""Candidates a puzzle may have: ten thousand cells of twenty values."""


def puzzle(
    name: str,
    cells: Any,
    rules: Any,
    *,
    given: Any = (),
    letters: str | Sequence[str] | None = None,
    summary: str = "",
) -> Puzzle:
    """Declare a kind of puzzle by CPMpy variables, one for each cell, and constraints, and register it.

    `cells` is an array of variables, or nested lists in which None stands for a place without a cell; `given`
    are variables that every puzzle gives, such as the sums of cages; `letters` names the values in order, if
    not by their numbers. A rule that eqr cannot express is an error that names it.
    """
    return register(compiled_puzzle(name, cells, rules, given=given, letters=letters, summary=summary))


def from_cpmpy(
    model: Any, name: str = "cpmpy", *, cells: Any = None, letters: str | Sequence[str] | None = None
) -> Puzzle:
    """Declare the puzzle of a CPMpy model: its variables are the cells, as in `cells` or by their names.

    Variables named `x[0,0]` to `x[8,8]` are a table; any others a list. Models with an objective are refused.
    """
    _require_cpmpy()
    from cpmpy.transformations.get_variables import get_variables

    if model.objective_ is not None:
        raise UserError(f"{name}: a puzzle has an answer, not a best one; remove the objective of the model")
    variables = get_variables(model.constraints)
    if not variables:
        raise UserError(f"{name}: the model has no variables")
    layout = laid_out(variables) if cells is None else cells
    return puzzle(name, layout, model.constraints, letters=letters)


def laid_out(variables: Sequence[Any]) -> Any:
    """Return variables as the table that their names are the indices of, or as they come."""
    found = [re.fullmatch(r"(.*)\[(\d+),(\d+)\]", variable.name) for variable in variables]
    if not all(found) or len({match[1] for match in found if match}) != 1:
        return list(variables)
    places = [(int(match[2]), int(match[3])) for match in found if match]
    table = np.full([max(place[axis] for place in places) + 1 for axis in (0, 1)], None, object)
    for place, variable in zip(places, variables, strict=True):
        table[place] = variable
    return table


def compiled_puzzle(
    name: str,
    cells: Any,
    rules: Any,
    *,
    given: Any = (),
    letters: str | Sequence[str] | None = None,
    summary: str = "",
) -> Puzzle:
    """Return the puzzle of `puzzle` without registering it."""
    _require_cpmpy()
    from eqr.puzzles.compiling import compile_rules

    grid = np.array(cells, dtype=object)
    if grid.ndim not in (1, 2) or not grid.size:
        raise UserError(f"{name}: cells have the shape {grid.shape}; give a list or a table of variables")
    places = np.flatnonzero([cell is not None for cell in grid.flat])
    clues = list(np.array(given, dtype=object).ravel())
    variables = [*(grid.flat[place] for place in places), *clues]
    _require_variables(name, variables)
    values = _values(name, variables)
    names = [str(value) for value in values] if letters is None else list(letters)
    if len(names) != len(values) or len(set(names)) < len(names):
        raise UserError(
            f"{name}: letters = {letters!r}: give {len(values)} different ones, one for each value"
        )
    compiled = compile_rules(variables, values, [rules])
    shape = (1, grid.shape[0]) if grid.ndim == 1 else (grid.shape[0], grid.shape[1])
    box = None
    if len(places) == grid.size and min(shape) > 1:
        box = box_of(shape, {frozenset(rule.cells) for rule in compiled.rules})
    board = Board(shape, places, tuple(names), box, len(clues))
    made = Puzzle(name, board, values, compiled.rules, Rows.of(len(values), compiled.rows), summary)
    made.cell_names = tuple(variable.name for variable in variables)
    return made


def _require_cpmpy() -> None:
    try:
        import cpmpy  # noqa: F401
    except ImportError:
        raise UserError(f"declaring puzzles by rules needs CPMpy: {with_extra('puzzles')}") from None


def _require_variables(name: str, variables: Sequence[Any]) -> None:
    from cpmpy.expressions.variables import NegBoolView, _NumVarImpl

    for variable in variables:
        if not isinstance(variable, _NumVarImpl) or isinstance(variable, NegBoolView):
            raise UserError(
                f"{name}: {brief(str(variable))} is no variable; cells are CPMpy's intvar or boolvar, or None"
            )
    if len({variable.name for variable in variables}) < len(variables):
        raise UserError(f"{name}: a variable stands in two cells, or two have the same name")


def _values(name: str, variables: Sequence[Any]) -> list[int]:
    """Return all values that some cell may hold."""
    if max(variable.ub - variable.lb for variable in variables) >= MOST_VALUES:
        raise UserError(f"{name}: a cell has more than {MOST_VALUES} values; narrow its bounds")
    bounds = {(variable.lb, variable.ub) for variable in variables}
    values = sorted({value for low, high in bounds for value in range(low, high + 1)})
    if len(values) > MOST_VALUES or len(values) * len(variables) > MOST_SITES:
        raise UserError(
            f"{name}: {len(variables):,} cells of {len(values)} values; at most {MOST_VALUES} values and "
            f"{MOST_SITES:,} candidates"
        )
    if len(values) < 2:
        raise UserError(f"{name}: cells have only the value {values[0]}; give their variables wider bounds")
    return values
