"""Parameter counts equal the originals' own."""

import pytest
import torch

from eqr.model.config import ReasonerConfig
from eqr.model.mixers import Attention
from eqr.model.operator import Feedforward, SingleState, TwoLevel
from eqr.model.reasoner import Reasoner
from eqr.model.state import FixedStart

SUDOKU = {"rows": 9, "columns": 9, "vocabulary": 11}
MAZE = {"rows": 30, "columns": 30, "vocabulary": 6, "width": 128, "blocks": 1, "mixer": Attention()}
HRM = {"recurrence": TwoLevel(separate=True), "identity_tokens": 1, "mixer": Attention()}
URM = {"recurrence": SingleState(), "convolution": True, "identity_tokens": 1, "mixer": Attention()}
FLAT = {"recurrence": Feedforward(), "start": FixedStart(), "blocks": 42}


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({**SUDOKU}, 4_855_298),
        ({**SUDOKU, "identity_tokens": 16}, 5_028_866),
        ({**SUDOKU, "mixer": Attention()}, 6_828_034),
        ({**MAZE}, 263_938),
        ({**MAZE, "blocks": 2, "width": 512}, 6_822_914),
        ({**SUDOKU, **HRM, "blocks": 4}, 27_275_266),
        ({**MAZE, **HRM}, 526_082),
        ({**SUDOKU, **URM, "blocks": 4}, 13_662_210),
        ({**MAZE, **URM}, 265_474),
        ({**SUDOKU, **FLAT, "identity_tokens": 16}, 105_360_386),
        ({**SUDOKU, **FLAT}, 101_715_458),
    ],
)
def test_counts(fields, count):
    with torch.device("meta"):  # shapes only: the largest has a hundred million parameters
        model = Reasoner(ReasonerConfig(**fields))
    assert model.parameter_count() == count
