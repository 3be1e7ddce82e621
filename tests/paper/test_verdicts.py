"""Verdicts follow from values: regimes are checked first, one contrast decides, committed results agree."""

from pathlib import Path

import numpy as np
import pytest

from eqr.errors import UserError
from eqr.files import read_json, write_json
from eqr.paper.experiment import Check, ClaimTest, Contrast
from eqr.paper.items import CLAIMS, EXPERIMENTS, STUDIES
from eqr.paper.page import verdicts, verify, write_page
from eqr.paper.preregistered import alike, less, more
from eqr.paper.table import Table, packed, unpacked
from eqr.paper.verdicts import ClaimVerdict, JudgedTest, judge_test, over_seeds
from eqr.results.metrics import auroc, rank_correlation

RESULTS = Path(__file__).resolve().parents[2] / "results"
LEFT, RIGHT = "E1 | a | Accuracy", "E1 | b | Accuracy"
HELD = Check(cell=RIGHT, low=10.0, high=90.0, says="unsaturated")
UP = ClaimTest(operator="tokens", primary=more(LEFT, RIGHT), checks=(HELD,), of_interest=2.0)
S, R, N, U = (ClaimVerdict[name] for name in ("SUPPORTED", "REFUTED", "NO_EFFECT", "UNDECIDED"))


def by_seed(*values: float) -> dict[int, float]:
    return dict(enumerate(values))


def judged(test: ClaimTest, left: dict[int, float], right: dict[int, float]) -> JudgedTest:
    return judge_test(test, {LEFT: left, RIGHT: right}, {}, {"E1": 12})


def test_the_interval_is_students():
    found = over_seeds("x", [1.0, 2.0, 4.0])
    assert found is not None
    assert found.value == pytest.approx(7 / 3)
    assert found.high == pytest.approx(7 / 3 + 4.302653 * np.std([1, 2, 4], ddof=1) / 3**0.5)
    assert over_seeds("x", []) is None
    one = over_seeds("x", [5.0])
    assert one is not None
    assert one.low is None


def test_a_paired_difference_decides():
    # far apart over seeds, yet every seed says the same
    right = by_seed(10.0, 40.0, 60.0, 88.0)
    above = {seed: value + 5.0 + 0.1 * seed for seed, value in right.items()}
    near = {seed: value + (-1) ** seed * 0.1 for seed, value in right.items()}
    below = {seed: value - 5.0 - 0.1 * seed for seed, value in right.items()}
    assert [judged(UP, left, right).verdict for left in (above, near, below)] == [S, N, R]
    down = UP.replace(primary=less(LEFT, RIGHT))
    assert [judged(down, left, right).verdict for left in (above, near, below)] == [R, N, S]
    close = UP.replace(primary=alike(LEFT, RIGHT, 3.0))
    assert [judged(close, left, right).verdict for left in (above, near, below)] == [R, S, R]
    wide = by_seed(5.0, 60.0, 30.0, 95.0)
    assert judged(UP, wide, right).verdict is U
    assert judged(UP, above, right).interim


def test_a_regime_that_cannot_show_a_claim_has_no_verdict():
    said = judged(UP, by_seed(99.0, 98.0, 99.5, 99.1), by_seed(95.0, 94.0, 95.5, 95.2))
    assert said.verdict is ClaimVerdict.CANNOT_SHOW
    assert said.reason == "not so: unsaturated (found 94.9)"
    assert said.primary.verdict is S  # the numbers are shown, they decide nothing


def test_what_was_not_checked_is_not_decided():
    other = Check(cell="E1 | c | Share", low=0.0, high=1.0, says="rare")
    said = judged(
        UP.replace(checks=(HELD, other)), by_seed(55.0, 56.0, 57.5, 58.0), by_seed(50.0, 51.0, 52.0, 53.0)
    )
    assert (said.verdict, said.reason) == (U, "not checked yet: rare")


def test_too_few_seeds_decide_nothing():
    right = by_seed(50.0, 51.0, 52.0)
    assert judged(UP, {seed: value + 9.0 + seed for seed, value in right.items()}, right).verdict is U
    assert judged(UP, {}, {}).verdict is ClaimVerdict.NOT_RUN


def test_puzzles_narrow_what_few_seeds_say():
    rng = np.random.default_rng(0)
    hits = [(rng.random((4, 400)) < chance).astype(float) * 100 for chance in (0.75, 0.55)]
    values = [dict(enumerate(some.mean(axis=1).tolist())) for some in hits]
    puzzles = {cell: dict(enumerate(some)) for cell, some in zip((LEFT, RIGHT), hits, strict=True)}
    paired = judge_test(UP, dict(zip((LEFT, RIGHT), values, strict=True)), puzzles, {"E1": 4})
    assert paired.primary.found is not None
    assert paired.primary.found.puzzles == 400
    assert paired.verdict is S
    assert not paired.interim


def test_secondary_contrasts_are_corrected():
    right = by_seed(50.0, 51.0, 52.0, 53.0)
    left = {
        seed: value + offset
        for (seed, value), offset in zip(right.items(), (1.0, 2.0, 5.0, 3.0), strict=True)
    }
    assert judged(UP, left, right).verdict is S
    several = UP.replace(secondary=(more(LEFT, RIGHT),) * 4)
    assert {part.verdict for part in judged(several, left, right).secondary} == {U}


def test_an_accuracy_that_was_not_reached_counts_as_beyond_the_budget():
    test = UP.replace(primary=less(LEFT, RIGHT), unreached=7.0, checks=(HELD.replace(cell="E1 | b | D=16"),))
    values = {
        LEFT: by_seed(4.0, 4.1, 4.2, 4.3),
        RIGHT: {0: 5.0, 1: 5.1, 2: 5.3},
        "E1 | b | D=16": by_seed(80.0, 80.0, 80.0, 80.0),
    }
    said = judge_test(test, values, {}, {"E1": 4})
    assert said.primary.found is not None
    assert said.primary.found.value == pytest.approx(np.mean([-1.0, -1.0, -1.1, -2.7]))


def test_peers_are_compared_with_ratings():
    rng = np.random.default_rng(2)
    hard = rng.random(300)
    solved = {seed: (rng.random(300) > hard).astype(float) for seed in range(4)}
    ratings = {seed: rng.integers(0, 9, 300).astype(float) for seed in range(4)}
    test = UP.replace(primary=Contrast(plus=(LEFT,), minus=(RIGHT,), above=0.05), peers=True, checks=())
    values = {cell: by_seed(50.0, 50.0, 50.0, 50.0) for cell in (LEFT, RIGHT)}
    assert judge_test(test, values, {LEFT: solved, RIGHT: ratings}, {"E1": 4}).verdict is S
    told = dict.fromkeys(range(4), hard)  # a rating that says it all
    assert judge_test(test, values, {LEFT: solved, RIGHT: told}, {"E1": 4}).verdict is not S


def test_a_number_of_puzzles_that_are_not_there_leaves_a_table_done():
    table = Table(EXPERIMENTS["F4"])
    cells = table.experiment.cells()
    for cell in cells[1:]:
        for seed in range(cell.seeds):
            table.put(cell, seed, 0.5)
    assert table.state == "done"  # the first cell's measurement is there, its number is not
    for cell in cells[1:]:
        if cell.row == cells[0].row:
            del table.values[cell.name][0]
    assert table.state == "partly"  # that run is not there


def test_values_survive_the_csv(tmp_path):
    table = Table(EXPERIMENTS["T3"])
    for cell in table.experiment.cells():
        for seed in range(cell.seeds):
            table.put(cell, seed, 0.1 * seed + 1 / 3)
    name = next(iter(table.values))
    table.puzzles = {name: {0: [0.0, 1.0, 1.0], 1: [0.25, 1.0, 0.0]}}
    table.write(tmp_path)
    again = Table.read(table.experiment, tmp_path)
    assert (again.values, again.puzzles) == (table.values, table.puzzles)
    assert again.puzzle_values()[name][1].tolist() == [25.0, 100.0, 0.0]
    assert table.state == "done"
    assert Table.read(table.experiment.replace(seeds=9), tmp_path).state == "partly"
    (tmp_path / "values.csv").write_text("row,column,seed,value\nbaseline,Maze,0,much\n")
    with pytest.raises(UserError, match="damaged"):
        Table.read(table.experiment, tmp_path)


@pytest.mark.parametrize("values", [[0.0, 1.0], [0.5, 1.0, 0.0], [1.0], [3.0, 12.0]])
def test_puzzles_are_packed_and_unpacked(values):
    assert unpacked(packed(values)) == values


def test_auroc_and_rank_correlation_match_brute_force():
    rng = np.random.default_rng(0)
    scores, hits = rng.integers(0, 6, 60).astype(float), rng.random(60) < 0.4
    pairs = [(a > b) + 0.5 * (a == b) for a in scores[hits] for b in scores[~hits]]
    assert auroc(scores, hits) == pytest.approx(np.mean(pairs))
    assert auroc(scores, np.ones(60, bool)) is None
    assert rank_correlation(np.array([1.0, 2, 3]), np.array([10.0, 30, 20])) == pytest.approx(0.5)
    assert rank_correlation(np.array([1.0, 1, 1]), np.array([1.0, 2, 3])) is None


def test_verify_finds_a_verdict_that_does_not_follow(tmp_path):
    table = Table(STUDIES["E6"])
    for cell in table.experiment.cells():
        for seed in range(4):
            table.put(cell, seed, 0.02 * seed + (0.5 if cell.row.name == "6 iterations" else 0.02))
    table.write(tmp_path / "E6")
    write_page(tmp_path, smoke=False)
    assert verify(tmp_path) == []
    assert str(verdicts(tmp_path)["C12"][0].verdict) == "to be run"
    said = read_json(tmp_path / "claims.json")
    said["claims"]["C1"]["tests"][0]["verdict"] = "refuted"
    write_json(tmp_path / "claims.json", said)
    (tmp_path / "claims" / "C2.svg").unlink()
    assert verify(tmp_path) == ["claims.json: C1", "claims/C2.svg"]


@pytest.mark.skipif(not (RESULTS / "claims.json").is_file(), reason="no results are committed yet")
def test_committed_verdicts_follow_from_committed_values():
    assert verify(RESULTS) == []
    assert set(read_json(RESULTS / "first-round.json")["claims"]) == set(CLAIMS)
