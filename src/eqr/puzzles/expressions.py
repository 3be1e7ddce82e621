"""Reading CPMpy's expressions: their parts, their shape, and why one cannot be said by rows."""

from typing import Any

import numpy as np
from cpmpy.expressions.core import Comparison, Expression, Operator
from cpmpy.expressions.globalconstraints import GlobalConstraint
from cpmpy.expressions.globalfunctions import GlobalFunction
from cpmpy.expressions.utils import is_any_list
from cpmpy.expressions.variables import NegBoolView, _NumVarImpl
from numpy.typing import NDArray

from eqr.errors import UserError, brief

MOST_ASSIGNMENTS = 20_000
"""Assignments of a rule's cells that are listed, one by one, where no other form fits."""
WHY_NOT = {
    "circuit": "connectivity is not a sum over groups",
    "subcircuit": "connectivity is not a sum over groups",
    "cumulative": "a schedule's resource use over time is not a sum over groups of cells",
    "no_overlap": "an order in time is not a sum over groups of cells",
    "regular": "the states of an automaton are not cells",
    "mdd": "the states of a diagram are not cells",
}


class Unsayable(UserError):
    """A rule that no rows say."""


def boxes(forbidden: NDArray[np.bool_]) -> list[tuple[tuple[int, ...], ...]]:
    """Cover what is forbidden by boxes (a set of values on each axis), each as large as it can be made."""
    left = forbidden.copy()
    boxes = []
    while left.any():
        first = np.unravel_index(int(left.argmax()), left.shape)
        sides = [np.array([place]) for place in first]
        for axis in range(forbidden.ndim):
            slab = [*sides]
            slab[axis] = np.arange(forbidden.shape[axis])
            inside = forbidden[np.ix_(*slab)]
            others = tuple(other for other in range(forbidden.ndim) if other != axis)
            sides[axis] = np.flatnonzero(inside.all(axis=others))
        left[np.ix_(*sides)] = False
        boxes.append(tuple(tuple(side.tolist()) for side in sides))
    return boxes


def parts_of(expression: Expression) -> list[tuple[int, Any]] | None:
    """Return (weight, part) pairs that an expression is the sum of; None if it is no sum."""
    name, args = expression.name, expression.args
    if name == "sum":
        return [(1, arg) for arg in args]
    if name == "wsum":
        return list(zip((whole_number(weight) for weight in args[0]), args[1], strict=True))
    if name == "sub":
        return [(1, args[0]), (-1, args[1])]
    if name == "-":
        return [(-1, args[0])]
    if name == "mul" and not isinstance(args[0], Expression):
        return [(whole_number(args[0]), args[1])]
    if name == "count" and not isinstance(args[1], Expression):
        return [(1, part == args[1]) for part in args[0]]
    if name == "among":
        return [(1, part == value) for part in args[0] for value in args[1]]
    return None


def literals_of(constraint: Expression) -> list[Any] | None:
    """Return the parts of which at least one holds; None for what is no clause."""
    if constraint.name == "or":
        return list(constraint.args)
    if constraint.name == "->":
        after = literals_of(constraint.args[1]) if isinstance(constraint.args[1], Operator) else None
        return [~constraint.args[0], *(after or [constraint.args[1]])]
    if constraint.name == "not" and constraint.args[0].name == "and":
        return [~part for part in constraint.args[0].args]
    return None


def is_truth(side: Any) -> bool:
    return isinstance(side, Expression) and side.is_bool()


def whole_number(value: Any) -> int:
    if isinstance(value, Expression):
        value = value.value()
    if value is None or value != int(value):
        raise UserError(f"{value} is no whole number; rules are about whole numbers")
    return int(value)


def shape_of(part: Any, names: dict[str, str]) -> object:
    """Return an expression as nested tuples, with its cells numbered by appearance."""
    if isinstance(part, NegBoolView):
        return "not", names[part._bv.name]
    if isinstance(part, _NumVarImpl):
        return names[part.name]
    if isinstance(part, Comparison | Operator | GlobalFunction):
        return part.name, *(shape_of(arg, names) for arg in part.args)
    if isinstance(part, Expression):
        return object()  # others may hold more than their arguments: like nothing else
    if is_any_list(part):
        return tuple(shape_of(arg, names) for arg in part)
    return part


def described(constraint: Expression) -> str | None:
    description = constraint._description
    return None if description is None else str(description.text)


def _culprit(expression: Expression) -> Expression:
    """Return the part of an expression that is no sum: a global constraint or function, if there is one."""
    parts = [part for part in expression.args if isinstance(part, Expression)]
    if isinstance(expression, GlobalConstraint | GlobalFunction) and parts_of(expression) is None:
        return expression
    found = [_culprit(part) for part in parts if not isinstance(part, _NumVarImpl)]
    return next((part for part in found if isinstance(part, GlobalConstraint | GlobalFunction)), expression)


def refusal(constraint: Expression) -> str:
    culprit = _culprit(constraint)
    name = culprit.name if isinstance(culprit, Comparison | Operator) else type(culprit).__name__
    why = WHY_NOT.get(
        culprit.name,
        f"it is no sum over cells, and relates more than {MOST_ASSIGNMENTS:,} assignments, too many to list",
    )
    return (
        f"{name}: {why}; say it by AllDifferent, sums, counts, clauses or tables of few cells "
        f"(in {brief(str(constraint))})"
    )
