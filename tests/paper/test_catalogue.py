"""The experiments are what the paper describes: every item is there, and rows are what they say."""

from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase

import pytest

from eqr.errors import UserError
from eqr.model.state import LearnedStart, RandomStart
from eqr.paper.experiment import Cell, Scale, Solve
from eqr.paper.items import CLAIMS, EXPERIMENTS, ITEMS, JUDGED, STUDIES
from eqr.paper.plan import build, make_plan, run_key, told_apart
from eqr.results.metrics import powers_of_two
from eqr.train.recipe import Recipe
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

FLAT = {"tied": False, "iterations": 1, "segments": 1}
TIED = {"tied": True, "states": 1, **TERMINAL, "segments": 1}
LEARNED = {"states": 2, "halting": "learned"}
PLAIN = {"RI": False, "NI": False}
ALWAYS: dict[tuple[str, str], dict[str, object]] = {
    ("T1", "*-layer model"): FLAT,
    ("T1", "HRM"): {"separate stacks": True, "halting": "q-learning", "RI": False},
    ("T1", "TRM"): {**PLAIN, **LEARNED},
    ("T1", "URM"): {"states": 1, "convolution": True, "RI": False},
    ("T1", "EqR"): {**BOTH, "states": 2, "damped": True},
    ("T2", "vanilla feedforward"): {"tied": False, "states": 1},
    ("T2", "+ weight-tied"): TIED,
    ("T2", "+ SOT + depth"): {"states": 1, **ONLINE, "halting": "none", "truncated": False},
    ("T2", "+ hierarchical recurrence"): {"states": 2, **ONLINE, "halting": "none", "truncated": True},
    ("T2", "+ ACT training"): {**LEARNED, **ONLINE, "truncated": True},
    ("T3", "baseline"): {**PLAIN, **LEARNED},
    ("T3", "+ RI"): {**RI_ON, **LEARNED},
    ("T3", "+ RI + NI (EqR)"): {**BOTH, **LEARNED},
    ("T4", "*"): BOTH,
    ("T5", "*"): {**BOTH, "halting": "learned"},
    ("T6", "feedforward"): {"tied": False, "segments": 1},
    ("T6", "* iterations"): TIED,
    ("T7", "*"): {"states": 1},
    ("T7", "terminal loss"): {"schedule": "terminal-detached"},
    ("T7", "full anchors"): {"first anchor": 1},
    ("T7", "* anchors*"): {"schedule": "trajectory"},
    ("T8", "*"): PLAIN,
    ("T8", "1 *"): {"tied": False, "segments": 1},
    ("T8", "2 *"): {"states": 1, "segments": 1},
    ("T8", "3 *"): {"states": 1, "segments": 2, **TERMINAL},
    ("T8", "4 *"): {"states": 1, **TERMINAL},
    ("T8", "5 *"): {"states": 1, "schedule": "terminal-detached"},
    ("T8", "6 *"): {"states": 1, "schedule": "trajectory", "first anchor": 1},
    ("T8", "7 *"): {"states": 1, **ONLINE, "truncated": False},
    ("T8", "8 *"): {"states": 1, **ONLINE, "truncated": True},
    ("T8", "9 *"): {"states": 2, **ONLINE, "truncated": False},
    ("T8", "10 *"): {"states": 2, "truncated": True, "halting": "none"},
    ("T8", "11 *"): {"states": 2, "truncated": True, "halting": "oracle"},
    ("T8", "12 learned halting"): {**LEARNED, "truncated": True},
    ("T8", "12 head trained, unused"): {"states": 2, "halting": "learned-unused"},
    ("T8", "12 learned halting, z"): {"states": 1, "halting": "learned"},
    ("T10", "TRM"): {**PLAIN, "learned start": False},
    ("T10", "TRM + RI"): {**RI_ON, "learned start": False},
    ("T10", "TRM + learnable start"): {**PLAIN, "learned start": True},
    **{
        ("T11", f"sigma_H={high}, sigma_L={low}"): {"sigma_H": high, "sigma_L": low, "NI": False}
        for high, low in ((0, 0), (1, 0), (0, 1), (1, 1), (1, 4), (1, 8), (1, 16), (4, 1), (8, 1), (16, 1))
    },
    ("T12", "TRM"): PLAIN,
    ("T12", "+ RI"): RI_ON,
    ("T12", "+ RI + NI"): BOTH,
    ("T13", "learned"): {**BOTH, "learned noise": True},
    ("T14", "learned"): {**BOTH, "learned noise": True},
    **{
        (item, f"beta={beta}"): {"RI": True, "beta": beta, "learned noise": False}
        for item, beta in (("T13", 0.01), ("T13", 0.05), ("T13", 0.1), ("T14", 0.01))
    },
    ("T15", "Mini-ARC, *"): {"task": "mini-arc"},
    ("T15", "Mini-ARC, ?RM"): {"RI": False},
    ("T15", "Mini-ARC, EqR"): {"RI": True},
    ("T15", "Sudoku (tokens), *"): {"mixer": "tokens"},
    ("T15", "Sudoku (attention), *"): {"mixer": "attention"},
    ("T15", "Sudoku *, baseline"): PLAIN,
    ("T15", "Sudoku *, + training intervention"): BOTH,
    ("T15", "Sudoku *, + inference scaling"): BOTH,
    ("T16", "baseline"): PLAIN,
    ("T16", "EqR"): BOTH,
    ("T17", "TRM"): {"RI": False},
    ("T17", "HRM"): {"separate stacks": True},
    ("T17", "EqR"): {"RI": True},
    ("T20", "*"): {"tied": False, "segments": 1},
    ("F1", "*"): BOTH,
    ("F2", "*"): BOTH,
    ("F4", "EqR"): BOTH,
    ("F4", "TRM + RI"): RI_ON,
    ("F5", "baseline*"): PLAIN,
    ("F5", "EqR*"): BOTH,
    ("F6", "TRM, *"): PLAIN,
    ("F6", "TRM + RI, *"): RI_ON,
    ("F6", "EqR, *"): BOTH,
    ("F7", "feedforward"): {"tied": False, "segments": 1},
    ("F7", "* iterations"): TIED,
    ("F8", "*"): {"states": 1},
    ("F8", "terminal loss"): {"schedule": "terminal-detached"},
    ("F8", "full anchors"): {"first anchor": 1},
    ("F8", "* anchors*"): {"schedule": "trajectory"},
    ("F9", "*"): {"states": 2},
    ("F9", "no early halt"): {"halting": "none"},
    ("F9", "head trained, no early halt"): {"halting": "learned-unused"},
    ("F9", "learned halting"): {"halting": "learned"},
    ("F9", "oracle halting"): {"halting": "oracle"},
    ("F10", "TRM"): PLAIN,
    ("F13", "*"): BOTH,
    # the studies
    **{(item, "TRM*"): {**PLAIN, "states": 2} for item in ("E1", "E2", "E4", "E10", "E15", "E16")},
    **{(item, "+ RI*"): RI_ON for item in ("E1", "E2", "E4", "E5", "E10")},
    **{(item, "EqR*"): {**BOTH, "states": 2} for item in ("E1", "E2", "E3", "E4", "E5", "E10", "E15", "E16")},
    **{
        (item, row): {"halting": "learned"}
        for item, rows in (("E1", 3), ("E2", 3), ("E10", 3), ("E15", 2))
        for row in ("TRM", "EqR", "+ RI")[:rows]
    },
    ("E1", "TRM, no halting"): {"halting": "none"},
    ("E1", "TRM, oracle halting"): {"halting": "oracle"},
    ("E1", "TRM, head unused"): {"halting": "learned-unused"},
    ("E3", "*"): {"halting": "learned"},
    ("E6", "feedforward"): {"tied": False, "segments": 1},
    ("E6", "* iterations*"): TIED,
    ("E7", "*"): {**ONLINE, "halting": "none"},
    ("E7", "z*"): {"states": 1},
    ("E7", "(*"): {"states": 2},
    ("E7", "*truncated"): {"truncated": True},
    ("E7", "*[z)]"): {"truncated": False},
    ("E8", "terminal loss"): {"schedule": "terminal-detached"},
    ("E8", "full anchors"): {"schedule": "trajectory", "first anchor": 1},
    ("E8", "late anchors, second half"): {"first anchor": 4},
    ("E8", "late anchors, last quarter"): {"first anchor": 6},
    ("E8", "segmented, *"): ONLINE,
    ("E10", "learned start"): {"learned start": True, "NI": False},
    ("E10", "+ RI, sigma_L=8"): {"sigma_L": 8.0},
    ("E10", "+ RI, sigma_H=8"): {"sigma_H": 8.0},
    ("E10", "EqR, beta=0.05"): {"beta": 0.05},
    ("E10", "EqR, beta=0.1"): {"beta": 0.1},
    ("E10", "EqR without damping"): {"damped": False},
    ("E11", "*"): {"mixer": "attention"},
    ("E11", "TRM"): PLAIN,
    ("E11", "EqR"): BOTH,
    **{
        ("E13", f"{size:,} puzzles, {name}"): {"halting": kind, "trained on": size}
        for size in (100, 300, 1_000, 10_000)
        for name, kind in (
            ("none", "none"),
            ("learned", "learned"),
            ("oracle", "oracle"),
            ("head unused", "learned-unused"),
        )
    },
    ("E14", "*"): {**BOTH, **LEARNED},
    ("E15", "feedforward, *"): FLAT,
    ("E15", "tied, 15 applications"): {"tied": True, "states": 1, "iterations": 15, "segments": 1},
}
"""What holds at either scale, by item and pattern of a row's name; studies have only the lab's."""


def properties(recipe: Recipe) -> dict[str, object]:
    """Return what a recipe is in the paper's words, read off the recipe itself, by name."""
    model, schedule = recipe.model, recipe.schedule
    start = model.start
    return {
        "RI": isinstance(start, RandomStart) and max(start.answer, start.scratch) > 0,
        "sigma_H": start.answer if isinstance(start, RandomStart) else 0.0,
        "sigma_L": start.scratch if isinstance(start, RandomStart) else 0.0,
        "learned start": isinstance(start, LearnedStart),
        "NI": model.path.noise > 0,
        "beta": model.path.noise,
        "learned noise": model.path.learned_noise,
        "damped": model.path.damping > 0,
        "tied": model.recurrence.iterates,
        "states": 2 if model.two_states else 1,
        "separate stacks": model.recurrence.two_stacks,
        "convolution": model.convolution,
        "blocks": model.blocks,
        "layers": model.layers_per_segment,
        "iterations": model.applications,
        "segments": schedule.depth,
        "schedule": schedule.kind,
        "first anchor": getattr(schedule, "first", schedule.depth),
        "truncated": schedule.applications is not None and schedule.applications < model.applications,
        "halting": recipe.halting.kind,
        "mixer": model.mixer.kind,
        "rate": getattr(recipe.optimizer, "rate", 0.0),
        "task": recipe.data.task,
        "augmented": recipe.augment,
        "trained on": getattr(recipe.data, "train", 0),
    }


def cells_of(item: str, row: str) -> Iterator[Cell]:
    cells = [cell for cell in ITEMS[item].cells() if fnmatchcase(cell.row.name, row)]
    assert cells, f"{item} has no row {row!r}"
    return iter(cells)


def disagreements(cell: Cell, expected: dict[str, object], scale: Scale = "lab") -> list[str]:
    built = build(cell, scale)
    if built is None:
        assert scale == "paper"
        return []
    found = properties(built.recipe)
    return [f"{name}: {found[name]}, not {value}" for name, value in expected.items() if found[name] != value]


def test_every_table_and_figure_and_claim_is_there():
    assert list(EXPERIMENTS) == [f"T{n}" for n in range(1, 21)] + [f"F{n}" for n in range(1, 14)]
    assert list(CLAIMS) == [f"C{n}" for n in range(1, 24)]


@pytest.mark.parametrize("place", PAPER, ids=" ".join)
def test_a_row_is_what_the_paper_says(place):
    for cell in cells_of(*place):
        assert disagreements(cell, PAPER[place]) == []


@pytest.mark.parametrize("place", ALWAYS, ids=" ".join)
def test_a_row_is_what_it_says_at_either_scale(place):
    for cell in cells_of(*place):
        for scale in ("lab", "paper"):
            assert disagreements(cell, ALWAYS[place], scale) == []


def test_an_ablation_that_is_not_one_is_caught():
    cell = next(cells_of("T3", "+ RI"))
    broken = replace(cell, row=cell.row.replace(changes={"model.start": "fixed"}))
    assert disagreements(broken, PAPER["T3", "+ RI"]) == ["RI: False, not True"]


def test_a_row_that_cannot_be_built_is_named():
    cell = next(cells_of("T3", "+ RI"))
    with pytest.raises(UserError, match=r"T3 \| \+ RI \| Sudoku: .*optimizer.speed"):
        build(replace(cell, row=cell.row.replace(changes={"optimizer.speed": 1})), "lab")


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
