"""A training run: data, steps, evaluation, checkpoints, and its end, whatever ends it.

Every file is written whole, and whatever is written after a checkpoint is written again in the same way by a
run that goes on from it. So the end of the process may come at any moment (`benchmarks/kills.py`).
"""

import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from signal import Signals
from typing import Any

import torch
from torch import Tensor

from eqr.data import GeneratedStream, Splits
from eqr.errors import UserError
from eqr.files import remove, write_json
from eqr.model.lookup import local_device
from eqr.model.reasoner import Reasoner
from eqr.model.saving import SINGLE, WEIGHTS, load_weights, read_weights
from eqr.progress import progress
from eqr.result import Result
from eqr.runs import RunFolder, Summary
from eqr.signals import Requests, noted
from eqr.train.checkpoint import Checkpoint, Checkpoints, Latest, require_place, require_whole
from eqr.train.distributed import LostRank, World, joined
from eqr.train.geometries import GeometryTrainer
from eqr.train.journal import Journal, Meter, Score, evaluate
from eqr.train.recipe import Generated, Precision, Recipe
from eqr.train.sources import fitted, load_data, open_stream
from eqr.train.trainer import NotFinite, StopRequest, Trainer

BEST = "best."
"""Prefix of the best weights in a checkpoint: going back to it goes back to them too."""

HALF = 0.5
"""Share of a run after which a recipe that will work has nearly always solved something."""

REDRAWN = 0.2
"""Seconds between two texts behind the progress bar, whatever the rate of steps."""


@dataclass(frozen=True)
class Outcome:
    """How a call of `train` ended."""

    summary: Summary
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
    folder = RunFolder(run)
    with joined(device) as world, folder.held() if world.first else nullcontext():
        if world.first:
            require_place(recipe, folder, resume=resume, overwrite=overwrite)
        found = None if overwrite else Checkpoints(folder.checkpoints, recipe.saving.keep).latest()
        if not overwrite:
            require_whole(folder, found)
        if world.first:
            if resume and found is None:
                print(f"{run} has nothing to resume; beginning a new run there", file=sys.stderr)
            load_data(recipe.data, folder, quiet=quiet)
        world.together()
        splits = load_data(recipe.data, folder, quiet=True)
        recipe = fitted(recipe, splits)
        training = Training(recipe, folder, splits, world, device, quiet or not world.first)
        if found is None and recipe.begin is not None:
            training.trainer.begin_with(Reasoner.from_pretrained(recipe.begin))
        if world.first:  # only now, when nothing that is missing or does not fit can stop the new run
            if overwrite:
                folder.clear()
            folder.sweep()
            write_json(folder.recipe, recipe.to_json())
        world.together()
        try:
            training.resume(found)
            return training.go()
        except NotFinite as error:
            raise UserError(f"{error}. {training.fresh_start()}") from error
        except LostRank as error:
            raise UserError(f"{error}. {training.kept()}") from error
        finally:
            training.close()


class Training:
    """One process's part in a run."""

    def __init__(
        self,
        recipe: Recipe,
        folder: RunFolder,
        splits: Splits,
        world: World,
        device: torch.device,
        quiet: bool,
    ) -> None:
        self.recipe, self.folder, self.splits, self.world, self.quiet = recipe, folder, splits, world, quiet
        stream = open_stream(recipe, splits)
        kind = GeometryTrainer if isinstance(recipe.data, Generated) and recipe.data.geometries else Trainer
        self.trainer = kind(recipe, stream, world=world, device=device)
        self.checkpoints = Checkpoints(folder.checkpoints, recipe.saving.keep)
        self.seconds = 0.0
        self.best: dict[str, Any] = {}
        self.best_weights: dict[str, Tensor] = {}
        self.meter = Meter()
        self.note: dict[str, str] = {}
        """What stands behind the progress bar."""
        self.hinted = False
        self.journal: Journal | None = None

    @property
    def step(self) -> int:
        """Optimizer steps behind us."""
        return self.trainer.step_number

    def resume(self, found: Latest | None) -> None:
        """Become what the newest checkpoint says, in memory and in the folder; write one where none is.

        So a folder that has results without a checkpoint has lost it: no kill leaves one.
        """
        if found is None:
            self.save_checkpoint()
        else:
            for problem in found.damaged:
                self._say(f"{problem}; going back to the checkpoint before it")
            self._restore(found.checkpoint)
            self._say(f"going on from step {self.step:,}")
        if not self.world.first:
            return
        ended = self.folder.summary()
        if ended is None or ended.steps != self.step:
            # what was written after the checkpoint comes from a future that need not be this run's
            remove(self.folder.summary_file)
            self.folder.clear_folder(self.folder.last)
            if self.best:
                self._save_best("validation", Score.from_json(self.best))
            else:
                self.folder.clear_folder(self.folder.best)
        self.journal = Journal(self.folder, self.recipe, step=self.step)

    def _restore(self, checkpoint: Checkpoint) -> None:
        record, tensors = checkpoint.record, checkpoint.tensors
        self.trainer.restore(checkpoint.step, tensors, record)
        self.seconds, self.best, self.meter = record["seconds"], record["best"], Meter(record["meter"])
        self.best_weights = {
            name.removeprefix(BEST): tensor for name, tensor in tensors.items() if name.startswith(BEST)
        }
        if self.best and not self.best_weights:  # written before checkpoints held them
            self.best_weights = read_weights(self.folder.best / WEIGHTS)

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
        drawn, pending = 0.0, 0
        with progress("training", recipe.steps, unit="steps", done=self.step, quiet=self.quiet) as shown:
            while self.step < recipe.steps and not over and not interrupted:
                stop = StopRequest(time_over=self.seconds >= limit, interrupted=bool(requests))
                began = time.perf_counter()
                result = self.trainer.step(stop)
                self.seconds += time.perf_counter() - began
                over, interrupted = result.stop.time_over, result.stop.interrupted
                self.meter.add(result.stats, recipe.rows)
                self._after_step(last=over or self.step == recipe.steps)
                pending += 1
                if (now := time.monotonic()) - drawn >= REDRAWN:
                    if recipe.time_limit is not None:
                        self.note["time"] = f"{self.seconds:.0f} of {limit:.0f} s"
                    shown.advance(pending, note="  ".join(self.note.values()))
                    drawn, pending = now, 0
        return interrupted

    def kept(self) -> str:
        """Say from which step the run can go on."""
        paths = self.checkpoints.paths()
        if not paths:
            return "No checkpoint was written yet"
        return f"The last good state is {paths[-1]}; go on from it with --resume"

    def fresh_start(self) -> str:
        """Say what to do when these settings cannot go on."""
        step = (
            f"; {self.folder.best} keeps the best weights, of step {self.best['step']:,}" if self.best else ""
        )
        return (
            "A run keeps its settings, so --resume would only repeat that: train anew in another --out, "
            f"or with --overwrite{step}"
        )

    def save_checkpoint(self) -> None:
        """Write everything needed to go on from here; all processes take part."""
        tensors = self.trainer.tensors()
        run = {"seconds": self.seconds, "best": self.best, "meter": self.meter.sums}
        record = {**self.trainer.record(), **run}
        tensors |= {f"{BEST}{name}": tensor for name, tensor in self.best_weights.items()}
        if self.world.first:
            if self.journal is not None:
                self.journal.flush()
            self.checkpoints.save(Checkpoint(self.step, tensors, record))

    def summary(self) -> Summary:
        """Return what is known about the run so far."""
        return Summary(
            recipe=self.recipe.name,
            recipe_digest=self.recipe.digest(),
            task=self.recipe.data.task,
            parameters=self.trainer.model.parameter_count(),
            steps=self.step,
            seconds=self.seconds,
            best=self.best,
        )

    def _after_step(self, *, last: bool) -> None:
        step, saving = self.step, self.recipe.saving
        if step % saving.log_every == 0 or last:
            means = self.meter.flush()
            self.note["loss"] = f"loss {means['loss']:.3f}"
            if "exact" in means:
                self.note["exact"] = f"exact {means['exact']:.1%}  depth {means['halt_depth']:.1f}"
            self._write("train", {"seconds": self.seconds, **means})
        if step % self.recipe.evaluation.every == 0 or last:
            self.note["validation"] = f"validation {self._validate().best:.1%}"
        if step % saving.checkpoint_every == 0 or last:
            self.save_checkpoint()

    def _validate(self) -> Score:
        model, count = self.trainer.averaged(), self.recipe.evaluation.puzzles
        score = evaluate(self.recipe, model, self.splits["validation"], count, self.world)
        self._write("validation", {"seconds": self.seconds, **score.to_json()})
        if score.best >= self.best.get("exact", 0.0):  # of equals the later, better averaged one
            self.best = {"step": self.step, "exact": score.best, **score.to_json()}
            self.best_weights = {name: tensor.cpu().clone() for name, tensor in model.state_dict().items()}
            self._save_best("validation", score)
        self._hint(score)
        return score

    def _hint(self, score: Score) -> None:
        """Say once, late in a run, that nothing has been solved yet, and where help is."""
        limit = self.recipe.time_limit or float("inf")
        late = max(self.step / self.recipe.steps, self.seconds / limit) >= HALF
        if late and not self.hinted and not self.best.get("exact") and not any(score.exact.values()):
            self.hinted = True
            self._say(
                f"exact accuracy is still 0 after {self.step:,} of {self.recipe.steps:,} steps; "
                "docs/when-it-does-not-learn.md says what to change first"
            )

    def _best_model(self) -> Reasoner:
        model = Reasoner(self.recipe.model)
        load_weights(model, self.best_weights, where="the best weights in the checkpoint")
        return model

    def _save_best(self, split: str, score: Score) -> None:
        """Save the best weights with the numbers that travel with them."""
        if self.world.first:
            facts = partial(Result, item=split, metric="exact", rule=SINGLE, breadth=1, n=score.puzzles)
            numbers = [facts(depth=depth, value=share) for depth, share in score.exact.items()]
            self._best_model().save_pretrained(self.folder.best, measured=numbers)

    def _finish(self) -> Summary:
        """Save the last weights, read the test set once, with the best ones, and sum up."""
        before = self.folder.summary()
        if before is not None and before.steps == self.step:
            return before  # resumed after its end
        summary = self.summary()
        if self.world.first:
            self.trainer.averaged().save_pretrained(self.folder.last, measured=())
        if "test" in self.splits.sets:
            score = self._test()
            summary = summary.replace(test=score.to_json())
            self._save_best("test", score)
        if self.world.first:
            write_json(self.folder.summary_file, summary.to_json())
        return summary

    def _test(self) -> Score:
        """Return the score on the test set, from the journal if it was read before."""
        taken = [record for record in self.folder.records() if record["kind"] == "test"]
        known = bool(taken) and taken[-1]["step"] == self.step
        if self.world.agree(known):
            return Score.from_json(taken[-1])
        model, count = self._best_model().to(self.trainer.device), self.recipe.evaluation.test_puzzles
        score = evaluate(self.recipe, model, self.splits["test"], count, self.world)
        self._write("test", score.to_json())
        return score

    def _write(self, kind: str, record: dict[str, Any]) -> None:
        if self.journal is not None:
            self.journal.write(kind, self.step, record)

    def _say(self, text: str) -> None:
        if self.world.first:
            print(text, file=sys.stderr)
