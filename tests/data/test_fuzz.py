"""Files with random damage load as a valid set or raise `UserError`; no other exception escapes."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_sources import FOUR, SUDOKU, rows, write, write_family

from eqr.data import Splits
from eqr.data.arc_json import read_arc_folder
from eqr.data.csv_source import read_csv
from eqr.data.folders import read_folder, write_folder
from eqr.errors import UserError
from eqr.tasks import task_named

edits = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 2), st.binary(max_size=6)), min_size=1, max_size=4)
"""Where (as a share of the file), what (overwrite, insert, cut off), and with which bytes."""


def damaged(content: bytes, changes) -> bytes:
    for share, kind, new in changes:
        at = int(share * len(content))
        rest = {0: content[at + len(new) :], 1: content[at:], 2: b""}[kind]
        content = content[:at] + new + rest
    return content


def make_csv(folder: Path) -> None:
    write(folder / "a.csv", rows(SUDOKU, FOUR["train"].take(range(6))))


def make_folder(folder: Path) -> None:
    write_folder(FOUR, SUDOKU, folder / "hrm")


def make_families(folder: Path) -> None:
    write_family(folder / "arc" / "flip.json", pairs=2)


def make_dataset(folder: Path) -> None:
    FOUR.save(folder / "set")


CASES: dict[str, tuple[Callable[[Path], None], Callable[[Path], object]]] = {
    "csv": (make_csv, lambda folder: read_csv(folder / "a.csv")),
    "folder": (make_folder, lambda folder: read_folder(folder / "hrm")),
    "families": (make_families, lambda folder: read_arc_folder(folder / "arc", variants=1)),
    "dataset": (make_dataset, lambda folder: Splits.load(folder / "set")),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    made = {case: tmp_path_factory.mktemp(case) for case in CASES}
    for case, folder in made.items():
        CASES[case][0](folder)
    return made


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pick=st.integers(0, 10**6), changes=edits)
def test_damage_is_a_plain_error_or_harmless(case, folders, pick, changes):
    files = sorted(path for path in folders[case].rglob("*") if path.is_file())
    file = files[pick % len(files)]
    whole = file.read_bytes()
    file.write_bytes(damaged(whole, changes))
    try:
        loaded = CASES[case][1](folders[case])
    except UserError:
        return
    finally:
        file.write_bytes(whole)
    for puzzles in [loaded] if case == "csv" else [puzzles for _, puzzles in loaded]:
        assert len(puzzles) > 0
        task_named(puzzles.task).require_tokens(puzzles.inputs)
        task_named(puzzles.task).require_tokens(puzzles.labels)
