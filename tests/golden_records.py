"""Numbers on record: for each counted version of the behaviour, what it computed.

`EQR_WRITE_GOLDEN=1 pytest tests/train/test_golden.py tests/solve/test_golden_answers.py` adds missing ones.
Numbers of a version that is on record are never replaced: whoever changes them on purpose counts up in
`eqr.behaviour` first, which is what makes stored results of the version before another's.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from eqr.files import read_json, write_json

FOLDER = Path(__file__).parent / "golden"


class Golden:
    """A file of records by version and name."""

    def __init__(self, path: Path, version: int) -> None:
        self._path, self._version = path, str(version)

    def check(self, name: str, numbers: dict[str, Any], **tolerance: float) -> None:
        """Compare numbers with those on record; add them if there are none and that was asked for."""
        known = read_json(self._path) if self._path.is_file() else {}
        of_version = known.setdefault(self._version, {})
        if name not in of_version and os.environ.get("EQR_WRITE_GOLDEN"):
            of_version[name] = numbers
            write_json(self._path, known)
        assert name in of_version, f"{self._path.name} has no {name!r} of version {self._version}"
        recorded = of_version[name]
        assert numbers.keys() == recorded.keys()
        for key, value in numbers.items():
            exact = not isinstance(value, list) or not any(isinstance(one, float) for one in value)
            wanted = recorded[key] if exact else pytest.approx(recorded[key], **tolerance)
            assert value == wanted, f"{name}: {key} changed; if that is meant, count up in eqr.behaviour"
