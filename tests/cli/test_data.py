"""`eqr data` as people use it: build, show, import, export, and what happens when things go wrong."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from eqr.cli import app
from eqr.data import Splits
from eqr.errors import UserError

run = CliRunner()


def eqr(*words: object) -> str:
    result = run.invoke(app, ["data", *map(str, words)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_build_then_show(tmp_path):
    said = eqr("build", "sudoku-4x4", "--out", tmp_path / "a", "--count", 60, "--clues", 6, "--test", 9, "-q")
    assert "60 puzzles" in said
    shown = eqr("show", tmp_path / "a", "-n", 2)
    assert "train: 60 puzzles" in shown
    assert "test: 9 puzzles" in shown
    assert "clues: 6 to 6" in shown
    assert "train and test share 0 puzzles" in shown
    assert shown.count(" | ") == 2 * 4 * 2
    facts = json.loads(eqr("show", tmp_path / "a", "--json"))
    assert facts["splits"]["train"]["numbers"]["clues"]["histogram"] == [[6, 6, 60]]
    assert facts["leaks"] == {"train-validation": 0, "train-test": 0, "validation-test": 0}


def test_the_same_seed_builds_the_same_set(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        eqr(
            "build",
            "maze-unique",
            "--size",
            "7x9",
            "-o",
            tmp_path / name,
            "--count",
            20,
            "--seed",
            seed,
            "-q",
        )
    a, b, c = (Splits.load(tmp_path / name)["train"] for name in "abc")
    assert a.task == "maze-7x9"
    assert a.digest == b.digest != c.digest


def test_options_are_passed_on_and_typos_named(tmp_path):
    eqr("build", "maze-11x11", "-o", tmp_path / "a", "--count", 10, "--option", "min_length=20", "-q")
    assert Splits.load(tmp_path / "a")["train"].ratings.min() >= 20
    with pytest.raises(UserError, match="'min_lenght'; did you mean 'min_length'"):
        eqr("build", "maze-11x11", "-o", tmp_path / "b", "--option", "min_lenght=20")
    with pytest.raises(UserError, match="KEY=VALUE"):
        eqr("build", "maze-11x11", "-o", tmp_path / "b", "--option", "min_length")
    with pytest.raises(UserError, match="--size big"):
        eqr("build", "maze-unique", "-o", tmp_path / "b", "--size", "big")
    assert left_in(tmp_path) == ["a"]


def test_export_then_import_gives_the_puzzles_back(tmp_path):
    eqr("build", "sudoku-4x4", "--out", tmp_path / "a", "--count", 40, "-q")
    eqr("export", tmp_path / "a", "--out", tmp_path / "hrm")
    eqr("import", tmp_path / "hrm", "--out", tmp_path / "b", "-q")
    before, after = Splits.load(tmp_path / "a"), Splits.load(tmp_path / "b")
    for name, puzzles in before:
        assert after[name].inputs.tobytes() == puzzles.inputs.tobytes()


def test_a_bad_import_leaves_nothing_behind(tmp_path):
    (tmp_path / "a.csv").write_text("question,answer\n" + "1" * 16 + "," + "1" * 16 + "\n")
    with pytest.raises(UserError, match="line 2: the puzzle is not well formed"):
        eqr("import", tmp_path / "a.csv", "--out", tmp_path / "b")
    assert left_in(tmp_path) == ["a.csv"]


def test_leaks_of_an_import_are_told(tmp_path):
    eqr("build", "sudoku-4x4", "--out", tmp_path / "a", "--count", 5, "-q")
    train = Splits.load(tmp_path / "a")["train"]
    Splits({"train": train, "test": train}).save(tmp_path / "leaky")
    eqr("export", tmp_path / "leaky", "--out", tmp_path / "hrm")
    assert "warning: 5 test puzzles are training puzzles" in eqr(
        "import", tmp_path / "hrm", "--out", tmp_path / "b", "-q"
    )


def test_an_existing_folder_is_refused_before_any_work(tmp_path):
    eqr("build", "sudoku-4x4", "--out", tmp_path / "a", "--count", 5, "-q")
    started = time.monotonic()
    with pytest.raises(UserError, match=r"already exists.*--overwrite"):
        eqr("build", "sudoku-9x9", "--out", tmp_path / "a", "--count", 100_000)
    assert time.monotonic() - started < 5
    eqr("build", "sudoku-4x4", "--out", tmp_path / "a", "--count", 6, "--overwrite", "-q")
    assert len(Splits.load(tmp_path / "a")["train"]) == 6


def test_output_that_cannot_be_written_is_one_plain_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        eqr("build", "sudoku-4x4", "--out", tmp_path / "file" / "a", "--count", 5)


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("eqr.data.puzzles.np.save", full)
    with pytest.raises(UserError, match="No space left on device"):
        eqr("build", "sudoku-4x4", "--out", tmp_path / "a", "--count", 5, "-q")
    assert left_in(tmp_path) == []


@pytest.mark.parametrize("workers", [0, 1])
def test_an_interrupted_build_leaves_nothing_behind(tmp_path, workers):
    words = ["data", "build", "maze-unique", "--count", "1000000", "--out", str(tmp_path / "a")]
    build = subprocess.Popen(
        [sys.executable, "-m", "eqr", *words, "--workers", str(workers)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    waited_until = time.monotonic() + 60
    while not left_in(tmp_path) and time.monotonic() < waited_until:
        time.sleep(0.05)
    time.sleep(0.5)
    build.send_signal(signal.SIGINT)
    _, said = build.communicate(timeout=60)
    assert build.returncode == 130, said
    assert "Traceback" not in said
    assert said.rstrip().endswith("interrupted")
    assert left_in(tmp_path) == []
