"""What a recipe is in the paper's words, read off the recipe itself.

Rows of an experiment state the traits that the paper gives them. Reading them back from the resolved recipe
catches an ablation that does not do what its row says: randomised starts left off, a detached carry that is
not detached, a halting rule of another name.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from eqr.errors import UserError, nearest
from eqr.experiments.experiment import Trait

if TYPE_CHECKING:
    from eqr.train.recipe import Recipe


def traits(recipe: "Recipe") -> dict[str, Trait]:
    """Return the traits of a recipe by name."""
    from eqr.model.config import LearnedStart, RandomStart

    model, schedule = recipe.model, recipe.schedule
    start = model.start
    return {
        "RI": isinstance(start, RandomStart) and max(start.answer, start.scratch) > 0,
        "sigma_H": start.answer if isinstance(start, RandomStart) else 0.0,
        "sigma_L": start.scratch if isinstance(start, RandomStart) else 0.0,
        "learned start": isinstance(start, LearnedStart),
        "NI": model.path.noise > 0,
        "beta": model.path.noise,
        "learned noise": model.path.learned_noise,
        "damped": model.path.damping > 0,
        "tied": model.recurrence.iterates,
        "states": 2 if model.two_states else 1,
        "separate stacks": model.recurrence.two_stacks,
        "convolution": model.convolution,
        "blocks": model.blocks,
        "layers": model.layers_per_segment,
        "iterations": model.applications,
        "segments": schedule.depth,
        "schedule": schedule.kind,
        "first anchor": getattr(schedule, "first", schedule.depth),
        "truncated": schedule.applications is not None and schedule.applications < model.applications,
        "halting": recipe.halting.kind,
        "mixer": model.mixer.kind,
        "rate": getattr(recipe.optimizer, "rate", 0.0),
        "task": recipe.data.task,
        "augmented": recipe.augment,
        "trained on": getattr(recipe.data, "train", 0),
    }


def require(recipe: "Recipe", says: Mapping[str, Trait], where: str) -> None:
    """Say so if a recipe is not what its row says."""
    found = traits(recipe)
    for name, expected in says.items():
        if name not in found:
            raise UserError(f"{where}: unknown trait {name!r}{nearest(name, found)}")
        if found[name] != expected:
            raise UserError(f"{where}: {name} should be {expected!r}, the recipe has {found[name]!r}")
