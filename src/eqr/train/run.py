"""A training run in its folder: data, steps, evaluation, checkpoints, and its end, whatever ends it.

RUN/recipe.json       the resolved recipe
RUN/data/             the puzzles, when the recipe generates them
RUN/metrics.jsonl     one record per log interval and evaluation
RUN/checkpoints/      the last few, for `--resume`
RUN/best, RUN/last    models for `Reasoner.from_pretrained`, with averaged weights
RUN/summary.json      written at the end, after the one look at the test set
"""

import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from typing import Any

import torch

from eqr.data import GeneratedStream, Splits
from eqr.errors import UserError
from eqr.files import make_folder, read_json, write_json
from eqr.model.card import Measured
from eqr.model.reasoner import Reasoner
from eqr.progress import Progress, progress
from eqr.signals import Requests, noted
from eqr.train.checkpoint import Checkpoint, Checkpoints
from eqr.train.distributed import LostRank, World, joined, local_device
from eqr.train.evaluate import Score, evaluate
from eqr.train.journal import Journal, Meter
from eqr.train.recipe import Precision, Recipe
from eqr.train.sources import DATA, fitted, load_data, open_stream
from eqr.train.trainer import NotFinite, Trainer, Wishes

RECIPE, SUMMARY = "recipe.json", "summary.json"


@dataclass(frozen=True)
class Outcome:
    """How a call of `train` ended."""

    summary: dict[str, Any]
    interrupted: Signals | None = None
    """The signal that ended it early; then the run can be resumed and the test set is untouched."""


def train(
    recipe: Recipe, run: Path, *, resume: bool = False, overwrite: bool = False, quiet: bool = False
) -> Outcome:
    """Train a recipe in the folder `run`, from its start or from its last checkpoint."""
    device = local_device(recipe.device)
    if recipe.precision is Precision.BFLOAT16 and device.type == "cpu":
        raise UserError("precision = 'bfloat16' is for accelerators; on cpu use float32")
    if recipe.threads is not None:
        torch.set_num_threads(recipe.threads)
    with joined(device) as world:
        if world.first:
            prepare(recipe, run, resume=resume, overwrite=overwrite)
            load_data(recipe.data, run, quiet=quiet)
        world.together()
        splits = load_data(recipe.data, run, quiet=True)
        recipe = fitted(recipe, splits)
        if world.first:
            write_json(run / RECIPE, recipe.to_json())
        training = Training(recipe, run, splits, world, device, quiet=quiet or not world.first)
        try:
            return training.go()
        except (NotFinite, LostRank) as error:
            raise UserError(f"{error}. {training.kept()}") from error
        finally:
            training.close()


def prepare(recipe: Recipe, run: Path, *, resume: bool, overwrite: bool) -> None:
    """Make the run's folder ready, or say why this recipe cannot train in it."""
    begun = run.exists() and (not run.is_dir() or any(run.iterdir()))
    if begun and overwrite:
        if not (run / RECIPE).is_file():
            raise UserError(f"{run} is not a training run, so --overwrite will not remove it")
        for old in run.iterdir():
            if old.is_dir() and old.name != DATA:  # data are named by their digest and may be of use again
                shutil.rmtree(old)
            elif old.is_file():
                old.unlink()
    elif begun and not resume:
        raise UserError(f"{run} already exists; add --resume to go on or --overwrite to begin anew")
    elif begun and (run / RECIPE).is_file():
        before = Recipe.from_json(read_json(run / RECIPE), where=str(run / RECIPE))
        # the table of identities follows from the data, which are compared by themselves
        model = recipe.model.replace(identities=before.model.identities)
        changed = recipe.replace(model=model).changed_since(before)
        if changed:
            raise UserError(
                f"cannot resume {run}: the recipe has changed in {'; '.join(changed)}. "
                "Undo the change, or train in another folder"
            )
    make_folder(run)


class Training:
    """One process's part in a run."""

    def __init__(
        self, recipe: Recipe, run: Path, splits: Splits, world: World, device: torch.device, *, quiet: bool
    ) -> None:
        self.recipe, self.run, self.splits, self.world, self.quiet = recipe, run, splits, world, quiet
        self.trainer = Trainer(recipe, open_stream(recipe, splits), world=world, device=device)
        self.checkpoints = Checkpoints(run / "checkpoints", recipe.saving.keep)
        self.seconds = 0.0
        self.best: dict[str, Any] = {}
        self.meter = Meter()
        self._resume()
        self.journal = Journal(run, recipe, step=self.step) if world.first else None

    @property
    def step(self) -> int:
        """Optimizer steps behind us."""
        return self.trainer.step_number

    def go(self) -> Outcome:
        """Train to the end, or until asked to stop."""
        with noted() as requests:
            interrupted = self._steps(requests)
            if interrupted:
                self.save_checkpoint()
                return Outcome(self.summary(), requests.received or Signals.SIGTERM)
        return Outcome(self._finish())

    def close(self) -> None:
        """End what runs beside the training."""
        if self.journal is not None:
            self.journal.close()
        if isinstance(self.trainer.stream, GeneratedStream):
            self.trainer.stream.close()

    def _steps(self, requests: Requests) -> bool:
        """Take steps until the end, and say whether it came early, by request."""
        recipe = self.recipe
        limit = recipe.time_limit or float("inf")
        over, interrupted = self.seconds >= limit, False
        with progress("training", recipe.steps - self.step, unit="steps", quiet=self.quiet) as shown:
            line = _Line(shown)
            while self.step < recipe.steps and not over and not interrupted:
                wishes = Wishes(time_over=self.seconds >= limit, interrupted=bool(requests))
                began = time.perf_counter()
                result = self.trainer.step(wishes)
                self.seconds += time.perf_counter() - began
                over, interrupted = result.wishes.time_over, result.wishes.interrupted
                self.meter.add(result.stats, recipe.rows)
                self._after_step(line, last=over or self.step == recipe.steps)
        return interrupted

    def kept(self) -> str:
        """Say from which step the run can go on."""
        paths = self.checkpoints.paths()
        if not paths:
            return "No checkpoint was written yet"
        return f"The last good state is {paths[-1]}; go on from it with --resume"

    def save_checkpoint(self) -> None:
        """Write everything needed to go on from here; all processes take part."""
        tensors = self.trainer.tensors()
        record = {
            **self.trainer.record(),
            "seconds": self.seconds,
            "best": self.best,
            "meter": self.meter.sums,
        }
        if self.world.first:
            self.checkpoints.save(Checkpoint(self.step, tensors, record))

    def summary(self) -> dict[str, Any]:
        """Return what is known about the run so far."""
        return {
            "recipe": self.recipe.name,
            "recipe_digest": self.recipe.digest(),
            "task": self.recipe.data.task,
            "parameters": self.trainer.model.parameter_count(),
            "steps": self.step,
            "seconds": self.seconds,
            "best": self.best,
        }

    def _resume(self) -> None:
        found = self.checkpoints.latest()
        if found is None:
            return
        for problem in found.damaged:
            self._say(f"{problem}; going back to the checkpoint before it")
        checkpoint = found.checkpoint
        self.trainer.restore(checkpoint.step, checkpoint.tensors, checkpoint.record)
        self.seconds, self.best = checkpoint.record["seconds"], checkpoint.record["best"]
        self.meter = Meter(checkpoint.record["meter"])
        self._say(f"going on from step {self.step:,}")

    def _after_step(self, line: "_Line", *, last: bool) -> None:
        step, saving = self.step, self.recipe.saving
        if step % saving.log_every == 0 or last:
            means = self.meter.flush()
            line.update(means)
            self._write("train", {"seconds": self.seconds, **means})
        if step % self.recipe.evaluation.every == 0 or last:
            line.validation = self._validate().best
        if step % saving.checkpoint_every == 0 or last:
            self.save_checkpoint()
        line.advance(self.seconds, self.recipe.time_limit)

    def _validate(self) -> Score:
        plan, model = self.recipe.evaluation, self.trainer.averaged()
        score = evaluate(
            model,
            self.splits["validation"],
            plan.depths,
            count=plan.puzzles,
            seed=plan.seed,
            world=self.world,
        )
        self._write("validation", {"seconds": self.seconds, **score.to_json()})
        if score.best >= self.best.get("exact", 0.0):  # of equals the later, better averaged one
            self.best = {"step": self.step, "exact": score.best, **score.to_json()}
            if self.world.first:
                model.save_pretrained(self.run / "best", measured=measured("validation", score))
        return score

    def _finish(self) -> dict[str, Any]:
        """Save the last weights, look at the test set once, with the best ones, and sum up."""
        said: dict[str, Any] = read_json(self.run / SUMMARY) if (self.run / SUMMARY).is_file() else {}
        if said.get("steps") == self.step:
            return said  # resumed after its end: the one look at the test set has been taken
        summary = self.summary()
        if self.world.first:
            self.trainer.averaged().save_pretrained(self.run / "last", measured=())
        if "test" in self.splits.sets:
            plan = self.recipe.evaluation
            self.world.together()
            best = Reasoner.from_pretrained(self.run / "best").to(self.trainer.device)
            score = evaluate(
                best,
                self.splits["test"],
                plan.depths,
                count=plan.test_puzzles,
                seed=plan.seed,
                world=self.world,
            )
            summary["test"] = score.to_json()
            self._write("test", score.to_json())
            if self.world.first:
                best.save_pretrained(self.run / "best", measured=measured("test", score))
        if self.world.first:
            write_json(self.run / SUMMARY, summary)
        return summary

    def _write(self, kind: str, record: dict[str, Any]) -> None:
        if self.journal is not None:
            self.journal.write(kind, self.step, record)

    def _say(self, text: str) -> None:
        if self.world.first:
            print(text, file=sys.stderr)


def measured(split: str, score: Score) -> list[Measured]:
    """Return a score as the numbers that travel with a saved model."""
    return [
        Measured(metric="exact accuracy", value=share, puzzles=split, count=score.puzzles, depth=depth)
        for depth, share in score.exact.items()
    ]


class _Line:
    """The text behind the progress bar; redrawn a few times a second, whatever the rate of steps."""

    SECONDS = 0.2

    def __init__(self, shown: Progress) -> None:
        self.validation: float | None = None
        self._shown, self._pending, self._drawn = shown, 0, 0.0
        self._parts: list[str] = []

    def update(self, means: dict[str, float]) -> None:
        """Take new means."""
        self._parts = [f"loss {means['loss']:.3f}"]
        if "exact" in means:
            self._parts += [f"exact {means['exact']:.1%}", f"depth {means['halt_depth']:.1f}"]

    def advance(self, seconds: float, limit: float | None) -> None:
        """Count a step."""
        self._pending += 1
        now = time.monotonic()
        if now - self._drawn < self.SECONDS:
            return
        parts = list(self._parts)
        if self.validation is not None:
            parts.append(f"validation {self.validation:.1%}")
        if limit is not None:
            parts.append(f"{seconds:.0f} of {limit:.0f} s")
        self._shown.advance(self._pending, note="  ".join(parts))
        self._pending, self._drawn = 0, now
