"""Verdicts follow from values; intervals are Student's; committed results say what their values say."""

import json
from pathlib import Path

import numpy as np
import pytest

from eqr.errors import UserError
from eqr.experiments.catalogue import CLAIMS, EXPERIMENTS
from eqr.experiments.experiment import Claim, Contrast
from eqr.experiments.judge import ClaimVerdict, judge, judge_claim, summary
from eqr.experiments.results import read_values, verdicts
from eqr.experiments.score import auroc, rank_correlation
from eqr.experiments.tables import Table, cell_name, read_table

RESULTS = Path(__file__).resolve().parents[2] / "results"
UP = Contrast(plus=("a",), minus=("b",), above=0.0)


def by_seed(*values: float) -> dict[int, float]:
    return dict(enumerate(values))


def test_the_interval_is_students():
    found = summary([1.0, 2.0, 4.0])
    assert found is not None
    assert found.mean == pytest.approx(7 / 3)
    assert found.high == pytest.approx(7 / 3 + 4.303 * np.std([1, 2, 4], ddof=1) / 3**0.5)
    assert summary([]) is None
    one = summary([5.0])
    assert one is not None
    assert one.low is None


def test_a_paired_difference_decides():
    # far apart over seeds, yet every seed says the same
    values = {"a": by_seed(10.0, 50.0, 90.0), "b": by_seed(8.9, 49.0, 88.9)}
    assert judge(UP, values).verdict is ClaimVerdict.SUPPORTED
    assert judge(Contrast(plus=("b",), minus=("a",), above=0.0), values).verdict is ClaimVerdict.REFUTED
    assert judge(Contrast(plus=("a",), minus=("b",), above=1.05), values).verdict is ClaimVerdict.UNDECIDED
    within = Contrast(plus=("a",), minus=("b",), above=-2.0, below=2.0)
    assert judge(within, values).verdict is ClaimVerdict.SUPPORTED
    assert judge(within.replace(below=0.5), values).verdict is ClaimVerdict.REFUTED


def test_what_is_missing_or_of_too_few_seeds_is_undecided():
    assert judge(UP, {"a": by_seed(1.0, 2.0)}).reason == "not run: b"
    enough = by_seed(1.0, 1.1, 1.2)
    assert judge(UP, {"a": enough, "b": by_seed(0.0, 0.1, 0.2)}).verdict is ClaimVerdict.SUPPORTED
    for few in (by_seed(0.0), by_seed(0.0, 0.1), {0: 0.0, 1: 0.1, 3: 0.2}, {7: 0.0, 8: 0.1, 9: 0.2}):
        judged = judge(UP, {"a": enough, "b": few})
        assert judged.verdict is ClaimVerdict.UNDECIDED
        assert judged.reason == "fewer than 3 seeds have every cell"


def test_one_contrast_that_fails_refutes_a_claim():
    values = {"a": by_seed(5.0, 5.1, 5.2), "b": by_seed(1.0, 1.1, 1.3)}
    down = Contrast(plus=("b",), minus=("a",), above=0.0)
    assert judge_claim(Claim(item="C1", says="", contrasts=(UP, down)), values)[0] is ClaimVerdict.REFUTED
    missing = Contrast(plus=("c",), above=0.0)
    assert (
        judge_claim(Claim(item="C1", says="", contrasts=(UP, missing)), values)[0] is ClaimVerdict.UNDECIDED
    )


def test_a_number_of_puzzles_that_are_not_there_leaves_a_table_done():
    table = Table(EXPERIMENTS["F4"])
    cells = table.experiment.cells()
    for cell in cells[1:]:
        for seed in range(cell.seeds):
            table.put(cell, seed, 0.5)
    assert table.state == "done"  # the first cell's look is there, its number is not
    names = [cell_name(table.experiment, cell.row, cell.column) for cell in cells[1:]]
    for name, cell in zip(names, cells[1:], strict=True):
        if cell.row == cells[0].row:
            del table.values[name][0]
    assert table.state == "partly"  # that run is not there


def test_values_survive_the_csv(tmp_path):
    table = Table(EXPERIMENTS["T3"])
    for cell in table.experiment.cells():
        for seed in range(cell.seeds):
            table.put(cell, seed, 0.1 * seed + 1 / 3)
    table.write_csv(tmp_path)
    assert read_table(table.experiment, tmp_path).values == table.values
    assert table.state == "done"
    assert read_table(table.experiment.replace(seeds=9), tmp_path).state == "partly"
    (tmp_path / "values.csv").write_text("row,column,seed,value\nbaseline,Maze,0,much\n")
    with pytest.raises(UserError, match="damaged"):
        read_table(table.experiment, tmp_path)


def test_auroc_and_rank_correlation_match_brute_force():
    rng = np.random.default_rng(0)
    scores, hits = rng.integers(0, 6, 60).astype(float), rng.random(60) < 0.4
    pairs = [(a > b) + 0.5 * (a == b) for a in scores[hits] for b in scores[~hits]]
    assert auroc(scores, hits) == pytest.approx(np.mean(pairs))
    assert auroc(scores, np.ones(60, bool)) is None
    assert rank_correlation(np.array([1.0, 2, 3]), np.array([10.0, 30, 20])) == pytest.approx(0.5)
    assert rank_correlation(np.array([1.0, 1, 1]), np.array([1.0, 2, 3])) is None


@pytest.mark.skipif(not (RESULTS / "claims.json").is_file(), reason="no results are committed yet")
def test_committed_verdicts_follow_from_committed_values():
    said = json.loads((RESULTS / "claims.json").read_text(encoding="utf-8"))
    assert said["smoke"] is False
    found = verdicts(read_values(RESULTS))
    assert set(said["claims"]) == set(CLAIMS)
    for item, (verdict, parts) in found.items():
        claim = said["claims"][item]
        assert claim["verdict"] == str(verdict), item
        assert [part["contrast"] for part in claim["contrasts"]] == [part.contrast.text for part in parts]
        assert [part["verdict"] for part in claim["contrasts"]] == [str(part.verdict) for part in parts]
