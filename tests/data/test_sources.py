"""Laws of the sources: what is imported is what was written, and each mistake is named with its row."""

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest

from eqr.data import Batches, PuzzleSet, Splits, hub, load_split
from eqr.data.arc_json import read_arc_folder
from eqr.data.csv_source import read_csv
from eqr.data.folders import read_folder, write_folder
from eqr.data.generated import generate
from eqr.data.hub import fetch
from eqr.data.sources import Import, read_source
from eqr.data.splits import leaks
from eqr.errors import UserError
from eqr.tasks import task_named
from eqr.tasks.mini_arc import Variant

SHARED = Path(__file__).resolve().parents[2] / ".." / "shared" / "data"
HEADER = "source,question,answer,rating\n"
SUDOKU = task_named("sudoku-4x4")
FOUR = generate(SUDOKU, {"train": 30, "test": 6}, seed=0)


def text(task, grid) -> str:
    return "".join(task.symbols[token - 1] for token in grid)


def rows(task, puzzles) -> list[str]:
    pairs = zip(puzzles.inputs, puzzles.labels, strict=True)
    return [f"made,{text(task, p)},{text(task, a)},{i}\n" for i, (p, a) in enumerate(pairs)]


def write(path: Path, lines: list[str]) -> Path:
    path.write_text(HEADER + "".join(lines))
    return path


def test_csv_gives_back_what_was_written(tmp_path):
    file = write(tmp_path / "a.csv", rows(SUDOKU, FOUR["train"]))
    puzzles = read_csv(file)
    assert (puzzles.task, len(puzzles), puzzles.source_names) == ("sudoku-4x4", 30, ("made",))
    np.testing.assert_array_equal(puzzles.inputs, FOUR["train"].inputs)
    np.testing.assert_array_equal(puzzles.ratings, np.arange(30))


def test_csv_rows_are_drawn_as_the_indices_say(tmp_path):
    file = write(tmp_path / "a.csv", rows(SUDOKU, FOUR["train"]))
    drawn = read_csv(file, count=8, seed=3)
    np.testing.assert_array_equal(drawn.ratings, drawn.metadata["sample"]["indices"])
    assert len(set(drawn.ratings.tolist())) == 8
    with pytest.raises(UserError, match="has 30 rows; cannot draw 31"):
        read_csv(file, count=31)


def test_mazes_come_as_csv_too(tmp_path):
    task = task_named("maze-1k-8x8")
    made = generate(task, {"train": 5}, seed=0)["train"]
    read = read_csv(write(tmp_path / "m.csv", rows(task, made)))
    assert read.task == task.name
    np.testing.assert_array_equal(read.labels, made.labels)


def test_an_ambiguous_maze_is_no_maze_with_one_path(tmp_path):
    file = write(tmp_path / "m.csv", ["x,######S  ##   ##  G######,######So ## oo##  G######,4\n"])
    assert len(read_csv(file, task_named("maze-1k-5x5"))) == 1
    with pytest.raises(
        UserError,
        match=r"line 2: the puzzle has several answers, .*; import it as maze-1k",
    ):
        read_csv(file, task_named("maze-5x5"))


def broken(change) -> list[str]:
    lines = rows(SUDOKU, FOUR["train"].take(range(4)))
    lines[2] = change(lines[2])
    return lines


SOURCE, PUZZLE, ANSWER, _ = rows(SUDOKU, FOUR["train"])[2].strip().split(",")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (broken(lambda line: line[: -len(",2\n")] + "\n"), "line 4 has 3 columns.*cut off"),
        (broken(lambda line: line.replace(PUZZLE, PUZZLE[:-1])), "line 4, question: .*16 cells"),
        (broken(lambda line: line.replace(PUZZLE, "9" + PUZZLE[1:])), "line 4, question: .*'9'"),
        (broken(lambda line: line.replace(ANSWER, ANSWER[::-1])), "line 4: the answer does not solve"),
        (broken(lambda line: line.replace(PUZZLE, "." * 16)), "line 4: the puzzle has several answers"),
        (
            broken(lambda line: line.replace(PUZZLE, "11" + PUZZLE[2:])),
            "line 4: the puzzle is not well formed",
        ),
        (broken(lambda line: line.replace(",2\n", ",-2\n")), "line 4: rating '-2'"),
        (broken(lambda line: line.replace(",2\n", ',"2\n')), "not valid CSV"),
        ([], "no rows"),
    ],
)
def test_a_bad_row_is_named(tmp_path, lines, message):
    with pytest.raises(UserError, match=message):
        read_csv(write(tmp_path / "a.csv", lines), SUDOKU)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no column 'question'"),
        (b"source,qestion,answer,rating\n", "'qestion'; did you mean 'question'"),
        (b"question,answer,answer\n", "twice"),
        (HEADER.encode() + b"\xff\xfe,a,b,1\n", "not UTF-8"),
        (HEADER.encode() + b"x,12,34,1\n", "cannot tell the task"),
    ],
)
def test_a_bad_file_is_named(tmp_path, content, message):
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_csv(tmp_path / "a.csv")


def test_source_and_rating_may_be_missing(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text(f"question,answer\n{PUZZLE},{ANSWER}\n")
    assert read_csv(file).ratings.tolist() == [0]


def test_folders_give_back_what_was_written(tmp_path):
    write_folder(FOUR, SUDOKU, tmp_path / "hrm")
    back = read_folder(tmp_path / "hrm")
    for name, puzzles in FOUR:
        np.testing.assert_array_equal(back[name].inputs, puzzles.inputs)
        np.testing.assert_array_equal(back[name].labels, puzzles.labels)
        np.testing.assert_array_equal(back[name].groups, puzzles.groups)


def test_folders_are_what_the_original_loaders_ask_for(tmp_path):
    grouped = PuzzleSet.of(
        "sudoku-4x4", FOUR["train"].inputs, FOUR["train"].labels, groups=np.arange(30) % 10
    )
    write_folder(Splits({"train": grouped}), SUDOKU, tmp_path / "hrm")
    metadata = json.loads((tmp_path / "hrm/train/dataset.json").read_text())
    assert metadata == {
        "pad_id": 0,
        "ignore_label_id": 0,
        "blank_identifier_id": 0,
        "vocab_size": 6,
        "seq_len": 16,
        "num_puzzle_identifiers": 1,
        "total_groups": 10,
        "mean_puzzle_examples": 1.0,
        "total_puzzles": 30,
        "total_samples": 30,
        "sets": ["all"],
    }
    assert json.loads((tmp_path / "hrm/identifiers.json").read_text()) == ["<blank>"]
    column = {
        name: np.load(tmp_path / f"hrm/train/all__{name}.npy")
        for name in ("inputs", "labels", "puzzle_identifiers", "puzzle_indices", "group_indices")
    }
    assert column["inputs"].dtype == np.uint8
    assert {column[n].dtype for n in ("puzzle_identifiers", "puzzle_indices", "group_indices")} == {
        np.dtype(np.int32)
    }
    assert column["group_indices"].tolist() == list(range(0, 31, 3))
    assert column["puzzle_indices"].tolist() == list(range(31))
    first_group = column["inputs"][column["group_indices"][0] : column["group_indices"][1]]
    np.testing.assert_array_equal(first_group, grouped.inputs[[0, 10, 20]])


def test_families_survive_the_folder_format(tmp_path):
    write_family(tmp_path / "arc" / "flip.json", pairs=3)
    write_family(tmp_path / "arc" / "turn.json", pairs=2)
    splits = read_arc_folder(tmp_path / "arc", variants=2)
    write_folder(splits, task_named("mini-arc"), tmp_path / "hrm")
    assert np.load(tmp_path / "hrm/train/all__group_indices.npy").tolist() == [0, 3, 6]
    assert np.load(tmp_path / "hrm/train/all__puzzle_indices.npy").tolist() == [0, 3, 6, 9, 11, 13, 15]
    back = read_folder(tmp_path / "hrm")
    for name, puzzles in splits:
        np.testing.assert_array_equal(back[name].inputs, puzzles.inputs)
        np.testing.assert_array_equal(back[name].identities, puzzles.identities)
        np.testing.assert_array_equal(back[name].groups, puzzles.groups)
        assert back[name].identity_names == puzzles.identity_names


@pytest.mark.parametrize(
    ("file", "array", "message"),
    [
        ("all__group_indices.npy", np.array([0, 5]), "must rise from 0 to 30"),
        ("all__puzzle_indices.npy", np.array([0, 31, 30]), "must rise"),
        ("all__puzzle_identifiers.npy", np.full(30, 4), "0..0"),
        ("all__inputs.npy", np.full((30, 16), 9), "row 0: tokens must lie in 0..5"),
        ("all__inputs.npy", np.full((30, 16), 0), "row 0: .*padding"),
        ("all__labels.npy", np.full((30, 16), 2), "row 0: the answer does not solve"),
        ("all__labels.npy", np.zeros((30, 15), np.uint8), r"needed \(30, 16\)"),
        ("all__labels.npy", np.zeros((30, 16)), "2-dimensional float64"),
    ],
)
def test_a_bad_folder_is_named(tmp_path, file, array, message):
    write_folder(FOUR, SUDOKU, tmp_path / "hrm")
    np.save(tmp_path / "hrm/train" / file, array)
    with pytest.raises(UserError, match=message):
        read_folder(tmp_path / "hrm")


def test_ignored_labels_become_zero(tmp_path):
    write_folder(FOUR, SUDOKU, tmp_path / "hrm")
    file = tmp_path / "hrm/train/dataset.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "ignore_label_id": 3, "new_field": 1}))
    labels = read_folder(tmp_path / "hrm")["train"].labels
    np.testing.assert_array_equal(labels == 0, FOUR["train"].labels == 3)


def write_family(path: Path, pairs: int) -> None:
    path.parent.mkdir(exist_ok=True)
    rng = np.random.default_rng(pairs)
    grids = rng.integers(0, 10, (pairs + 1, 2, 5, 5)).tolist()
    made = [{"input": before, "output": after} for before, after in grids]
    path.write_text(json.dumps({"train": made[:-1], "test": made[-1:]}))


def test_arc_variants_are_undone_by_their_names(tmp_path):
    write_family(tmp_path / "flip.json", pairs=3)
    splits = read_arc_folder(tmp_path, variants=5, seed=1)
    train, original = splits["train"], read_arc_folder(tmp_path)["train"]
    assert (len(train), len(original), len(splits["test"])) == (18, 3, 6)
    assert train.identity_names == splits["test"].identity_names
    for identity, name in list(enumerate(train.identity_names))[1:]:
        family, variant = Variant.from_name(name)
        member = np.flatnonzero(train.identities == identity)
        assert family == "flip"
        np.testing.assert_array_equal(variant.inverse().apply(train.inputs[member]), original.inputs)
        np.testing.assert_array_equal(variant.inverse().apply(train.labels[member]), original.labels)
    assert Batches(train, task_named("mini-arc"), seed=0, augment=True).rows_per_epoch == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "Mini-ARC file"),
        ('{"train": [], "test": []}', "'train' is empty"),
        ('{"train": [{"input": [[1]]}], "test": []}', "train pair 1 must be"),
        ('{"train": [{"input": [[1]], "output": [[1]]}], "test": []}', "train pair 1: row 1 .* it needs 5"),
        ('{"train"', "line 1 is not valid JSON"),
    ],
)
def test_a_bad_family_is_named(tmp_path, content, message):
    (tmp_path / "flip.json").write_text(content)
    with pytest.raises(UserError, match=message):
        read_arc_folder(tmp_path)


def test_sources_are_recognised_and_split_without_sharing(tmp_path):
    file = write(tmp_path / "train.csv", rows(SUDOKU, FOUR["train"]))
    alone = read_source(Import(source=str(file), validation=5, test=6))
    assert len(leaks(alone["train"], alone["test"], SUDOKU)) == 0
    assert sum(len(puzzles) for _, puzzles in alone) == 30
    write(tmp_path / "test.csv", rows(SUDOKU, FOUR["test"]))
    both = read_source(Import(source=str(tmp_path), count=7, test=4))
    assert [(name, len(puzzles)) for name, puzzles in both] == [("train", 7), ("test", 4)]
    named = read_source(Import(source=str(file), test_from=tmp_path / "test.csv"))
    assert [(name, len(puzzles)) for name, puzzles in named] == [("train", 30), ("test", 6)]
    write_folder(FOUR, SUDOKU, tmp_path / "hrm")
    held_out = read_source(Import(source=str(tmp_path / "hrm"), count=20, validation=5))
    assert sum(len(held_out[name]) for name in ("train", "validation")) == 25
    folder = read_source(Import(source=str(tmp_path / "hrm"), count=9))
    assert [(name, len(puzzles)) for name, puzzles in folder] == [("train", 9), ("test", 6)]
    with pytest.raises(UserError, match="go with CSV files"):
        read_source(Import(source=str(tmp_path / "hrm"), test_from=tmp_path / "test.csv"))
    with pytest.raises(UserError, match="did you mean 'sapientinc/sudoku-extreme'"):
        read_source(Import(source="sapientinc/sudoku-extrem"))


def test_the_hub_offline_is_one_plain_message(monkeypatch):
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    def offline(*_, **__):
        raise LocalEntryNotFoundError("no connection")

    monkeypatch.setattr(hub, "reachable", lambda: False)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", offline)
    with pytest.raises(UserError, match=r"cannot fetch sapientinc/sudoku-extreme .*check the connection"):
        fetch("sudoku-extreme")


def test_the_hub_online_gives_both_files(monkeypatch, tmp_path):
    import huggingface_hub

    write(tmp_path / "train.csv", rows(SUDOKU, FOUR["train"]))
    write(tmp_path / "test.csv", rows(SUDOKU, FOUR["test"]))
    monkeypatch.setattr(hub, "reachable", lambda: True)
    monkeypatch.setattr(
        huggingface_hub, "hf_hub_download", lambda name, file, repo_type: str(tmp_path / file)
    )
    splits = read_source(Import(source="sapientinc/sudoku-extreme"))
    assert [(name, len(puzzles)) for name, puzzles in splits] == [("train", 30), ("test", 6)]


@pytest.mark.skipif(not (SHARED / "sudoku").is_dir(), reason="the sample files are not here")
@pytest.mark.parametrize(
    ("name", "count"), [("clue17_train", 2500), ("clue17_dev", 500), ("hard_train", 5000), ("hard_dev", 1000)]
)
def test_sudoku_extreme_rows_import_cleanly(name, count):
    file = SHARED / "sudoku" / f"{name}.csv"
    puzzles = read_csv(file)
    assert (puzzles.task, len(puzzles)) == ("sudoku-9x9", count)


@pytest.mark.skipif(not (SHARED / "mini_arc").is_dir(), reason="the sample files are not here")
def test_mini_arc_imports_with_its_published_counts():
    splits = read_arc_folder(SHARED / "mini_arc")
    assert (len(splits["train"]), len(splits["test"])) == (528, 149)
    assert len(splits["train"].identity_names) == 150
    assert len(leaks(splits["train"], splits["test"], task_named("mini-arc"))) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sets": ["../../secret"]}, "sets"),
        ({"sets": ["/etc/passwd"]}, "sets"),
        ({"num_puzzle_identifiers": 10**7}, "identifiers"),
        ({"num_puzzle_identifiers": 10**12}, "identifiers"),
        ({"sets": None}, "sets"),
    ],
)
def test_a_folder_cannot_point_outside_itself_nor_ask_for_the_moon(tmp_path, change, message):
    write_folder(FOUR, SUDOKU, tmp_path / "hrm")
    metadata = tmp_path / "hrm" / "test" / "dataset.json"
    metadata.write_text(json.dumps({**json.loads(metadata.read_text()), **change}))
    with pytest.raises(UserError, match=message):
        read_folder(tmp_path / "hrm")


def test_pipes_are_no_puzzles(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for source in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(UserError, match="pipe or device"):
            read_source(Import(source=str(source)))
    FOUR.save(tmp_path / "set")
    (tmp_path / "set" / "test" / "inputs.npy").unlink()
    os.mkfifo(tmp_path / "set" / "test" / "inputs.npy")
    with pytest.raises(UserError, match="pipe or device"):
        Splits.load(tmp_path / "set")


def test_a_hub_that_does_not_answer_is_known_within_seconds(monkeypatch):
    monkeypatch.setattr(hub, "WAIT", 0.2)
    hub.reachable.cache_clear()
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    began = time.monotonic()
    assert not hub.reachable()
    hub.reachable.cache_clear()
    monkeypatch.setattr(hub, "_answers", lambda address: time.sleep(30))
    assert not hub.reachable()
    assert time.monotonic() - began < 5
    hub.reachable.cache_clear()


def test_a_csv_names_its_split_and_columns(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id,puzzle,solution,level\n" + "".join(rows(SUDOKU, FOUR["train"].take(range(6)))))
    theirs = {"question": "puzzle", "answer": "solution"}
    with pytest.raises(UserError, match="--column question=puzzle"):
        read_source(Import(source=str(path)))
    splits = read_source(Import(source=str(path), split="test", columns=theirs))
    assert [(name, len(puzzles)) for name, puzzles in splits] == [("test", 6)]
    assert np.array_equal(splits["test"].inputs, FOUR["train"].inputs[:6])
    with pytest.raises(UserError, match="has no column 'quiz'"):
        read_source(Import(source=str(path), columns={**theirs, "question": "quiz"}))
    with pytest.raises(UserError, match="--column qestion: no such column; did you mean 'question'"):
        read_source(Import(source=str(path), columns={"qestion": "puzzle"}))
    splits.save(tmp_path / "set")
    with pytest.raises(UserError, match="no 'train' split; known: test; name one that it has with --split"):
        load_split(tmp_path / "set", "train")
