"""What leaves the program as JSON: characters for cells, percent for confidence, nothing that JSON lacks."""

import json

import numpy as np

from eqr.solve import Snapshot
from eqr.tasks import task_named


def test_a_snapshot_has_whole_percent_and_no_nan():
    task = task_named("sudoku-4x4")
    confidence = np.full(16, 0.25, np.float32)
    confidence[:3] = 1.0, 0.996, np.nan
    tokens = task.parse("1..4........2..3")
    tokens[4] = 0
    snapshot = Snapshot(
        puzzle=7,
        start=2,
        segment=3,
        grid=tokens,
        confidence=confidence,
        residual=float("nan"),
        logit_residual=0.5,
        halt=float("inf"),
        status=None,
    )
    said = json.loads(json.dumps(snapshot.to_json(task, 5), allow_nan=False))
    assert said == {
        "puzzle": 5,
        "start": 2,
        "segment": 3,
        "grid": "1..4?.......2..3",
        "confidence": [100, 100, 0, *[25] * 13],
        "residual": None,
        "halt": None,
        "done": False,
        "status": None,
    }
