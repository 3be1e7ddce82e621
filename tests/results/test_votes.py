"""Votes over variants: a puzzle is right when its variants, undone, agree on its label most of all."""

import numpy as np
import pytest

from eqr.data import PuzzleSet
from eqr.paper.measure import rows_of
from eqr.result import one, select
from eqr.results.metrics import has_variants, variant_votes
from eqr.solve import Candidates, Status
from eqr.tasks.mini_arc import Variant

VARIANTS = [
    Variant(),
    Variant(transform=1, colors=(0, 2, 1, 3, 4, 5, 6, 7, 8, 9)),
    Variant(transform=6),
]


@pytest.fixture
def puzzles() -> PuzzleSet:
    """Two puzzles in three variants each; the rows of a puzzle do not lie together."""
    rng = np.random.default_rng(0)
    grids = rng.integers(1, 11, (2, 2, 25)).astype(np.uint8)
    names = [variant.name(family) for family in ("a", "b") for variant in VARIANTS]
    rows = [(family, number) for number in range(3) for family in range(2)]
    return PuzzleSet.of(
        "mini-arc",
        *(np.concatenate([VARIANTS[v].apply(grids[f][side : side + 1]) for f, v in rows]) for side in (0, 1)),
        groups=[family for family, _ in rows],
        identities=[1 + 3 * family + number for family, number in rows],
        identity_names=("<blank>", *names),
        facts={"family": [f + 1 for f, _ in rows], "variant": [v for _, v in rows]},
    )


def answered(puzzles: PuzzleSet, starts: int = 2) -> Candidates:
    """Every start of every variant is right and equally sure."""
    made = Candidates.empty(len(puzzles), starts, cells=25, window=1)
    made.tokens[:] = puzzles.labels[:, None]
    made.status[:], made.halt[:] = Status.RAN_OUT, 0.0
    return made


def scores(candidates: Candidates, puzzles: PuzzleSet) -> tuple[float, float]:
    said = variant_votes(candidates, puzzles)
    return said["vote of variants"].value, said["vote of variants, two tries"].value


def test_variants_that_agree_are_right_and_puzzles_are_counted_once(puzzles):
    assert has_variants(puzzles)
    assert scores(answered(puzzles), puzzles) == (1.0, 1.0)
    assert variant_votes(answered(puzzles), puzzles)["vote of variants"].n == 2


def test_the_majority_outvotes_single_mistakes(puzzles):
    candidates = answered(puzzles)
    candidates.tokens[0, 0, 3] = candidates.tokens[0, 0, 3] % 10 + 1
    assert scores(candidates, puzzles) == (1.0, 1.0)


def test_an_outvoted_answer_is_the_second_try(puzzles):
    candidates = answered(puzzles)
    wrong = puzzles.labels[0] % 10 + 1
    for row in (0, 2):
        candidates.tokens[row] = VARIANTS[row // 2].apply(wrong[None].astype(np.uint8))
    assert scores(candidates, puzzles) == (0.5, 1.0)


def test_cancelled_starts_and_padding_do_not_vote(puzzles):
    candidates = answered(puzzles)
    wrong = puzzles.labels[0] % 10 + 1
    for row in (0, 2):
        candidates.tokens[row] = VARIANTS[row // 2].apply(wrong[None].astype(np.uint8))
        candidates.status[row] = Status.CANCELLED
    assert scores(candidates, puzzles) == (1.0, 1.0)
    labels = puzzles.labels.copy()
    for padding in (0, 1):  # before and after what counts
        puzzles.labels[:] = labels
        puzzles.labels[padding::2] = 0
        assert variant_votes(candidates, puzzles)["vote of variants"].n == 1


def test_other_sets_have_no_variants():
    assert not has_variants(PuzzleSet.of("mini-arc", np.ones((2, 25)), np.ones((2, 25))))


def test_an_experiment_reads_the_vote_beside_the_rows(puzzles):
    candidates = answered(puzzles)
    candidates.depth[:], candidates.residuals[:] = 1, 0.0
    candidates.tokens[0, :, 3] = candidates.tokens[0, :, 3] % 10 + 1
    rows = rows_of(candidates[:, :, None], [1], puzzles)
    assert one(rows, metric="exact").value == pytest.approx(5 / 6)
    assert [row.value for row in select(rows, metric=("variants", "two tries"))] == [1.0, 1.0]
