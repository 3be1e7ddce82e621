"""Golden losses: the first steps of each system, so that a change of behaviour never goes unnoticed."""

import pytest
from small_runs import small_recipe

from eqr import behaviour
from eqr.model import systems
from eqr.model.config import Positions
from eqr.runs import RunFolder
from eqr.tasks import task_named
from eqr.train.optimizer import AdamW, Muon
from eqr.train.schedule import (
    LearnedHalt,
    NoHalting,
    OracleHalt,
    QHalt,
    SegmentedOnline,
    TerminalFull,
    Trajectory,
)
from eqr.train.sources import load_data, open_stream
from eqr.train.trainer import Trainer
from golden_records import FOLDER, Golden

GOLDEN = Golden(FOLDER / "training.json", behaviour.TRAINING)
STEPS = 8
TASK = task_named("sudoku-4x4")
SIZES = {"width": 16, "blocks": 1, "round_hidden_to": 16}
ROTARY = {"mixer": "attention", "positions": Positions.ROTARY_2D, "heads": 2}

TRACES = {
    "eqr": {},
    "eqr, attention": {"model": systems.eqr(TASK, cycles=2, scratch=1, **SIZES, **ROTARY)},
    "eqr, muon": {"optimizer": Muon(rate=3e-3)},
    "trm": {"model": systems.trm(TASK, cycles=2, scratch=1, **SIZES), "optimizer": AdamW(rate=1e-3)},
    "trm, oracle": {"model": systems.trm(TASK, cycles=2, scratch=1, **SIZES), "halting": OracleHalt()},
    "hrm": {"model": systems.hrm(TASK, **{**SIZES, "heads": 2}), "halting": QHalt()},
    "urm": {
        "model": systems.urm(TASK, cycles=2, applications=2, **{**SIZES, "heads": 2}),
        "halting": LearnedHalt(exploration=0.5),
    },
    "weight-tied, trajectory": {
        "model": systems.weight_tied(TASK, cycles=1, applications=2, **SIZES),
        "schedule": Trajectory(depth=3),
    },
    "feedforward": {
        "model": systems.feedforward(TASK, **{**SIZES, "blocks": 3}),
        "schedule": TerminalFull(),
        "halting": NoHalting(),
        "evaluation": {"depths": (1,)},
    },
}


@pytest.fixture(scope="module")
def splits(tmp_path_factory):
    return load_data(small_recipe().data, RunFolder(tmp_path_factory.mktemp("data")), quiet=True)


@pytest.mark.parametrize("name", TRACES)
def test_losses_are_those_on_record(name, splits):
    fields = {"schedule": SegmentedOnline(tracked=2, depth=4), **TRACES[name]}
    recipe = small_recipe().replace(**fields)
    trainer = Trainer(recipe, open_stream(recipe, splits))
    losses = [trainer.step().stats["loss"] for _ in range(STEPS)]
    GOLDEN.check(name, {"losses": [round(loss, 6) for loss in losses]}, rel=2e-4)
