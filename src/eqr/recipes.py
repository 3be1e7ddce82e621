"""Recipes by name: small ones for two CPU cores, and the published ones for GPUs.

A recipe is a function that returns a whole `Recipe`. A variant is a function from a recipe to a recipe, and
any recipe can be named with variants behind it: `sudoku-6x6/attention/trm`, `sudoku-6x6/07-segmented`.
`eqr train --list` shows all of both. Published numbers are the paper's appendix D.1; where paper and released
code disagree the recipe follows the paper, and docs/faithfulness.md lists the differences.
"""

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

from eqr.errors import UserError, nearest
from eqr.model import systems
from eqr.model.config import (
    STILL,
    Feedforward,
    FixedStart,
    LearnedStart,
    Path,
    Positions,
    RandomStart,
    ReasonerConfig,
    SingleState,
    Start,
    TwoLevel,
)
from eqr.model.mixers import Attention
from eqr.tasks import task_named, task_names
from eqr.train.averaging import Averaging
from eqr.train.halting import FixedDepth, LearnedHalt, OracleHalt, QHalt, UnusedHalt
from eqr.train.optimizer import AdamAtan2, Decay, Rate, SignDescent
from eqr.train.recipe import Evaluation, Folder, Generated, Precision, Recipe, Saving
from eqr.train.schedule import SegmentedOnline, TerminalDetached, TerminalFull, Trajectory

LONG_DEPTHS = (1, 2, 4, 8, 16)


def small(
    task_name: str, *, width: int, blocks: int, steps: int, data: dict[str, Any], **fields: Any
) -> Recipe:
    """Return what learns fast on a CPU: small loops, small batches, many steps, high rates."""
    task = task_named(task_name)
    # the published rounding, to multiples of 256, would nearly double the work at these widths
    sizes = {"cycles": 2, "scratch": 2, "round_hidden_to": 32, **fields.pop("model", {})}
    model = systems.eqr(task, width=width, blocks=blocks, **sizes)
    standard: dict[str, Any] = {
        "schedule": SegmentedOnline(tracked=3),
        "optimizer": AdamAtan2(rate=2e-3, weight_decay=0.1),
        "rate": Rate(warmup=100, decay=Decay.LINEAR, decay_from=0.5),
        "averaging": Averaging(decay=0.99, warm_start=True),
        "rows": 32,
    }
    return Recipe(
        name=task_name,
        data=Generated(task=task.name, **data),
        model=model,
        steps=steps,
        **{**standard, **fields},
    )


def sudoku_4x4() -> Recipe:
    """4x4 Sudoku with few distinct puzzles: seconds; tests the plumbing, not generalisation."""
    data = {"train": 200, "validation": 100, "test": 100}
    saving, evaluation = Saving(checkpoint_every=200), Evaluation(every=100, puzzles=100)
    return small(
        "sudoku-4x4",
        width=32,
        blocks=1,
        steps=600,
        data=data,
        saving=saving,
        evaluation=evaluation,
    )


def sudoku_6x6() -> Recipe:
    """6x6 Sudoku without a spare clue, from 1,000 puzzles: three minutes on two cores."""
    return small("sudoku-6x6", width=64, blocks=1, steps=4000, data={})


def sudoku_9x9() -> Recipe:
    """9x9 Sudoku with 32 clues, from 1,000 puzzles: fifteen minutes on two cores."""
    return small("sudoku-9x9", width=128, blocks=2, steps=5000, data={"options": {"clues": 32}})


def maze(size: int) -> Recipe:
    """Return a recipe for square mazes with one path, by attention with rotary positions over the grid."""
    model = {"mixer": Attention(), "positions": Positions.ROTARY_2D, "heads": 4}
    return small(f"maze-{size}x{size}", width=64, blocks=1, steps=4000, data={}, model=model)


def mini_arc() -> Recipe:
    """Mini-ARC from a dataset folder `data/mini-arc`, an identity vector for each puzzle."""
    task = task_named("mini-arc")
    return Recipe(
        name="mini-arc",
        data=Folder(task=task.name, path="data/mini-arc"),
        augment=False,
        model=systems.eqr(task, cycles=2, scratch=2, width=128, blocks=2, identity_tokens=1),
        schedule=SegmentedOnline(tracked=3),
        optimizer=AdamAtan2(rate=1e-3, weight_decay=0.1),
        identity_optimizer=SignDescent(rate=1e-2, weight_decay=0.1),
        rate=Rate(warmup=200, decay=Decay.LINEAR, decay_from=0.5),
        averaging=Averaging(decay=0.995, warm_start=True),
        rows=64,
        steps=10_000,
    )


def paper(task_name: str, system: str) -> Recipe:
    """Return a system's published recipe; data come from the folder `data/<task>` (docs/data-guide.md)."""
    task = task_named("sudoku-9x9" if task_name == "sudoku" else "maze-unique")
    on_maze = task_name == "maze"
    model = _paper_model(task_name, system)
    judged = Evaluation(every=5000, puzzles=2048, depths=LONG_DEPTHS, test_puzzles=422_786)
    if system in ("feedforward", "weight-tied"):  # rows 1 and 2 of the training-dynamics table: one segment
        dynamics: dict[str, Any] = {
            "schedule": TerminalFull(),
            "halting": FixedDepth(),
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
    return systems.system_named(system)(task, **fields)


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
    fixed, short = FixedDepth(), SegmentedOnline(depth=depth, tracked=per_cycle)
    rows: dict[str, dict[str, Any]] = {
        "01-feedforward": one,
        "02-weight-tied": {"model": single, "schedule": TerminalFull(depth=1)},
        "03-twice-the-depth": {"model": single, "schedule": TerminalFull(depth=2)},
        "04-full-depth": {"model": single, "schedule": TerminalFull(depth=depth)},
        "05-terminal-detached": {"model": single, "schedule": TerminalDetached(depth=depth)},
        "06-trajectory": {"model": single, "schedule": Trajectory(depth=depth)},
        "06-late-half": {"model": single, "schedule": Trajectory(depth=depth, first=depth // 2)},
        "06-late-quarter": {"model": single, "schedule": Trajectory(depth=depth, first=3 * depth // 4)},
        "07-segmented": {"model": single, "schedule": SegmentedOnline(depth=depth)},
        "08-segmented-truncated": {"model": single, "schedule": short},
        "09-two-level": {"model": still, "schedule": SegmentedOnline(depth=depth)},
        "10-two-level-truncated": {"model": still, "schedule": short},
        "11-oracle-halting": {"model": still, "schedule": short, "halting": OracleHalt()},
        "12-learned-halting": {"model": still, "schedule": short, "halting": LearnedHalt()},
        "12-unused-halting": {"model": still, "schedule": short, "halting": UnusedHalt()},
        "12-single-state": {
            "model": single,
            "schedule": SegmentedOnline(depth=depth),
            "halting": LearnedHalt(),
        },
    }
    return {
        row: base.replace(
            **{"halting": fixed, "curriculum": None, **changes, "name": f"{base.name}/{row}"},
            evaluation=_judged_as_trained(base, changes["schedule"].depth),
        )
        for row, changes in rows.items()
    }


def _judged_as_trained(base: Recipe, depth: int) -> Evaluation:
    """Return the base's evaluation up to a trained depth, at which weights are selected and reported."""
    return base.evaluation.replace(depths=(*(d for d in base.evaluation.depths if d < depth), depth))


def _shaped(start: Start, path: Path) -> Callable[[Recipe], Recipe]:
    """Return the variant with this start and these wrappers: which of the interventions are on."""
    return lambda base: base.replace(model=base.model.replace(start=start, path=path))


def _attention(base: Recipe) -> Recipe:
    heads = min(max(base.model.width // 16, 1), 8)
    mixing = {"mixer": Attention(), "positions": Positions.ROTARY, "heads": heads}
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


RECIPES: dict[str, Callable[[], Recipe]] = {
    "sudoku-4x4": sudoku_4x4,
    "sudoku-6x6": sudoku_6x6,
    "sudoku-9x9": sudoku_9x9,
    "maze-11x11": partial(maze, 11),
    "maze-15x15": partial(maze, 15),
    "mini-arc": mini_arc,
    **{
        f"paper/{task}-{system}": partial(paper, task, system)
        for task in ("sudoku", "maze")
        for system in systems.SYSTEMS
    },
}


_BUILT_IN = frozenset(RECIPES)


def add_recipe(name: str, make: Callable[[], Recipe]) -> None:
    """Make a recipe of one's own known by name, to `eqr --load FILE train NAME` for example."""
    if name in _BUILT_IN:
        raise UserError(f"eqr has a recipe {name!r} already; give yours another name")
    RECIPES[name] = make


def recipe_named(name: str) -> Recipe:
    """Return the recipe of that name, changed by the variants behind it: `sudoku-6x6/attention/trm`."""
    words = name.split("/")
    for count in range(len(words), 0, -1):
        base = "/".join(words[:count])
        if base in RECIPES:
            return reduce(variant_named, words[count:], RECIPES[base]())
    hint = f"; for the task of that name, add_recipe({name!r}, ...)" if name in task_names() else ""
    raise UserError(f"unknown recipe {name!r}{hint or nearest(name, RECIPES)}")
