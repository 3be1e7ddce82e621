"""What leaves the program as JSON: characters for cells, percent for confidence, nothing that JSON lacks."""

import json

import numpy as np

from eqr.solve import Glimpse
from eqr.solve.plain import plain_glimpse
from eqr.tasks import task_named


def test_a_glimpse_has_whole_percent_and_no_nan():
    task = task_named("sudoku-4x4")
    confidence = np.full(16, 0.25, np.float32)
    confidence[:3] = 1.0, 0.996, np.nan
    tokens = task.parse("1..4........2..3")
    tokens[4] = 0
    glimpse = Glimpse(
        puzzle=7,
        restart=2,
        segment=3,
        tokens=tokens,
        confidence=confidence,
        residual=float("nan"),
        logit_residual=0.5,
        halt=float("inf"),
        done=False,
    )
    said = json.loads(json.dumps(plain_glimpse(task, 5, glimpse), allow_nan=False))
    assert said == {
        "puzzle": 5,
        "start": 2,
        "segment": 3,
        "grid": "1..4?.......2..3",
        "confidence": [100, 100, 0, *[25] * 13],
        "residual": None,
        "halt": None,
        "done": False,
    }
