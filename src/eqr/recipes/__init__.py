"""Recipes by name: small ones for two CPU cores, and the published ones for GPUs.

A recipe is a function that returns a whole `Recipe`. A variant is a function from a recipe to a recipe, and
any recipe can be named with variants behind it: `sudoku-6x6-tokens/attention/trm`, `sudoku-6x6/07-segmented`.
`eqr train --list` shows all of both.
"""

from collections.abc import Callable
from functools import partial, reduce
from itertools import product
from types import FunctionType

from eqr.errors import UserError, nearest
from eqr.model import systems
from eqr.puzzles import Puzzle
from eqr.recipes import lab
from eqr.recipes.lab import candidates, declared, small
from eqr.recipes.published import VARIANTS, paper, training_dynamics, variant_named
from eqr.registry import Registry
from eqr.tasks import task_names
from eqr.tasks.registry import TASKS
from eqr.train.recipe import Recipe

__all__ = [
    "RECIPES",
    "VARIANTS",
    "add_recipe",
    "candidates",
    "paper",
    "recipe_named",
    "small",
    "training_dynamics",
    "variant_named",
]


def _name_of(thing: object) -> str | None:
    """A function registered as a recipe is named after itself."""
    return thing.__name__.replace("_", "-") if isinstance(thing, FunctionType) else None


RECIPES: Registry[Callable[[], Recipe]] = Registry("recipes", _name_of)
"""Every recipe by name, as a function that returns it; plug-ins and your own included."""
for _make in (
    *(lab.sudoku_4x4, lab.sudoku_6x6, lab.sudoku_9x9, lab.sudoku_9x9_minimal),
    *(lab.sudoku_9x9_ladder_1, lab.sudoku_9x9_ladder_2, lab.sudoku_9x9_ladder_3, lab.sudoku_9x9_hard),
    *(lab.all_different, lab.sudoku_extreme_1, lab.sudoku_extreme, lab.sudoku_16x16, lab.mini_arc),
    *(lab.sudoku_4x4_tokens, lab.sudoku_6x6_tokens, lab.sudoku_9x9_tokens),
):
    RECIPES.take(_make)
for _size in (11, 15):
    RECIPES.add(f"maze-{_size}x{_size}", partial(lab.maze, _size))
    RECIPES.add(f"maze-{_size}x{_size}-attention", partial(lab.maze_attention, _size))
RECIPES.add("maze-1k-13x13", partial(lab.maze_open, 13))
for _task, _system in product(("sudoku", "maze"), systems.SYSTEMS):
    RECIPES.add(f"paper/{_task}-{_system}", partial(paper, _task, _system))
RECIPES.close()


def add_recipe(name: str, make: Callable[[], Recipe]) -> None:
    """Make a recipe of one's own known by name, to `eqr --load FILE train NAME` for example."""
    RECIPES.add(name, make)


def recipe_named(name: str) -> Recipe:
    """Return the recipe of that name, changed by the variants behind it: `sudoku-6x6/attention/trm`.

    A puzzle declared by its rules has a recipe of its name, unless one was added.
    """
    words = name.split("/")
    for count in range(len(words), 0, -1):
        base = "/".join(words[:count])
        if base in RECIPES:
            return reduce(variant_named, words[count:], RECIPES[base]())
        if isinstance(TASKS.known(base), Puzzle):
            return reduce(variant_named, words[count:], declared(base))
    hint = f"; for the task of that name, add_recipe({name!r}, ...)" if name in task_names() else ""
    raise UserError(f"unknown recipe {name!r}{hint or nearest(name, RECIPES)}")
