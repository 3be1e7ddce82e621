"""The published recipes, for GPUs.

Numbers are the paper's appendix D.1; where paper and released code disagree they follow the paper, and
docs/faithfulness.md lists the differences.
"""

from typing import Any

from eqr.model import systems
from eqr.model.config import Positions, ReasonerConfig
from eqr.model.mixers import Attention
from eqr.tasks import task_named
from eqr.train.halting import LearnedHalt, NoHalting, QHalt
from eqr.train.optimizer import Averaging
from eqr.train.recipe import EvaluationPlan, Folder, Precision, Recipe, Saving
from eqr.train.schedule import SegmentedOnline, TerminalFull

LONG_DEPTHS = (1, 2, 4, 8, 16)


def paper(task_name: str, system: str) -> Recipe:
    """Return a system's published recipe; data come from the folder `data/<task>` (docs/data-guide.md)."""
    task = task_named("sudoku-9x9" if task_name == "sudoku" else "maze-unique")
    on_maze = task_name == "maze"
    model = _paper_model(task_name, system)
    judged = EvaluationPlan(every=5000, puzzles=2048, depths=LONG_DEPTHS, test_puzzles=422_786)
    if system in ("feedforward", "weight-tied"):  # rows 1 and 2 of the training-dynamics table: one segment
        dynamics: dict[str, Any] = {
            "schedule": TerminalFull(),
            "halting": NoHalting(),
            "evaluation": judged.replace(depths=(1,)),
        }
    else:
        window = {"hrm": 2, "urm": model.applications // 2}.get(system, model.applications // 3)
        dynamics = {
            "schedule": SegmentedOnline(tracked=window),
            "halting": QHalt() if system == "hrm" else LearnedHalt(),
            "evaluation": judged,
        }
    return Recipe(
        name=f"paper/{task_name}-{system}",
        data=Folder(task=task.name, path=f"data/{'maze-unique' if on_maze else 'sudoku-extreme'}"),
        augment=not on_maze,
        model=model,
        averaging=None if system == "hrm" else Averaging(decay=0.999),
        rows=128 if system == "urm" and not on_maze else 768,
        steps=100_000 if on_maze else 50_000,
        saving=Saving(checkpoint_every=1000, log_every=100),
        precision=Precision.BFLOAT16,
        compile=True,
        **dynamics,
    )


def _paper_model(task_name: str, system: str) -> ReasonerConfig:
    on_maze = task_name == "maze"
    task = task_named("maze-unique" if on_maze else "sudoku-9x9")
    fields: dict[str, Any] = {"width": 128 if on_maze else 512}
    if on_maze:
        fields |= {"mixer": Attention(), "positions": Positions.ROTARY}
        fields["blocks"] = 15 if system == "feedforward" else 1
        if system in ("trm", "eqr"):
            fields["scratch"] = 4
        if system == "weight-tied":
            fields["applications"] = 5
    return systems.SYSTEMS[system](task, **fields)
