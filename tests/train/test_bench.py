"""The cost of a step: data, optimizer, averaging and log are a small part of it."""

from small_runs import small_recipe

from eqr.train.bench import step_cost


def test_overhead_is_a_share_of_the_step():
    cost = step_cost(small_recipe(), steps=10, warmup=2)
    assert 0.0 < cost.outside < 1.0
    assert cost.model < cost.step
    assert cost.to_json()["rows"] == 6
