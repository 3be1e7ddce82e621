"""Benchmarks are scripts beside the package; their parts are tested like any other."""

import sys
from pathlib import Path

sys.path.append(
    str(Path(__file__).parents[2] / "benchmarks")
)  # after the tests, whose helpers keep their names
