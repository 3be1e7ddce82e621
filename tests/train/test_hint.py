"""A run that solves nothing says so once, late, and where help is; a run that solves something does not."""

import pytest
from small_runs import small_recipe

from eqr.train.journal import Score
from eqr.train.run import Training, train


def test_a_run_that_solves_nothing_names_the_page(tmp_path, capsys):
    recipe = small_recipe(steps=4, evaluation={"every": 1, "depths": (1,), "puzzles": 4, "test_puzzles": 4})
    outcome = train(recipe, tmp_path / "run", quiet=True)
    assert outcome.summary.best["exact"] == 0.0
    said = [line for line in capsys.readouterr().err.splitlines() if "when-it-does-not-learn" in line]
    assert len(said) == 1
    assert said[0].startswith("exact accuracy is still 0 after 2 of 4 steps; docs/when-it-does-not-learn.md")


def test_one_solved_puzzle_is_enough(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Score, "best", property(lambda score: 0.25))
    recipe = small_recipe(steps=4, evaluation={"every": 1, "depths": (1,), "puzzles": 4, "test_puzzles": 4})
    train(recipe, tmp_path / "run", quiet=True)
    assert "when-it-does-not-learn" not in capsys.readouterr().err


@pytest.mark.parametrize(("step", "seconds", "late"), [(4, 10.0, False), (5, 0.0, True), (1, 60.0, True)])
def test_late_is_by_steps_or_by_time(step, seconds, late, tmp_path, monkeypatch):
    said = []
    run = Training.__new__(Training)
    run.recipe, run.seconds, run.best, run.hinted = (
        small_recipe(steps=10, time_limit=100.0),
        seconds,
        {},
        False,
    )
    monkeypatch.setattr(Training, "step", property(lambda run: step))
    monkeypatch.setattr(Training, "_say", lambda run, text: said.append(text))
    for _ in range(2):
        run._hint(Score(puzzles=4, exact={1: 0.0}))
    assert len(said) == late
