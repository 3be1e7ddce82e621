"""Metrics equal brute force on small tables, and padding never counts."""

from collections import Counter
from itertools import combinations, pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqr.data import PuzzleSet
from eqr.result import Result
from eqr.results.metrics import (
    EXPECTED,
    MEAN,
    ORACLE,
    Outcomes,
    average,
    average_distance,
    by_rating,
    expected_of_lowest,
    expected_of_vote,
    outcomes,
    pass_at,
    path_dependence,
    powers_of_two,
    report,
    share,
)
from eqr.solve import Candidates, First, FirstToHalt, LowestResidual, MajorityVote, Status, VerifiedFirst
from eqr.tasks import task_named
from settling import puzzles_4x4

TASK = task_named("sudoku-4x4")


def by_place(rows: list[Result]) -> dict[tuple[object, ...], Result]:
    """Rows of whole sets by metric and rule, of subsets of the starts by their number too."""
    whole = [row for row in rows if not row.part]
    return {(row.metric, row.rule, *([row.breadth] if row.breadth else [])): row for row in whole}


RULES = {
    "first": First(),
    "residual": LowestResidual(),
    "majority": MajorityVote(),
    "verified": VerifiedFirst(),
}


def candidates_for(puzzles: PuzzleSet, starts: int, seed: int) -> Candidates:
    """Draw candidates that are right, wrong in one cell, or wrong in another."""
    rng = np.random.default_rng(seed)
    shape = (len(puzzles), starts)
    drawn = Candidates.empty(*shape, cells=puzzles.cells, window=3)
    drawn.tokens[:] = puzzles.labels[:, None]
    kind = rng.integers(0, 3, shape)
    drawn.tokens[kind == 1, 0] = 1
    drawn.tokens[kind == 2, 5] = 1
    drawn.status[:] = rng.choice([Status.RAN_OUT, Status.HALTED], shape)
    drawn.depth[:] = rng.integers(3, 9, shape)
    drawn.residuals[:] = rng.integers(1, 5, (*shape, 3))
    return drawn


@given(st.integers(0, 10_000), st.integers(1, 5))
@settings(max_examples=25, deadline=None)
def test_every_metric_equals_its_definition(seed, starts):
    puzzles = puzzles_4x4(6)
    drawn = candidates_for(puzzles, starts, seed)
    results = outcomes(drawn, puzzles, TASK, list(RULES.values()))
    said = by_place(report(results, list(RULES)))
    right = [[bool((drawn.tokens[p, s] == puzzles.labels[p]).all()) for s in range(starts)] for p in range(6)]
    cells = [
        [float((drawn.tokens[p, s] == puzzles.labels[p]).mean()) for s in range(starts)] for p in range(6)
    ]
    valid = [
        [bool(TASK.check(puzzles.inputs[p], drawn.tokens[p, s])) for s in range(starts)] for p in range(6)
    ]
    assert said["exact", MEAN].n == 6
    assert said["exact", MEAN].value == pytest.approx(np.mean(right))
    assert said["token", MEAN].value == pytest.approx(np.mean(cells))
    assert said["valid", MEAN].value == pytest.approx(np.mean(valid))
    assert said["nfe", ""].value == pytest.approx(drawn.depth.sum() / 6)
    assert said["depth used", MEAN].value == pytest.approx(drawn.depth.mean())
    assert said["exact", "first"].value == pytest.approx(np.mean([row[0] for row in right]))
    assert said["exact", "residual"].value == pytest.approx(
        np.mean([right[p][int(np.argmin(drawn.residuals[p].mean(axis=1)))] for p in range(6)])
    )
    majority = []
    for p in range(6):
        votes = Counter(drawn.tokens[p, s].tobytes() for s in range(starts))
        majority.append(votes.most_common(1)[0][0] == puzzles.labels[p].tobytes())
    assert said["exact", "majority"].value == pytest.approx(np.mean(majority))
    assert said["valid", "verified"].value == pytest.approx(np.mean([any(row) for row in valid]))
    if starts > 1:
        assert said["exact", ORACLE].value == pytest.approx(np.mean([any(row) for row in right]))
        apart = [abs(np.mean(row) - row[0]) for row in right]
        assert said["path dependence per puzzle", ""].value == pytest.approx(np.mean(apart))
        means = abs(np.mean(right) - np.mean([row[0] for row in right]))
        of_means = said["path dependence of means", ""]
        assert of_means.value == pytest.approx(means)
        assert 0 <= of_means.low <= of_means.value <= of_means.high
        for rule in ("residual", "majority"):
            widest = said[EXPECTED, rule, starts].value
            assert widest == pytest.approx(said["exact", rule].value)


@given(st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=1, max_size=4), st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_pass_at_k_is_the_mean_over_all_subsets(rows, k):
    right = np.array(rows)
    brute = [np.mean([any(row[s] for s in some) for some in combinations(range(5), k)]) for row in rows]
    np.testing.assert_allclose(pass_at(k, right), brute)


@given(st.integers(0, 10_000), st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_expected_top_1_is_the_mean_over_all_subsets(seed, starts):
    rng = np.random.default_rng(seed)
    costs, right = rng.integers(0, 3, (4, 5)).astype(float), rng.random((4, 5)) < 0.5
    brute = [
        np.mean(
            [right[p, min(some, key=lambda s: (costs[p, s], s))] for some in combinations(range(5), starts)]
        )
        for p in range(4)
    ]
    np.testing.assert_allclose(expected_of_lowest(costs, right, starts), brute)


def test_expected_majority_comes_close_to_the_mean_over_all_subsets():
    rng = np.random.default_rng(1)
    ids = rng.integers(0, 3, (30, 5))
    right = ids == 0
    brute = []
    for row in ids:
        wins = [
            Counter(row[list(some)].tolist()).most_common(1)[0][0] == 0 for some in combinations(range(5), 3)
        ]
        brute.append(np.mean(wins))
    drawn = expected_of_vote(ids, right, 3, draws=2000)
    assert np.abs(drawn - brute).max() < 0.05
    np.testing.assert_array_equal(expected_of_vote(ids, right, 1), right.mean(axis=1))


def test_padded_rows_never_count():
    puzzles = puzzles_4x4(4)
    labels = puzzles.labels.copy()
    labels[3] = 0
    padded = PuzzleSet.of(puzzles.task, puzzles.inputs, labels)
    drawn = candidates_for(puzzles, 2, 0)
    drawn.tokens[3] = 0
    said = report(outcomes(drawn, padded, TASK, [First()]), ["first"])
    kept = report(outcomes(drawn[:3], puzzles.take([0, 1, 2]), TASK, [First()]), ["first"])
    assert {row.n for row in said} == {3}
    assert said == [row for row in kept if not row.part]  # the padded set has no ratings


def test_cells_without_a_label_do_not_count():
    puzzles = puzzles_4x4(1)
    labels = puzzles.labels.copy()
    labels[0, 0] = 0
    drawn = candidates_for(puzzles, 1, 0)
    drawn.tokens[0, 0] = puzzles.labels[0]
    drawn.tokens[0, 0, 0] = 1
    partly = PuzzleSet.of(puzzles.task, puzzles.inputs, labels)
    assert outcomes(drawn, partly, TASK, []).right.all()
    assert not outcomes(drawn, puzzles, TASK, []).right.any()


def test_a_race_is_scored_by_its_winner_only():
    puzzles = puzzles_4x4(5)
    drawn = candidates_for(puzzles, 3, 4)
    drawn.status[:] = Status.CANCELLED
    drawn.status[:, 1] = Status.HALTED
    said = by_place(report(outcomes(drawn, puzzles, TASK, [FirstToHalt()]), ["race"]))
    assert ("exact", MEAN) not in said
    wins = (drawn.tokens[:, 1] == puzzles.labels).all(axis=1)
    assert said["exact", "race"].value == pytest.approx(wins.mean())


def test_parts_scored_apart_equal_the_whole():
    puzzles = puzzles_4x4(8)
    drawn = candidates_for(puzzles, 3, 2)
    rules = list(RULES.values())
    whole = report(outcomes(drawn, puzzles, TASK, rules), list(RULES))
    parts = [
        outcomes(drawn[low : low + 3], puzzles.take(np.arange(low, min(low + 3, 8))), TASK, rules)
        for low in (0, 3, 6)
    ]
    assert report(Outcomes.joined(parts), list(RULES)) == whole


def test_intervals():
    known = share(np.arange(10) < 8)  # Wilson's interval of 8 of 10
    assert (known.value, known.low, known.high) == pytest.approx((0.8, 0.4902, 0.9433), abs=1e-3)
    assert share(np.ones(5, bool)).high == 1.0
    rng = np.random.default_rng(0)
    values = rng.random(400)
    mean = average(values)
    assert mean.value == pytest.approx(values.mean())
    half = 1.96 * values.std() / 20
    assert mean.low == pytest.approx(values.mean() - half, abs=0.3 * half)
    assert mean.high == pytest.approx(values.mean() + half, abs=0.3 * half)
    assert average(np.ones(7)).low == average(np.ones(7)).high == 1.0
    assert share(np.ones(7)).low < 1.0, "seven of seven is not certainty"
    one_start, mean_of_four = np.arange(8) < 6, np.full(8, 0.75)
    assert share(one_start) == share(mean_of_four), "one number, one interval"


def test_an_interval_narrows_as_more_starts_are_right():
    rng = np.random.default_rng(3)
    right = rng.random((64, 8)) < np.where(rng.random((64, 1)) < 0.9, 0.8, 0.5)
    widths = [(one.high - one.low, one.value) for one in (share(pass_at(k, right)) for k in (1, 2, 4, 8))]
    assert [value for _, value in widths] == sorted(value for _, value in widths)
    assert [width for width, _ in widths] == sorted((width for width, _ in widths), reverse=True)


def test_difficulty_bins_hold_every_puzzle_once():
    rng = np.random.default_rng(0)
    ratings = rng.integers(0, 40, 200).astype(np.int32)
    right = rng.random((200, 1)) < 0.5
    bins = by_rating(ratings, right)
    assert sum(exact.n for _, exact in bins) == 200
    assert all(before[1] < after[0] for (before, _), (after, _) in pairwise(bins))
    for (low, high), exact in bins:
        inside = (ratings >= low) & (ratings <= high)
        assert exact.value == pytest.approx(right[inside].mean())
    assert by_rating(np.zeros(5, np.int32), right[:5]) == []
    skewed = np.array([0] * 90 + [1] * 6 + [7, 9, 30, 31], np.int32)  # a long tail of single puzzles
    sizes = [exact.n for _, exact in by_rating(skewed, np.ones((100, 1), bool))]
    assert sizes == [90, 10]


def test_path_dependence_ignores_the_order_of_puzzles():
    right = np.array([[True, False], [False, True], [True, True]])
    said = [path_dependence(right[list(order)]) for order in permutations(range(3))]
    assert all(one["path dependence of means"].value == pytest.approx(0.0) for one in said)
    assert all(one["path dependence per puzzle"].value == pytest.approx(1 / 3) for one in said)


def test_the_difference_of_means_has_the_error_of_a_paired_difference():
    rng = np.random.default_rng(0)
    chances = rng.random((2048, 1)) < 0.9
    right = rng.random((2048, 128)) < np.where(chances, 0.95, 0.3)
    said = path_dependence(right)["path dependence of means"]
    apart = right.mean(axis=1) - right[:, 0]
    half = 1.96 * apart.std() / 2048**0.5
    assert said.low == 0.0, "2,048 puzzles cannot tell so small a difference from none"
    assert said.high == pytest.approx(half + abs(apart.mean()), rel=0.1)
    shifted = average_distance(apart - 0.2)
    assert shifted.low == pytest.approx(shifted.value - half, rel=0.05)
    assert shifted.high == pytest.approx(shifted.value + half, rel=0.05)


def test_powers_of_two():
    assert powers_of_two(1) == [1]
    assert powers_of_two(8) == [1, 2, 4, 8]
    assert powers_of_two(6) == [1, 2, 4, 6]
