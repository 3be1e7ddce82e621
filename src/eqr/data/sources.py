"""The front door of `eqr data import`: recognise what a source is, read it, and give its splits.

A source with its own test split keeps it; from one without, validation and test puzzles are split off so that
they share nothing with training.
"""

from pathlib import Path
from typing import Literal

from pydantic import Field

from eqr.data.arc_json import is_arc_folder, read_arc_folder
from eqr.data.csv_source import read_csv
from eqr.data.folders import is_folder, read_folder
from eqr.data.hub import FILES, HUB, fetch, is_hub_name
from eqr.data.puzzles import PuzzleSet
from eqr.data.splits import DATASET, Splits, carve, sample
from eqr.errors import UserError, nearest
from eqr.tasks.base import Task
from eqr.tasks.registry import task_named
from eqr.value import Value


class Import(Value):
    """What to take from a source."""

    source: str
    """A CSV file; a folder with train.csv and test.csv; an HRM, TRM or EqR folder; a folder of ARC JSON
    files; or the name of a public dataset."""
    task: str | None = None
    count: int | None = None
    """Training rows to draw; all by default."""
    validation: int = 0
    """Rows split off from training."""
    test: int | None = None
    """Test rows to draw from the source's test split, or to split off where it has none."""
    split: Literal["train", "validation", "test"] = "train"
    """Which split a CSV file is."""
    columns: dict[str, str] = Field(default_factory=dict)
    """CSV files: their names for our columns, such as {"question": "puzzle", "answer": "solution"}."""
    validation_from: Path | None = None
    test_from: Path | None = None
    """CSV files that are the other splits."""
    variants: int = 0
    """Mini-ARC: augmented copies of each family, beside the original."""
    seed: int = 0


def read_source(wanted: Import, *, quiet: bool = True) -> Splits:
    """Read a source whole or in part; every row read is checked, and nothing is written."""
    task = task_named(wanted.task) if wanted.task is not None else None
    path = Path(wanted.source)
    if path.exists() and not path.is_dir():
        sets = _read_files({wanted.split: path}, wanted, task, quiet=quiet)
    elif (path / DATASET).is_file():
        raise UserError(f"{path} is an eqr dataset already; use it as it is, or look with `eqr data show`")
    elif is_folder(path):
        sets = _limited(dict(read_folder(path, task, quiet=quiet)), wanted)
    elif path.is_dir() and any((path / name).is_file() for name in FILES.values()):
        files = {split: path / name for split, name in FILES.items() if (path / name).is_file()}
        sets = _read_files(files, wanted, task, quiet=quiet)
    elif is_arc_folder(path):
        sets = _limited(dict(read_arc_folder(path, variants=wanted.variants, seed=wanted.seed)), wanted)
    elif is_hub_name(wanted.source):
        sets = _read_files(fetch(wanted.source), wanted, task, quiet=quiet)
    else:
        raise UserError(
            f"cannot import {wanted.source!r}: no such file, dataset folder or hub dataset"
            f"{nearest(wanted.source, HUB)}"
        )
    return _divided(sets, wanted)


def _read_files(
    files: dict[str, Path], wanted: Import, task: Task | None, *, quiet: bool
) -> dict[str, PuzzleSet]:
    more = {"validation": wanted.validation_from, "test": wanted.test_from}
    files = {**files, **{split: path for split, path in more.items() if path is not None}}
    counts = {"train": _training_rows(wanted, set(files)), "test": wanted.test}
    if wanted.split != "train":
        counts[wanted.split] = wanted.count if wanted.test is None else wanted.test
    return {
        split: read_csv(
            path, task, count=counts.get(split), seed=wanted.seed, columns=wanted.columns, quiet=quiet
        )
        for split, path in files.items()
    }


def _training_rows(wanted: Import, splits: set[str]) -> int | None:
    """How many training rows to draw: what is split off comes on top of what was asked for."""
    if wanted.count is None:
        return None
    validation = 0 if "validation" in splits else wanted.validation
    return wanted.count + validation + (0 if "test" in splits else wanted.test or 0)


def _limited(sets: dict[str, PuzzleSet], wanted: Import) -> dict[str, PuzzleSet]:
    if wanted.validation_from is not None or wanted.test_from is not None:
        raise UserError("--validation-from and --test-from go with CSV files; a folder brings its own splits")
    if wanted.split != "train" or wanted.columns:
        raise UserError("--split and --column go with a CSV file; a folder brings its own splits")
    for split, count in (("train", _training_rows(wanted, set(sets))), ("test", wanted.test)):
        if count is not None and split in sets:
            sets[split] = sample(sets[split], count, wanted.seed)
    return sets


def _divided(sets: dict[str, PuzzleSet], wanted: Import) -> Splits:
    """Split validation and test off training where the source has none."""
    for split, count in (("validation", wanted.validation), ("test", wanted.test)):
        if count and split not in sets:
            if "train" not in sets:
                raise UserError(f"there are no training puzzles to split {count} {split} puzzles off")
            train = sets["train"]
            sets["train"], sets[split] = carve(train, task_named(train.task), count, wanted.seed)
    return Splits(sets)
