"""Laws of the streams: resuming equals never stopping, shards interleave, an epoch is each group once."""

import multiprocessing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqr.data import Batch, Batches, GeneratedStream, PuzzleSet, in_order
from eqr.data.batches import BLOCK
from eqr.data.generated import generate
from eqr.data.splits import keys
from eqr.errors import UserError
from eqr.tasks import task_named
from toy_task import Toy

TOY = Toy()
PUZZLES = generate(TOY, {"train": 23}, seed=0)["train"]
law = settings(max_examples=25, deadline=None)
counts = st.lists(st.integers(1, 300), min_size=1, max_size=6)


def same(one: Batch, other: Batch) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(vars(one).values(), vars(other).values(), strict=True))


def stream(**changes) -> Batches:
    return Batches(PUZZLES, TOY, **{"seed": 1, "augment": True, **changes})


@law
@given(counts)
def test_cutting_the_stream_differently_changes_nothing(cuts):
    pieces = stream()
    assert same(Batch.joined([pieces.take(cut) for cut in cuts]), stream().take(sum(cuts)))


@law
@given(st.integers(1, 700), st.integers(1, 300))
def test_resuming_equals_never_stopping(before, after):
    unbroken = stream()
    unbroken.take(before)
    state = unbroken.state()
    resumed = stream()
    resumed.restore(state)
    assert same(unbroken.take(after), resumed.take(after))


@law
@given(st.lists(st.integers(0, 300), min_size=1, max_size=4), st.booleans())
def test_what_others_take_is_skipped(counts, generated):
    def opened():
        return GeneratedStream(TOY, seed=4) if generated else stream()

    whole = opened().take(2 * sum(counts) or 1)
    for rank, count in enumerate(counts):
        one, before, after = opened(), sum(counts[:rank]), sum(counts[rank + 1 :])
        for turn in range(2 if count else 0):
            one.skip(before)
            first = turn * sum(counts) + before
            assert same(one.take(count), whole.rows(slice(first, first + count)))
            one.skip(after)


def test_blocks_that_are_skipped_are_not_drawn(monkeypatch):
    batches, drawn = stream(), []
    draw = batches._draw_block
    monkeypatch.setattr(batches, "_block", lambda block: (drawn.append(block), draw(block))[1])
    batches.skip(5 * BLOCK)
    batches.take(3)
    batches.skip(9 * BLOCK)
    batches.take(3)
    assert drawn == [5, 14]


def test_an_epoch_takes_a_random_member_of_each_group_once():
    grouped = PuzzleSet.of("toy", PUZZLES.inputs, PUZZLES.labels, groups=np.arange(23) % 5 * 7)
    batches = Batches(grouped, TOY, seed=0, augment=False)
    assert batches.rows_per_epoch == 5
    epochs = [tuple(grouped.groups[batches.take(5).indices].tolist()) for _ in range(40)]
    assert {tuple(sorted(epoch)) for epoch in epochs} == {(0, 7, 14, 21, 28)}
    assert len(set(epochs)) > 10
    assert len(set(Batches(grouped, TOY, seed=0, augment=False).take(400).indices.tolist())) == 23


def test_rows_are_the_puzzles_they_say_turned_by_a_symmetry():
    plain = stream(augment=False).take(400)
    np.testing.assert_array_equal(plain.inputs, PUZZLES.inputs[plain.indices])
    turned = stream().take(400)
    np.testing.assert_array_equal(turned.indices, plain.indices)
    assert (turned.inputs != plain.inputs).any(axis=1).mean() > 0.5
    assert TOY.check_many(turned.inputs, turned.labels).all()


def test_real_puzzles_stay_solved():
    task = task_named("sudoku-4x4")
    puzzles = generate(task, {"train": 50}, seed=0)["train"]
    batch = Batches(puzzles, task, seed=0, augment=True).take(200)
    assert batch.inputs.dtype == batch.labels.dtype == np.uint8
    assert task.check_many(batch.inputs, batch.labels).all()


def test_identities_are_never_turned_on_the_fly():
    task = task_named("mini-arc")
    puzzles = generate(task, {"train": 40}, seed=0)["train"]
    batch = Batches(puzzles, task, seed=0, augment=True).take(100)
    np.testing.assert_array_equal(batch.inputs, puzzles.inputs[batch.indices])
    np.testing.assert_array_equal(batch.identities, puzzles.identities[batch.indices])


def test_a_cursor_of_another_run_is_refused():
    state = stream().state()
    with pytest.raises(UserError, match="saved with seed 1, this run has 2"):
        stream(seed=2).restore(state)
    with pytest.raises(UserError, match="puzzles"):
        Batches(PUZZLES.take([0, 1]), TOY, seed=1, augment=True).restore(state)


@pytest.mark.parametrize("rows", [1, 5, 23, 100])
def test_in_order_gives_each_puzzle_once_without_padding(rows):
    batch = Batch.joined(list(in_order(PUZZLES, rows)))
    np.testing.assert_array_equal(batch.indices, np.arange(23))
    np.testing.assert_array_equal(batch.labels, PUZZLES.labels)


@law
@given(counts, st.integers(1, 60))
def test_a_generated_stream_resumes_at_the_exact_row(cuts, after):
    unbroken = GeneratedStream(TOY, seed=4)
    pieces = Batch.joined([unbroken.take(cut) for cut in cuts])
    assert same(pieces, GeneratedStream(TOY, seed=4).take(sum(cuts)))
    resumed = GeneratedStream(TOY, seed=4)
    resumed.restore(unbroken.state())
    assert same(unbroken.take(after), resumed.take(after))


def test_any_number_of_workers_gives_the_same_stream_and_leaves_none_behind():
    task = task_named("maze-7x7")
    alone = GeneratedStream(task, seed=2).take(150)
    with GeneratedStream(task, seed=2, workers=2) as shared:
        assert same(shared.take(150), alone)
        state = shared.state()
        following = shared.take(20)
        shared.restore(state)
        assert same(shared.take(20), following)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("workers", [-1, 10**6])
def test_a_number_of_workers_beyond_reason_is_refused(workers):
    with pytest.raises(UserError, match=f"workers = {workers}: choose 0 to"):
        GeneratedStream(TOY, seed=0, workers=workers)
    with pytest.raises(UserError, match=f"workers = {workers}: choose 0 to"):
        generate(TOY, {"train": 4}, seed=0, workers=workers)


def test_an_error_in_a_worker_reaches_the_reader():
    task = task_named("sudoku-9x9")
    with (
        GeneratedStream(task, task.options({"clues": 5}), seed=0, workers=1) as stream,
        pytest.raises(UserError, match="clues = 5"),
    ):
        stream.take(1)
    assert not multiprocessing.active_children()


def test_a_task_that_cannot_travel_is_refused_plainly():
    class Local(Toy):
        pass

    with pytest.raises(UserError, match="cannot be sent to worker processes"):
        GeneratedStream(Local(), seed=0, workers=1).take(1)


def test_endless_puzzles_are_never_those_held_out():
    task = task_named("sudoku-4x4")
    splits = generate(task, {"train": 60, "validation": 8, "test": 8}, seed=1, quiet=True)
    held_out = [splits["validation"], splits["test"]]
    known = {key for puzzles in held_out for key in keys(puzzles, task)}

    def met(stream) -> int:
        drawn = stream.take(400)
        return sum(key in known for key in keys(PuzzleSet.of(task.name, drawn.inputs, drawn.labels), task))

    free, kept = GeneratedStream(task, seed=3), GeneratedStream(task, seed=3, held_out=held_out)
    assert met(free) > 0
    assert met(kept) == 0
    with pytest.raises(UserError, match="held_out"):
        kept.restore(free.state())


def test_a_task_whose_puzzles_are_all_held_out_says_so():
    class Few(type(TOY)):
        def generate(self, rng, options=None):
            instance = next(TOY.generate(np.random.default_rng(0), options))
            while True:
                yield instance

    few = Few()
    one = next(few.generate(np.random.default_rng(0)))
    only = PuzzleSet.of(few.name, one.puzzle[None], one.answer[None])
    with pytest.raises(UserError, match=r"is one of the validation or test puzzles.*data\.endless=false"):
        GeneratedStream(few, seed=0, held_out=[only]).take(1)


def test_answers_are_given_away():
    plain, told = stream(augment=False).take(400), stream(augment=False, reveal=3).take(400)
    assert (told.labels == plain.labels).all()
    assert (told.indices == plain.indices).all()
    changed = told.inputs != plain.inputs
    assert (told.inputs[changed] == told.labels[changed]).all()
    hidden = ((plain.inputs != plain.labels) & (plain.labels != 0)).sum(axis=1)
    assert (changed.sum(axis=1) <= np.minimum(hidden, 3)).all()
    assert set(changed.sum(axis=1).tolist()) == {0, 1, 2, 3}
    assert same(told, Batch.joined([(cut := stream(augment=False, reveal=3)).take(150), cut.take(250)]))
