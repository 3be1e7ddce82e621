"""Equilibrium reasoners: small weight-tied networks that solve puzzles by iterating until they settle.

Importing the package is cheap: nothing heavy (torch, numba) loads until a name that needs it is used.
"""

from typing import Any

__version__ = "0.1.0"

_LAZY = {"Reasoner": "eqr.model.reasoner", "Solver": "eqr.solve"}


def __getattr__(name: str) -> Any:
    """Load the main classes when they are first asked for: `from eqr import Solver`."""
    if name not in _LAZY:
        raise AttributeError(f"module 'eqr' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
