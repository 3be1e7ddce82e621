"""One independent piece of work: a recipe to train, if it is not, and the looks to take at it."""

import shutil
import time
from contextlib import suppress
from typing import Any

from eqr.errors import UserError
from eqr.experiments.looks import AnyLook
from eqr.experiments.store import TRAINING, Entry, Store
from eqr.runs import DATA
from eqr.train.recipe import Recipe
from eqr.value import Value


class Job(Value):
    """What an executor is handed; whoever runs it needs only this and the store."""

    key: str
    """Of the run in the store."""
    label: str
    """For people: the first item, row and seed that asked for it."""
    recipe: Recipe
    looks: tuple[AnyLook, ...]
    smoke: bool = False

    @property
    def trains(self) -> bool:
        """Whether any of its looks needs a trained model."""
        return any(look.trained for look in self.looks)

    def lacks_training(self, entry: Entry) -> bool:
        """Whether a look that was not taken yet needs a model that is not trained yet."""
        return not entry.trained() and any(look.trained and entry.found(look) is None for look in self.looks)


class Interrupted(Exception):
    """The job was asked to stop; what it has is in the store."""


def run_job(job: Job, store: Store) -> None:
    """Train and look, leaving out what the store has; what fails is a `UserError` with the reason."""
    from eqr.experiments.versions import code_version, machine

    entry = store[job.key]
    with store.alone(job.key):
        if job.lacks_training(entry):
            entry.begin_again()
        made = {"recipe": job.recipe.to_json(), "label": job.label, "smoke": job.smoke}
        entry.begin({**made, "code": code_version(), "machine": machine(), "core_seconds": 0.0})
        store.share_puzzles(entry)
        reasons = _attempt(job, entry, store)
        if reasons:
            with suppress(UserError):  # a full disk takes no note of it
                entry.fail(reasons)
            raise UserError("; ".join(dict.fromkeys(reasons.values())))
        entry.succeed()


def _attempt(job: Job, entry: Entry, store: Store) -> dict[str, str]:
    """Do what is missing; return the reasons of what failed, which stops nothing but what builds on it."""
    from eqr.experiments.observe import Seen, observe
    from eqr.experiments.versions import code_version
    from eqr.train.sources import load_data

    try:
        if job.lacks_training(entry):
            with store.alone(DATA):  # generated once, by whoever is first
                load_data(job.recipe.data, entry.run, quiet=True)
            _train(job, entry)
    except UserError as error:
        return {TRAINING: str(error)}
    reasons = {}
    for look in job.looks:
        if entry.found(look) is not None:
            continue
        began = time.process_time()
        seen = Seen(job.recipe, entry.run, entry.folder / "tables" / look.digest())
        try:
            found = observe(look, seen)
            seconds = time.process_time() - began
            entry.keep(look, found.replace(code=code_version(), core_seconds=seconds))
        except UserError as error:
            reasons[look.digest()] = str(error)
            continue
        shutil.rmtree(seen.scratch, ignore_errors=True)
    return reasons


def _train(job: Job, entry: Entry) -> None:
    from eqr.train.run import train

    began, before = time.process_time(), float((entry.made() or {}).get("core_seconds", 0.0))
    outcome = train(job.recipe, entry.run.path, resume=entry.run.begun, quiet=True)
    spent: dict[str, Any] = {"core_seconds": before + time.process_time() - began}
    if outcome.interrupted is not None:
        entry.note(**spent)
        raise Interrupted
    summary = outcome.summary
    entry.note(trained=True, steps=summary.steps, parameters=summary.parameters, **spent)
    entry.run.clear_folder(entry.run.checkpoints)  # the run is over: nothing goes on from them
