"""Equilibrium reasoners: small weight-tied networks that solve puzzles by iterating until they settle.

    import eqr

    solver = eqr.Solver("sudoku-9x9")
    puzzle = eqr.make_puzzles("sudoku-9x9", 1, clues=32).inputs
    latents = eqr.rollout(solver.reasoner, puzzle, keep_states=True).answer

Importing the package is cheap: nothing heavy (torch, numba) loads until a name that needs it is used. Type
checkers and editors see the imports below, and `__getattr__` makes them when they are first asked for.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from eqr import figures as figures
    from eqr import recipes as recipes
    from eqr import tasks as tasks
    from eqr.data import PuzzleSet as PuzzleSet
    from eqr.data import load_split as load_split
    from eqr.diagnostics import scaling as scaling
    from eqr.diagnostics.landscape import landscape as landscape
    from eqr.diagnostics.traces import run_traces as run_traces
    from eqr.dynamics.iterate import iterate as iterate
    from eqr.errors import UserError as UserError
    from eqr.model.config import ReasonerConfig as ReasonerConfig
    from eqr.model.reasoner import Reasoner as Reasoner
    from eqr.notebook import evaluate as evaluate
    from eqr.notebook import make_puzzles as make_puzzles
    from eqr.notebook import train_recipe as train_recipe
    from eqr.puzzles import Puzzle as Puzzle
    from eqr.puzzles import from_cpmpy as from_cpmpy
    from eqr.puzzles import puzzle as puzzle
    from eqr.recipes import add_recipe as add_recipe
    from eqr.recipes import recipe_named as recipe_named
    from eqr.result import Result as Result
    from eqr.result import pivot as pivot
    from eqr.result import select as select
    from eqr.results.evaluate import Evaluation as Evaluation
    from eqr.solve import Answer as Answer
    from eqr.solve import Budget as Budget
    from eqr.solve import Candidates as Candidates
    from eqr.solve import Refused as Refused
    from eqr.solve import Solver as Solver
    from eqr.solve import Trajectories as Trajectories
    from eqr.solve import load as load
    from eqr.solve import parse_halting as parse_halting
    from eqr.solve import parse_selection as parse_selection
    from eqr.solve import rollout as rollout
    from eqr.tasks import Task as Task
    from eqr.tasks import register as register
    from eqr.tasks import task_named as task_named
    from eqr.tasks import task_names as task_names
    from eqr.train.recipe import Recipe as Recipe

_MODULES = {
    "figures": "eqr.figures",
    "recipes": "eqr.recipes",
    "scaling": "eqr.diagnostics.scaling",
    "tasks": "eqr.tasks",
}
_HOMES = {
    "eqr.data": "PuzzleSet load_split",
    "eqr.dynamics.iterate": "iterate",
    "eqr.errors": "UserError",
    "eqr.diagnostics.landscape": "landscape",
    "eqr.result": "Result pivot select",
    "eqr.results.evaluate": "Evaluation",
    "eqr.diagnostics.traces": "run_traces",
    "eqr.model.config": "ReasonerConfig",
    "eqr.model.reasoner": "Reasoner",
    "eqr.notebook": "evaluate make_puzzles train_recipe",
    "eqr.puzzles": "Puzzle from_cpmpy puzzle",
    "eqr.recipes": "add_recipe recipe_named",
    "eqr.solve": "Answer Budget Candidates Refused Solver Trajectories "
    "load parse_halting parse_selection rollout",
    "eqr.tasks": "Task register task_named task_names",
    "eqr.train.recipe": "Recipe",
}
"""Where the public names live: the imports above, for the interpreter (tests/test_face.py compares them)."""
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}

if not TYPE_CHECKING:  # a checker would take every misspelt name for one of these

    def __getattr__(name: str) -> Any:
        """Load a public name when it is first asked for."""
        from importlib import import_module

        if name in _MODULES:
            return import_module(_MODULES[name])
        if name not in _HOME:
            raise AttributeError(f"module 'eqr' has no attribute {name!r}")
        return getattr(import_module(_HOME[name]), name)

    def __dir__() -> list[str]:
        """List the public names, loaded or not."""
        return sorted({*globals(), *_MODULES, *_HOME})
