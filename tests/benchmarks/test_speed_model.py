"""The benchmark times the same work for both implementations and counts its operations exactly."""

from dataclasses import replace

import pytest
import speed_model as bench_model
import torch
from speed_model import HEADER, Size, line, measure
from torch.utils.flop_counter import FlopCounterMode

from eqr.model.config import ReasonerConfig
from eqr.model.operator import STILL
from eqr.model.systems import EQR_PATH

TINY = Size(
    name="tiny",
    config=ReasonerConfig(rows=2, columns=3, vocabulary=5, width=16, round_hidden_to=8, path=EQR_PATH),
    rows=4,
    forward=0.5,
)


def test_every_line_holds_together(monkeypatch):
    monkeypatch.setattr(bench_model, "LIMIT_SIZE", 64)
    shares = list(measure((TINY,), rounds=2))
    assert [share.work for share in shares] == ["forward", "forward, still", "training"]
    for share in shares:
        assert share.limit_gflops > 0
        assert share.share > 0
        assert share.ratio == pytest.approx(share.share / share.plain_share)
        assert share.holds == (share.share >= (share.wanted or 0) and share.ratio >= 1)
        assert len(line(share)) >= len(HEADER)
        assert share.to_json()["ratio"] == share.ratio


@pytest.mark.parametrize("size", [size.name for size in bench_model.SIZES[3:]] + [TINY.name])
def test_both_compute_the_same(size):
    sizes = {size.name: size for size in (*bench_model.SIZES, TINY)}
    bench = bench_model._Bench(replace(sizes[size], rows=2))
    with torch.no_grad():
        after = bench.model.segment(bench.state, bench.x, bench.keys, bench.depths, perturbation=STILL)
        ours = bench.model.read(after, bench.state)
        logits, halts = bench.plain.read(
            bench.plain.segment(bench.plain_state, bench.plain_x, perturbation=STILL)
        )
    assert torch.allclose(ours.logits, logits, rtol=2e-3, atol=2e-3)
    assert torch.allclose(ours.halt, halts[:, 0], atol=2e-3)


def test_operations_are_those_that_run():
    bench = bench_model._Bench(TINY)
    with FlopCounterMode(display=False) as counter:
        bench.plain_forward(STILL)
    assert counter.get_total_flops() == bench.operations(training=False)
    with FlopCounterMode(display=False) as counter:
        bench.plain_training()
    # the state before the gradient window needs no gradient, so a little less than 2 x forward is run
    assert counter.get_total_flops() == pytest.approx(bench.operations(training=True), rel=0.06)


def test_both_implementations_give_the_same_gradients():
    still = Size(name="still", config=TINY.config.replace(path=STILL), rows=3)
    bench = bench_model._Bench(still)
    for ours, plain in zip(bench.training(), bench.plain_training(), strict=True):
        assert torch.allclose(ours, plain, rtol=1e-2, atol=1e-2)
