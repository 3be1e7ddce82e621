"""Segmented training's rows: halting, refilling and keys equal a slow reference, one row at a time."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from small_runs import small_recipe

from eqr.model.state import Reading
from eqr.runs import RunFolder
from eqr.train.schedule import LearnedHalt, NoHalting, OracleHalt, QHalt, UnusedHalt
from eqr.train.sources import load_data, open_stream
from eqr.train.step import position_keys
from eqr.train.trainer import Trainer


class OneRow:
    """A slot that does everything for itself."""

    def __init__(self):
        self.halted = True

    def refill(self, batch, model, seed):
        self.puzzle, self.labels = torch.from_numpy(batch.inputs), torch.from_numpy(batch.labels).long()
        self.key = position_keys(seed, torch.from_numpy(batch.positions))
        self.state = model.initial_state(model.embed_tokens(self.puzzle), self.key)
        self.depth, self.halted = 0, False

    def advance(self, model, rule, limit):
        before = self.state
        self.state = model.segment(
            before, model.embed_tokens(self.puzzle), self.key, torch.tensor([self.depth])
        )
        self.depth += 1
        reading = model.read(self.state, before)
        right = bool((reading.tokens == self.labels).all())
        match rule:
            case LearnedHalt():
                wish = reading.halt.item() > 0
            case QHalt():
                wish = reading.halt.item() > reading.continue_score.item()
            case OracleHalt():
                wish = right
            case _:
                wish = False
        least = rule.least(self.key, torch.tensor([self.depth]), limit).item()
        self.halted = (self.depth >= limit or wish) and self.depth >= least


@pytest.mark.parametrize("rule", [LearnedHalt(exploration=0.5), QHalt(), UnusedHalt()], ids=lambda r: r.kind)
def test_rows_equal_a_one_row_reference(tmp_path, rule):
    recipe = small_recipe(halting=rule)
    splits = load_data(recipe.data, RunFolder(tmp_path), quiet=True)
    trainer, stream = Trainer(recipe, open_stream(recipe, splits)), open_stream(recipe, splits)
    with torch.no_grad():  # halt scores that differ from row to row
        trainer.model.halt_head.weight.normal_(generator=torch.Generator().manual_seed(3))
        trainer.model.halt_head.bias.zero_()
    slots = [OneRow() for _ in range(recipe.rows)]
    ended = []
    for _ in range(25):
        with torch.no_grad():
            for slot in slots:
                if slot.halted:
                    slot.refill(stream.take(1), trainer.model, recipe.seed)
                slot.advance(trainer.model, rule, recipe.schedule.depth)
        trainer.step()
        rows = trainer.rows
        torch.testing.assert_close(rows.inputs, torch.cat([slot.puzzle for slot in slots]))
        assert rows.rows.keys.tolist() == [slot.key.item() for slot in slots]
        assert rows.rows.depths.tolist() == [slot.depth for slot in slots]
        assert rows.halted.tolist() == [slot.halted for slot in slots]
        answers = torch.cat([slot.state.answer for slot in slots], dim=1)
        torch.testing.assert_close(rows.rows.state.answer, answers, rtol=1e-3, atol=1e-3)
        ended += [slot.depth for slot in slots if slot.halted]
    if rule.kind != "learned-unused":
        assert len(set(ended)) > 1, "rows should have ended at several depths"


def test_halting_rules_say_when():
    right = torch.tensor([True, False, True])
    reading = Reading(
        torch.zeros(3, 1, 2), torch.tensor([1.0, 1.0, -1.0]), torch.tensor([2.0, 0.0, -2.0]), torch.zeros(3)
    )
    keys, depths = torch.arange(3), torch.full((3,), 2)
    expected = {
        NoHalting(): [False, False, False],
        UnusedHalt(): [False, False, False],
        OracleHalt(): [True, False, True],
        LearnedHalt(exploration=0.0): [True, True, False],
        QHalt(exploration=0.0): [False, True, True],
    }
    for rule, halted in expected.items():
        assert rule.halted(reading, right, keys, depths, 16).tolist() == halted, rule.kind
        assert rule.halted(reading, right, keys, torch.full((3,), 16), 16).all(), rule.kind
        assert rule.halted(reading, right, keys, torch.full((3,), 17), 16).all(), (
            "deeper than the limit now is"
        )


@pytest.mark.parametrize("limit", [16, 9])  # an odd and an even number of depths
def test_exploration_draws_a_least_depth_from_two_to_the_limit(limit):
    rule, rows = LearnedHalt(exploration=0.1), 40_000
    keys = torch.arange(rows)
    least = rule.least(keys, torch.ones(rows, dtype=torch.int64), limit)
    drawn = least[least > 0]
    assert 0.09 < len(drawn) / rows < 0.11
    counts = np.bincount(drawn.numpy(), minlength=limit + 1)[2:]
    assert counts.min() > 0.7 * counts.mean()
    assert len(counts) == limit - 1
    again = rule.least(keys, torch.full((rows,), 2), limit)
    assert (least != again).any(), "drawn anew at every segment"


def test_where_one_segment_is_all_nobody_explores():
    least = LearnedHalt(exploration=1.0).least(torch.arange(4), torch.ones(4, dtype=torch.int64), 1)
    assert least.tolist() == [0, 0, 0, 0]


def test_rows_that_stay_run_to_the_limit_and_are_drawn_once():
    rule, rows = LearnedHalt(exploration=0.0, staying=0.2), 40_000
    keys = torch.arange(rows)
    least = rule.least(keys, torch.ones(rows, dtype=torch.int64), 16)
    assert set(least.tolist()) == {0, 16}
    assert 0.19 < (least == 16).double().mean() < 0.21
    assert torch.equal(least, rule.least(keys, torch.full((rows,), 9), 16)), "the same at every segment"


def test_a_trained_row_depends_on_its_position_alone(tmp_path):
    """The same stream position starts from the same numbers whatever the batch and the slot."""
    recipe = small_recipe()
    splits = load_data(recipe.data, RunFolder(tmp_path), quiet=True)
    found = {}
    for rows in (2, 6):
        trainer = Trainer(recipe.replace(rows=rows), open_stream(recipe, splits))
        trainer._refill()
        found[rows] = SimpleNamespace(
            key=trainer.rows.rows.keys[1].item(), start=trainer.rows.rows.state.answer[:, 1]
        )
    assert found[2].key == found[6].key
    assert torch.equal(found[2].start, found[6].start)
