"""CPMpy's models as puzzles, and a solver for them that never says more than it knows."""

import numpy as np
import pytest

import eqr
from eqr.errors import UserError
from eqr.model.config import CandidateSites
from eqr.model.reasoner import Reasoner
from eqr.model.structured import Rules
from eqr.model.systems import eqr as eqr_system
from eqr.solve import Budget
from eqr.tasks import task_named
from eqr.tasks.registry import TASKS
from eqr.tasks.rows import RowKind

cp = pytest.importorskip("cpmpy", reason="CPMpy is not installed: pip install 'eqr[puzzles]'")


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    """What a test declares is forgotten after it."""
    monkeypatch.setattr(TASKS, "_known", dict(TASKS._known))


@pytest.fixture
def untrained():
    """A model that knows every kind of rule and nothing else."""
    sizes = {"width": 8, "blocks": 1, "cycles": 1, "scratch": 1, "round_hidden_to": 8}
    mixer = Rules(knows=tuple(kind for kind in RowKind if kind is not RowKind.BARRED))
    config = eqr_system(task_named("sudoku-4x4"), mixer=mixer, sites=CandidateSites(live=True), **sizes)
    return Reasoner(config)


def latin(n=3):
    x = cp.intvar(1, n, shape=(n, n), name="x")
    return x, cp.Model([cp.AllDifferent(line) for line in (*x, *x.T)])


def solver_for(model, untrained, **budget):
    from eqr.cpmpy_solver import CPM_eqr

    return CPM_eqr(model, untrained, budget=Budget(depth=2, until_verified=True, **budget))


def test_a_model_is_a_puzzle_laid_out_by_its_names():
    _, model = latin()
    task = eqr.from_cpmpy(model, "latin-model")
    assert task.shape == (3, 3)
    assert task_named("latin-model") is task
    y = cp.intvar(0, 3, shape=2)
    best = cp.Model([y[0] < y[1]], maximize=y[0])
    with pytest.raises(UserError, match="objective"):
        eqr.from_cpmpy(best)
    with pytest.raises(UserError, match="no variables"):
        eqr.from_cpmpy(cp.Model())


def test_what_is_found_keeps_the_rules(untrained):
    from eqr.cpmpy_solver import ExitStatus

    x, model = latin(2)
    model += x[0, 0] == 2
    solver = solver_for(model, untrained, breadth=32)
    if solver.solve():
        assert solver.status().exitstatus is ExitStatus.FEASIBLE
        assert all(rule.value() for rule in model.constraints)
    else:
        assert solver.status().exitstatus is ExitStatus.UNKNOWN
        assert x[0, 0].value() is None


def test_a_clue_decides_everything(untrained):
    x = cp.intvar(1, 2, shape=2, name="x")
    model = cp.Model([x[0] == 1, x[1] == 2, x[0] < x[1]])
    solver = solver_for(model, untrained)
    assert solver.solve()
    assert x.value().tolist() == [1, 2]


def test_nothing_found_is_unknown_and_never_unsatisfiable(untrained):
    from eqr.cpmpy_solver import ExitStatus

    x = cp.intvar(1, 3, shape=3, name="x")
    odd = [x[0] < x[1], x[1] < x[2], x[2] < x[0]]  # no answer, and no single rule shows it
    solver = solver_for(cp.Model(odd), untrained, breadth=4)
    assert not solver.solve(time_limit=5)
    assert solver.status().exitstatus is ExitStatus.UNKNOWN
    assert not solver.solve(time_limit=0.0)
    assert np.array([v.value() is None for v in x]).all()


def test_what_cannot_be_told_is_refused(untrained):
    z = cp.intvar(0, 19, shape=20, name="z")
    with pytest.raises(UserError, match="Circuit"):
        solver_for(cp.Model([cp.Circuit(z)]), untrained).solve()
    with pytest.raises(UserError, match="needs a trained model"):
        solver_for(cp.Model(), None)
    with pytest.raises(UserError, match="not best ones"):
        solver_for(cp.Model([z[0] < 3], minimize=z[0]), untrained)
