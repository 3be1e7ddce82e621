"""Equilibrium reasoners: small weight-tied networks that solve puzzles by iterating until they settle.

Importing the package is cheap: nothing heavy (torch, numba) loads until a name that needs it is used.
"""

__version__ = "0.1.0"
