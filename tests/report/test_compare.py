"""Runs side by side: the same puzzles, equal budgets, differences paired over puzzles."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from eqr.cli import app
from eqr.data import Splits
from eqr.diagnostics.traces import run_traces
from eqr.errors import UserError
from eqr.model import systems
from eqr.model.reasoner import Reasoner
from eqr.report import ReportPlan
from eqr.report.compare import as_text, compare
from eqr.result import pivot, select
from eqr.results.metrics import average
from eqr.solve.budget import Budget
from eqr.tasks import task_named
from settling import Settling, puzzles_4x4

PUZZLES = puzzles_4x4(12)
TASK = task_named("sudoku-4x4")
PLAN = ReportPlan(puzzles=12, starts=2, depth=4)


@pytest.fixture
def place(tmp_path) -> Path:
    """Two models of a kind, one feedforward model, and puzzles."""
    small = {"width": 8, "round_hidden_to": 8, "blocks": 1}
    for seed, name in enumerate(("one", "two")):
        Reasoner(systems.eqr(TASK, cycles=1, scratch=1, **small), seed=seed).save_pretrained(tmp_path / name)
    forward = systems.feedforward(TASK, width=8, round_hidden_to=8, blocks=3)
    Reasoner(forward).save_pretrained(tmp_path / "forward")
    Splits({"test": PUZZLES}).save(tmp_path / "data")
    return tmp_path


@pytest.fixture
def known(monkeypatch):
    """Model folders `one` and `two` open as reasoners that find the answer less and more often."""
    models = {"one": Settling(PUZZLES, wrong=0.4, stuck=0.1), "two": Settling(PUZZLES, wrong=0.1, stuck=0.1)}
    monkeypatch.setattr("eqr.report.source.load", lambda run, device: models[Path(run).name])
    return models


def test_differences_are_paired_over_puzzles(place, known):
    found = compare([place / "one", place / "two"], PLAN, data=place / "data", quiet=True)
    rows = pivot(found.rows, "item", "depth", "breadth")
    assert sorted(rows) == [(run, d, b) for run in ("one", "two") for d in (1, 2, 4) for b in (1, 2)]
    right = [
        run_traces(known[name], PUZZLES, Budget(depth=4, breadth=2), quiet=True).right[:, :, -1]
        for name in ("one", "two")
    ]
    apart = right[1].mean(axis=1) - right[0].mean(axis=1)
    row = rows["two", 4, 1]
    assert row["exact"].value == pytest.approx(right[1].mean())
    difference, better, worse = (row[name] for name in ("difference", "better", "worse"))
    assert difference.value == pytest.approx(apart.mean())
    assert (better.value, worse.value) == ((apart > 0).sum(), (apart < 0).sum())
    assert (difference.low, difference.high) == pytest.approx((average(apart).low, average(apart).high))
    assert difference.value > 0, "this model is wrong less often"
    assert "difference" not in rows["one", 4, 1]
    assert row["nfe"].value == 4
    assert row["equivalent layers"].value == 4 * known["two"].config.layers_per_segment


def test_a_run_does_not_differ_from_itself(place):
    found = compare([place / "one", place / "one"], PLAN, data=place / "data", quiet=True)
    again = select(found.rows, metric=("difference", "better", "worse"))
    assert {(row.value, row.low or 0, row.high or 0) for row in again} == {(0, 0, 0)}
    assert len(set(found.names)) == 1 or found.names[0] != found.names[1]


def test_feedforward_models_are_compared_at_depth_one(place):
    found = compare(
        [place / "one", place / "forward"], PLAN.replace(depth=None), data=place / "data", quiet=True
    )
    theirs = select(found.rows, item="forward")
    assert {row.depth for row in theirs} == {1}
    assert select(theirs, metric="difference")
    assert not found.same_segments


def test_asking_again_only_scores(place, monkeypatch):
    runs = [place / "one", place / "two"]
    first = compare(runs, PLAN, data=place / "data", quiet=True)
    monkeypatch.setattr(
        "eqr.diagnostics.traces.fill", lambda table, *_, **__: table.missing() and pytest.fail("ran")
    )
    assert compare(runs, PLAN, data=place / "data", quiet=True).rows == first.rows


@pytest.mark.parametrize("verb", ["compare", "report"])
def test_on_the_command_line(place, verb):
    words = [verb, place / "one", place / "two", "--data", place / "data", "--puzzles", 12, "--depth", 2]
    done = CliRunner().invoke(
        app, [str(word) for word in [*words, "--starts", 2, "--json"]], catch_exceptions=False
    )
    said = json.loads(done.stdout)
    assert said["puzzles"] == 12
    assert [Path(run).name for run in said["runs"]] == ["one", "two"]
    assert len([row for row in said["rows"] if row["metric"] == "exact"]) == 2 * 2 * 2
    page = Path(said["page"])
    assert page == place / "one" / "comparison-with-two.html"
    assert "At equal budgets" in page.read_text(encoding="utf-8")
    names = {Path(path).name for path in said["files"]}
    assert names == {"comparison.svg", "comparison.png", "comparison.csv", "comparison.json"}
    assert all(Path(path).is_file() for path in said["files"])
    text = (
        CliRunner()
        .invoke(app, [str(word) for word in [*words, "--starts", 2]], catch_exceptions=False)
        .stdout
    )
    assert "differences to one in points" in text
    assert str(page) in text


def test_the_table_reads_in_a_terminal(place, known):
    found = compare([place / "one", place / "two"], PLAN, data=place / "data", quiet=True)
    lines = as_text(found).splitlines()
    assert len(lines) == 3 + len(pivot(found.rows, "item", "depth", "breadth"))
    assert max(map(len, lines)) <= 110
    assert "+" in lines[-1] or "-" in lines[-1]


def test_mistakes_are_named(place):
    with pytest.raises(UserError, match="at least two"):
        compare([place / "one"], PLAN, data=place / "data")
    words = ["compare", place / "one", place / "two", "--data", place / "data", "--out", place / "a.pdf"]
    with pytest.raises(UserError, match=r"\.html"):
        CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


def test_runs_with_other_puzzles_are_not_compared(place, monkeypatch):
    other = puzzles_4x4(12, seed=9)
    Splits({"test": other}).save(place / "other")
    folders = {"one": place / "data", "two": place / "other"}
    monkeypatch.setattr("eqr.report.source.run_data", lambda run: folders[run.name])
    with pytest.raises(UserError, match="different test puzzles"):
        compare([place / "one", place / "two"], PLAN, quiet=True)
