"""All experiments and claims by name, in the paper's order; a file in `items/` is an experiment."""

from importlib import import_module
from pkgutil import iter_modules

from eqr.experiments import items
from eqr.experiments.claims import ALL_CLAIMS
from eqr.experiments.experiment import Claim, Experiment, item_order


def _experiments() -> dict[str, Experiment]:
    modules = [import_module(f"{items.__name__}.{module.name}") for module in iter_modules(items.__path__)]
    found: list[Experiment] = [experiment for module in modules for experiment in module.EXPERIMENTS]
    return {experiment.item: experiment for experiment in sorted(found, key=lambda e: item_order(e.item))}


EXPERIMENTS: dict[str, Experiment] = _experiments()
CLAIMS: dict[str, Claim] = {claim.item: claim for claim in ALL_CLAIMS}
