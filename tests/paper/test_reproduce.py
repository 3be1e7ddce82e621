"""Runs are shared, kept and resumed: nothing is trained twice, a failure stops nothing else."""

import errno
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from eqr import behaviour
from eqr.cli import app
from eqr.cli.reproduce import GPU
from eqr.errors import UserError
from eqr.files import read_json, write_json
from eqr.paper import reproduce
from eqr.paper import store as stores
from eqr.paper.executor import JobOutcome, LocalExecutor, run_job
from eqr.paper.experiment import Column, Curve, Experiment, Row, Setting, Shape, Solve
from eqr.paper.plan import make_plan
from eqr.paper.reproduce import restore
from eqr.paper.store import Store
from eqr.paper.table import Table

MEASURED = Solve(puzzles=8, depth=2, breadth=2)
TINY = Setting(
    recipe="sudoku-4x4",
    changes={
        "steps": 4,
        "rows": 4,
        "data.train": 24,
        "data.validation": 4,
        "data.test": 8,
        "evaluation.every": 2,
        "evaluation.puzzles": 4,
        "evaluation.test_puzzles": 4,
        "evaluation.depths": (1, 2),
    },
)
SMALL = Experiment(
    item="T3",
    title="small",
    question="?",
    lab=TINY,
    regime="tests",
    rows=(Row(name="baseline", variants=("trm",)), Row(name="+ RI", variants=("ri",))),
    columns=(
        Column(name="Sudoku", measurement=MEASURED),
        Column(name="Maze", metric="validation at 100%", measurement=Curve()),
        Column(name="Blocks", metric="blocks", measurement=Shape(), percent=False),
    ),
    seeds=2,
    minutes=1,
)


class Here:
    """An executor without processes."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def run(self, jobs, store, watcher, *, until):
        for job in jobs:
            self.ran.append(job.label)
            watcher([job], 0)
            try:
                run_job(job, store)
            except UserError as error:
                yield JobOutcome(job, failed=str(error))
            else:
                yield JobOutcome(job, stopped=time.monotonic() > until)


def go(place: Path, experiment: Experiment = SMALL, executor: Here | None = None, **more):
    executor = executor or Here()
    report = reproduce.reproduce(
        [experiment], executor, store=Store(place / "store"), out=place / "results", quiet=True, **more
    )
    return report, executor


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("done")
    go(place)
    return place


@pytest.fixture
def copied(done, tmp_path) -> Path:
    shutil.copytree(done, tmp_path / "copy")
    return tmp_path / "copy"


def test_equal_recipes_are_one_run_and_measurements_are_gathered():
    plan = make_plan([SMALL, SMALL.replace(item="T4")], "lab")
    trained = [job for job in plan.jobs if job.trains]
    assert len(trained) == 4  # two rows, two seeds, whatever asks
    assert all(len(job.measurements) >= 2 for job in trained)
    assert [job.recipe.seed for job in trained] == [0, 0, 1, 1]  # every row before the second seed


def test_a_column_has_as_many_seeds_as_it_says():
    cheap = TINY.plus({"rows": 2})
    columns = (
        Column(name="dear", measurement=MEASURED),
        Column(name="cheap", measurement=MEASURED, lab=cheap, seeds=4),
    )
    wide = SMALL.replace(columns=columns)
    seeds = [(place.cell.column.name, place.seed) for place in make_plan([wide], "lab").places]
    assert sorted(set(seeds)) == [*(("cheap", seed) for seed in range(4)), ("dear", 0), ("dear", 1)]
    asked = make_plan([wide], "lab", seeds=1).places
    assert {place.seed for place in asked} == {0}
    table = Table(wide)
    for cell in wide.cells():
        for seed in range(2):
            table.put(cell, seed, 0.5)
    assert table.state == "partly"


def test_a_table_has_no_more_seeds_of_a_column_than_it_says(copied):
    """Another item may have trained more of the same runs; rows of one column are compared seed by seed."""
    columns = (SMALL.columns[0], SMALL.columns[1].replace(seeds=1))
    narrow = SMALL.replace(item="T4", columns=columns)
    _, executor = go(copied, narrow)
    assert executor.ran == []
    shown = Table.read(narrow, copied / "results" / "T4").values
    assert {name: set(seeds) for name, seeds in shown.items()} == {
        "T4 | baseline | Maze": {0},
        "T4 | + RI | Maze": {0},
    }
    assert make_plan([narrow], "paper").places == []


def test_again_trains_nothing_and_says_the_same(copied):
    before = {path.name: path.read_bytes() for path in (copied / "results" / "T3").iterdir()}
    report, executor = go(copied)
    assert executor.ran == []
    assert report.failed == {}
    after = {path.name: path.read_bytes() for path in (copied / "results" / "T3").iterdir()}
    assert after == before
    assert {"table.md", "table.csv", "table.json", "values.csv", "figure.svg", "figure.png"} <= set(after)


def test_a_run_that_is_deleted_is_the_only_one_that_is_trained_again(copied):
    values = (copied / "results" / "T3" / "values.csv").read_text()
    job = make_plan([SMALL], "lab").jobs[1]
    shutil.rmtree(copied / "store" / job.key)
    _, executor = go(copied)
    assert executor.ran == [job.label]
    assert (copied / "results" / "T3" / "values.csv").read_text() == values


def test_asking_for_fewer_seeds_loses_none(copied):
    values = (copied / "results" / "T3" / "values.csv").read_text()
    _, executor = go(copied, seeds=1)
    assert executor.ran == []
    assert (copied / "results" / "T3" / "values.csv").read_text() == values


def test_numbers_of_a_results_folder_are_put_back_into_an_empty_store(copied, tmp_path):
    results, plan = copied / "results", make_plan([SMALL], "lab")
    before = {name: (results / "T3" / name).read_bytes() for name in ("values.csv", "table.md", "table.csv")}
    made = {job.key: Store(copied / "store")[job.key].made() for job in plan.jobs}
    shutil.rmtree(copied / "store")
    store = Store(copied / "store")
    assert restore(plan, store, results) == len(plan.jobs)
    assert restore(plan, store, results) == 0
    _, executor = go(copied)
    assert executor.ran == []
    assert {name: (results / "T3" / name).read_bytes() for name in before} == before
    for job in plan.jobs:
        again = store[job.key].made()
        assert again["training"] == made[job.key]["training"]
        assert again["core_seconds"] == made[job.key]["core_seconds"]
        assert again["restored"]
        assert not store[job.key].trained()


def test_values_by_puzzle_are_kept_where_claims_compare_them_and_stay_when_numbers_are_put_back(tmp_path):
    measured = Solve(puzzles=8, depth=2, by_puzzle=True)
    columns = (Column(name="D=16", measurement=measured), Column(name="D=4", measurement=measured, at=(1, 1)))
    study = SMALL.replace(
        item="E1", rows=(Row(name="TRM", variants=("trm",)),), columns=columns, first_seed=100
    )
    go(tmp_path, study)
    before = Table.read(study, tmp_path / "results" / "E1")
    assert set(before.puzzles) == {"E1 | TRM | D=16"}  # no claim compares D=4
    for seed, values in before.puzzle_values()["E1 | TRM | D=16"].items():
        assert values.mean() == pytest.approx(before.values["E1 | TRM | D=16"][seed])
    shutil.rmtree(tmp_path / "store")
    restore(make_plan([study], "lab"), Store(tmp_path / "store"), tmp_path / "results")
    go(tmp_path, study, seeds=3)
    after = Table.read(study, tmp_path / "results" / "E1").puzzles["E1 | TRM | D=16"]
    assert {seed: after[seed] for seed in (0, 1)} == before.puzzles["E1 | TRM | D=16"]
    assert set(after) == {0, 1, 2}


def test_a_run_put_back_is_trained_anew_for_another_measurement(copied):
    plan, store = make_plan([SMALL], "lab"), Store(copied / "store")
    before = store[plan.jobs[1].key].output(MEASURED)
    shutil.rmtree(copied / "store")
    restore(plan, store, copied / "results")
    job = plan.jobs[1]
    shutil.rmtree(copied / "store" / job.key / "looks")  # as a kill leaves it
    run_job(job.replace(measurements=(MEASURED.replace(depth=1),)), store)
    assert store[job.key].trained()
    assert "restored" not in store[job.key].made()
    assert store[job.key].output(MEASURED) is None  # of a training whose weights are gone
    run_job(job, store)
    after = store[job.key].output(MEASURED)
    assert before is not None
    assert after is not None
    assert after.numbers == before.numbers


def test_a_row_that_has_changed_since_is_not_put_back(copied):
    changed = SMALL.replace(rows=(SMALL.rows[0], SMALL.rows[1].replace(changes={"rows": 5})))
    shutil.rmtree(copied / "store")
    plan, store = make_plan([changed], "lab"), Store(copied / "store")
    assert restore(plan, store, copied / "results") == 2
    assert [job.label.split(",")[0] for job in plan.missing(store)] == ["T3 + RI", "T3 + RI"]


def test_a_run_cut_short_goes_on_to_the_same_weights(done, tmp_path, monkeypatch):
    from eqr.train import run

    job = next(job for job in make_plan([SMALL], "lab").jobs if job.trains)
    saved = run.Training.save_checkpoint

    def killed(training):
        saved(training)
        raise KeyboardInterrupt  # as good as kill -9: nothing after it runs

    cut = job.replace(recipe=job.recipe.replace(saving=job.recipe.saving.replace(checkpoint_every=2)))
    monkeypatch.setattr(run.Training, "save_checkpoint", killed)
    with pytest.raises(KeyboardInterrupt):
        run_job(cut, Store(tmp_path))
    monkeypatch.undo()
    run_job(cut, Store(tmp_path))
    for name in ("best", "last"):
        there, here = (folder / job.key / "run" / name for folder in (done / "store", tmp_path))
        assert (there / "model.safetensors").read_bytes() == (here / "model.safetensors").read_bytes()
    found, again = (Store(folder)[job.key].output(MEASURED) for folder in (done / "store", tmp_path))
    assert found is not None
    assert again is not None
    assert found.numbers == again.numbers


def test_a_failed_row_is_told_and_stops_nothing(tmp_path):
    broken = Row(name="broken", changes={"optimizer.rate": 1e30, "optimizer.weight_decay": 0.0})
    report, _ = go(tmp_path, SMALL.replace(rows=(broken, SMALL.rows[0]), seeds=1))
    assert len(report.failed) == 1
    assert "not finite" in next(iter(report.failed.values()))
    page = (tmp_path / "results" / "T3" / "table.md").read_text()
    assert "failed: the loss is not finite" in page
    assert "baseline" in page


def test_a_full_disk_is_told_in_words_and_loses_nothing(copied, monkeypatch):
    def full(path: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    job, store = make_plan([SMALL], "lab").jobs[0], Store(copied / "store")
    wanted = job.measurements[0]
    found = store[job.key].output(wanted)
    (copied / "store" / job.key / "looks" / f"{wanted.digest()}.json").unlink()
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(UserError, match="No space left on device"):
        run_job(job, store)
    monkeypatch.undo()
    run_job(job, store)
    again = store[job.key].output(wanted)
    assert found is not None
    assert again is not None
    assert again.numbers == found.numbers


def test_runs_of_another_behaviour_are_asked_about(copied, monkeypatch):
    plan, store = make_plan([SMALL], "lab"), Store(copied / "store")
    assert reproduce.other_versions(plan, store) is None
    for name in ("TRAINING", "ANSWERS"):
        with monkeypatch.context() as patch:
            patch.setattr(stores, name, 2)
            assert f"{len(plan.jobs)} of the {len(plan.jobs)} runs" in (
                reproduce.other_versions(plan, store) or ""
            )


def test_runs_from_before_versions_were_counted_still_stand(copied, monkeypatch):
    plan, store = make_plan([SMALL], "lab"), Store(copied / "store")
    for path in (copied / "store").glob("*/made.json"):
        made = {name: value for name, value in read_json(path).items() if name != "training"}
        write_json(path, {**made, "code": "0.1.0+f3fd9164"})
    for path in (copied / "store").glob("*/looks/*.json"):
        found = {name: value for name, value in read_json(path).items() if name != "answers"}
        write_json(path, {**found, "code": "0.1.0+f3fd9164"})
    monkeypatch.setattr(behaviour, "__version__", "9.9")
    assert reproduce.other_versions(plan, store) is None
    _, executor = go(copied)
    assert executor.ran == []


def test_smoke_and_real_results_do_not_mix(copied):
    with pytest.raises(UserError, match="holds real results"):
        go(copied, smoke=True)


def test_a_killed_worker_fails_its_job_and_another_takes_the_rest(tmp_path, monkeypatch):
    store = Store(tmp_path)
    jobs_ = make_plan([SMALL.replace(columns=SMALL.columns[2:])], "lab").jobs
    assert len(jobs_) == 2

    class Killer:
        hit = False

        def __call__(self, running, waiting):
            if running and not self.hit:
                self.hit = True
                os.kill(begun[0].pid, signal.SIGKILL)

    begun: list[subprocess.Popen[str]] = []
    popen = subprocess.Popen

    def noted(*args, **more):
        begun.append(popen(*args, **more))
        return begun[-1]

    monkeypatch.setattr(subprocess, "Popen", noted)
    outcomes = list(LocalExecutor(1).run(jobs_, store, Killer(), until=float("inf")))
    assert [outcome.failed is not None for outcome in outcomes] == [True, False]
    assert "signal 9" in str(outcomes[0].failed)
    assert store[outcomes[1].job.key].output(Shape()) is not None


def test_time_that_is_over_starts_nothing(tmp_path):
    jobs_ = make_plan([SMALL], "lab").jobs

    class Silent:
        def __call__(self, running, waiting):
            assert not running

    outcomes = list(LocalExecutor(1).run(jobs_, Store(tmp_path), Silent(), until=time.monotonic() - 1))
    assert all(outcome.stopped for outcome in outcomes)
    assert len(outcomes) == len(jobs_)


def said(*words: str) -> str:
    done = CliRunner().invoke(app, ["reproduce", *words])
    return str(done.exception) if isinstance(done.exception, UserError) else done.output


def test_the_command_speaks_clearly(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "did you mean 'T3'" in said("T33")
    assert "--seeds 0" in said("T3", "--seeds", "0")
    assert "name an item" in said()
    assert "lab (small models" in said("T3", "--scale", "huge")
    rows = json.loads(said("--list", "--json"))
    assert len(rows) == 33 + 16 + 23 + 7
    assert rows[0]["state"] == "not run"
    assert rows[-1]["verdict"] == "to be run (tokens)"
    assert "has no claims.json" in said("--verify")
    planned = json.loads(said("T19", "--dry-run", "--json"))
    assert {row["state"] for row in planned} == {"to measure"}


def test_the_papers_scale_costs_its_operations_at_an_assumed_rate(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = said("T16", "--scale", "paper", "--dry-run")
    assert "60 TFLOP/s, which is an assumption" in text
    found = json.loads(said("T16", "--scale", "paper", "--dry-run", "--json"))
    assert found["flop_per_second"] == GPU
    hours = [run["flop"] / found["flop_per_second"] / 3600 for run in found["runs"]]
    assert found["gpu_hours"] == pytest.approx(sum(hours))
