"""Evaluation: one run serves every budget, interrupted runs go on, two processes fill one table."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import eqr.results.evaluate as module
from eqr.backends.cpu.row_executor import shared_executor
from eqr.data import PuzzleSet
from eqr.data.generated import generate
from eqr.errors import UserError
from eqr.results.evaluate import BudgetSweep, evaluate, fill, run_parts
from eqr.results.table import CandidateTable, Manifest, model_digest
from eqr.solve import Budget, FirstToHalt, HaltHead, LowestResidual, MajorityVote, load
from eqr.solve.engine import Engine
from eqr.tasks import task_named
from eqr.train.distributed import World
from settling import Settling, assert_equal_up_to_rounding, puzzles_4x4

PUZZLES = puzzles_4x4(30)
TOLD = ("tokens", "status", "depth", "halt", "residuals", "logit_residuals", "probe")
"""Columns of a table that say what a model did: all but the seconds."""
RULES = {"residual": LowestResidual(), "majority": MajorityVote(), "race": FirstToHalt()}


def sweep(**changes) -> BudgetSweep:
    given = {"budget": Budget(halting=HaltHead()), "depths": (4, 12), "breadths": (1, 3), "select": RULES}
    return BudgetSweep(**{**given, **changes})


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch):
    monkeypatch.setattr(module, "part_size", lambda breadth: 8)


def run(out: Path, **changes):
    reasoner = changes.pop("reasoner", None) or Settling(PUZZLES, stuck=0.3)
    return evaluate(reasoner, PUZZLES, sweep(**changes), out, slots=16, quiet=True).to_json()


def columns(folder: Path) -> dict[str, np.ndarray]:
    blocks = [block.candidates.columns() for block in CandidateTable.load(folder).blocks()]
    names = [name for name in blocks[0] if name != "seconds"]
    return {name: np.concatenate([block[name] for block in blocks]) for name in names}


def without_times(said):
    return {**said, "rows": [row for row in said["rows"] if row["metric"] != "seconds"]}


def test_one_run_serves_every_budget(tmp_path):
    said = run(tmp_path / "sweep")
    budgets = [(4, 1), (4, 3), (12, 1), (12, 3)]
    whole = [row for row in without_times(said)["rows"] if row["metric"] != "expected exact"]
    assert list(dict.fromkeys((row["depth"], row["breadth"]) for row in whole)) == budgets
    for depth, breadth in budgets:
        alone = without_times(
            run(tmp_path / f"alone-{depth}-{breadth}", depths=(depth,), breadths=(breadth,))
        )
        same = [row for row in whole if (row["depth"], row["breadth"]) == (depth, breadth)]
        assert [row for row in alone["rows"] if row["metric"] != "expected exact"] == same
    assert len(list((tmp_path / "sweep").iterdir())) == 1


@pytest.fixture
def two_threads():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)


def test_a_part_has_the_same_bits_whoever_runs_it(two_threads):
    reasoner = load("sudoku-9x9", device="cpu")
    task = task_named("sudoku-9x9")
    puzzles = generate(task, {"test": 40}, seed=1, options=task.options({}), quiet=True)["test"]
    manifest = Manifest(
        task=task.name,
        model="",
        data="",
        puzzles=40,
        budget=Budget(depth=3),
        depths=(1, 3),
        window=2,
        part=20,
    )

    def bits(numbers, **cores):
        parts = run_parts(manifest, numbers, reasoner, puzzles, slots=12, **cores)
        blocks = {block.first: block.candidates.columns() for block, _ in parts if block is not None}
        return {(first, name): blocks[first][name].tobytes() for first in blocks for name in TOLD}

    whole = bits([0, 1])
    assert {**bits([1]), **bits([0])} == whole
    torch.set_num_threads(1)
    assert bits([1, 0], cores=2) == whole
    pieces = [len(shared_executor(reasoner.config, torch.device("cpu"), n).cuts(12)) for n in (1, 2)]
    assert pieces == [1, 2]  # else this could not fail


def test_an_interrupted_run_keeps_what_it_has_and_goes_on(tmp_path, monkeypatch):
    whole = run(tmp_path / "whole")
    advanced = []
    advance = Engine._finished

    def interrupted(self, *args):
        advanced.append(1)
        if len(advanced) == 25:
            raise KeyboardInterrupt
        return advance(self, *args)

    monkeypatch.setattr(Engine, "_finished", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "again")
    table = CandidateTable.load(tmp_path / "again" / "depth-12-breadth-3")
    left = table.missing()
    assert 0 < len(left) < 4
    with pytest.raises(UserError, match="not complete"):
        list(table.blocks())
    assert not list(table.folder.glob(".*")), "a half-written file was left"
    kept = {path: path.stat().st_mtime_ns for path in table.folder.glob("part-*")}
    assert without_times(run(tmp_path / "again")) == without_times(whole)
    assert all(path.stat().st_mtime_ns == when for path, when in kept.items())


def test_a_finished_table_is_not_run_again(tmp_path, monkeypatch):
    first = run(tmp_path)
    monkeypatch.setattr(Engine, "_finished", lambda *args: pytest.fail("the model ran again"))
    assert run(tmp_path) == first


def test_another_runs_table_is_not_mixed_in(tmp_path):
    run(tmp_path)
    with pytest.raises(UserError, match=r"budget differ.*--overwrite"):
        run(tmp_path, budget=Budget(halting=HaltHead(threshold=1.0)))
    other = Settling(PUZZLES)
    other.embedding.data += 1
    with pytest.raises(UserError, match="model differ"):
        run(tmp_path, reasoner=other)
    said = evaluate(other, PUZZLES, sweep(), tmp_path, overwrite=True, quiet=True)
    assert said.model == model_digest(other)


def test_a_table_of_other_answers_is_not_reused(tmp_path):
    run(tmp_path)
    path = next(tmp_path.glob("*/manifest.json"))
    before = json.loads(path.read_text())
    path.write_text(json.dumps({**before, "answers": before["answers"] + 1}))
    with pytest.raises(UserError, match=r"another run \(answers differ\)"):
        run(tmp_path)
    del before["answers"]
    for code in ({"code": "0123456789abcdef"}, {}):  # from before versions were counted
        path.write_text(json.dumps({**before, **code}))
        run(tmp_path)


@pytest.mark.parametrize("text", ["null", "3", "[]", "{}", "[" * 9999])
def test_a_manifest_that_is_none_is_named(tmp_path, text):
    run(tmp_path)
    next(tmp_path.rglob("manifest.json")).write_text(text)
    with pytest.raises(UserError, match=r"manifest\.json"):
        run(tmp_path)


def test_parts_without_a_manifest_are_kept(tmp_path):
    run(tmp_path)
    next(tmp_path.rglob("manifest.json")).unlink()
    before = {path: path.read_bytes() for path in tmp_path.rglob("part-*")}
    with pytest.raises(UserError, match=r"parts of candidates but no manifest\.json"):
        run(tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("part-*")} == before
    again = evaluate(Settling(PUZZLES, stuck=0.3), PUZZLES, sweep(), tmp_path, overwrite=True, quiet=True)
    assert again is not None


def test_a_damaged_part_is_named(tmp_path):
    run(tmp_path)
    part = next(tmp_path.rglob("part-000001.npz"))
    part.write_bytes(part.read_bytes()[:100])
    with pytest.raises(UserError, match="part-000001"):
        run(tmp_path)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda columns: {**columns, "depth": np.zeros(10**7, np.int8)}, "is compressed"),
        (lambda columns: {**columns, "depth": columns["depth"][:1]}, r"other rows than manifest.*depth"),
        (lambda columns: {**columns, "halt": columns["halt"].astype(np.float64)}, r"other rows.*halt"),
        (lambda columns: {"tokens": columns["tokens"]}, "other rows than manifest"),
    ],
)
def test_a_part_of_other_rows_is_named(tmp_path, spoil, message):
    run(tmp_path)
    part = next(tmp_path.rglob("part-000001.npz"))
    with np.load(part) as saved:
        columns = spoil(dict(saved))
    (np.savez_compressed if message == "is compressed" else np.savez)(part, **columns)
    with pytest.raises(UserError, match=message):
        run(tmp_path)


def test_a_full_disk_keeps_the_parts_that_were_written(tmp_path, monkeypatch):
    save, parts = np.savez, []

    def full(*args, **columns):
        parts.append(1)
        if len(parts) == 2:
            raise OSError(28, "No space left on device")
        save(*args, **columns)

    monkeypatch.setattr("eqr.results.table.np.savez", full)
    with pytest.raises(UserError, match="No space left on device"):
        run(tmp_path)
    folder = tmp_path / "depth-12-breadth-3"
    assert len(list(folder.glob("part-*.npz"))) == 1
    assert not list(folder.glob(".*"))


def test_puzzles_without_labels_or_with_unknown_identities_are_refused(tmp_path):
    bare = PuzzleSet.of(PUZZLES.task, PUZZLES.inputs, np.zeros_like(PUZZLES.labels))
    with pytest.raises(UserError, match="has a label"):
        evaluate(Settling(PUZZLES), bare, sweep(), tmp_path / "out")
    strangers = PuzzleSet.of(
        PUZZLES.task,
        PUZZLES.inputs,
        PUZZLES.labels,
        identities=np.full(len(PUZZLES), 4),
        identity_names=("<blank>", *"abcd"),
    )
    reasoner = Settling(PUZZLES)
    reasoner.config = reasoner.config.replace(identity_tokens=1, identities=3)
    with pytest.raises(UserError, match="knows 3 identities, these puzzles have 5"):
        evaluate(reasoner, strangers, sweep(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_ranks_fill_the_table_of_one_process(tmp_path):
    run(tmp_path / "one", depths=(12,), breadths=(3,))
    one = tmp_path / "one" / "depth-12-breadth-3"
    table = CandidateTable.open(tmp_path / "two", CandidateTable.load(one).manifest)
    for rank in (1, 0):
        fill(table, Settling(PUZZLES, stuck=0.3), PUZZLES, world=World(rank, 2), quiet=True)
    for name, array in columns(one).items():
        assert_equal_up_to_rounding(array, columns(tmp_path / "two")[name], name)


def test_races_are_run_and_equal_what_the_whole_table_says(tmp_path):
    budgets = Budget(halting=HaltHead()), Budget(halting=HaltHead(), race=True)
    whole, raced = (
        evaluate(
            Settling(PUZZLES, stuck=0.3),
            PUZZLES,
            sweep(budget=budget, depths=(12,), breadths=(3,)),
            tmp_path / f"race-{budget.race}",
            slots=16,
            quiet=True,
        )
        for budget in budgets
    )
    for metric in ("exact", "valid"):
        assert raced.one(metric, rule="race") == whole.one(metric, rule="race")
    assert raced.one("nfe").value < whole.one("nfe").value
    assert "mean over starts" not in {row.rule for row in raced.rows}


def test_the_wrong_puzzles_are_refused(tmp_path):
    with pytest.raises(UserError, match="empty"):
        evaluate(Settling(PUZZLES), PUZZLES.take([]), sweep(), tmp_path)
    reasoner = Settling(PUZZLES)
    reasoner.config = reasoner.config.replace(task="sudoku-6x6")
    with pytest.raises(UserError, match=r"for sudoku-6x6, these puzzles are sudoku-4x4"):
        evaluate(reasoner, PUZZLES, sweep(), tmp_path)
    with pytest.raises(UserError, match="depth = 0"):
        run(tmp_path, depths=(0,))


SCRIPT = """
import json, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from settling import Settling, assert_equal_up_to_rounding, puzzles_4x4
import torch
import eqr.results.evaluate as module
from eqr.solve import Budget, HaltHead, MajorityVote
from eqr.train.distributed import joined
module.part_size = lambda breadth: 8
puzzles = puzzles_4x4(30)
sweep = module.BudgetSweep(budget=Budget(halting=HaltHead()), depths=(4, 12), breadths=(1, 3),
                     select={{"majority": MajorityVote()}})
reasoner = Settling(puzzles, stuck=0.3)
with joined(torch.device("cpu")) as world:
    found = module.evaluate(reasoner, puzzles, sweep, Path({out!r}), world=world, quiet=True)
if world.first:
    print(json.dumps(found.to_json()))
else:
    assert found is None
"""


def test_two_processes_equal_one(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(tests=str(Path(__file__).parents[1]), out=str(tmp_path / "two")))
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    ours = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, str(script)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **ours, "RANK": str(rank)},  # what torchrun sets
        )
        for rank in range(2)
    ]
    said = [process.communicate(timeout=120)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0]
    run(tmp_path / "one")
    one, two = (columns(tmp_path / name / "depth-12-breadth-3") for name in ("one", "two"))
    for name, array in one.items():
        assert_equal_up_to_rounding(array, two[name], name)
    assert json.loads(said[0])["n"] == 30
    assert said[1] == ""
