"""What is said of effects holds on data whose truth is known: coverage, false positives, equivalence."""

import numpy as np
import pytest
from numpy.typing import NDArray

from eqr.paper.verdicts import Effect, effect, holm

DRAWS = 600
WORLDS = {
    "seeds vary": (4, 200, 3.0, 5.0, 30.0),
    "puzzles vary": (4, 200, 0.0, 20.0, 30.0),
    "neither": (4, 200, 0.0, 0.0, 30.0),
    "twelve seeds": (12, 100, 2.0, 10.0, 30.0),
}
"""Seeds, puzzles, and the spread that seeds, puzzles and the rest add."""


def drawn(world: str, truth: float, rng: np.random.Generator) -> NDArray[np.float64]:
    seeds, puzzles, by_seed, by_puzzle, rest = WORLDS[world]
    return (
        truth
        + rng.normal(0.0, by_seed, (seeds, 1))
        + rng.normal(0.0, by_puzzle, (1, puzzles))
        + rng.normal(0.0, rest, (seeds, puzzles))
    )


def effects(world: str, truth: float) -> list[Effect]:
    rng = np.random.default_rng(0)
    return [effect(drawn(world, truth, rng)) for _ in range(DRAWS)]


@pytest.mark.parametrize("world", WORLDS)
def test_intervals_cover_the_truth_and_nothing_is_found_where_nothing_is(world):
    covered = np.mean([low < 2.0 < high for low, high in (one.interval() for one in effects(world, 2.0))])
    assert covered > 0.95 - 3 * (0.05 * 0.95 / DRAWS) ** 0.5
    found = np.mean([min(one.p_above(0.0), one.p_below(0.0)) < 0.025 for one in effects(world, 0.0)])
    assert found < 0.05 + 3 * (0.05 * 0.95 / DRAWS) ** 0.5


@pytest.mark.parametrize("world", WORLDS)
def test_what_is_as_large_as_the_margin_is_seldom_called_alike(world):
    alike = np.mean([one.p_within(-3.0, 3.0) < 0.05 for one in effects(world, 3.0)])
    assert alike < 0.05 + 3 * (0.05 * 0.95 / DRAWS) ** 0.5


def test_the_error_agrees_with_a_bootstrap_over_seeds_and_puzzles():
    rng = np.random.default_rng(1)
    differences = drawn("twelve seeds", 0.0, rng)
    seeds, puzzles = differences.shape
    means = [
        differences[rng.integers(0, seeds, seeds)][:, rng.integers(0, puzzles, puzzles)].mean()
        for _ in range(2000)
    ]
    # resampling both ways counts the rest three times, ours once
    assert effect(differences).error < np.std(means) < 1.6 * effect(differences).error


def test_a_number_without_puzzles_has_students_interval():
    found = effect(np.array([1.0, 2.0, 4.0]))
    assert found.puzzles is None
    assert found.interval()[1] == pytest.approx(7 / 3 + 4.302653 * np.std([1, 2, 4], ddof=1) / 3**0.5)


def test_the_detectable_effect_is_found_four_times_in_five():
    size = float(np.median([one.detectable for one in effects("seeds vary", 0.0)]))
    found = np.mean([one.p_above(0.0) < 0.025 for one in effects("seeds vary", size)])
    assert 0.65 < found < 0.95


def test_equal_in_every_seed_is_no_evidence():
    assert effect(np.ones((4, 10))).p_above(0.0) == 0.5
    with pytest.raises(ValueError, match="two or more"):
        effect(np.ones((1, 10)))


def test_holm_is_the_step_down_procedure():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []
    assert holm([0.9, 0.8]) == [1.0, 1.0]
