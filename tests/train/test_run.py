"""A whole run in its folder: what it leaves, going on after any interruption, and how it fails."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from small_runs import small_recipe

from eqr.errors import UserError
from eqr.files import read_json, write_json
from eqr.model.reasoner import Reasoner
from eqr.signals import Stopped, stoppable
from eqr.train.checkpoint import Checkpoint, Checkpoints, read
from eqr.train.journal import Score
from eqr.train.optimizer import AdamAtan2, Decay, Muon, Rate
from eqr.train.recipe import Folder, Generated, Saving
from eqr.train.run import train
from eqr.train.schedule import OracleHalt, TerminalDetached
from eqr.train.trainer import Trainer


def last_tensors(run):
    return read(Checkpoints(run / "checkpoints", 1).paths()[-1]).tensors


def metrics(run):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


def assert_same_run(one, other):
    a, b = last_tensors(one), last_tensors(other)
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name
    assert metrics(one) == metrics(other)


def stop_at(monkeypatch, step):
    """Make training fall over after some steps, as a crash would, without any farewell."""
    take = Trainer.step

    def crashing(self, *arguments):
        if self.step_number == step:
            raise MemoryError("crash")
        return take(self, *arguments)

    monkeypatch.setattr(Trainer, "step", crashing)


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """A run that was never interrupted."""
    run = tmp_path_factory.mktemp("runs") / "straight"
    return run, train(small_recipe(), run, quiet=True)


def test_a_run_leaves_models_metrics_and_a_summary(straight):
    run, outcome = straight
    assert outcome.interrupted is None
    summary = read_json(run / "summary.json")
    assert summary == outcome.summary.to_json()
    assert summary["steps"] == 30
    assert summary["test"].keys() == {"puzzles", "exact@1", "exact@4"}
    kinds = [record["kind"] for record in metrics(run)]
    assert kinds.count("train") == 6
    assert kinds.count("validation") == 3
    assert kinds.count("test") == 1, "the test set is touched once"
    steps = [record["step"] for record in metrics(run)]
    assert steps == sorted(steps)
    assert Reasoner.from_pretrained(run / "best").config == small_recipe().model
    last = Reasoner.from_pretrained(run / "last")
    weights = torch.cat([parameter.flatten() for parameter in last.parameters()])
    assert torch.equal(weights, last_tensors(run)["average"])


def test_a_crash_at_any_step_does_not_change_the_result(straight, tmp_path, monkeypatch):
    run = tmp_path / "run"
    for step in (3, 11, 25):
        with monkeypatch.context() as patch:
            stop_at(patch, step)
            with pytest.raises(MemoryError):
                train(small_recipe(), run, resume=True, quiet=True)
    train(small_recipe(), run, resume=True, quiet=True)
    assert_same_run(straight[0], run)


VARIANTS = {
    "muon": {"optimizer": Muon(rate=1e-3), "averaging": None},
    "terminal": {"schedule": TerminalDetached(depth=3)},
    "oracle": {"halting": OracleHalt()},
    "endless": {"data": Generated(task="sudoku-4x4", train=1, validation=16, test=0, endless=True)},
    "learned start and noise": {
        "model": {"start": {"kind": "learned"}, "path": {"noise": 0.01, "learned_noise": True}}
    },
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_resuming_equals_never_stopping_for(variant, tmp_path, monkeypatch):
    recipe = small_recipe(**{"steps": 12, **VARIANTS[variant]})
    train(recipe, tmp_path / "straight", quiet=True)
    with monkeypatch.context() as patch:
        stop_at(patch, 9)
        with pytest.raises(MemoryError):
            train(recipe, tmp_path / "run", quiet=True)
    train(recipe, tmp_path / "run", resume=True, quiet=True)
    assert_same_run(tmp_path / "straight", tmp_path / "run")


def test_a_finished_run_can_be_resumed_without_harm(straight, tmp_path):
    recipe = small_recipe()
    first = train(recipe, tmp_path / "run", quiet=True)
    again = train(recipe, tmp_path / "run", resume=True, quiet=True)
    assert again.summary == first.summary
    assert sum(record["kind"] == "test" for record in metrics(tmp_path / "run")) == 1
    longer = train(recipe.replace(steps=35), tmp_path / "run", resume=True, quiet=True)
    assert longer.summary.steps == 35


def test_a_damaged_last_checkpoint_falls_back_and_says_so(straight, tmp_path, monkeypatch, capsys):
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        stop_at(patch, 25)
        with pytest.raises(MemoryError):
            train(small_recipe(), run, quiet=True)
    broken = sorted((run / "checkpoints").iterdir())[-1]
    broken.write_bytes(broken.read_bytes()[:-100])
    train(small_recipe(), run, resume=True, quiet=True)
    said = capsys.readouterr().err
    assert broken.name in said
    assert "going on from step 14" in said
    assert_same_run(straight[0], run)


def test_a_folder_in_use_is_not_touched_unasked(straight, tmp_path):
    with pytest.raises(UserError, match="--resume to go on or --overwrite"):
        train(small_recipe(), straight[0], quiet=True)
    (tmp_path / "letters.txt").write_text("dear")
    for how in ({"overwrite": True}, {"resume": True}, {}):
        with pytest.raises(UserError, match=r"not a training run \(letters\.txt is in it\)"):
            train(small_recipe(), tmp_path, quiet=True, **how)
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]


def test_overwrite_begins_anew(straight, tmp_path):
    run = tmp_path / "run"
    train(small_recipe(seed=5, steps=8), run, quiet=True)
    mine = [run / ".git" / "config", run / "src" / "code.py", run / "best" / "evaluations" / "table"]
    for path in mine:
        path.parent.mkdir(parents=True)
        path.write_text("mine")
    elsewhere = tmp_path / "elsewhere"
    (run / "last").rename(elsewhere)
    (run / "last").symlink_to(elsewhere)
    kept = sorted(path.name for path in elsewhere.iterdir())
    train(small_recipe(), run, overwrite=True, quiet=True)
    assert_same_run(straight[0], run)
    assert [path.read_text() for path in mine] == ["mine"] * 3
    assert sorted(path.name for path in elsewhere.iterdir()) == kept
    assert not (run / "last").is_symlink()


@pytest.mark.parametrize("text", ['{"cake": 1}', "cake", "null"])
def test_overwrite_knows_a_recipe_of_its_own(tmp_path, text):
    mine = {"recipe.json": text, "summary.json": "mine", "best/config.json": "mine"}
    (tmp_path / "best").mkdir()
    for name, words in mine.items():
        (tmp_path / name).write_text(words)
    with pytest.raises(UserError, match=r"recipe\.json is no training run's"):
        train(small_recipe(), tmp_path, overwrite=True, quiet=True)
    assert {name: (tmp_path / name).read_text() for name in mine} == mine


def contents(run):
    return {path.relative_to(run): path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_overwrite_touches_nothing_before_the_new_run_stands_ready(tmp_path, monkeypatch):
    run = tmp_path / "run"
    train(small_recipe(steps=8), run, quiet=True)
    before = contents(run)
    missing = small_recipe(data=Folder(task="sudoku-4x4", path=str(tmp_path / "nowhere")))
    with pytest.raises(UserError, match="nowhere"):
        train(missing, run, overwrite=True, quiet=True)

    def broken(*_, **__):
        raise UserError("this model cannot be built")

    monkeypatch.setattr("eqr.train.run.Trainer", broken)
    with pytest.raises(UserError, match="cannot be built"):
        train(small_recipe(), run, overwrite=True, quiet=True)
    assert contents(run) == before
    with pytest.raises(UserError, match="nowhere"):
        train(missing, tmp_path / "new", quiet=True)
    assert not (tmp_path / "new").exists()


def test_a_run_that_another_process_holds_is_left_alone(straight, tmp_path):
    code = (
        "import sys; from pathlib import Path; from eqr.runs import RunFolder\n"
        "with RunFolder(Path(sys.argv[1])).held(): print('held', flush=True); sys.stdin.read()"
    )
    run = tmp_path / "run"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(run)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout.readline() == "held\n"
        for how in ({"overwrite": True}, {"resume": True}, {}):
            with pytest.raises(UserError, match=rf"run is in use by process {holder.pid} on .* since 20"):
                train(small_recipe(), run, quiet=True, **how)
        holder.kill()
    assert (run / ".lock").is_file(), "killed, it could not tidy up"
    train(small_recipe(), run, quiet=True)
    assert_same_run(straight[0], run)
    assert not (run / ".lock").exists()


def test_best_goes_back_with_the_checkpoint(tmp_path, monkeypatch):
    scores = iter([0.5, 0.1, 0.9, 0.2, 0.2, 0.2])

    def scored(*arguments, **options):
        return Score({1: next(scores)}, 16)

    monkeypatch.setattr("eqr.train.run.evaluate", scored)
    recipe = small_recipe(
        steps=40,
        evaluation=small_recipe().evaluation.replace(depths=(1,)),
        saving=Saving(checkpoint_every=25),
    )
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        stop_at(patch, 33)  # evaluated at 10, 20 and, best of all, at 30; the checkpoint is of 25
        with pytest.raises(MemoryError):
            train(recipe, run, quiet=True)
    future = (run / "best" / "model.safetensors").read_bytes()
    outcome = train(recipe.replace(time_limit=1e-9), run, resume=True, quiet=True)
    assert outcome.summary.steps == 25
    assert outcome.summary.best["step"] == 10
    assert (run / "best" / "model.safetensors").read_bytes() != future
    tensors = last_tensors(run)
    for name, tensor in Reasoner.from_pretrained(run / "best").state_dict().items():
        assert torch.equal(tensor, tensors[f"best.{name}"])


def test_a_kill_before_the_first_checkpoint_leaves_no_best(tmp_path, monkeypatch):
    run = tmp_path / "run"
    recipe = small_recipe(saving=Saving(checkpoint_every=100))
    with monkeypatch.context() as patch:
        stop_at(patch, 15)
        with pytest.raises(MemoryError):
            train(recipe, run, quiet=True)
    assert (run / "best").is_dir()
    seen = []
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", lambda self, *_: seen.append((run / "best").exists()) or 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train(recipe, run, resume=True, quiet=True)
    assert seen == [False]


def test_the_test_set_is_read_once_even_if_the_summary_was_never_written(straight, tmp_path, monkeypatch):
    run = tmp_path / "run"

    def killed(path, data):
        if path.name == "summary.json":
            raise MemoryError("killed")
        write_json(path, data)

    with monkeypatch.context() as patch:
        patch.setattr("eqr.train.run.write_json", killed)
        with pytest.raises(MemoryError):
            train(small_recipe(), run, quiet=True)
    with monkeypatch.context() as patch:
        patch.setattr("eqr.train.run.evaluate", lambda *_, **__: pytest.fail("read again"))
        outcome = train(small_recipe(), run, resume=True, quiet=True)
    assert outcome.summary.test == straight[1].summary.test
    assert_same_run(straight[0], run)
    for name in ("best", "last"):
        assert contents(run / name) == contents(straight[0] / name)


def test_leftovers_of_killed_writes_are_swept(straight, tmp_path):
    run = tmp_path / "run"
    train(small_recipe(), run, quiet=True)
    before = contents(run)
    for folder in (run, run / "checkpoints", run / "best", run / "last", run / "data"):
        (folder / ".summary.json.abcd1234.tmp").write_text("half")
    (run / "data" / ".0123456789abcdef.abcd1234.tmp").mkdir()
    (run / ".recipe.json.swp").write_text("an editor's")
    train(small_recipe(), run, resume=True, quiet=True)
    assert contents(run) == {**before, Path(".recipe.json.swp"): b"an editor's"}


@pytest.mark.parametrize(
    ("tensors", "record", "refusal"),
    [
        ({"best.embedding": torch.zeros(1)}, {}, r"best weights.*embedding has shape \(1,\)"),
        ({"best.embedding": None}, {}, "best weights.*lacks 'embedding'"),
        ({}, {"best": {"step": 7, "exact": 0.5}}, "is no score"),
        ({}, {"best": {"step": 7, "exact": 0.5, "puzzles": 16, "exact@x": 0.5}}, "is no score"),
        ({}, {"meter": {"loss": 1.0}}, "are no sums"),
    ],
)
def test_a_forged_checkpoint_is_a_plain_error(tmp_path, monkeypatch, tensors, record, refusal):
    run = tmp_path / "run"
    recipe = small_recipe(steps=8, evaluation=small_recipe().evaluation.replace(every=5))
    with monkeypatch.context() as patch:
        stop_at(patch, 7)
        with pytest.raises(MemoryError):
            train(recipe, run, quiet=True)
    kept = Checkpoints(run / "checkpoints", 1)
    whole = kept.latest().checkpoint
    forged = {name: part for name, part in (whole.tensors | tensors).items() if part is not None}
    kept.save(Checkpoint(whole.step, forged, whole.record | record))
    with pytest.raises(UserError, match=refusal):
        train(recipe, run, resume=True, quiet=True)


def test_resuming_where_nothing_is_says_so(tmp_path, capsys):
    train(small_recipe(steps=2), tmp_path / "run", resume=True, quiet=True)
    assert "run has nothing to resume; beginning a new run there" in capsys.readouterr().err


LOST = {
    "everything": "*.safetensors",
    "the newest": "step-000000030*",
}


@pytest.mark.parametrize("lost", LOST)
def test_resuming_never_removes_results_that_no_checkpoint_leads_to(straight, tmp_path, lost):
    run = tmp_path / "run"
    shutil.copytree(straight[0], run)
    for path in (run / "checkpoints").glob(LOST[lost]):
        path.unlink()
    before = contents(run)
    with pytest.raises(UserError, match=r"cannot resume .*summary\.json, best/, last/.*--out.*--overwrite"):
        train(small_recipe(), run, resume=True, quiet=True)
    assert contents(run) == before
    train(small_recipe(), run, overwrite=True, quiet=True)
    assert_same_run(straight[0], run)


@pytest.mark.parametrize("left", ["best", "last", "metrics.jsonl", "summary.json"])
def test_any_result_without_a_checkpoint_is_kept(straight, tmp_path, left):
    run = tmp_path / "run"
    run.mkdir()
    for name in ("recipe.json", left):
        source = straight[0] / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, run / name)
    before = contents(run)
    with pytest.raises(UserError, match=f"cannot resume .*: it has {left}.* but no checkpoint"):
        train(small_recipe(), run, resume=True, quiet=True)
    assert contents(run) == before


@pytest.mark.parametrize("step", [0, 1, 6])
def test_a_kill_before_the_first_regular_checkpoint_can_be_resumed(straight, tmp_path, monkeypatch, step):
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        stop_at(patch, step)
        with pytest.raises(MemoryError):
            train(small_recipe(), run, quiet=True)
    assert Checkpoints(run / "checkpoints", 1).latest().checkpoint.step == 0
    train(small_recipe(), run, resume=True, quiet=True)
    assert_same_run(straight[0], run)
    assert read(Checkpoints(run / "checkpoints", 1).paths()[0]).step > 0


@pytest.mark.parametrize(
    "name", ["checkpoints", "best", "last", "tensorboard", "data", ".lock", "metrics.jsonl"]
)
def test_a_strangers_folder_changes_nothing_outside_itself(straight, tmp_path, name):
    """Links in it may lead anywhere; files behind them look like a run's own."""
    run, mine = tmp_path / "run", tmp_path / "mine"
    shutil.copytree(straight[0], run)
    if (run / name).exists():
        (run / name).rename(mine)
    else:
        mine.write_text("mine") if name == ".lock" else mine.mkdir()
    if mine.is_dir():
        for file in (
            "step-000000005.safetensors",
            "model.safetensors",
            ".a.json.abcd1234.tmp",
            "config.json",
        ):
            (mine / file).write_bytes(b"mine")
        shutil.rmtree(mine / "06c8c3a488be25d8", ignore_errors=True)  # puzzles that would be made again
    before = contents(mine) if mine.is_dir() else mine.read_bytes()
    (run / name).symlink_to(mine)
    for how in ({"resume": True}, {"overwrite": True}):
        with suppress(UserError):
            train(small_recipe(steps=35), run, quiet=True, **how)
        assert (contents(mine) if mine.is_dir() else mine.read_bytes()) == before


def test_a_changed_recipe_names_the_field(tmp_path):
    run = tmp_path / "run"
    train(small_recipe(steps=8), run, quiet=True)
    changed = small_recipe(steps=8, optimizer=AdamAtan2(rate=0.5, weight_decay=0.1))
    with pytest.raises(UserError, match=r"optimizer\.rate \(0\.003 then, 0\.5 now\)"):
        train(changed, run, resume=True, quiet=True)
    decaying = small_recipe(steps=8, rate=Rate(warmup=5, decay=Decay.LINEAR))
    train(decaying, tmp_path / "decaying", quiet=True)
    with pytest.raises(UserError, match="steps"):
        train(decaying.replace(steps=9), tmp_path / "decaying", resume=True, quiet=True)


def test_a_loss_that_is_no_number_stops_and_names_the_step(tmp_path, monkeypatch):
    take = AdamAtan2.step

    def poisoned(self, flat, gradient, memory, step, rate):
        take(self, flat, gradient, memory, step, rate)
        if step == 9:
            flat.vector.fill_(float("nan"))

    with monkeypatch.context() as patch:
        patch.setattr(AdamAtan2, "step", poisoned)
        with pytest.raises(UserError, match=r"not finite at step 10.*--resume would only repeat.*anew"):
            train(small_recipe(), tmp_path / "run", quiet=True)
    assert torch.isfinite(last_tensors(tmp_path / "run")["weights"]).all()


def test_a_time_limit_ends_the_run_in_order(tmp_path):
    recipe = small_recipe(steps=1_000_000, time_limit=0.2)
    outcome = train(recipe, tmp_path / "run", quiet=True)
    assert outcome.interrupted is None
    assert 0.2 <= outcome.summary.seconds < 3.0
    assert outcome.summary.test
    again = train(recipe, tmp_path / "run", resume=True, quiet=True)
    assert again.summary.steps == outcome.summary.steps, "the time used is part of the state"


def test_a_full_disk_ends_the_run_and_keeps_what_was_saved(tmp_path, monkeypatch):
    save = Checkpoints.save

    def full(self, checkpoint):
        if checkpoint.step > 7:
            raise UserError("cannot write: No space left on device")
        return save(self, checkpoint)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", full)
        with pytest.raises(UserError, match="No space left"):
            train(small_recipe(), tmp_path / "run", quiet=True)
    assert Checkpoints(tmp_path / "run" / "checkpoints", 1).latest().checkpoint.step == 7


def test_an_interrupt_checkpoints_and_leaves_the_test_set_alone(straight, tmp_path, monkeypatch):
    take = Trainer.step

    def interrupted(self, *arguments):
        if self.step_number == 12:
            signal.raise_signal(signal.SIGINT)
        return take(self, *arguments)

    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it would be ignored
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", interrupted)
        outcome = train(small_recipe(), run, quiet=True)
    assert outcome.interrupted is signal.SIGINT
    assert not (run / "summary.json").exists()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    train(small_recipe(), run, resume=True, quiet=True)
    assert_same_run(straight[0], run)


def test_a_signal_during_set_up_leaves_the_place_as_it_was(tmp_path, monkeypatch):
    def struck(*_, **__):
        signal.raise_signal(signal.SIGTERM)

    for part in ("load_data", "Trainer"):
        with monkeypatch.context() as patch:
            patch.setattr(f"eqr.train.run.{part}", struck)
            with stoppable(), pytest.raises(Stopped):
                train(small_recipe(), tmp_path / part, quiet=True)
        assert {path.name for path in tmp_path.glob(f"{part}/*")} <= {"data"}
    train(small_recipe(steps=2), tmp_path / "Trainer", quiet=True)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="has terminals of another kind")
def test_closing_the_terminal_keeps_what_was_learned(tmp_path):
    import pty

    saving = Saving(checkpoint_every=1_000_000)
    write_json(tmp_path / "recipe.json", small_recipe(steps=1_000_000, saving=saving).to_json())
    run = tmp_path / "run"
    words = ["-m", "eqr", "train", str(tmp_path / "recipe.json"), "--out", str(run)]
    process, terminal = pty.fork()
    if process == 0:
        os.execv(sys.executable, [sys.executable, *words])
    while not (run / "metrics.jsonl").is_file() or not (run / "metrics.jsonl").read_text():
        select.select([terminal], [], [], 0.05)[0] and os.read(terminal, 10_000)
        assert os.waitpid(process, os.WNOHANG) == (0, 0)
    os.close(terminal)  # every write to it is an error from now on
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 128 + signal.SIGHUP
    assert Checkpoints(run / "checkpoints", 1).latest().checkpoint.step > 0
    assert not (run / ".lock").exists()
