"""The paper's recipes, for GPUs, and its ablations: variants, functions from any recipe to a recipe, by name.

Numbers are the paper's appendix D.1; where paper and released code disagree they follow the paper, and
docs/faithfulness.md lists the differences.
"""

from collections.abc import Callable
from typing import Any

from eqr.errors import UserError, nearest
from eqr.model import systems
from eqr.model.config import Positions, ReasonerConfig
from eqr.model.mixers import Attention
from eqr.model.operator import STILL, Feedforward, Perturbation, SingleState, TwoLevel
from eqr.model.state import FixedStart, LearnedStart, RandomStart, Start
from eqr.tasks import task_named
from eqr.train.optimizer import Averaging
from eqr.train.recipe import EvaluationPlan, Folder, Precision, Recipe, Saving
from eqr.train.schedule import (
    LearnedHalt,
    NoHalting,
    OracleHalt,
    QHalt,
    SegmentedOnline,
    TerminalDetached,
    TerminalFull,
    Trajectory,
    UnusedHalt,
)


def paper(task_name: str, system: str) -> Recipe:
    """Return a system's published recipe; data come from the folder `data/<task>` (docs/data-guide.md)."""
    on_maze = task_name == "maze"
    task = task_named("maze-unique" if on_maze else "sudoku-9x9")
    sizes: dict[str, Any] = {"width": 512}
    if on_maze:
        sizes = {"width": 128, "mixer": Attention(), "positions": Positions.ROTARY}
        sizes["blocks"] = 15 if system == "feedforward" else 1
        if system in ("trm", "eqr"):
            sizes["scratch"] = 4
        if system == "weight-tied":
            sizes["applications"] = 5
    model = systems.SYSTEMS[system](task, **sizes)
    judged = EvaluationPlan(every=5000, puzzles=2048, test_puzzles=422_786)
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


def training_dynamics(base: Recipe) -> dict[str, Recipe]:
    """Return rows 1-12 of the paper's training-dynamics table as variants of a TRM-like recipe.

    `base` says task, data, sizes, optimizer and steps; its recurrence must be two-level. Single-state
    rows apply the same stack as often as the two-level ones; the feedforward row has as many distinct blocks.
    """
    two = base.model.recurrence
    if not isinstance(two, TwoLevel):
        raise UserError(f"the training-dynamics rows need a two-level recurrence, {base.name} has {two.kind}")
    per_cycle, depth = two.scratch + 1, base.schedule.depth
    still = base.model.replace(start=FixedStart(), path=base.model.path.replace(damping=0.0, noise=0.0))
    single = still.replace(recurrence=SingleState(cycles=two.cycles, applications=per_cycle))
    blocks = base.model.layers_per_segment
    one = {"model": still.replace(recurrence=Feedforward(), blocks=blocks), "schedule": TerminalFull()}
    short, whole = SegmentedOnline(depth=depth, tracked=per_cycle), SegmentedOnline(depth=depth)
    rows: dict[str, dict[str, Any]] = {
        "01-feedforward": one,
        "02-weight-tied": {"model": single, "schedule": TerminalFull(depth=1)},
        "03-twice-the-depth": {"model": single, "schedule": TerminalFull(depth=2)},
        "04-full-depth": {"model": single, "schedule": TerminalFull(depth=depth)},
        "05-terminal-detached": {"model": single, "schedule": TerminalDetached(depth=depth)},
        "06-trajectory": {"model": single, "schedule": Trajectory(depth=depth)},
        "06-late-half": {"model": single, "schedule": Trajectory(depth=depth, first=depth // 2)},
        "06-late-quarter": {"model": single, "schedule": Trajectory(depth=depth, first=3 * depth // 4)},
        "07-segmented": {"model": single, "schedule": whole},
        "08-segmented-truncated": {"model": single, "schedule": short},
        "09-two-level": {"model": still, "schedule": whole},
        "10-two-level-truncated": {"model": still, "schedule": short},
        "11-oracle-halting": {"model": still, "schedule": short, "halting": OracleHalt()},
        "12-learned-halting": {"model": still, "schedule": short, "halting": LearnedHalt()},
        "12-unused-halting": {"model": still, "schedule": short, "halting": UnusedHalt()},
        "12-single-state": {"model": single, "schedule": whole, "halting": LearnedHalt()},
    }

    def judged(trained: int) -> EvaluationPlan:
        """Up to the trained depth, at which weights are selected and reported."""
        return base.evaluation.replace(depths=(*(d for d in base.evaluation.depths if d < trained), trained))

    return {
        row: base.replace(
            **{"halting": NoHalting(), "curriculum": None, **changes, "name": f"{base.name}/{row}"},
            evaluation=judged(changes["schedule"].depth),
        )
        for row, changes in rows.items()
    }


def _shaped(start: Start, path: Perturbation) -> Callable[[Recipe], Recipe]:
    """Return the variant with this start and these wrappers: which of the interventions are on."""
    return lambda base: base.replace(model=base.model.replace(start=start, path=path))


def _attention(base: Recipe) -> Recipe:
    heads = min(max(base.model.width // 16, 1), 8)
    mixing = {"mixer": Attention(), "sites": None, "positions": Positions.ROTARY, "heads": heads}
    return base.replace(model=base.model.replace(**mixing))


def _loops(base: Recipe) -> tuple[int, int]:
    """Return cycles and applications in each, so that another system has as many layers per segment."""
    recurrence = base.model.recurrence
    if not isinstance(recurrence, TwoLevel):
        raise UserError(f"{base.name} has no two-level recurrence whose loops another system could take over")
    return recurrence.cycles, recurrence.scratch + 1


def _other_system(base: Recipe, make: Callable[..., ReasonerConfig], **loops: int) -> ReasonerConfig:
    """Return another system of the base's size; HRM and URM bring attention and an identity token."""
    model = _attention(base).model
    sizes: dict[str, Any] = {
        name: getattr(model, name) for name in ("width", "blocks", "heads", "expansion", "round_hidden_to")
    }
    return make(task_named(base.data.task), **sizes, **loops)


def _hrm(base: Recipe) -> Recipe:
    cycles, applications = _loops(base)
    return base.replace(
        model=_other_system(base, systems.hrm, cycles=cycles, scratch=applications - 1),
        schedule=SegmentedOnline(depth=base.schedule.depth, tracked=2),
        halting=QHalt(),
        averaging=None,
    )


def _urm(base: Recipe) -> Recipe:
    cycles, applications = _loops(base)
    return base.replace(
        model=_other_system(base, systems.urm, cycles=cycles, applications=applications),
        schedule=SegmentedOnline(depth=base.schedule.depth, tracked=applications),
    )


VARIANTS: dict[str, tuple[str, Callable[[Recipe], Recipe]]] = {
    "trm": ("fixed start, no damping, no noise", _shaped(FixedStart(), STILL)),
    "ri": ("random start only", _shaped(RandomStart(), STILL)),
    "eqr": ("random start, damping and path noise", _shaped(RandomStart(), systems.EQR_PATH)),
    "learned-start": ("a start predicted from the puzzle, no noise", _shaped(LearnedStart(), STILL)),
    "learned-noise": (
        "random start, noise of a learned scale",
        _shaped(RandomStart(), systems.EQR_PATH.replace(learned_noise=True)),
    ),
    "attention": ("attention with rotary positions instead of the token mixer", _attention),
    "hrm": ("HRM with as many layers per segment", _hrm),
    "urm": ("URM with as many layers per segment", _urm),
}
"""What any recipe can be changed into, and how; the rows of `training_dynamics` come on top."""


def variant_named(base: Recipe, name: str) -> Recipe:
    """Return a variant of a recipe: one of `VARIANTS`, or a row of the training-dynamics table."""
    if name in VARIANTS:
        return VARIANTS[name][1](base).replace(name=f"{base.name}/{name}")
    rows = training_dynamics(base) if isinstance(base.model.recurrence, TwoLevel) else {}
    if name not in rows:
        known = [*VARIANTS, *rows]
        raise UserError(
            f"{base.name} has no variant {name!r}{nearest(name, known)} (there are {', '.join(known)})"
        )
    return rows[name]
