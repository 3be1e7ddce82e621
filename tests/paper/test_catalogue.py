"""The experiments are what the paper describes: every item is there, and rows are what they say."""

from collections.abc import Iterator

import pytest

from eqr.errors import UserError
from eqr.paper.experiment import Cell
from eqr.paper.items import CLAIMS, EXPERIMENTS, JUDGED, STUDIES
from eqr.paper.measurement import Solve
from eqr.paper.plan import build, make_plan, properties, run_key, told_apart
from eqr.results.metrics import powers_of_two
from eqr.value import Value

RI_ON, RI_OFF = {"RI": True, "NI": False}, {"RI": False, "NI": False}
BOTH = {"RI": True, "NI": True}
ONE_STATE = {"states": 1, "tied": True, "RI": False, "NI": False}
TWO_STATES = {"states": 2, "tied": True, "RI": False, "NI": False}
ONLINE = {"schedule": "segmented-online"}
TERMINAL = {"schedule": "terminal-full"}

PAPER: dict[tuple[str, str], dict[str, object]] = {
    # section 6.1 and the appendix's table of training dynamics
    ("T8", "1 feedforward"): {"tied": False, "segments": 1, **TERMINAL},
    ("T8", "2 weight-tied"): {**ONE_STATE, "segments": 1, **TERMINAL},
    ("T8", "3 + 2x depth"): {**ONE_STATE, "segments": 2, **TERMINAL},
    ("T8", "4 + 16x depth"): {**ONE_STATE, "segments": 8, **TERMINAL},
    ("T8", "5 terminal loss, detached"): {**ONE_STATE, "segments": 8, "schedule": "terminal-detached"},
    ("T8", "6 trajectory supervision"): {**ONE_STATE, "schedule": "trajectory", "first anchor": 1},
    ("T8", "7 segmented online"): {**ONE_STATE, **ONLINE, "truncated": False, "halting": "none"},
    ("T8", "8 z + truncation"): {**ONE_STATE, **ONLINE, "truncated": True, "halting": "none"},
    ("T8", "9 (z_L, z_H)"): {**TWO_STATES, **ONLINE, "truncated": False, "halting": "none"},
    ("T8", "10 (z_L, z_H) + truncation"): {**TWO_STATES, **ONLINE, "truncated": True, "halting": "none"},
    ("T8", "11 oracle halting"): {**TWO_STATES, **ONLINE, "truncated": True, "halting": "oracle"},
    ("T8", "12 learned halting"): {**TWO_STATES, **ONLINE, "truncated": True, "halting": "learned"},
    ("T8", "12 learned halting, z"): {**ONE_STATE, **ONLINE, "halting": "learned"},
    ("T2", "vanilla feedforward"): {"tied": False},
    ("T2", "+ weight-tied"): {**ONE_STATE, "segments": 1},
    ("T2", "+ SOT + depth"): {**ONE_STATE, **ONLINE},
    ("T2", "+ hierarchical recurrence"): {**TWO_STATES, **ONLINE, "halting": "none"},
    ("T2", "+ ACT training"): {**TWO_STATES, **ONLINE, "halting": "learned"},
    ("T7", "terminal loss"): {"schedule": "terminal-detached", "segments": 8},
    ("T7", "full anchors"): {"schedule": "trajectory", "first anchor": 1, "segments": 8},
    ("T7", "late anchors, second half"): {"schedule": "trajectory", "first anchor": 4, "segments": 8},
    ("T7", "late anchors, last quarter"): {"schedule": "trajectory", "first anchor": 6, "segments": 8},
    ("T6", "feedforward"): {"tied": False, "layers": 6},
    ("T6", "2 iterations"): {"tied": True, "iterations": 2, "layers": 6},
    ("T6", "3 iterations"): {"tied": True, "iterations": 3, "layers": 6},
    ("T6", "6 iterations"): {"tied": True, "iterations": 6, "layers": 6},
    # section 6.2: the baseline is the last row of the construction path, RI and NI come on top
    ("T3", "baseline"): {**RI_OFF, "states": 2, "halting": "learned"},
    ("T3", "+ RI"): {**RI_ON, "states": 2, "halting": "learned"},
    ("T3", "+ RI + NI (EqR)"): {**BOTH, "damped": True},
    ("T12", "TRM"): RI_OFF,
    ("T12", "+ RI"): RI_ON,
    ("T12", "+ RI + NI"): BOTH,
    ("T16", "baseline"): RI_OFF,
    ("T16", "EqR"): BOTH,
    # appendices A.3 and A.4
    ("T10", "TRM"): {**RI_OFF, "learned start": False},
    ("T10", "TRM + RI"): RI_ON,
    ("T10", "TRM + learnable start"): {"learned start": True, "RI": False},
    ("T11", "sigma_H=0, sigma_L=0"): {"sigma_H": 0.0, "sigma_L": 0.0, "RI": False},
    ("T11", "sigma_H=1, sigma_L=8"): {"sigma_H": 1.0, "sigma_L": 8.0},
    ("T13", "beta=0.05"): {"beta": 0.05, "learned noise": False},
    ("T13", "learned"): {"learned noise": True},
    ("T15", "Sudoku (attention), baseline"): {**RI_OFF, "mixer": "attention"},
    ("T15", "Sudoku (attention), + training intervention"): {**BOTH, "mixer": "attention"},
    ("T1", "HRM"): {"separate stacks": True, "halting": "q-learning", "RI": False},
    ("T1", "URM"): {"states": 1, "convolution": True},
}  # fmt: skip
"""What the paper's text says about rows, written down apart from the experiments."""


def cells_of(item: str, row: str) -> Iterator[Cell]:
    cells = [cell for cell in EXPERIMENTS[item].cells() if cell.row.name == row]
    assert cells, f"{item} has no row {row!r}"
    return iter(cells)


def disagreements(cell: Cell, expected: dict[str, object]) -> list[str]:
    built = build(cell, "lab")
    assert built is not None
    found = properties(built.recipe)
    return [f"{name}: {found[name]}, not {value}" for name, value in expected.items() if found[name] != value]


def test_every_table_and_figure_and_claim_is_there():
    assert list(EXPERIMENTS) == [f"T{n}" for n in range(1, 21)] + [f"F{n}" for n in range(1, 14)]
    assert list(CLAIMS) == [f"C{n}" for n in range(1, 24)]


@pytest.mark.parametrize("place", PAPER, ids=" ".join)
def test_a_row_is_what_the_paper_says(place):
    for cell in cells_of(*place):
        assert disagreements(cell, PAPER[place]) == []


def test_an_ablation_that_is_not_one_is_caught():
    cell = next(cells_of("T3", "+ RI"))
    broken = cell.replace(row=cell.row.replace(changes={"model.start": "fixed"}, says={}))
    assert disagreements(broken, PAPER["T3", "+ RI"]) == ["RI: False, not True"]
    with pytest.raises(UserError, match="RI should be True, the recipe has False"):
        build(cell.replace(row=cell.row.replace(changes={"model.start": "fixed"})), "lab")


@pytest.mark.parametrize("scale", ["lab", "paper"])
def test_every_recipe_builds_and_differs_where_rows_differ(scale):
    for experiment in EXPERIMENTS.values():
        keys: dict[tuple[object, ...], str] = {}
        for cell in experiment.cells():
            built = build(cell, scale)
            if built is not None:
                same = (cell.row.variants, str(cell.changes(scale)), str(cell.setting(scale)))
                assert keys.setdefault(same, built.key) == built.key
        assert len(set(keys.values())) >= 0.7 * len(keys), f"{experiment.item}: rows share recipes"


def test_path_independence_is_read_where_it_is_measured():
    """It is over all starts of a measurement; a cell that asks for fewer would stay empty for ever."""
    cells = [cell for cell in EXPERIMENTS["T12"].cells() if cell.column.metric.startswith("path")]
    assert len(cells) == 12
    for cell in cells:
        measured = cell.measurement()
        assert isinstance(measured, Solve)
        depth, breadth = cell.column.at or (measured.depth, measured.breadth)
        assert breadth == measured.breadth
        assert depth in powers_of_two(measured.depth)


def test_the_seed_and_nothing_else_but_the_recipe_names_a_run():
    cell = next(cells_of("T3", "baseline"))
    one, two = build(cell, "lab", seed=0), build(cell, "lab", seed=1)
    assert one is not None
    assert two is not None
    assert one.key != two.key
    assert one.key == run_key(one.recipe.replace(name="another"))


def test_a_field_that_the_code_gains_later_keeps_the_keys():
    class Before(Value):
        kind: str = "start"
        width: int = 3

    class After(Before):
        gained: float = 0.5

    assert told_apart(After(width=4)) == told_apart(Before(width=4)) == {"kind": "start", "width": 4}
    assert told_apart(After(gained=1.0)) != told_apart(Before())


def test_preregistered_tests_name_cells_of_studies_and_every_claim():
    known = {cell.name for e in STUDIES.values() for cell in e.cells()}
    for claim in JUDGED.values():
        for test in claim.tests:
            assert test.cells <= known, claim.item
            assert test.checks, f"{claim.item}: nothing checks its regime"
            assert set(claim.items) <= set(STUDIES)


def test_studies_begin_at_seeds_that_no_item_has():
    jobs = make_plan(list(STUDIES.values()), "lab", seeds=2).jobs
    assert {job.recipe.seed for job in jobs} == {100, 101}
    for study in STUDIES.values():
        for cell in study.cells():
            assert build(cell, "lab", seed=study.first_seed) is not None


def test_published_numbers_are_those_of_the_paper():
    at = {(e.item, row.name): row.published for e in EXPERIMENTS.values() for row in e.rows}
    assert at["T3", "+ RI + NI (EqR)"] == {"Sudoku": 86.4, "Maze": 82.2}
    assert at["T8", "12 learned halting"] == {"Accuracy": 84.8}
    assert at["T8", "4 + 16x depth"] == {"Accuracy": "OOM"}
    assert at["T12", "TRM"] == {"Sudoku, of means": 3.58, "Maze, of means": 28.60}
