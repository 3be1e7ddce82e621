"""Models as people write them for CPMpy become tasks, or are refused with the name of what cannot be said."""

import time

import numpy as np
import pytest

import eqr
from eqr.errors import UserError
from eqr.tasks.registry import TASKS

cp = pytest.importorskip("cpmpy", reason="CPMpy is not installed: pip install 'eqr[puzzles]'")


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    """What a test declares is forgotten after it."""
    monkeypatch.setattr(TASKS, "_known", dict(TASKS._known))


def sudoku():
    """Variables without names, givens as constraints."""
    given = np.zeros((9, 9), int)
    given[0, 0], given[4, 4] = 5, 7
    x = cp.intvar(1, 9, shape=(9, 9))
    model = cp.Model([cp.AllDifferent(line) for line in x], [cp.AllDifferent(line) for line in x.T])
    for r in range(0, 9, 3):
        for c in range(0, 9, 3):
            model += cp.AllDifferent(x[r : r + 3, c : c + 3])
    model += x[given > 0] == given[given > 0]
    return model, x


def killer():
    x = cp.intvar(1, 4, shape=(4, 4), name="x")
    cages = [x[:2, 0], x[0, 1:3], x[1, 1:], x[2:, :2].flatten()]
    model = cp.Model([cp.AllDifferent(line) for line in (*x, *x.T)])
    model += [cp.sum(cage) == total for cage, total in zip(cages, (5, 5, 8, 10), strict=True)]
    return model, x


def queens():
    q = cp.intvar(1, 8, shape=8, name="q")
    ways = [q, [q[n] + n for n in range(8)], [q[n] - n for n in range(8)]]
    return cp.Model([cp.AllDifferent(way) for way in ways]), q


def queens_by_pairs():
    q = cp.intvar(1, 6, shape=6, name="q")
    return cp.Model([(q[a] != q[b]) & (abs(q[a] - q[b]) != b - a) for b in range(6) for a in range(b)]), q


def money():
    s, e, n, d, m, o, r, y = letters = cp.intvar(0, 9, shape=8, name="letter")
    send, more = 1000 * s + 100 * e + 10 * n + d, 1000 * m + 100 * o + 10 * r + e
    total = 10000 * m + 1000 * o + 100 * n + 10 * e + y
    return cp.Model(cp.AllDifferent(letters), send + more == total, s > 0, m > 0), letters


def nonogram():
    """A run of ones in each line, as an automaton small enough to list."""
    run = [("a", 0, "a"), ("a", 1, "b"), ("b", 1, "b"), ("b", 0, "c"), ("c", 0, "c")]
    x = cp.intvar(0, 1, shape=(6, 6), name="x")
    return cp.Model([cp.Regular(list(line), run, "a", ["b", "c"]) for line in (*x, *x.T)]), x


def clauses():
    v = cp.boolvar(shape=20, name="v")
    rng = np.random.default_rng(0)
    signs = rng.random((60, 3)) < 0.5
    picks = [rng.choice(20, 3, replace=False) for _ in range(60)]
    said = [
        [v[at] if sign else ~v[at] for at, sign in zip(*both, strict=True)]
        for both in zip(picks, signs, strict=True)
    ]
    return cp.Model([cp.any(clause) for clause in said]), v


def domains_that_differ():
    x = [cp.intvar(n, n + 3, name=f"x[{n}]") for n in range(5)]
    return cp.Model(cp.AllDifferent(x), cp.sum(x) <= 20), x


MODELS = (sudoku, killer, queens, queens_by_pairs, money, nonogram, clauses, domains_that_differ)


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_a_model_becomes_a_task_whose_answers_the_model_accepts(make):
    model, cells = make()
    task = eqr.from_cpmpy(model, make.__name__, cells=cells)
    flat = list(np.array(cells, object).ravel())
    source = task.generate(np.random.default_rng(0))
    for _ in range(3):
        one = next(source)
        assert task.count_answers(one.puzzle[None])[0] == 1
        for variable, token in zip(flat, one.answer.tolist(), strict=True):
            variable._value = task.values[token - 2]
        assert all(_holds(constraint) for constraint in model.constraints)


def _holds(constraint):
    if isinstance(constraint, list | tuple | np.ndarray):
        return all(_holds(part) for part in constraint)
    return bool(constraint.value())


def test_cells_lie_as_they_are_given_or_named():
    model, cells = sudoku()
    assert eqr.from_cpmpy(model, "named").shape == (1, 81)
    assert eqr.from_cpmpy(model, "given", cells=cells).board.box == (3, 3)
    assert eqr.from_cpmpy(killer()[0], "table").shape == (4, 4)
    with pytest.raises(UserError, match="which is no cell"):
        eqr.from_cpmpy(model, "fewer", cells=cells[:8])


def _circuit():
    return cp.Model(cp.Circuit(cp.intvar(0, 29, shape=30, name="next")))


def _element():
    x, at = cp.intvar(0, 9, shape=10, name="x"), cp.intvar(0, 9, name="at")
    return cp.Model(cp.AllDifferent(x), x[at] == 3)


def _objective():
    x = cp.intvar(0, 9, shape=3, name="x")
    return cp.Model(cp.sum(x) == 9, minimize=x[0])


def _long_nonogram():
    run = [("a", 0, "a"), ("a", 1, "b"), ("b", 1, "b"), ("b", 0, "c"), ("c", 0, "c")]
    x = cp.intvar(0, 1, shape=(20, 20), name="x")
    return cp.Model([cp.Regular(list(line), run, "a", ["b", "c"]) for line in x])


def _too_large():
    x = cp.intvar(1, 100, shape=(100, 100), name="x")
    return cp.Model([cp.AllDifferent(line) for line in x])


REFUSED = {
    "Circuit: connectivity": _circuit,
    "Element: it is no sum": _element,
    "remove the objective": _objective,
    "Regular: the states": _long_nonogram,
    "at most 250 values and 200,000 candidates": _too_large,
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_said_is_refused_by_name_and_soon(words):
    start = time.process_time()
    with pytest.raises(UserError, match=words):
        eqr.from_cpmpy(REFUSED[words](), "refused")
    assert time.process_time() - start < 20


def test_pigeons_in_too_few_holes_are_one_error():
    x = cp.intvar(1, 8, shape=9, name="x")
    task = eqr.from_cpmpy(cp.Model([x[a] != x[b] for b in range(9) for a in range(b)]), "pigeons")
    with pytest.raises(UserError, match="contradict each other"):
        next(task.generate(np.random.default_rng(0)))
