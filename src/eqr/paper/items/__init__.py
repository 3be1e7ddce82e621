"""All tables, figures, studies and claims by name, in the paper's order; light to import."""

from importlib import import_module
from pkgutil import iter_modules

from eqr.paper.experiment import Experiment, item_order
from eqr.paper.preregistered import CLAIMS, QUESTIONS

__all__ = ["CLAIMS", "EXPERIMENTS", "ITEMS", "JUDGED", "QUESTIONS", "STUDIES"]

_modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
_found = {e.item: e for module in _modules for e in vars(module).values() if isinstance(e, Experiment)}

ITEMS: dict[str, Experiment] = {item: _found[item] for item in sorted(_found, key=item_order)}
STUDIES = {item: experiment for item, experiment in ITEMS.items() if item.startswith("E")}
"""The studies that decide claims."""
EXPERIMENTS = {item: experiment for item, experiment in ITEMS.items() if item not in STUDIES}
"""The paper's tables and figures."""
JUDGED = CLAIMS | QUESTIONS
"""What is decided from the studies."""
