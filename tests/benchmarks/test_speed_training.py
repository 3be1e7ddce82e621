"""The cost of a step: data, optimizer, averaging and log are a small part of it."""

from speed_training import step_cost

from eqr.recipes import recipe_named


def test_overhead_is_a_share_of_the_step():
    cost = step_cost(recipe_named("sudoku-4x4").changed({"rows": 6, "threads": 1}), steps=10, warmup=2)
    assert 0.0 < cost.outside < 1.0
    assert cost.model < cost.step
    assert cost.to_json()["rows"] == 6
