"""Exported graphs compute what the model computes, for any number of rows and along a whole trajectory."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from eqr.cli import app
from eqr.model.config import CandidateSites, ReasonerConfig
from eqr.model.definitions import row_key
from eqr.model.export import erfinv_by_newton, export_onnx, export_programs, graphs
from eqr.model.operator import Perturbation, SingleState, TwoLevel
from eqr.model.reasoner import Reasoner
from eqr.model.state import RandomStart
from eqr.model.structured import Groups
from eqr.solve import Budget, HaltHead, rollout

onnxruntime = pytest.importorskip("onnxruntime", reason="pip install -e '.[export]'")
pytest.importorskip("onnxscript", reason="pip install -e '.[export]'")

SMALL = ReasonerConfig(
    task="sudoku-4x4",
    rows=4,
    columns=4,
    vocabulary=6,
    width=16,
    blocks=1,
    round_hidden_to=8,
    recurrence=TwoLevel(cycles=2, scratch=1),
    path=Perturbation(damping=0.1, noise=0.02),
)


LIVE = SMALL.replace(mixer=Groups(hidden=16), sites=CandidateSites(live=True))


@pytest.fixture(scope="module", params=[SMALL, LIVE], ids=["tokens", "live candidates"])
def model(request) -> Reasoner:
    return Reasoner(request.param, seed=1).requires_grad_(False)


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    place = tmp_path_factory.mktemp("onnx")
    model.save_pretrained(place / "model")
    done = CliRunner().invoke(app, ["export", str(place / "model"), "--onnx", "--out", str(place / "graphs")])
    assert done.exit_code == 0, done.output
    return place / "graphs"


def unroll_graphs(folder, puzzles, keys, depth):
    """The loop that whoever runs the graphs has to write."""
    manifest = json.loads((folder / "model.json").read_text())
    sessions = {
        name: onnxruntime.InferenceSession(folder / graph["file"])
        for name, graph in manifest["graphs"].items()
    }
    x = sessions["embed"].run(None, {"puzzles": puzzles.astype(np.int64)})[0]
    state = sessions["start"].run(None, {"x": x, "keys": keys})
    readings = []
    for segment in range(depth):
        damping, noise, after = manifest["path"]["damping"], manifest["path"]["noise"], state
        for cycle in range(manifest["cycles"]):
            given = {
                **dict(zip(("answer", "scratch"), after, strict=True)),
                "x": x,
                "keys": keys,
                "depths": np.full(len(keys), segment, np.int64),
                "cycle": np.array(cycle, np.int64),
                "damping": np.array(damping, np.float32),
                "noise": np.array(noise, np.float32),
            }
            after = sessions["cycle"].run(None, given)
        names = ("answer", "scratch", "answer_before", "scratch_before")
        readings.append(sessions["read"].run(None, dict(zip(names, [*after, *state], strict=True))))
        state = after
    return readings


@pytest.mark.parametrize("rows", [1, 5])
def test_a_trajectory_of_the_graphs_is_the_models(model, folder, rows):
    puzzles = np.random.default_rng(rows).integers(1, 6, (rows, 16)).astype(np.uint8)
    keys = np.array([row_key(7, puzzle, 0) for puzzle in puzzles], np.int64)
    depth = 6
    readings = unroll_graphs(folder, puzzles, keys, depth)
    ours = rollout(model, puzzles, Budget(depth=depth, seed=7))
    np.testing.assert_array_equal(readings[-1][0].argmax(-1), ours.tokens)
    np.testing.assert_allclose([r[3] for r in readings], ours.residuals.T, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(readings[-1][1], ours.halt, rtol=1e-3, atol=1e-4)


def test_the_manifest_says_what_a_reader_needs(folder):
    manifest = json.loads((folder / "model.json").read_text())
    assert manifest["task"] == {
        "name": "sudoku-4x4",
        "summary": "4x4 Sudoku with boxes of 2x2, one solution each",
        "rows": 4,
        "columns": 4,
        "symbols": ".1234",
    }
    assert list(manifest["graphs"]) == ["embed", "start", "cycle", "read"]
    for graph in manifest["graphs"].values():
        assert (folder / graph["file"]).stat().st_size == graph["bytes"]


def test_models_of_one_state_and_of_families_trace_too():
    single = SMALL.replace(
        recurrence=SingleState(cycles=1, applications=2), path=Perturbation(), identities=3, identity_tokens=1
    )
    embed, start, cycle, read = graphs(Reasoner(single).requires_grad_(False))
    assert embed.inputs == ("puzzles", "identities")
    assert (start.outputs, read.inputs) == (("answer",), ("answer", "answer_before"))
    assert cycle.inputs == ("answer", "x", "keys", "depths", "cycle", "damping")  # no noise to choose
    x = embed.program().module()(*embed.example)
    torch.testing.assert_close(x, embed.module(*embed.example))


def test_programs_are_checked_and_written(model, tmp_path):
    counted = []
    manifest = export_programs(model, tmp_path, {}, done=lambda: counted.append(1))
    assert len(counted) == 4
    again = torch.export.load(tmp_path / manifest["graphs"]["start"]["file"]).module()
    start = graphs(model)[1]
    assert torch.equal(again(*start.example)[0], again(*start.example)[0])
    torch.testing.assert_close(again(*start.example), start.module(*start.example), atol=1e-5, rtol=1e-5)


def test_a_graph_that_disagrees_is_not_written(model, tmp_path, monkeypatch):
    monkeypatch.setattr("eqr.model.export.erfinv_by_newton", lambda y: y)
    with pytest.raises(Exception, match="another answer than the model"):
        export_onnx(model, tmp_path / "wrong", {})
    assert not (tmp_path / "wrong").exists()


def test_newtons_inverse_of_erf():
    y = torch.linspace(-0.9545, 0.9545, 10_001)  # erf of the truncation, +-2 / sqrt 2
    torch.testing.assert_close(erfinv_by_newton(y), torch.erfinv(y), atol=2e-6, rtol=2e-6)


def test_starts_of_scale_zero_export(tmp_path):
    still = SMALL.replace(start=RandomStart(answer=0.0, scratch=1.0))
    start = graphs(Reasoner(still).requires_grad_(False))[1]
    assert not start.program().module()(*start.example)[0].any()


def test_one_kind_has_to_be_named():
    done = CliRunner().invoke(app, ["export", "nothing", "--out", "nowhere"])
    assert "--onnx or --programs" in str(done.exception)


def test_halting_is_the_callers(model, folder):
    """The graphs give the halt score that the halting rules look at."""
    puzzles = np.full((1, 16), 1, np.uint8)
    keys = np.array([row_key(0, puzzles[0], 0)], np.int64)
    halted = rollout(model, puzzles, Budget(depth=4, halting=HaltHead(threshold=-100.0)))
    assert halted.depth.tolist() == [1]
    np.testing.assert_allclose(unroll_graphs(folder, puzzles, keys, 1)[0][1], halted.halt, atol=1e-4)
