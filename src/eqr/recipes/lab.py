"""Recipes that two CPU cores finish in minutes.

The structured ones are given which cells belong together and learn in a minute what the paper's own mixers
need ten for; those keep their recipes too, named after their mixer, because they are what the paper is about.
docs/lab-notes.md has what was tried.
"""

from typing import Any

import numpy as np

from eqr.model import systems
from eqr.model.config import CandidateSites, Positions
from eqr.model.mixers import Attention
from eqr.model.operator import TwoLevel
from eqr.model.structured import Groups, Neighbours, Rules
from eqr.puzzles import Puzzle
from eqr.tasks import task_named
from eqr.tasks.rows import RowKind
from eqr.train.loss import CrossEntropy, Loss
from eqr.train.optimizer import AdamAtan2, Averaging, Decay, Rate, SignDescent
from eqr.train.recipe import EvaluationPlan, Folder, Generated, Geometries, Ladder, Recipe, Saving
from eqr.train.schedule import LearnedHalt, SegmentedOnline

NOISY_PATH = systems.EQR_PATH.replace(noise=0.1)
"""Ten times the paper's noise: where every site must be right, attractors need to be wide."""
STAY = LearnedHalt(exploration=0.5)
"""Half of the rows that say they are done must stay a while: what is solved learns to stay solved, without
which accuracy falls again beyond the trained depth."""
HARDEST = "data/hardest"
"""Where the hardest puzzles that one has are to be found (docs/data-guide.md)."""
EXTREME = "data/extreme"
"""Where the training puzzles of Sudoku-Extreme are (docs/data-guide.md)."""
SMALL = 300
"""Candidates of cells to fill up to which a puzzle counts as small: 6x6 of six values has 216."""
LIVE = CandidateSites(live=True)
"""Only the candidates that the givens leave, a third of a large grid: what is ruled out teaches nothing."""


def adam(rate: float) -> AdamAtan2:
    """Return the optimizer of all of these, with little decay."""
    return AdamAtan2(rate=rate, weight_decay=0.1)


def falling(begin: float, floor: float = 0.0) -> Rate:
    """Return a rate that falls from this share of the steps on, in a line."""
    return Rate(warmup=100, decay=Decay.LINEAR, decay_from=begin, floor=floor)


def after(before: Recipe, name: str, **changes: Any) -> Recipe:
    """Return a recipe that begins with what another has learned."""
    return before.replace(**{"name": name, "begin": f"runs/{before.name}", **changes})


def small(
    task_name: str, *, width: int, blocks: int, steps: int, data: dict[str, Any], **fields: Any
) -> Recipe:
    """Return what learns fast on a CPU: small loops, small batches, many steps, high rates."""
    task = task_named(task_name)
    # the published rounding, to multiples of 256, would nearly double the work at these widths
    sizes = {"cycles": 2, "scratch": 2, "round_hidden_to": 32, **fields.pop("model", {})}
    model = systems.eqr(task, width=width, blocks=blocks, **sizes)
    standard: dict[str, Any] = {
        "name": task_name,
        "schedule": SegmentedOnline(tracked=3),
        "optimizer": adam(2e-3),
        "rate": falling(0.5),
        "averaging": Averaging(decay=0.99, warm_start=True),
        "rows": 32,
    }
    made = Generated(task=task.name, **data)
    return Recipe(data=made, model=model, steps=steps, **{**standard, **fields})


def candidates(task_name: str, *, steps: int, width: int = 32, data: dict[str, Any], **fields: Any) -> Recipe:
    """Return a recipe whose sites are (cell, symbol) and whose mixer knows the task's groups.

    Symbols and interchangeable groups are alike to it, so nothing is augmented.
    """
    sizes: dict[str, Any] = {
        "mixer": Groups(hidden=4 * width),
        "sites": LIVE if task_named(task_name).distinct() else CandidateSites(),
        "expansion": 1.5,
        "round_hidden_to": 8,
        **fields.pop("model", {}),
    }
    standard: dict[str, Any] = {
        "augment": False,
        "halting": STAY,
        "loss": Loss(cross_entropy=CrossEntropy.SOFTMAX),
        "averaging": Averaging(decay=0.995, warm_start=True),
        "rows": 8,
    }
    fields = {**standard, "model": sizes, **fields}
    return small(task_name, width=width, blocks=1, steps=steps, data=data, **fields)


def declared(name: str) -> Recipe:
    """Return what learns a puzzle declared by its rules within minutes of one core.

    The model is given the rules (mixer `rules`), and only candidates that the givens leave are kept.
    """
    puzzle = task_named(name)
    assert isinstance(puzzle, Puzzle)
    kinds = set(puzzle.rows.kinds.tolist()) - {RowKind.BARRED}
    width, model = 24, {}
    fields: dict[str, Any] = {"steps": 8000, "data": {"train": 6000, "fewer": True}}
    free = (puzzle.cells - puzzle.board.given) * len(puzzle.values)
    barred = puzzle.rows.members(RowKind.BARRED)
    if free - np.count_nonzero((barred >= 0) & (barred < free)) > SMALL:
        width, model = 32, {"cycles": 3, "scratch": 4}
        fields = {
            "steps": 6000,
            "data": {"train": 4000, "validation": 128, "test": 500, "fewer": True},
            "rate": falling(0.3),
        }
    fields["evaluation"] = EvaluationPlan(every=2000, puzzles=128, depths=(4, 16, 64), test_puzzles=500)
    mixer = Rules(hidden=4 * width, knows=tuple(kind for kind in RowKind if kind in kinds))
    return candidates(name, width=width, rows=12, model={"mixer": mixer, "sites": LIVE, **model}, **fields)


def sudoku_4x4() -> Recipe:
    """4x4 Sudoku, of which there are few distinct puzzles: seconds."""
    return candidates(
        "sudoku-4x4",
        width=16,
        steps=2000,
        rows=16,
        data={"train": 200, "validation": 100, "test": 100},
        evaluation=EvaluationPlan(puzzles=100),
    )


def sudoku_6x6() -> Recipe:
    """6x6 Sudoku without a spare clue: a minute of one core."""
    return candidates("sudoku-6x6", width=24, steps=2500, rows=12, data={"train": 2000})


def sudoku_9x9() -> Recipe:
    """9x9 Sudoku with 32 clues: two minutes on two cores."""
    return candidates(
        "sudoku-9x9",
        width=24,
        steps=9000,
        rows=6,
        data={"train": 10_000, "options": {"clues": 32}},
        halting=LearnedHalt(),  # easy puzzles: fresh ones teach more than old ones that stay
        rate=falling(0.3),
        evaluation=EvaluationPlan(every=3000),
    )


def sudoku_9x9_minimal() -> Recipe:
    """9x9 Sudoku without a spare clue: a quarter of an hour of one core."""
    return candidates(
        "sudoku-9x9",
        steps=20_000,
        width=32,
        rows=16,  # 8 are too few for this rate
        model={"cycles": 3, "scratch": 4},  # many applications a segment, few of them tracked
        data={"train": 50_000},
        halting=LearnedHalt(exploration=0.3),
        # a rate that falls to nothing leaves states at rest that are no solutions
        rate=falling(0.1, floor=0.6),
        evaluation=EvaluationPlan(every=4000, puzzles=256, depths=(1, 4, 16, 64)),
        saving=Saving(checkpoint_every=1000),
        name="sudoku-9x9-minimal",
    )


def sudoku_9x9_ladder_1() -> Recipe:
    """9x9 Sudoku without a spare clue, with a gradient through whole segments, judged by the hardest puzzles:
    twenty minutes of one core. The first rung of `sudoku-9x9-hard`.
    """
    minimal = sudoku_9x9_minimal()
    return minimal.replace(
        name="sudoku-9x9-ladder-1",
        data=minimal.data.replace(validation_from=HARDEST),
        schedule=SegmentedOnline(),
        rows=32,
        steps=4500,
        rate=Rate(warmup=100),
        evaluation=EvaluationPlan(every=1500, puzzles=256, depths=(16, 64)),
    )


def sudoku_9x9_ladder_2() -> Recipe:
    """Hard 9x9 Sudoku with two to five answers given away, in longer segments: half an hour of one core."""
    before = sudoku_9x9_ladder_1()
    return after(
        before,
        "sudoku-9x9-ladder-2",
        data=before.data.replace(train=20_000, ladder=Ladder(path=HARDEST, least=2, most=5)),
        model=before.model.replace(recurrence=TwoLevel(cycles=6, scratch=4)),
        optimizer=adam(1.5e-3),
        rows=24,
        steps=5000,
        evaluation=EvaluationPlan(every=1000, puzzles=192, depths=(16, 64)),
    )


def sudoku_9x9_ladder_3() -> Recipe:
    """Hard 9x9 Sudoku with one to four answers given away: an hour of one core."""
    before = sudoku_9x9_ladder_2()
    return after(
        before,
        "sudoku-9x9-ladder-3",
        data=before.data.replace(train=15_000, ladder=Ladder(path=HARDEST, copies=6, least=1, most=4)),
        # by now steadiness counts: a lower rate, more rows, a longer average
        optimizer=adam(1e-3),
        averaging=Averaging(decay=0.998, warm_start=True),
        rows=32,
        steps=11_000,
    )


def sudoku_9x9_hard() -> Recipe:
    """9x9 Sudoku for the hardest puzzles known, by a ladder: puzzles without a spare clue, then hard ones
    with two to five answers given away, with one to four, and at last with none to three; an hour and a half
    of one core, the rungs before it included (docs/lab-notes.md).
    """
    before = sudoku_9x9_ladder_3()
    return after(
        before,
        "sudoku-9x9-hard",
        data=before.data.replace(ladder=Ladder(path=HARDEST, copies=6, least=0, most=3)),
        # its segments are four times as long as those it learns from
        model=before.model.replace(recurrence=TwoLevel(cycles=24, scratch=4)),
        schedule=SegmentedOnline(cycles=6),
        optimizer=adam(5e-4),
        steps=2400,
        evaluation=EvaluationPlan(every=600, puzzles=384, depths=(4, 16)),
    )


def sudoku_extreme_1() -> Recipe:
    """Sudoku-Extreme's training puzzles with none to three answers given away, from the weights of
    `sudoku-9x9-hard`: a quarter of an hour of one core. The first rung of `sudoku-extreme`.
    """
    hard = sudoku_9x9_hard()
    return after(
        hard,
        "sudoku-extreme-1",
        begin="sudoku-9x9-hard",
        data=hard.data.replace(
            train=3000,
            test=200,
            validation_from=EXTREME,
            ladder=Ladder(path=EXTREME, copies=12, least=0, most=3),
        ),
        steps=2600,
        # every answer is within reach by now: what a rate that falls to nothing settles is right
        rate=falling(0.3),
        evaluation=EvaluationPlan(every=1300, puzzles=200, depths=(4, 16)),
    )


def sudoku_extreme() -> Recipe:
    """Sudoku-Extreme's training puzzles until they are solved: a row stays up to 256 segments, as long as a
    search may take, so that weights learn from what late states look like; half an hour of one core.
    """
    before = sudoku_extreme_1()
    return after(
        before,
        "sudoku-extreme",
        data=before.data.replace(ladder=Ladder(path=EXTREME, copies=12, least=0, most=2)),
        schedule=SegmentedOnline(cycles=6, depth=256),
        steps=7000,
        evaluation=EvaluationPlan(every=1750, puzzles=200, depths=(4, 16)),
        seed=1,
    )


def all_different() -> Recipe:
    """Any groups of cells that differ, by random geometries, from the weights of `sudoku-9x9-hard`: a quarter
    of an hour of one core. Judged, while it trains, by 9x9 Sudoku without a spare clue.
    """
    hard = sudoku_9x9_hard()
    return after(
        hard,
        "all-different",
        begin="sudoku-9x9-hard",
        data=Generated(
            task="sudoku-9x9",
            validation=64,
            test=200,
            geometries=Geometries(sizes=(4, 5, 6, 6, 7, 7, 8, *(9,) * 5), reveal=6),
        ),
        model=hard.model.replace(mixer=Rules(hidden=4 * 32)),
        schedule=SegmentedOnline(cycles=4),
        optimizer=adam(1e-3),
        rate=falling(0.4, floor=0.1),
        rows=16,
        steps=9000,
        evaluation=EvaluationPlan(every=1000, puzzles=64, depths=(1, 4)),
        saving=Saving(checkpoint_every=500),
    )


def sudoku_16x16() -> Recipe:
    """16x16 Sudoku with half of the cells given: half an hour of one core (without a spare clue: 0%)."""
    return candidates(
        "sudoku-16x16",
        steps=12_000,
        rows=8,
        data={"train": 2000, "validation": 64, "test": 200, "options": {"clues": 128}},
        rate=falling(0.3),
        evaluation=EvaluationPlan(every=1000, puzzles=64, test_puzzles=200),
    )


def maze(size: int) -> Recipe:
    """Square mazes with one path, cells hearing their neighbours: two minutes on two cores at 11x11."""
    return small(
        f"maze-{size}x{size}",
        width=32,
        blocks=1,
        steps=6000,
        data={"train": 20_000, "options": {"min_length": 4, "max_length": 33 * size // 10}},
        model={"mixer": Neighbours(), "path": NOISY_PATH},
        halting=STAY,
        optimizer=adam(1e-3),
        averaging=Averaging(decay=0.998, warm_start=True),
    )


def maze_open(size: int) -> Recipe:
    """Square mazes of random walls, where many paths are shortest and a row is judged by the nearest of them:
    a few minutes of one core at 13x13.
    """
    perfect = maze(size)
    task = task_named(f"maze-1k-{size}x{size}")
    return perfect.replace(
        name=task.name,
        data=Generated(task=task.name, train=20_000),
        schedule=SegmentedOnline(),
        loss=Loss(nearest=True),
    )


def sudoku_4x4_tokens() -> Recipe:
    """4x4 Sudoku by the paper's token mixer: seconds."""
    return small(
        "sudoku-4x4",
        width=32,
        blocks=1,
        steps=600,
        data={"train": 200, "validation": 100, "test": 100},
        saving=Saving(checkpoint_every=200),
        evaluation=EvaluationPlan(every=100, puzzles=100),
        name="sudoku-4x4-tokens",
    )


def sudoku_6x6_tokens() -> Recipe:
    """6x6 Sudoku without a spare clue by the paper's token mixer: two minutes on two cores."""
    return small("sudoku-6x6", width=64, blocks=1, steps=4000, data={}, name="sudoku-6x6-tokens")


def sudoku_9x9_tokens() -> Recipe:
    """9x9 Sudoku with 32 clues by the paper's token mixer: fifteen minutes on two cores."""
    data = {"options": {"clues": 32}}
    return small("sudoku-9x9", width=128, blocks=2, steps=5000, data=data, name="sudoku-9x9-tokens")


def maze_attention(size: int) -> Recipe:
    """Square mazes by attention with rotary positions over the grid: not learned in minutes."""
    model = {"mixer": Attention(), "positions": Positions.ROTARY_2D, "heads": 4}
    name = f"maze-{size}x{size}"
    return small(name, width=64, blocks=1, steps=4000, data={}, model=model, name=f"{name}-attention")


def mini_arc() -> Recipe:
    """Mini-ARC from a dataset folder `data/mini-arc`, an identity vector for each puzzle."""
    task = task_named("mini-arc")
    return Recipe(
        name="mini-arc",
        data=Folder(task=task.name, path="data/mini-arc"),
        augment=False,
        model=systems.eqr(task, cycles=2, scratch=2, width=128, blocks=2, identity_tokens=1),
        schedule=SegmentedOnline(tracked=3),
        optimizer=adam(1e-3),
        identity_optimizer=SignDescent(rate=1e-2, weight_decay=0.1),
        rate=Rate(warmup=200, decay=Decay.LINEAR, decay_from=0.5),
        averaging=Averaging(decay=0.995, warm_start=True),
        rows=64,
        steps=10_000,
    )
