"""Kills at random moments change nothing; `benchmarks/kills.py` does the same a thousand times."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

KILLS = Path(__file__).parents[2] / "benchmarks" / "kills.py"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_killing_a_run_at_random_moments_changes_nothing():
    command = [sys.executable, str(KILLS), "--kills", "8", "--seed", "7", "--whole", "0.2", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout)
    assert said["differences"] == []
    assert said["kills"] == 8
    assert len({row["phase"] for row in said["by"]}) > 1
