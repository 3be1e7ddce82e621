"""Training that begins with the weights of another model."""

import pytest
from small_runs import small_recipe

from eqr.errors import UserError
from eqr.model.reasoner import Reasoner
from eqr.train.optimizer import Rate
from eqr.train.run import train


def test_training_begins_with_the_weights_of_a_model(tmp_path):
    first = small_recipe(steps=10)
    train(first, tmp_path / "first", quiet=True)
    begun = first.replace(begin=str(tmp_path / "first"), steps=1, rate=Rate(warmup=1000))
    train(begun, tmp_path / "second", quiet=True)
    old, new, fresh = (
        Reasoner.from_pretrained(tmp_path / "first"),
        Reasoner.from_pretrained(tmp_path / "second"),
        Reasoner(first.model, seed=first.seed),
    )
    apart = [
        sum((a - b).norm().item() for a, b in zip(old.parameters(), other.parameters(), strict=True))
        for other in (new, fresh)
    ]
    assert apart[0] < 0.01 * apart[1], "a step at a thousandth of the rate hardly leaves them"


def test_a_model_to_begin_with_is_read_before_anything_is_replaced(tmp_path):
    run = tmp_path / "run"
    train(small_recipe(steps=10), run, quiet=True)
    wider = small_recipe(steps=1, model={"width": 32}, begin=str(run))
    with pytest.raises(UserError, match=r"begin = .*built otherwise"):
        train(wider, run, quiet=True, overwrite=True)
    assert (run / "best").is_dir()
    train(small_recipe(steps=10, begin=str(run)), run, quiet=True, overwrite=True)
