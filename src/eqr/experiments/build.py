"""From a cell of an experiment to the recipe that is trained for it."""

import hashlib
import json
from functools import cache, reduce
from typing import Any, NamedTuple

from eqr.errors import UserError
from eqr.experiments.experiment import Cell, Scale, Setting
from eqr.experiments.traits import require
from eqr.recipes import recipe_named, variant_named
from eqr.train.recipe import Generated, Recipe
from eqr.value import Value

SMOKE_STEPS = 2


class Built(NamedTuple):
    """A recipe and what names its run in the store."""

    recipe: Recipe
    key: str


def build(cell: Cell, scale: Scale, *, seed: int = 0, smoke: bool = False) -> Built | None:
    """Return the recipe of a cell, checked against what its row says; None if the scale has none."""
    setting = cell.setting(scale)
    if setting is None:
        return None
    where = f"{cell.experiment.item}, row {cell.row.name!r}, column {cell.column.name!r}"
    try:
        recipe = _described(setting, cell.row.variants, cell.changes(scale))
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    require(recipe, cell.row.says, where)
    return _built(setting, cell.row.variants, cell.changes(scale), scale, seed, smoke)


@cache
def _described(setting: Setting, variants: tuple[str, ...], changes: tuple[str, ...]) -> Recipe:
    recipe = recipe_named(setting.recipe).with_settings(list(setting.changes))
    return reduce(variant_named, variants, recipe).with_settings(list(changes))


@cache  # the many cells of a table have few recipes
def _built(
    setting: Setting,
    variants: tuple[str, ...],
    changes: tuple[str, ...],
    scale: Scale,
    seed: int,
    smoke: bool,
) -> Built:
    recipe = _described(setting, variants, changes)
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
