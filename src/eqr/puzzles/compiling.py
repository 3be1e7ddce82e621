"""From CPMpy constraints to rows over candidates, exactly; what is no such row is refused by name.

Four forms are read as they stand: different values, sums of what single cells contribute (counts are sums of
zeros and ones), clauses, and a condition before a sum. Whatever relates few enough assignments is listed, and
what it forbids is said by rows. A global constraint that CPMpy breaks down without new variables is broken
down. Nothing is left out: what remains raises a `UserError` that names the constraint.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

import numpy as np
from cpmpy.expressions.core import BoolVal, Comparison, Expression, Operator
from cpmpy.expressions.globalconstraints import AllDifferent, AllDifferentExceptN, GlobalConstraint
from cpmpy.expressions.globalfunctions import GlobalFunction
from cpmpy.expressions.utils import is_any_list
from cpmpy.expressions.variables import NegBoolView, _NumVarImpl
from cpmpy.transformations.get_variables import get_variables
from numpy.typing import NDArray

from eqr.errors import UserError, brief
from eqr.tasks.rows import Row, Rule, Sort

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
MOST_ROWS = 2_000
"""Rows that one listed rule may need."""

Terms = dict[int, NDArray[np.int64]]
"""What each cell contributes to a sum, by value number; the cells a sum is over."""


@dataclass
class Compiled:
    """The rules so far, and their rows with the number of the rule each belongs to."""

    rules: list[Rule] = field(default_factory=list)
    rows: list[tuple[int, Row]] = field(default_factory=list)


def compile_rules(
    variables: Sequence[_NumVarImpl], values: Sequence[int], constraints: Iterable[Any]
) -> Compiled:
    """Return rules and rows of constraints over these cells; cells' own domains are rules too."""
    compiler = _Compiler(variables, values)
    for constraint in constraints:
        compiler.add(constraint)
    return compiler.done


class Unsayable(UserError):
    """A rule that no rows say."""


class _Compiler:
    def __init__(self, variables: Sequence[_NumVarImpl], values: Sequence[int]) -> None:
        self.done = Compiled()
        self._variables, self._values = variables, np.array(values, np.int64)
        self._cell = {variable.name: cell for cell, variable in enumerate(variables)}
        self._number = {value: number for number, value in enumerate(values)}
        self._domains = [
            np.flatnonzero((self._values >= variable.lb) & (self._values <= variable.ub))
            for variable in variables
        ]
        self._listed: dict[object, list[tuple[tuple[int, ...], ...]]] = {}
        for cell, domain in enumerate(self._domains):
            outside = np.setdiff1d(np.arange(len(values)), domain)
            if len(outside):
                rule = Rule(
                    text=f"{variables[cell]} in {variables[cell].lb}..{variables[cell].ub}",
                    sort=Sort.TABLE,
                    cells=(cell,),
                )
                self._keep(rule, [self._none_of({cell: outside})])

    def add(self, constraint: Any, description: str | None = None) -> None:
        """Compile one constraint, or a list of them, described by its own words or those given."""
        if is_any_list(constraint):
            for part in np.asarray(constraint, object).ravel():
                self.add(part, description)
        elif isinstance(constraint, (bool, np.bool_, BoolVal)):
            if not bool(constraint.value() if isinstance(constraint, BoolVal) else constraint):
                raise UserError("the rules contradict each other: one of them is False for every grid")
        elif not isinstance(constraint, Expression) or not constraint.is_bool():
            raise UserError(f"{brief(str(constraint))} is no rule: rules are constraints, true or false")
        elif constraint.name == "and":
            for part in constraint.args:
                self.add(part, _described(constraint) or description)
        else:
            self._compile(constraint, _described(constraint) or description)

    def _compile(self, constraint: Expression, description: str | None) -> None:
        cells = self._scope(constraint)

        def keep(sort: Sort, rows: list[Row]) -> None:
            text = description or str(constraint)
            rule = Rule(text=text, sort=sort, cells=tuple(cells), described=description is not None)
            self._keep(rule, rows)

        for sort, form in (
            (Sort.DIFFERENT, self._different),
            (Sort.COUNT, self._counted),
            (Sort.TABLE, self._small(2, 1_000)),
            (Sort.SUM, self._sum),
            (Sort.TABLE, self._clause),
            (Sort.TABLE, self._small(3, 500)),
            (Sort.SUM, self._condition),
            (Sort.TABLE, self._small(len(cells), MOST_ASSIGNMENTS)),
        ):
            rows = form(constraint)
            if rows is not None:
                keep(sort, rows)
                return
        self._break_down(constraint, description)

    def _break_down(self, constraint: Expression, description: str | None) -> None:
        """Compile the parts that CPMpy breaks a global constraint down to, if they need no new variables."""
        try:
            parts, defining = constraint.decompose()
        except (AttributeError, NotImplementedError, TypeError):
            raise Unsayable(_refusal(constraint)) from None
        known = all(variable.name in self._cell for variable in get_variables([*parts, *defining]))
        if not known:
            raise Unsayable(_refusal(constraint))
        try:
            for part in (*parts, *defining):
                self.add(part, description)
        except Unsayable:
            raise Unsayable(_refusal(constraint)) from None

    def _keep(self, rule: Rule, rows: list[Row]) -> None:
        number = len(self.done.rules)
        self.done.rules.append(rule)
        for row in rows:
            tightest = self._reach(row)
            if tightest[0] > row.high or tightest[1] < row.low:
                raise UserError(f"no grid can keep {brief(rule.text)}; correct or remove that rule")
            if tightest[0] < row.low or tightest[1] > row.high:  # else every grid keeps it
                self.done.rows.append((number, row))

    def _reach(self, row: Row) -> tuple[int, int]:
        low = high = 0
        cells, values = np.divmod(row.sites, len(self._values))
        for cell in np.unique(cells):
            weights = np.zeros(len(self._values), np.int64)
            weights[values[cells == cell]] = row.weights[cells == cell]
            low, high = low + weights.min(), high + weights.max()
        return int(low), int(high)

    # what expressions are over

    def _scope(self, expression: Any) -> list[int]:
        """Return the cells an expression is over, in order of their first appearance."""
        found = []
        for variable in get_variables(expression):
            cell = self._cell.get(variable.name)
            if cell is None:
                raise UserError(
                    f"{brief(str(expression))} is about {variable.name}, which is no cell of the puzzle; "
                    "put it among the cells, or say the rule without it"
                )
            found.append(cell)
        return found

    def _evaluate(self, expression: Any, cells: Sequence[int]) -> NDArray[np.int64]:
        """Return the value of an expression for every assignment of its cells, an axis for each."""
        variables = [self._variables[cell] for cell in cells]
        before = [variable._value for variable in variables]
        domains = [self._values[self._domains[cell]] for cell in cells]
        numbers = []
        try:
            for assignment in product(*(domain.tolist() for domain in domains)):
                for variable, value in zip(variables, assignment, strict=True):
                    variable._value = value
                numbers.append(
                    _whole_number(expression.value() if isinstance(expression, Expression) else expression)
                )
        finally:
            for variable, value in zip(variables, before, strict=True):
                variable._value = value
        return np.array(numbers, np.int64).reshape([len(domain) for domain in domains])

    def _over_one(self, expression: Any) -> tuple[int, NDArray[np.int64]] | None:
        """Return the cell and, by value number, the values of an expression over a single cell."""
        cells = self._scope(expression) if isinstance(expression, Expression) else []
        if len(cells) != 1:
            return None
        numbers = np.zeros(len(self._values), np.int64)
        numbers[self._domains[cells[0]]] = self._evaluate(expression, cells)
        return cells[0], numbers

    def _terms(self, expression: Any) -> tuple[Terms, int] | None:
        """Return an expression as a sum of what single cells contribute, and a constant, if it is one."""
        if not isinstance(expression, Expression):
            return {}, _whole_number(expression)
        cells = self._scope(expression)
        if not cells:
            return {}, _whole_number(expression.value())
        if len(cells) == 1:
            cell, numbers = self._over_one(expression) or (0, self._values)
            return {cell: numbers}, 0
        parts = _parts_of(expression)
        if parts is None:
            return None
        terms: Terms = {}
        constant = 0
        for weight, part in parts:
            inner = self._terms(part)
            if inner is None:
                return None
            constant += weight * inner[1]
            for cell, numbers in inner[0].items():
                terms[cell] = terms.get(cell, 0) + weight * numbers
        return terms, constant

    # the forms

    def _different(self, constraint: Expression) -> list[Row] | None:
        given: Sequence[Any]
        if isinstance(constraint, AllDifferent):
            given, free = constraint.args, set()
        elif isinstance(constraint, AllDifferentExceptN):
            given, free = constraint.args[0], {_whole_number(value) for value in constraint.args[1]}
        else:
            return None
        holders: dict[int, dict[int, list[int]]] = {}
        taken: set[int] = set()
        args = [arg for arg in given if isinstance(arg, Expression) and self._scope(arg)]
        for arg in args:
            one = self._over_one(arg)
            if one is None:
                return None
            cell, numbers = one
            for value in self._domains[cell]:
                holders.setdefault(int(numbers[value]), {}).setdefault(cell, []).append(int(value))
        if len({self._scope(arg)[0] for arg in args}) < len(args):
            return None  # a cell twice
        for arg in given:
            if not (isinstance(arg, Expression) and self._scope(arg)):
                number = _whole_number(arg.value() if isinstance(arg, Expression) else arg)
                if number in taken and number not in free:
                    raise UserError(f"no grid can keep {brief(str(constraint))}: {number} stands in it twice")
                taken.add(number)
        images = [number for number in holders if number not in taken]
        if len(args) > len(images) and not free:
            raise UserError(
                f"no grid can keep {brief(str(constraint))}: {len(args)} cells for {len(images)} values"
            )
        every = len(args) == len(images) and not free
        rows = []
        for number, sites in sorted(holders.items()):
            if number in free:
                continue
            most = 0 if number in taken else 1
            chosen = {cell: np.array(values, np.int64) for cell, values in sites.items()}
            if most == 0 or every or len(chosen) > 1:
                rows.append(self._count(chosen, 1 if every and most else 0, most))
        return rows

    def _counted(self, constraint: Expression) -> list[Row] | None:
        rows = self._sum(constraint)
        return rows if rows is not None and all((row.weights == 1).all() for row in rows) else None

    def _sum(self, constraint: Expression) -> list[Row] | None:
        bounded = self._bounded(constraint)
        return None if bounded is None else [self._row(*bounded)]

    def _bounded(self, constraint: Any) -> tuple[Terms, int | None, int | None] | None:
        """Return terms and the bounds that a comparison sets to their sum."""
        if not isinstance(constraint, Comparison) or constraint.name == "!=":
            return None
        sides = [self._terms(side) for side in constraint.args]
        if sides[0] is None or sides[1] is None:
            return None
        (terms, left), (others, right) = sides[0], sides[1]
        for cell, numbers in others.items():
            terms[cell] = terms.get(cell, 0) - numbers
        rest = right - left
        low = {"==": rest, ">=": rest, ">": rest + 1}.get(constraint.name)
        high = {"==": rest, "<=": rest, "<": rest - 1}.get(constraint.name)
        if all((numbers <= 0).all() for numbers in terms.values()):
            low, high = (None if high is None else -high), (None if low is None else -low)
            terms = {cell: -numbers for cell, numbers in terms.items()}
        return terms, low, high

    def _clause(self, constraint: Expression) -> list[Row] | None:
        """Read `or` and `->` over parts that are about one cell each: at least one of them holds."""
        literals = _literals_of(constraint)
        if literals is None or len(literals) < 2:
            return None
        terms: Terms = {}
        for literal in literals:
            one = self._over_one(literal)
            if one is None:
                return None
            terms[one[0]] = np.maximum(terms.get(one[0], np.zeros_like(one[1])), one[1])
        return [self._row(terms, 1, None)]

    def _condition(self, constraint: Expression) -> list[Row] | None:
        """Read `condition -> sum`, the condition about one cell: a weight makes the sum idle without it."""
        if constraint.name == "==" and all(_is_truth(side) for side in constraint.args):
            left, right = constraint.args
            there, back = self._condition(left.implies(right)), self._condition((~left).implies(~right))
            return None if there is None or back is None else [*there, *back]
        if constraint.name != "->":
            return None
        one, bounded = self._over_one(constraint.args[0]), self._bounded(constraint.args[1])
        if one is None or bounded is None:
            return None
        (switch, holds), (terms, low, high) = one, bounded
        idle = 1 - holds
        reach = [
            sum(int(pick(numbers[self._domains[cell]])) for cell, numbers in terms.items())
            for pick in (np.min, np.max)
        ]
        rows = []
        if low is not None and reach[0] < low:
            rows.append(self._row(_plus(terms, switch, idle * (low - reach[0])), low, None))
        if high is not None and reach[1] > high:
            rows.append(self._row(_plus(terms, switch, idle * (high - reach[1])), None, high))
        return rows

    def _small(self, most_cells: int, most: int) -> Callable[[Expression], list[Row] | None]:
        """Make the form that lists all assignments, for so many cells and assignments at most."""

        def form(constraint: Expression) -> list[Row] | None:
            cells = self._scope(constraint)
            if len(cells) > most_cells or prod(len(self._domains[cell]) for cell in cells) > most:
                return None
            boxes = self._forbidden(constraint, cells)
            if len(boxes) > MOST_ROWS:
                return None
            return [self._outside(cells, sides) for sides in boxes]

        return form

    def _outside(self, cells: Sequence[int], sides: Sequence[tuple[int, ...]]) -> Row:
        """Return the row that forbids a box; a side that is the whole domain says nothing."""
        box = {
            cell: self._domains[cell][list(side)]
            for cell, side in zip(cells, sides, strict=True)
            if len(side) < len(self._domains[cell])
        }
        return self._none_of(box or {cells[0]: self._domains[cells[0]]})

    def _forbidden(self, constraint: Expression, cells: Sequence[int]) -> list[tuple[tuple[int, ...], ...]]:
        """Return boxes that cover what a constraint forbids; those alike but for cells are listed once."""
        names = {self._variables[cell].name: f"#{place}" for place, cell in enumerate(cells)}
        key = (_shape_of(constraint, names), tuple(self._domains[cell].tobytes() for cell in cells))
        if key not in self._listed:
            self._listed[key] = _boxes(self._evaluate(constraint, cells) == 0)
        return self._listed[key]

    # rows

    def _row(self, terms: Terms, low: int | None, high: int | None) -> Row:
        sites, weights = [], []
        for cell, numbers in terms.items():
            named = self._domains[cell][numbers[self._domains[cell]] != 0]
            sites += (cell * len(self._values) + named).tolist()
            weights += numbers[named].tolist()
        if not sites:  # nothing varies: a site of weight 0 keeps the row's bounds
            sites, weights = [next(iter(terms)) * len(self._values)], [0]
        entries = np.array(sites, np.int64), np.array(weights, np.int64)
        least, most = int(np.minimum(entries[1], 0).sum()), int(np.maximum(entries[1], 0).sum())
        return Row(
            sites=entries[0],
            weights=entries[1],
            low=least if low is None else max(low, least - 1),
            high=most if high is None else min(high, most + 1),
        )

    def _count(self, chosen: dict[int, Any], low: int, high: int) -> Row:
        sites = np.concatenate([cell * len(self._values) + np.asarray(v) for cell, v in chosen.items()])
        return Row(sites=sites.astype(np.int64), weights=np.ones(len(sites), np.int64), low=low, high=high)

    def _none_of(self, box: dict[int, Any]) -> Row:
        """Return the row that forbids all cells of a box to choose in it at once."""
        return self._count(box, 0, len(box) - 1)


def _plus(terms: Terms, cell: int, numbers: NDArray[np.int64]) -> Terms:
    return {**terms, cell: terms.get(cell, 0) + numbers}


def _boxes(forbidden: NDArray[np.bool_]) -> list[tuple[tuple[int, ...], ...]]:
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


def _parts_of(expression: Expression) -> list[tuple[int, Any]] | None:
    """Return (weight, part) pairs that an expression is the sum of; None if it is no sum."""
    name, args = expression.name, expression.args
    if name == "sum":
        return [(1, arg) for arg in args]
    if name == "wsum":
        return list(zip((_whole_number(weight) for weight in args[0]), args[1], strict=True))
    if name == "sub":
        return [(1, args[0]), (-1, args[1])]
    if name == "-":
        return [(-1, args[0])]
    if name == "mul" and not isinstance(args[0], Expression):
        return [(_whole_number(args[0]), args[1])]
    if name == "count" and not isinstance(args[1], Expression):
        return [(1, part == args[1]) for part in args[0]]
    if name == "among":
        return [(1, part == value) for part in args[0] for value in args[1]]
    return None


def _literals_of(constraint: Expression) -> list[Any] | None:
    """Return the parts of which at least one holds; None for what is no clause."""
    if constraint.name == "or":
        return list(constraint.args)
    if constraint.name == "->":
        after = _literals_of(constraint.args[1]) if isinstance(constraint.args[1], Operator) else None
        return [~constraint.args[0], *(after or [constraint.args[1]])]
    if constraint.name == "not" and constraint.args[0].name == "and":
        return [~part for part in constraint.args[0].args]
    return None


def _is_truth(side: Any) -> bool:
    return isinstance(side, Expression) and side.is_bool()


def _whole_number(value: Any) -> int:
    if isinstance(value, Expression):
        value = value.value()
    if value is None or value != int(value):
        raise UserError(f"{value} is no whole number; rules are about whole numbers")
    return int(value)


def _shape_of(part: Any, names: dict[str, str]) -> object:
    """Return an expression as nested tuples, with its cells numbered by appearance."""
    if isinstance(part, NegBoolView):
        return "not", names[part._bv.name]
    if isinstance(part, _NumVarImpl):
        return names[part.name]
    if isinstance(part, Comparison | Operator | GlobalFunction):
        return part.name, *(_shape_of(arg, names) for arg in part.args)
    if isinstance(part, Expression):
        return object()  # others may hold more than their arguments: like nothing else
    if is_any_list(part):
        return tuple(_shape_of(arg, names) for arg in part)
    return part


def _described(constraint: Expression) -> str | None:
    description = constraint._description
    return None if description is None else str(description.text)


def _culprit(expression: Expression) -> Expression:
    """Return the part of an expression that is no sum: a global constraint or function, if there is one."""
    parts = [part for part in expression.args if isinstance(part, Expression)]
    if isinstance(expression, GlobalConstraint | GlobalFunction) and _parts_of(expression) is None:
        return expression
    found = [_culprit(part) for part in parts if not isinstance(part, _NumVarImpl)]
    return next((part for part in found if isinstance(part, GlobalConstraint | GlobalFunction)), expression)


def _refusal(constraint: Expression) -> str:
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
