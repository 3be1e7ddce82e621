"""A sweep is every combination of its settings, each trained once, gathered with intervals over seeds."""

import json

import pytest
from test_reproduce import TINY, Here
from typer.testing import CliRunner

from eqr.cli import app
from eqr.errors import UserError
from eqr.paper.executor import Tally, counted
from eqr.paper.store import Store
from eqr.paper.sweep import MEASURED, Axis, gathered, make_sweep, run_sweep, table_text, values
from eqr.paper.verdicts import over_seeds
from eqr.recipes import recipe_named

RECIPE = recipe_named("sudoku-4x4").changed({**TINY.changes, "steps": 2, "evaluation.every": 1})


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("seed=0..3", ("0", "1", "2", "3")),
        ("seed=-1..1,7", ("-1", "0", "1", "7")),
        ("optimizer.rate=1e-3, 2e-3", ("1e-3", "2e-3")),
        ("evaluation.depths=[1,2],[1,4]", ("[1,2]", "[1,4]")),
        ('data.path="a,b"', ('"a,b"',)),
        ("seed=3,3", ("3",)),
    ],
)
def test_an_axis_is_read_as_typed(text, values):
    assert Axis.parse(text).values == values


@pytest.mark.parametrize("text", ["seed", "=1", "seed=", "seed=9..0", "seed=0..100000000"])
def test_a_mistyped_axis_is_named(text):
    with pytest.raises(UserError, match="--set"):
        Axis.parse(text)


def test_a_sweep_has_every_combination_and_all_rows_of_a_seed_first():
    sweep = make_sweep(RECIPE, ["optimizer.rate=1e-3,2e-3", "seed=0..2"])
    assert [(point.row, point.seed) for point in sweep.points] == [
        ((rate,), seed) for seed in range(3) for rate in ("1e-3", "2e-3")
    ]
    assert {point.job.recipe.optimizer.rate for point in sweep.points} == {1e-3, 2e-3}
    assert len({point.job.key for point in sweep.points}) == 6
    assert {(point.job.recipe.threads, point.job.recipe.device) for point in sweep.points} == {(1, "cpu")}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["seed=0", "seed=1"], "twice"),
        (["optimizer.speed=1,2"], "speed"),
        (["seed=0..999", "rows=1..999"], "more than"),
    ],
)
def test_what_cannot_be_swept_is_said_before_anything_runs(settings, said):
    with pytest.raises(UserError, match=said):
        make_sweep(RECIPE, settings)


def test_a_sweep_is_trained_once_and_gathered_with_intervals(tmp_path):
    sweep, store, first = make_sweep(RECIPE, ["seed=0..1"]), Store(tmp_path / "store"), Here()
    run_sweep(sweep, first, store=store, out=tmp_path / "out", quiet=True)
    assert len(first.ran) == 2
    grown, second = make_sweep(RECIPE, ["seed=0..2"]), Here()
    tally = run_sweep(grown, second, store=store, out=tmp_path / "out", quiet=True)
    assert (tally.done, second.ran) == (3, [grown.points[2].job.label])
    rows, metric = gathered(grown, store), "validation exact@2"
    found = [store[point.job.key].output(MEASURED).numbers[metric] for point in grown.points]
    shown = [(row["seed"], row["value"]) for row in values(grown, store) if row["metric"] == metric]
    assert shown == list(enumerate(found))
    (row,) = (row for row in rows if row["metric"] == metric)
    expected = over_seeds(metric, found)
    assert row == {name: getattr(expected, name) for name in ("metric", "value", "low", "high", "n")}
    assert row["n"] == 3
    assert "test exact@2 (%)" in table_text(grown, rows)
    kept = json.loads((tmp_path / "out" / "sweep.json").read_text())
    assert list(kept["runs"].values()) == [point.job.key for point in grown.points]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--on", "slurm"], "ray://HOST:PORT"),
        (["--on", "ray", "--workers", "2"], "--workers is for this machine"),
        (["--workers", "0"], "at least 1"),
    ],
)
def test_options_that_do_not_go_together_are_said(options, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["sweep", "sudoku-4x4", *options])
    assert isinstance(done.exception, UserError)
    assert said in str(done.exception)


def test_ray_that_is_not_installed_is_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    done = CliRunner().invoke(app, ["sweep", "sudoku-4x4", "--on", "ray"])
    assert "pip install 'eqr[cluster] @ git+" in str(done.exception)


def test_a_line_says_what_runs_where(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("eqr.progress.LOG_SECONDS", -1.0)
    store, (point,) = Store(tmp_path), make_sweep(RECIPE, ["seed=0"]).points

    class Elsewhere:
        def run(self, jobs, store, watcher, *, until):
            with store[jobs[0].key].placed("node-3, process 7"):
                watcher(jobs, 2)
            return iter(())

    assert list(counted([point.job], Elsewhere(), store, Tally())) == []
    said = capsys.readouterr().err
    assert said == "runs: 0 of 1 runs, 0.0/s  sudoku-4x4, seed 0 on node-3, process 7; 2 waiting\n"
