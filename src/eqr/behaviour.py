"""Counted versions of what the code computes, which say whether a stored result is still its own.

Stored runs, tables of candidates and committed results state the version they were made by. What is counted
is behaviour, not sources: moving, renaming or speeding up code, or releasing another version of the package,
leaves results as they are. Golden records in `tests/golden` hold the numbers of each version; whoever changes
them on purpose adds one here and records them anew (`tests/golden_records.py`).
"""

from collections.abc import Mapping
from typing import Any

from eqr import __version__

TRAINING = 1
"""Of what a recipe and a seed lead to."""
ANSWERS = 1
"""Of what weights answer to a puzzle under a budget: tokens, depth, residuals."""


def stated(record: Mapping[str, Any], name: str) -> int:
    """Return the version that a stored record states under `name`.

    Records from before versions were counted state a digest of the sources, or nothing. They count as 1: the
    golden losses are those of that time, and what changed since then left them as they were.
    """
    return int(record.get(name, 1))


def described() -> str:
    """Return the versions of the package and of its behaviour, for processes that must agree."""
    return f"{__version__}, training {TRAINING}, answers {ANSWERS}"
