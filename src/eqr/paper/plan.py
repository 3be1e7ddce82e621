"""From experiments to jobs: the recipe of each cell, and every distinct run with what is measured of it.

Equal recipes and seeds become one job, whichever cells ask for it.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, reduce
from typing import Any, NamedTuple

from eqr.errors import UserError
from eqr.paper.experiment import AnyMeasurement, Cell, Experiment, Scale
from eqr.paper.store import Entry, Store
from eqr.recipes import recipe_named, variant_named
from eqr.train.recipe import Generated, Recipe
from eqr.value import Value

SMOKE_STEPS = 2


class Job(Value):
    """One independent piece of work: a recipe to train, if it is not, and what to measure of it.

    What an executor is handed; whoever does it needs only this and the store.
    """

    key: str
    """Of the run in the store."""
    label: str
    """For people: the first item, row and seed that asked for it."""
    recipe: Recipe
    measurements: tuple[AnyMeasurement, ...]
    smoke: bool = False

    @property
    def trains(self) -> bool:
        """Whether anything is measured of a trained model."""
        return any(measurement.trained for measurement in self.measurements)

    def left(self, entry: Entry) -> list[AnyMeasurement]:
        """Return what is not measured yet."""
        return [measurement for measurement in self.measurements if entry.output(measurement) is None]

    def lacks_training(self, entry: Entry) -> bool:
        """Whether something is left to measure of a model that is not trained yet."""
        return not entry.trained() and any(measurement.trained for measurement in self.left(entry))

    def state(self, store: Store) -> str:
        """Return what is left to do: nothing, to measure, or to train."""
        entry = store[self.key]
        if not self.left(entry):
            return "there"
        return "to train" if self.lacks_training(entry) else "to measure"


@dataclass(frozen=True)
class Place:
    """Where the number of a cell for one seed is found."""

    cell: Cell
    seed: int
    key: str
    measurement: AnyMeasurement
    number: str


@dataclass
class Plan:
    """Jobs and the cells that they fill."""

    jobs: list[Job] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)

    def missing(self, store: Store) -> list[Job]:
        """Return the jobs with something left to do, in order."""
        return [job for job in self.jobs if job.left(store[job.key])]


def make_plan(
    experiments: Sequence[Experiment], scale: Scale, *, seeds: int | None = None, smoke: bool = False
) -> Plan:
    """Collect what the experiments need; all first seeds come before all second ones, so that a plan cut
    short has every row."""
    plan = Plan()
    jobs: dict[str, tuple[str, Recipe, dict[str, AnyMeasurement]]] = {}
    cells = [cell for experiment in experiments for cell in experiment.cells()]
    for seed in range(seeds or max((seeds_of(cell, scale, smoke) for cell in cells), default=0)):
        for cell in cells:
            measurement = cell.measurement(smoke=smoke)
            if seed >= (seeds or seeds_of(cell, scale, smoke)) or (seed and not measurement.trained):
                continue  # without a model nothing in it is random: one number says all
            built = build(cell, scale, seed=cell.experiment.first_seed + seed, smoke=smoke)
            if built is not None:
                label = f"{cell.experiment.item} {cell.row.name}, {cell.column.name}, seed {seed}"
                _, _, wanted = jobs.setdefault(built.key, (label, built.recipe, {}))
                wanted.setdefault(measurement.digest(), measurement)
                plan.places.append(Place(cell, seed, built.key, measurement, cell.number(smoke=smoke)))
    plan.jobs = [
        Job(key=key, label=label, recipe=recipe, measurements=tuple(wanted.values()), smoke=smoke)
        for key, (label, recipe, wanted) in jobs.items()
    ]
    return plan


def seeds_of(cell: Cell, scale: Scale, smoke: bool) -> int:
    """Return how many seeds a cell has unless asked otherwise; two in a smoke run."""
    return 2 if smoke else cell.seeds if scale == "lab" else cell.experiment.seeds


class Built(NamedTuple):
    """A recipe and what names its run in the store."""

    recipe: Recipe
    key: str


def build(cell: Cell, scale: Scale, *, seed: int = 0, smoke: bool = False) -> Built | None:
    """Return the recipe of a cell; None if the scale has none."""
    setting = cell.setting(scale)
    if setting is None:
        return None
    changes = [dict(some) for some in (setting.changes, cell.changes(scale))]
    try:
        return _built(json.dumps([setting.recipe, cell.row.variants, *changes]), scale, seed, smoke)
    except UserError as error:
        raise UserError(f"{cell.name}: {error}") from None


@cache  # the many cells of a table have few recipes
def _built(asked: str, scale: Scale, seed: int, smoke: bool) -> Built:
    name, variants, first, then = json.loads(asked)
    recipe = reduce(variant_named, variants, recipe_named(name).changed(first)).changed(then)
    recipe = recipe.replace(seed=seed) if scale == "paper" else _for_one_core(recipe, seed)
    recipe = tiny(recipe) if smoke else recipe
    return Built(recipe, run_key(recipe))


def _for_one_core(recipe: Recipe, seed: int) -> Recipe:
    """One thread each: small models gain little from a second, and then runs fit side by side."""
    saving = recipe.saving.replace(checkpoint_every=200, keep=1)
    return recipe.replace(seed=seed, threads=1, device="cpu", saving=saving)


def tiny(recipe: Recipe) -> Recipe:
    """Return a recipe that goes through every step of a real one in a fraction of a second."""
    depth = min(recipe.schedule.depth, 4)
    changes: dict[str, Any] = {
        "schedule": _shorter(recipe, depth),
        "evaluation": recipe.evaluation.replace(
            every=1, puzzles=4, test_puzzles=4, depths=(1,) if recipe.evaluation.depths == (1,) else (1, 2)
        ),
        "rows": 4,
        "steps": SMOKE_STEPS,
        "saving": recipe.saving.replace(log_every=1),
    }
    options = recipe.data.options if isinstance(recipe.data, Generated) else {}
    changes["data"] = Generated(task=recipe.data.task, train=24, validation=8, test=12, options=options)
    return recipe.replace(**changes)


def _shorter(recipe: Recipe, depth: int) -> Any:
    schedule = recipe.schedule
    first = getattr(schedule, "first", None)
    changes = {} if first is None else {"first": min(first, depth)}
    return schedule.replace(depth=depth, **changes)


def run_key(recipe: Recipe) -> str:
    """Return what names a run in the store: everything that decides its weights, so not its name."""
    told = told_apart(recipe.replace(name="run", saving=type(recipe.saving)()))
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def told_apart(value: Any) -> Any:
    """Return what distinguishes a value from its kind's defaults, as plain data.

    So a field that a later version of the code adds, with a default that changes nothing, keeps every key.
    """
    if isinstance(value, Value):
        fields = type(value).model_fields
        held = {name: getattr(value, name) for name in fields}
        return {
            name: told_apart(part)
            for name, part in held.items()
            if name == "kind" or part != fields[name].get_default(call_default_factory=True)
        }
    if isinstance(value, list | tuple):
        return [told_apart(part) for part in value]
    if isinstance(value, dict):
        return {str(name): told_apart(part) for name, part in value.items()}
    return value
