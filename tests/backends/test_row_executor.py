"""Cutting a batch into pieces changes where rows are computed, never what is computed."""

import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from eqr.backends import Cpu
from eqr.backends.cpu.row_executor import RowExecutor, least_rows, one_thread, rows_per_cut, shared_executor
from eqr.model.config import ReasonerConfig
from eqr.model.reasoner import Reasoner
from fixtures import keys_of, puzzles_of, small


@given(rows=st.integers(0, 200), workers=st.integers(1, 5), most=st.none() | st.integers(1, 50))
@settings(max_examples=60, deadline=None)
def test_pieces_cover_every_row_once_in_order(rows, workers, most):
    cuts = RowExecutor(workers, most).cuts(rows)
    assert [row for cut in cuts for row in range(rows)[cut]] == list(range(rows))
    sizes = [cut.stop - cut.start for cut in cuts]
    assert all(1 <= size <= (most or rows) for size in sizes)
    assert not sizes or max(sizes) - min(sizes) <= 1
    assert len(cuts) >= min(workers, rows)


def test_results_keep_the_order_of_rows():
    executor = RowExecutor(3, 2)
    assert [
        value for piece in executor.map(lambda rows: list(range(11))[rows], 11) for value in piece
    ] == list(range(11))
    assert executor.map(lambda rows: rows, 0) == []


def test_threads_compute_single_threaded_and_the_caller_is_one_of_them():
    before, met = torch.get_num_threads(), threading.Barrier(2)

    def work(rows: slice) -> tuple[int, int]:
        met.wait(timeout=30)  # two pieces at a time, so neither thread can do all of them
        return torch.get_num_threads(), threading.get_ident()

    seen = RowExecutor(2, 1).map(work, 4)
    assert {count for count, _ in seen} == {1}
    threads = {thread for _, thread in seen}
    assert len(threads) == 2
    assert threading.get_ident() in threads
    assert torch.get_num_threads() == before


def test_few_rows_of_a_small_model_stay_on_the_calling_thread():
    executor = RowExecutor(2, 8, least_rows=3)
    assert [cut.stop - cut.start for cut in executor.cuts(5)] == [5]
    assert [cut.stop - cut.start for cut in executor.cuts(6)] == [3, 3]
    assert len(executor.cuts(17)) == 4
    (seen,) = executor.map(lambda rows: (torch.get_num_threads(), threading.get_ident()), 5)
    assert seen == (1, threading.get_ident())


def test_a_small_model_needs_more_rows_for_a_thread_than_a_large_one():
    assert least_rows(small("eqr")) > 100
    assert least_rows(ReasonerConfig(rows=9, columns=9, vocabulary=11, width=512)) == 1


def test_one_worker_runs_in_the_caller():
    assert RowExecutor(1, 2).map(lambda rows: threading.get_ident(), 4) == [threading.get_ident()] * 2


def modes(rows: slice) -> tuple[object, ...]:
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None,
    )


@pytest.mark.parametrize(
    "context",
    [
        torch.enable_grad,
        torch.no_grad,
        torch.inference_mode,
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    ],
)
def test_the_callers_modes_hold_in_the_workers(context):
    with context():
        assert set(RowExecutor(2, 1).map(modes, 4)) == {modes(slice(0))}


def test_exceptions_reach_the_caller_and_the_executor_survives():
    executor = RowExecutor(2, 1)

    def fail(rows: slice) -> int:
        if rows.start == 1:
            raise ValueError("row 1")
        return rows.start

    with pytest.raises(ValueError, match="row 1"):
        executor.map(fail, 3)
    assert executor.map(lambda rows: rows.start, 3) == [0, 1, 2]


@pytest.mark.parametrize("system", ["eqr", "urm"])
def test_a_cut_segment_equals_the_whole(system):
    model = Reasoner(small(system))
    x = model.embed_tokens(puzzles_of(model.config, 7)).detach()
    keys, depths = keys_of(7)
    state = model.initial_state(x, keys)
    with torch.no_grad():
        whole = Cpu(RowExecutor(1)).segment(model, state, x, keys, depths)
        reading = model.read(whole, state)
    # pieces of another size go through other kernels, whose roundings dozens of applications add up
    with torch.no_grad():
        cut = Cpu(RowExecutor(2, 2)).segment(model, state, x, keys, depths)
        cut_reading = model.read(cut, state)
    for one, other in zip(whole.tensors(), cut.tensors(), strict=True):
        assert torch.allclose(one, other, atol=3e-4)
    assert torch.allclose(reading.logits, cut_reading.logits, atol=3e-4)
    assert torch.allclose(reading.residual, cut_reading.residual, atol=3e-4)


def test_gradients_by_piece_sum_to_the_whole_and_do_not_vary():
    model = Reasoner(small("eqr"))
    x = model.embed_tokens(puzzles_of(model.config, 6)).detach()
    keys, depths = keys_of(6)
    state = model.initial_state(x, keys)
    weights, by = list(model.stack.parameters()), Cpu(RowExecutor(1))

    def gradients(rows: slice) -> tuple[torch.Tensor, ...]:
        after = by.segment(model, state.chunk(rows), x[:, rows], keys[rows], depths[rows], tracked=7)
        return torch.autograd.grad(after.answer[0].sum(), weights)

    def total(executor: RowExecutor) -> list[torch.Tensor]:
        return [torch.stack(parts).sum(0) for parts in zip(*executor.map(gradients, 6), strict=True)]

    whole, cut, again = total(RowExecutor(1)), total(RowExecutor(2, 2)), total(RowExecutor(2, 2))
    for one, other, repeated in zip(whole, cut, again, strict=True):
        assert torch.allclose(one, other, rtol=1e-3, atol=1e-3)  # float32 sums of different order
        assert torch.equal(other, repeated)


def test_pieces_shrink_as_models_grow_and_accelerators_are_not_cut():
    sizes = [rows_per_cut(ReasonerConfig(rows=9, columns=9, vocabulary=11, width=w)) for w in (64, 128, 512)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] >= 1
    assert shared_executor(small("eqr"), torch.device("cuda")).cuts(1000) == [slice(0, 1000)]
    assert shared_executor(small("eqr"), torch.device("cpu")).workers == torch.get_num_threads()


def threads_of_a_new_thread():
    seen = []

    def work():
        torch.ones(2).sum()
        seen.append(torch.get_num_threads())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return seen[0]


def test_one_thread_holds_here_and_not_for_threads_that_begin_meanwhile():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
            assert threads_of_a_new_thread() == 3
            with one_thread():
                assert torch.get_num_threads() == 1
            RowExecutor(2, 1).map(lambda rows: None, 4)
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 3
        assert RowExecutor(2, 1).map(lambda rows: torch.get_num_threads(), 4) == [1] * 4
        assert threads_of_a_new_thread() == 3, "the executor's threads keep to themselves too"
    finally:
        torch.set_num_threads(before)
