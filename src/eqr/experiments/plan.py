"""A plan: the runs that some experiments need, each once, and which of them are in the store already."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from eqr.experiments.build import build
from eqr.experiments.costs import training_operations
from eqr.experiments.experiment import Cell, Experiment, Scale
from eqr.experiments.jobs import Job
from eqr.experiments.looks import AnyLook
from eqr.experiments.store import Store
from eqr.train.recipe import Recipe

_Jobs = dict[str, tuple[str, Recipe, dict[str, AnyLook]]]
"""Label, recipe and looks of each run, by its key."""


@dataclass(frozen=True)
class Place:
    """Where the number of a cell for one seed is found."""

    cell: Cell
    seed: int
    key: str
    look: AnyLook
    number: str


@dataclass
class Plan:
    """Jobs and the cells that they fill."""

    jobs: list[Job] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)

    def missing(self, store: Store) -> list[Job]:
        """Return the jobs with something left to do, in order."""
        return [job for job in self.jobs if not done(job, store)]


def done(job: Job, store: Store) -> bool:
    """Whether the store has everything a job is for."""
    entry = store[job.key]
    return all(entry.found(look) is not None for look in job.looks)


def state(job: Job, store: Store) -> str:
    """Return what a job has left to do: it is there, to look at, or to train."""
    if done(job, store):
        return "there"
    return "to train" if job.lacks_training(store[job.key]) else "to look at"


def make_plan(
    experiments: Sequence[Experiment], scale: Scale, *, seeds: int | None = None, smoke: bool = False
) -> Plan:
    """Collect what the experiments need; equal recipes and seeds become one job, equal looks one look.

    All first seeds come before all second ones, so that a plan cut short has every row, and within an
    experiment the cheap runs before the dear ones.
    """
    plan = Plan()
    jobs: _Jobs = {}
    cells = [cell for experiment in experiments for cell in experiment.cells()]
    for seed in range(seeds or max((seeds_of(cell, scale, smoke) for cell in cells), default=0)):
        for experiment in experiments:
            found: _Jobs = {}
            for cell in experiment.cells():
                if seed < (seeds or seeds_of(cell, scale, smoke)):
                    _add(plan, jobs, found, cell, scale, seed, smoke)
            jobs |= dict(sorted(found.items(), key=lambda pair: training_operations(pair[1][1])))
    plan.jobs = [
        Job(key=key, label=label, recipe=recipe, looks=tuple(looks.values()), smoke=smoke)
        for key, (label, recipe, looks) in jobs.items()
    ]
    return plan


def seeds_of(cell: Cell, scale: Scale, smoke: bool) -> int:
    """Return how many seeds a cell has unless asked otherwise; two in a smoke run."""
    return 2 if smoke else cell.seeds if scale == "lab" else cell.experiment.seeds


def _add(plan: Plan, known: _Jobs, found: _Jobs, cell: Cell, scale: Scale, seed: int, smoke: bool) -> None:
    look = cell.look(smoke=smoke)
    if seed and not look.trained:
        return  # nothing random in it: one number says all
    built = build(cell, scale, seed=seed, smoke=smoke)
    if built is None:
        return
    recipe, key = built
    label = f"{cell.experiment.item} {cell.row.name}, {cell.column.name}, seed {seed}"
    looks = known[key][2] if key in known else found.setdefault(key, (label, recipe, {}))[2]
    looks.setdefault(look.digest(), look)
    plan.places.append(Place(cell, seed, key, look, cell.number(look)))
