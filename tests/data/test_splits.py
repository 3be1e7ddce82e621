"""Laws of splits: they share no puzzle, samples say what they took, generation ends and is reproducible."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqr.data import PuzzleSet, Splits, load_split
from eqr.data.generated import generate
from eqr.data.splits import carve, components, duplicates, leaks, sample
from eqr.errors import UserError
from eqr.tasks import task_named
from eqr.tasks.base import Instance
from toy_task import Toy, ToyGenerate


def test_generated_splits_share_no_puzzle_up_to_symmetry():
    task = task_named("sudoku-4x4")
    splits = generate(task, {"train": 300, "validation": 40, "test": 40}, seed=1)
    assert [len(puzzles) for _, puzzles in splits] == [300, 40, 40]
    for held_out in ("validation", "test"):
        assert len(leaks(splits["train"], splits[held_out], task)) == 0
        assert not len(duplicates(splits[held_out]))


def test_a_turned_puzzle_is_a_leak():
    task = task_named("maze-7x7")
    seen = generate(task, {"train": 30}, seed=1)["train"]
    turned = task.draw_symmetries(np.random.default_rng(0), 30).apply(seen.inputs)
    fresh = generate(task, {"train": 30, "test": 10}, seed=1)["test"].inputs
    disguised = PuzzleSet.of(task.name, np.concatenate([turned, fresh]), np.zeros((40, 49)))
    known = generate(task, {"train": 30, "test": 10}, seed=1)["train"]
    np.testing.assert_array_equal(leaks(seen, disguised.take(range(30)), task), np.arange(30))
    assert not len(leaks(known, disguised.take(range(30, 40)), task))


def test_generation_ends_and_says_how_many_there_are():
    with pytest.raises(UserError, match="found only 27 distinct puzzles of the 28"):
        generate(Toy(), {"train": 28}, seed=0)


def test_generation_is_the_same_for_any_number_of_workers():
    task = task_named("maze-7x7")
    alone, shared = (generate(task, {"train": 40, "test": 8}, seed=5, workers=w) for w in (0, 2))
    assert [p.digest for _, p in alone] == [p.digest for _, p in shared]
    assert alone["train"].digest != generate(task, {"train": 40, "test": 8}, seed=6)["train"].digest


def test_one_stream_is_the_published_maze_set():
    task = task_named("maze-unique")
    splits = generate(task, {"train": 1000, "test": 1000}, seed=42, one_stream=True)
    assert splits["train"].ratings.mean() == pytest.approx(120.094)
    assert splits["test"].ratings.mean() == pytest.approx(119.415)
    assert set((splits["train"].inputs != 1).sum(axis=1).tolist()) == {391}


def test_generated_identities_agree_between_splits():
    splits = generate(task_named("mini-arc"), {"train": 60, "test": 20}, seed=0)
    assert splits["train"].identity_names == splits["test"].identity_names
    assert splits["train"].identities.min() >= 1
    assert "identity" not in splits["train"].facts


def test_options_reach_the_generator():
    puzzles = generate(Toy(), {"train": 9}, seed=0, options=ToyGenerate(first=3))["train"]
    assert set(puzzles.inputs[:, 0].tolist()) == {3}
    assert puzzles.metadata["options"] == {"first": 3}


def test_sample_saves_its_indices_and_repeats():
    puzzles = generate(Toy(), {"train": 20}, seed=0)["train"]
    drawn = sample(puzzles, 7, seed=1)
    assert drawn.digest == sample(puzzles, 7, seed=1).digest != sample(puzzles, 7, seed=2).digest
    indices = drawn.metadata["sample"]["indices"]
    assert len(set(indices)) == 7
    assert puzzles.take(indices).digest == drawn.digest
    with pytest.raises(UserError, match="cannot sample 21 of 20"):
        sample(puzzles, 21, seed=0)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 12), st.integers(2, 6))
def test_carving_shares_neither_puzzle_nor_group(seed, count, groups):
    task = Toy()
    whole = generate(task, {"train": 24}, seed=seed)["train"]
    whole = PuzzleSet.of("toy", whole.inputs, whole.labels, groups=np.arange(24) // groups)
    try:
        rest, part = carve(whole, task, count, seed)
    except UserError:
        families = components(
            whole.groups, np.unique(task.canonical(whole.inputs), axis=0, return_inverse=True)[1]
        )
        smallest = np.unique(families, return_counts=True)[1].min()
        assert smallest > count or len(set(families.tolist())) == 1
        return
    assert len(part) <= count
    assert len(rest) + len(part) == 24
    assert len(leaks(rest, part, task)) == 0
    assert not set(rest.groups.tolist()) & set(part.groups.tolist())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=20))
def test_components_equal_brute_force(pairs):
    left, right = np.array(pairs).T
    label = components(left, right)
    reach = (left[:, None] == left) | (right[:, None] == right)
    for _ in pairs:
        reach = reach @ reach
    np.testing.assert_array_equal(label[:, None] == label, reach)


def test_a_dataset_folder_keeps_its_splits(tmp_path):
    splits = generate(Toy(), {"train": 10, "test": 4}, seed=0)
    splits.save(tmp_path / "toy")
    loaded = Splits.load(tmp_path / "toy")
    assert [(n, p.digest) for n, p in loaded] == [(n, p.digest) for n, p in splits]
    assert load_split(tmp_path / "toy", "test").digest == splits["test"].digest
    with pytest.raises(UserError, match="no 'tests' split; did you mean 'test'"):
        load_split(tmp_path / "toy", "tests")


def test_a_split_swapped_for_another_is_noticed(tmp_path):
    generate(Toy(), {"train": 10, "test": 4}, seed=0).save(tmp_path / "toy")
    generate(Toy(), {"train": 4}, seed=9)["train"].save(tmp_path / "toy" / "test", overwrite=True)
    with pytest.raises(UserError, match="is not the set"):
        load_split(tmp_path / "toy", "test")


def test_a_generator_whose_answers_break_the_rules_is_refused():
    class Careless(Toy):
        def generate(self, rng, options=None):
            for instance in super().generate(rng, options):
                yield Instance(puzzle=instance.puzzle, answer=instance.puzzle)

    with pytest.raises(UserError, match=r"toy\.check rejects, the first because cell differs"):
        generate(Careless(), {"train": 5}, seed=0, quiet=True)
