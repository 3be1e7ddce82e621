"""`eqr train` as people type it."""

import json

import pytest
from typer.testing import CliRunner

from eqr.cli import app
from eqr.cli.options import seconds
from eqr.errors import UserError

TINY = [
    *("train", "sudoku-4x4", "--steps", "6", "--set", "rows=4", "--set", "model.width=16"),
    *("--set", "data.train=20", "--set", "data.validation=8", "--set", "data.test=8"),
    *("--set", "evaluation.depths=[1,2]", "--set", "threads=1", "--set", "saving.log_every=2"),
]


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def test_a_run_says_what_it_does_and_ends_in_a_model(tmp_path):
    result = run(*TINY, "--out", tmp_path / "run")
    assert result.exit_code == 0
    assert "training: 6 steps of 4 rows" in result.stdout
    assert len(result.stdout.splitlines()) < 10
    assert "exact accuracy by depth 1:" in result.stdout
    assert (tmp_path / "run" / "best" / "model.safetensors").is_file()
    recipe = (tmp_path / "run" / "recipe.json").read_text()
    assert json.loads(recipe)["rows"] == 4
    whole = run(*TINY, "--out", tmp_path / "run", "--resume", "--verbose")
    assert whole.stdout.startswith(recipe)


def test_resuming_without_a_recipe_needs_a_run(tmp_path):
    with pytest.raises(UserError, match="nowhere holds no run to go on with"):
        run("train", "--resume", "--out", tmp_path / "nowhere")


def test_json_is_the_summary_alone_and_resume_needs_no_recipe(tmp_path):
    first = run(*TINY, "--out", tmp_path / "run", "--json")
    summary = json.loads(first.stdout)
    assert summary["steps"] == 6
    again = run("train", "--resume", "--out", tmp_path / "run", "--json")
    assert json.loads(again.stdout) == summary


def test_show_prints_the_resolved_recipe_and_trains_nothing(tmp_path):
    result = run(*TINY, "--time-limit", "3m", "--show", "--out", tmp_path / "run")
    assert json.loads(result.stdout)["time_limit"] == 180.0
    assert not (tmp_path / "run").exists()


def test_list_names_every_recipe():
    from eqr.recipes import RECIPES

    printed = run("train", "--list").stdout
    assert all(name in printed for name in RECIPES)


def test_a_recipe_is_needed():
    with pytest.raises(UserError, match="--list"):
        run("train")


@pytest.mark.parametrize(("text", "value"), [("90", 90), ("90s", 90), ("3m", 180), ("1.5h", 5400)])
def test_durations(text, value):
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "soon", "-3m", "0", "3 d"])
def test_wrong_durations_are_named(text):
    with pytest.raises(UserError, match="time-limit"):
        seconds(text)


def test_nothing_is_said_of_a_run_that_will_not_be(tmp_path, capsys):
    (tmp_path / "run" / "best").mkdir(parents=True)
    (tmp_path / "run" / "recipe.json").write_text("{}")
    with pytest.raises(UserError, match="already exists"):
        run(*TINY, "--out", tmp_path / "run")
    with pytest.raises(UserError, match="already exists"):
        app([*TINY, "--out", str(tmp_path / "run")], standalone_mode=False)
    assert capsys.readouterr().out == ""
