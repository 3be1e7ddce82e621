"""Modes follow from basin statistics; the plane and the groups of a landscape are those of its states."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from eqr.diagnostics.landscape import (
    Landscape,
    Mode,
    ModeRules,
    answer_cycles,
    group,
    kept_segments,
    landscape,
    name_basins,
    project,
)
from eqr.errors import UserError
from eqr.model.config import ReasonerConfig
from eqr.model.operator import Perturbation
from eqr.model.reasoner import Reasoner
from eqr.model.state import RandomStart
from eqr.report.run import pick_landscapes
from eqr.solve.budget import Budget
from eqr.solve.rollout import rollout
from settling import Settling, puzzles_4x4

LABEL = np.array([1, 2, 3, 4], np.uint8)
CALM, RESTLESS = 0.01, 0.4


def basins(*kinds: str, rules: ModeRules | None = None):
    """Name starts of these kinds: right, spurious (wrong, settled) or wandering (wrong, restless)."""
    answers = np.stack([np.tile(LABEL if kind == "right" else LABEL[::-1], (3, 1)) for kind in kinds])
    levels = [RESTLESS if kind == "wandering" else CALM for kind in kinds]
    residuals = np.tile(np.array(levels, np.float32)[:, None], (1, 3))
    return name_basins(answers, residuals, LABEL, rules or ModeRules())


@pytest.mark.parametrize(
    ("kinds", "mode"),
    [
        (["spurious"] * 10, Mode.NO_CORRECT),
        (["wandering"] * 10, Mode.NO_CORRECT),
        (["right"] * 5 + ["spurious"] * 5, Mode.SPURIOUS),
        (["right"] * 7 + ["spurious"] * 2 + ["wandering"], Mode.SPURIOUS),
        (["right"] * 8 + ["spurious"] + ["wandering"], Mode.NARROW),  # one start is an accident
        (["right"] * 2 + ["wandering"] * 8, Mode.NARROW),
        (["right"] * 9 + ["spurious"], Mode.ALIGNED),
        (["right"] * 10, Mode.ALIGNED),
    ],
)
def test_the_mode_follows_from_who_ends_where(kinds, mode):
    found = basins(*kinds)
    assert found.mode is mode
    assert found.right == pytest.approx(kinds.count("right") / 10)
    assert found.spurious == pytest.approx(kinds.count("spurious") / 10)
    assert found.answers == len({kind == "right" for kind in kinds})
    assert (found.residual_right is None) == ("right" not in kinds)


def test_a_wrong_start_as_calm_as_the_right_ones_has_settled_whatever_the_noise():
    answers = np.stack([np.tile(LABEL, (3, 1))] * 2 + [np.tile(LABEL[::-1], (3, 1))] * 2)
    noisy = np.full((4, 3), 0.3, np.float32)
    assert name_basins(answers, noisy, LABEL).mode is Mode.SPURIOUS
    noisy[:2] = 0.01
    assert name_basins(answers, noisy, LABEL).mode is Mode.NARROW


def test_an_answer_that_still_changes_has_not_settled():
    answers = np.stack([np.tile(LABEL, (3, 1))] * 2 + [np.tile(LABEL[::-1], (3, 1))] * 2)
    answers[2:, 0, 0] = 1
    assert name_basins(answers, np.full((4, 3), CALM, np.float32), LABEL).mode is Mode.NARROW


def test_wrong_starts_that_go_round_in_circles_are_a_mode_of_their_own():
    still = np.tile(LABEL, (24, 1))
    around = np.stack([LABEL[::-1] if segment % 3 else np.roll(LABEL, 1) for segment in range(24)])
    answers = np.stack([still] * 5 + [around] * 3)
    found = name_basins(answers, np.full((8, 24), RESTLESS, np.float32), LABEL)
    assert found.mode is Mode.CYCLING
    assert (found.cycling, found.period) == (pytest.approx(3 / 8), 3.0)
    assert found.amplitude == pytest.approx((LABEL[::-1] != np.roll(LABEL, 1)).mean())
    assert Mode.CYCLING.letter == "e"
    only = name_basins(answers[[0, 1, 2, 5]], np.full((4, 24), RESTLESS, np.float32), LABEL)
    assert only.mode is Mode.NARROW


def answers(*sequence: int, segments: int = 24) -> np.ndarray:
    """One trajectory that repeats some answers of four cells, of which the first tells them apart."""
    grids = np.ones((segments, 4), np.uint8)
    grids[:, 0] = np.resize(sequence, segments)
    return grids


@pytest.mark.parametrize(
    ("sequence", "period"),
    [((1,), 0), ((1, 2), 2), ((1, 2, 2), 3), ((1, 1, 1, 1, 1, 1, 1, 2), 8), (tuple(range(9)), 0)],
)
def test_the_shortest_period_of_answers_is_found(sequence, period):
    periods, amplitudes = answer_cycles(answers(*sequence)[None])
    assert periods.tolist() == [period]
    assert amplitudes.tolist() == [0.25 if period else 0.0]


def test_a_cycle_must_have_been_walked_round_three_times():
    grids = answers(1, 2)
    grids[:-5, 0] = 7  # the last five segments alternate
    assert not answer_cycles(grids[None])[0].any()
    grids[:-6, 0] = 7
    grids[-6:, 0] = [1, 2, 1, 2, 1, 2]
    assert answer_cycles(grids[None])[0].tolist() == [2]
    assert not answer_cycles(grids[None, -5:])[0].any(), "too few segments to tell"


def test_thresholds_move_the_borders():
    kinds = ["right"] * 8 + ["spurious"] * 2
    assert basins(*kinds).mode is Mode.SPURIOUS
    assert basins(*kinds, rules=ModeRules(spurious=0.3)).mode is Mode.NARROW
    assert basins(*kinds, rules=ModeRules(aligned=0.8)).mode is Mode.ALIGNED
    assert basins(*kinds, rules=ModeRules(absent=0.8)).mode is Mode.NO_CORRECT


def test_cells_without_a_label_do_not_count():
    label = LABEL.copy()
    label[0] = 0
    answers = np.tile(LABEL, (2, 3, 1))
    answers[:, :, 0] = 4
    assert name_basins(answers, np.full((2, 3), CALM, np.float32), label).right == 1.0
    for wrong in (label[1] - 1, label[1] + 1):
        answers[0, :, 1] = wrong
        assert name_basins(answers, np.full((2, 3), CALM, np.float32), label).right == 0.5


@given(st.integers(1, 2000))
@settings(max_examples=60, deadline=None)
def test_kept_segments_begin_and_end_the_trajectory_and_are_few(depth):
    kept = kept_segments(depth)
    assert kept[0] == 0
    assert kept[-1] == depth
    assert list(kept) == sorted(set(kept))
    assert len(kept) <= 8 + 6 * np.log2(depth + 1)


def test_the_plane_is_that_of_the_largest_spread():
    generator = torch.Generator().manual_seed(0)
    flat = torch.randn(5, 7, 2, generator=generator) * torch.tensor([5.0, 2.0])
    turn, _ = torch.linalg.qr(torch.randn(30, 2, generator=generator))
    states = flat @ turn.t() + 0.01 * torch.randn(5, 7, 30, generator=generator)
    points, explained = project(states)
    assert points.shape == (5, 7, 2)
    assert sum(explained) == pytest.approx(1.0, abs=1e-3)
    assert explained[0] > explained[1]
    torch.testing.assert_close(
        torch.cdist(points[:, 1:].reshape(-1, 2), points[:, 1:].reshape(-1, 2)),
        torch.cdist(flat[:, 1:].reshape(-1, 2), flat[:, 1:].reshape(-1, 2)),
        atol=0.2,
        rtol=0.02,
    )


def test_groups_are_chains_of_near_states_the_largest_first():
    states = torch.tensor([[9.0], [0.0], [0.2], [0.4], [9.1], [5.0]])
    np.testing.assert_array_equal(group(states, 0.25), [1, 0, 0, 0, 1, 2])


def test_a_landscape_is_made_of_ordinary_trajectories_and_can_be_kept(tmp_path):
    puzzles = puzzles_4x4(1)
    puzzle, label = np.array(puzzles.inputs[0]), np.array(puzzles.labels[0])
    config = ReasonerConfig(
        rows=4, columns=4, vocabulary=6, width=8, blocks=1, round_hidden_to=8,
        start=RandomStart(), path=Perturbation(damping=0.05, noise=0.01),
    )  # fmt: skip
    model = Reasoner(config)
    budget = Budget(depth=6, seed=3)
    view = landscape(model, puzzle, label, starts=5, budget=budget)
    alone = rollout(model, np.tile(puzzle, (5, 1)), budget, restarts=np.arange(5), window=6)
    np.testing.assert_allclose(view.residuals, alone.residuals, rtol=1e-5)
    assert view.points.shape == (5, len(view.segments), 2)
    assert view.right.shape == (5, len(view.segments))
    assert len(np.unique(view.points[:, 0], axis=0)) == 5
    view.save(tmp_path / "view.npz")
    again = Landscape.load(tmp_path / "view.npz")
    assert (again.basins, again.segments, again.depth) == (view.basins, view.segments, view.depth)
    np.testing.assert_array_equal(again.points, view.points)
    with pytest.raises(UserError, match="at least 2"):
        landscape(model, puzzle, label, starts=1)
    half = (tmp_path / "view.npz").read_bytes()[:200]
    (tmp_path / "view.npz").write_bytes(half)
    with pytest.raises(UserError, match="delete it to have it made again"):
        Landscape.load(tmp_path / "view.npz")


def test_a_model_that_contracts_to_the_answer_is_well_aligned():
    puzzles = puzzles_4x4(1)
    puzzle, label = np.array(puzzles.inputs[0]), np.array(puzzles.labels[0])
    always = Settling(puzzles, wrong=0.0, stuck=0.0)
    view = landscape(always, puzzle, label, starts=16, budget=Budget(depth=256))
    assert view.basins.mode is Mode.ALIGNED
    assert set(view.attractors) == {0}
    assert view.right[:, -1].all()
    often = landscape(
        Settling(puzzles, wrong=0.4, stuck=0.0), puzzle, label, starts=64, budget=Budget(depth=256)
    )
    assert often.basins.mode is Mode.SPURIOUS
    assert often.attractors.max() == 1
    assert often.basins.answers == 2


def test_landscapes_show_each_mode_there_is():
    kinds = {
        "a": ["wandering"] * 10,
        "b": ["right"] * 5 + ["spurious"] * 5,
        "c": ["right"] * 5 + ["wandering"] * 5,
        "d": ["right"] * 10,
    }
    shown = [basins(*kinds[letter]) for letter in "ddddcdbda"]
    assert pick_landscapes(shown, 4) == [8, 6, 4, 0]
    assert pick_landscapes(shown, 0) == []
    assert sorted(pick_landscapes(shown, 99)) == list(range(9))
