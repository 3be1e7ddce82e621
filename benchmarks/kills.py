"""Kill a small training run over and over, at random moments, and compare its end with that of another.

Run: python benchmarks/kills.py [--kills 1000] [--seed 0] [--whole 0.05] [--counts FILE] [--json]

After every kill, each checkpoint in the folder must be what an undisturbed run held at that step: weights,
best weights, optimizer, rows and record, bit for bit (times apart). At the end of a run metrics, summary,
best/ and last/ must be too, and nothing may lie in the folder that the undisturbed run has not. Most attempts
are forked from a process that has loaded everything, which only leaves out the loading; a share (`--whole`)
starts as a person would do it. Half of the moments are uniform in time, half are aimed at a phase of the run
(`PHASES`), so that short ones get their share. Most signals are SIGKILL; the others ask for a checkpoint and
must end with the exit code for it. Ctrl-C ends early with the counts so far; with `--counts` they are kept in
a file, from which another call goes on. Files are flushed to disk: a TMPDIR in memory is several times as
quick.
"""

import argparse
import json
import mmap
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from eqr.__main__ import main as eqr
from eqr.files import read_object, write_json
from eqr.model import systems
from eqr.model.reasoner import Reasoner
from eqr.progress import progress
from eqr.runs import RunFolder
from eqr.signals import unheard_by_children
from eqr.tasks import task_named
from eqr.train.checkpoint import Checkpoint, Checkpoints, read
from eqr.train.optimizer import AdamAtan2, Averaging, Rate
from eqr.train.recipe import EvaluationPlan, Generated, Recipe, Saving
from eqr.train.run import Training
from eqr.train.schedule import SegmentedOnline
from eqr.train.sources import load_data
from eqr.train.trainer import Trainer

PHASES = ("start", "set-up", "step", "validation", "checkpoint", "final")
ENTERED: dict[str, tuple[type, str]] = {
    "set-up": (Training, "resume"),
    "step": (Trainer, "step"),
    "validation": (Training, "_validate"),
    "checkpoint": (Training, "save_checkpoint"),
    "final": (Training, "_finish"),
}
"""Phase: the method that is its beginning and end."""
SIGNALS = (signal.SIGKILL,) * 7 + (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
MOST_PER_RUN = 12
PATIENCE = 600.0
"""Seconds until an attempt counts as hung."""


REGULARLY, STEPS = 3, 40
"""Steps between checkpoints, and of a run."""


def small_recipe(*, every: int = REGULARLY, keep: int = 3) -> Recipe:
    """Return a recipe of half a second; all happens several times, and the best weights are not the last."""
    task = task_named("sudoku-4x4")
    return Recipe(
        name="kills",
        data=Generated(task=task.name, train=40, validation=16, test=16, options={"clues": 14}),
        model=systems.eqr(task, cycles=2, scratch=1, width=16, blocks=1, round_hidden_to=16),
        schedule=SegmentedOnline(tracked=2, depth=4),
        optimizer=AdamAtan2(rate=5e-2, weight_decay=0.1),
        rate=Rate(warmup=5),
        averaging=Averaging(decay=0.9, warm_start=True),
        rows=8,
        steps=STEPS,
        seed=4,
        evaluation=EvaluationPlan(every=4, depths=(1, 4), puzzles=16, test_puzzles=16),
        saving=Saving(checkpoint_every=every, log_every=2, keep=keep),
        threads=1,
        device="cpu",
    )


class Watch:
    """A page of memory shared with a forked process, which notes there what it is doing."""

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, mmap.PAGESIZE)

    def clear(self) -> None:
        self._page[: len(PHASES) + 1] = bytes(len(PHASES) + 1)

    @property
    def phase(self) -> str:
        return PHASES[self._page[0]]

    def times(self, phase: str) -> int:
        """How often the process has entered a phase."""
        return self._page[1 + PHASES.index(phase)]

    def over(self, method: Callable[..., Any], phase: str) -> Callable[..., Any]:
        """Wrap a method so that it notes when it begins and ends."""
        number = PHASES.index(phase)

        def noted(*arguments: Any, **options: Any) -> Any:
            before, self._page[0] = self._page[0], number
            self._page[1 + number] = min(self._page[1 + number] + 1, 255)
            try:
                return method(*arguments, **options)
            finally:
                self._page[0] = before

        return noted


@dataclass
class Attempt:
    """One process that trains, and how to end it."""

    pid: int
    log: Path
    code: int | None = None
    """As a shell sees it: negative for a signal that was not taken."""

    def poll(self) -> int | None:
        if self.code is None:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code

    def wait_until(self, over: Callable[[], bool]) -> None:
        """Return when `over` says so or the process has ended."""
        limit = time.monotonic() + PATIENCE
        while self.poll() is None and not over():
            if time.monotonic() > limit:
                os.kill(self.pid, signal.SIGKILL)
                raise SystemExit(f"hung for {PATIENCE:.0f} s:\n{self.log.read_text()}")
            time.sleep(0.0002)


@dataclass
class Kills:
    """Kills runs and counts what happened."""

    place: Path
    random: random.Random
    whole: float
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)
    runs: int = 0
    checkpoints: int = 0
    """How many were compared."""

    def __post_init__(self) -> None:
        self.watch = Watch()
        load_data(small_recipe().data, RunFolder(self.place / "warm"), quiet=True)  # loads what is compiled
        self.recipe = self._recipe("every-step", small_recipe(every=1, keep=STEPS))
        self._end(self.place / "every-step", whole=False)
        self.states = {state.step: state for state in checkpoints(self.place / "every-step")}
        self.recipe = self._recipe("recipe", small_recipe())
        self.straight = self.place / "straight"
        self.seconds = {False: self._end(self.straight, whole=False), True: 0.0}
        self._compare(self.straight, at_end=True)
        if self.whole:
            self.seconds[True] = self._end(self.place / "whole", whole=True)
            self._compare(self.place / "whole", at_end=True)

    @property
    def kills(self) -> int:
        return sum(self.counts.values())

    def kill(self, wanted: int, done: Callable[[], None]) -> None:
        """Kill runs until there were `wanted` kills, each to its end."""
        while self.kills < wanted:
            run, orderly = self.place / f"run-{self.runs}", False
            for _ in range(MOST_PER_RUN):
                struck = self._killed(run)
                if struck is None:
                    break
                orderly |= struck != signal.SIGKILL
                self._compare(run, at_end=False)
                if self.kills == wanted:
                    break
            self._end(run, whole=False)
            self._compare(run, at_end=True, orderly=orderly)
            shutil.rmtree(run)
            self.runs += 1
            done()

    def _compare(self, run: Path, *, at_end: bool, orderly: bool = False) -> None:
        for state in checkpoints(run):
            self.checkpoints += 1
            if not state.step:  # there until the next one stands: the first that is seen is compared with
                self.states.setdefault(0, state)
            found = [f"step {state.step}: {it}" for it in state_differences(self.states[state.step], state)]
            if state.step % REGULARLY and state.step != STEPS and not orderly and at_end:
                found.append(f"step {state.step}: a checkpoint that nobody asked for")
            self.differences += [f"{run.name}: {difference}" for difference in found]
        if at_end:
            self.differences += differences(self.straight, run)

    def said(self) -> dict[str, Any]:
        """Return the counts so far."""
        by = [
            {"phase": phase, "signal": name, "kills": count}
            for (phase, name), count in sorted(self.counts.items())
        ]
        return {
            "kills": self.kills,
            "runs": self.runs,
            "checkpoints": self.checkpoints,
            "differences": self.differences,
            "by": by,
        }

    def add(self, before: dict[str, Any]) -> None:
        """Count on from what an earlier call has said."""
        for row in before.get("by", ()):
            self.counts[row["phase"], row["signal"]] += row["kills"]
        self.runs += before.get("runs", 0)
        self.checkpoints += before.get("checkpoints", 0)
        self.differences += before.get("differences", [])

    def _recipe(self, name: str, recipe: Recipe) -> Path:
        write_json(self.place / f"{name}.json", recipe.to_json())
        return self.place / f"{name}.json"

    def _start(self, run: Path, *, whole: bool) -> Attempt:
        words = ["train", str(self.recipe), "--out", str(run), "--resume", "--json"]
        log = self.place / "log"
        if whole:
            with log.open("wb") as file:
                command = [sys.executable, "-m", "eqr", *words]
                pid = subprocess.Popen(command, stdout=file, stderr=file).pid
        else:
            self.watch.clear()
            sys.stdout.flush()
            with unheard_by_children():  # until it has let go of what is ours
                pid = os.fork()
                if pid == 0:
                    self._train(words, log)
        self.last = Attempt(pid, log)
        return self.last

    def close(self) -> None:
        """End what still runs."""
        if self.last.poll() is None:
            os.kill(self.last.pid, signal.SIGKILL)
            self.last.wait_until(lambda: False)

    def _train(self, words: list[str], log: Path) -> None:
        """Be the forked process."""
        code: Any = 1
        try:
            with log.open("wb") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            for phase, (owner, name) in ENTERED.items():
                setattr(owner, name, self.watch.over(getattr(owner, name), phase))
            sys.argv = ["eqr", *words]
            for number in {*SIGNALS} - {signal.SIGKILL}:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            eqr()
        except SystemExit as end:
            code = end.code or 0
        except BaseException:
            traceback.print_exc()  # a bug: let the log say which
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _end(self, run: Path, *, whole: bool) -> float:
        """Let a run come to its end; return the seconds it took."""
        began = time.monotonic()
        attempt = self._start(run, whole=whole)
        attempt.wait_until(lambda: False)
        if attempt.code:
            raise SystemExit(f"{run} ended with {attempt.code}:\n{attempt.log.read_text()}")
        return time.monotonic() - began

    def _killed(self, run: Path) -> signal.Signals | None:
        """Start an attempt and kill it at a random moment, by what; None if it came to its end before."""
        whole = self.random.random() < self.whole
        number = self.random.choice(SIGNALS)
        fresh, began = not run.exists(), time.monotonic()
        attempt = self._start(run, whole=whole)
        attempt.wait_until(self._moment(whole))
        if attempt.poll() is not None:
            if attempt.code:
                raise SystemExit(f"ended by itself with {attempt.code}:\n{attempt.log.read_text()}")
            if fresh:
                self.seconds[whole] = time.monotonic() - began  # the machine may have become less busy
            return None
        phase = "whole process" if whole else self.watch.phase
        os.kill(attempt.pid, number)
        attempt.wait_until(lambda: False)
        if attempt.code == 0:
            return None  # it was faster
        if attempt.code not in (-number, 128 + number):
            raise SystemExit(
                f"{number.name} in {phase}: ended with {attempt.code}:\n{attempt.log.read_text()}"
            )
        if attempt.code == -number and number != signal.SIGKILL and not whole and phase != "start":
            raise SystemExit(f"{number.name} in {phase} was not taken:\n{attempt.log.read_text()}")
        self.counts[phase, number.name] += 1
        return number

    def _moment(self, whole: bool) -> Callable[[], bool]:
        """Choose when to strike, as a question to ask again and again."""
        began, draw = time.monotonic(), self.random
        if whole or draw.random() < 0.5:
            delay = draw.uniform(0.0, 1.1 * self.seconds[whole])
            return lambda: time.monotonic() - began > delay
        phase, times, delay = draw.choice(PHASES), draw.randint(1, 4), draw.uniform(0.0, 0.01)
        entered: list[float] = []

        def struck() -> bool:
            if not entered and (phase == "start" or self.watch.times(phase) >= min(times, _often(phase))):
                entered.append(time.monotonic())
            return bool(entered) and time.monotonic() - entered[0] > delay

        return struck


def _often(phase: str) -> int:
    return 1 if phase in ("set-up", "final") else 4


def checkpoints(run: Path) -> list[Checkpoint]:
    """Return all checkpoints of a run; each must be whole."""
    return [read(path) for path in Checkpoints(RunFolder(run).checkpoints, 1).paths()]


def state_differences(one: Checkpoint, other: Checkpoint) -> list[str]:
    """Return in what two checkpoints differ, apart from times."""
    mine, theirs = ({**state.record, "seconds": 0} for state in (one, other))
    found = [f"record {key}: differs" for key in sorted(mine | theirs) if mine.get(key) != theirs.get(key)]
    a, b = one.tensors, other.tensors
    found += [f"tensor {name}: in one only" for name in sorted(a.keys() ^ b.keys())]
    found += [f"tensor {name}: differs" for name in a.keys() & b.keys() if not _same(a[name], b[name])]
    return found


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(one, other)


def differences(one: Path, other: Path) -> list[str]:
    """Return in what two ended runs differ, apart from times and from what is in checkpoints."""
    mine, theirs = (_contents(run) for run in (one, other))
    found = [f"{name}: in one only" for name in sorted(mine.keys() ^ theirs.keys())]
    both = mine.keys() & theirs.keys()
    found += [f"{name}: differs" for name in sorted(both) if mine[name] != theirs[name]]
    return [f"{other.name}: {difference}" for difference in found]


def _contents(run: Path) -> dict[str, Any]:
    """Every file of a run; those with times in them as data without these, checkpoints by their number."""
    folder, found = RunFolder(run), dict[str, Any]()
    for path in run.rglob("*"):
        name = str(path.relative_to(run))
        if path == folder.metrics:
            found[name] = [{**record, "seconds": 0} for record in folder.records()]
        elif path == folder.summary_file:
            found[name] = {**read_object(path), "seconds": 0}
        elif path.parent == folder.checkpoints:
            # an orderly end leaves one where it came, so all but the last may be of other steps
            last = path == Checkpoints(folder.checkpoints, 1).paths()[-1]
            found[name if last else f"{path.parent.name} beside the last"] = len([*path.parent.iterdir()])
        elif path.is_file():
            found[name] = path.read_bytes()
    return found


def main() -> None:
    """Kill, compare, and exit with 1 if anything differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--whole", type=float, default=0.05, help="share of attempts that start afresh")
    parser.add_argument("--counts", type=Path, help="file in which to keep counts, and to go on from")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    for number in {*SIGNALS} - {signal.SIGKILL}:  # in the background, or under nohup, some would be ignored
        signal.signal(number, signal.default_int_handler)
    torch.set_num_threads(1)  # a fork takes no threads along
    Reasoner(small_recipe().model)
    before = read_object(options.counts) if options.counts and options.counts.exists() else {}
    with tempfile.TemporaryDirectory() as place:
        kills = Kills(Path(place), random.Random(f"{options.seed} {before.get('kills')}"), options.whole)
        kills.add(before)
        shown = progress("killing", options.kills, unit="kills", done=kills.kills, quiet=options.json)
        with suppress(KeyboardInterrupt), shown as bar:

            def done() -> None:
                bar.advance(kills.kills - bar.done)
                if options.counts:
                    write_json(options.counts, kills.said())

            kills.kill(options.kills, done)
        kills.close()
    said = kills.said()
    print(json.dumps(said, indent=2) if options.json else _text(said))
    sys.exit(1 if kills.differences else 0)


def _text(said: dict[str, Any]) -> str:
    lines = [f"{row['phase']:<16}{row['signal']:<10}{row['kills']:>6}" for row in said["by"]]
    total = (
        f"{said['kills']:,} kills of {said['runs']:,} runs, {said['checkpoints']:,} checkpoints compared, "
        f"{len(said['differences'])} differences"
    )
    return "\n".join([*lines, total, *said["differences"]])


if __name__ == "__main__":
    main()
