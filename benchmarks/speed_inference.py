"""How fast inference is, and what halting and racing save: each figure beside what it should be.

Speed needs no trained model: `Spread` makes rows halt at scattered depths. Given a trained model and puzzles,
`savings` adds what halting and racing cost in accuracy. Run: python benchmarks/speed_inference.py [RUN DATA]
"""

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import PositiveInt
from torch import Tensor

from eqr.data import PuzzleSet, load_split
from eqr.dynamics.halting import SETTLED, AllOf, FixedDepth, HaltingRule, Memory, fingerprint
from eqr.model import systems
from eqr.model.operator import TwoLevel
from eqr.model.reasoner import Reasoner
from eqr.model.state import Reading
from eqr.progress import Progress, progress
from eqr.results.metrics import outcomes
from eqr.solve import load
from eqr.solve.budget import Budget
from eqr.solve.candidates import Candidates, Gather
from eqr.solve.engine import Engine, Usage
from eqr.solve.queue import Puzzle
from eqr.solve.rollout import rollout
from eqr.solve.selection import First, FirstToHalt, MajorityVote, SelectionRule
from eqr.tasks import task_named
from eqr.tasks.base import Task, Tokens

ROUNDS = 40
"""Works are timed in turn, a fraction of a second each; shared machines change from second to second."""


class Spread(HaltingRule):
    """Halt at a depth from 1 to `depth` that a hash of the first answer decides, scattered as puzzles are."""

    kind: Literal["spread"] = "spread"
    depth: PositiveInt

    def start(self, rows: int, *, device: torch.device | None = None) -> Memory:
        """No depth is drawn yet."""
        return torch.zeros(rows, dtype=torch.int64, device=device)

    def update(self, memory: Memory, reading: Reading, depths: Tensor) -> tuple[Memory, Tensor]:
        """Draw each row's depth once and wait for it."""
        drawn = (fingerprint(reading.tokens) >> 20) % self.depth + 1
        planned = torch.where(memory == 0, drawn, memory)
        return planned, depths >= planned


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One measured number and what it should be."""

    name: str
    value: float
    wanted: str
    holds: bool
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def default_model() -> Reasoner:
    """Return an untrained model of the size that two cores train in minutes."""
    task = task_named("sudoku-6x6")
    config = systems.eqr(task, width=64, blocks=1).replace(recurrence=TwoLevel(cycles=2, scratch=2))
    return Reasoner(config)


def default_puzzles(reasoner: Reasoner, count: int) -> Tokens:
    """Return grids of random tokens: speed does not ask whether they can be solved."""
    config = reasoner.config
    return np.random.default_rng(0).integers(1, config.vocabulary, (count, config.cells)).astype(np.uint8)


def speed(
    reasoner: Reasoner, *, slots: int = 64, depth: int = 16, rounds: int = ROUNDS, quiet: bool = True
) -> list[Figure]:
    """Measure the engine while puzzles keep coming: slots, overhead, what halting gains, growth."""
    grids = default_puzzles(reasoner, slots * 4)
    halting = Engine(reasoner, Budget(depth=depth, halting=Spread(depth=depth)), slots=slots)
    fixed = Engine(reasoner, Budget(depth=depth), slots=slots)
    busy = _drained(halting, grids).utilisation
    mean_depth = max(round(halting.usage.segments / len(grids)), 1)
    # asks the same rule as the engine but never heeds it
    never_ends = AllOf(rules=(Spread(depth=depth), FixedDepth(depth=depth + 1)))

    def bare() -> int:
        rollout(reasoner, grids[:slots], Budget(depth=mean_depth, halting=never_ends))
        return slots * mean_depth

    works = [_turns(halting, grids, mean_depth), bare, _turns(fixed, grids, depth)]
    with progress("engine, rollout, fixed depth", rounds + 1, unit="rounds", quiet=quiet) as bar:
        with_halting, in_rollout, to_the_end = _seconds_per_unit(works, rounds, bar).T
    overhead, gained = _middle(with_halting / in_rollout) - 1, _middle(to_the_end / with_halting)
    rate = 1 / _middle(with_halting)
    return [
        Figure(name="slots at work until the queue drains", value=busy, wanted=">= 0.95", holds=busy >= 0.95),
        Figure(
            name="engine over bare rollout at equal work",
            value=overhead,
            wanted="<= 0.05",
            holds=overhead <= 0.05,
            note=f"+-{_doubt(with_halting / in_rollout):.3f}; {rate:,.0f} segments/s in the engine",
        ),
        Figure(
            name="puzzles/s by halting, as a share of the NFE ratio",
            value=gained,
            wanted=">= 0.9",
            holds=gained >= 0.9,
            note=f"+-{_doubt(to_the_end / with_halting):.3f}; {rate / mean_depth:,.0f} against "
            f"{1 / _middle(to_the_end) / depth:,.0f} puzzles/s, NFE {mean_depth} against {depth}",
        ),
        *_growth(reasoner, grids[:slots], slots, max(depth // 4, 1), rounds, quiet),
    ]


def _growth(
    reasoner: Reasoner, grids: Tokens, slots: int, depth: int, rounds: int, quiet: bool
) -> list[Figure]:
    """Say how far the cost of a segment at four times the depth or breadth is from that at once."""

    def engine(d: int, b: int) -> Callable[[], int]:
        made = Engine(reasoner, Budget(depth=d, breadth=b), slots=slots)
        return lambda: _drained(made, grids).segments

    works = [engine(depth, 1), engine(4 * depth, 1), engine(depth, 4)]
    with progress("four times the depth, the breadth", rounds + 1, unit="rounds", quiet=quiet) as bar:
        once, deeper, wider = _seconds_per_unit(works, rounds, bar).T
    figures = []
    for name, seconds in (("depth", deeper), ("breadth", wider)):
        ratio = _middle(seconds / once)
        figures.append(
            Figure(
                name=f"cost of four times the {name}, by four",
                value=ratio,
                wanted="0.9 to 1.1",
                holds=0.9 <= ratio <= 1.1,
                note=f"+-{_doubt(seconds / once):.3f}",
            )
        )
    return figures


def savings(
    reasoner: Reasoner, puzzles: PuzzleSet, *, depth: int = 64, breadth: int = 8, slots: int = 64
) -> list[Figure]:
    """Measure on a trained model what halting (`head+stable:1`) and racing keep of the accuracy, and cost."""
    task = task_named(puzzles.task)
    whole = Budget(depth=depth, breadth=breadth)
    early_exit = whole.replace(halting=SETTLED)
    full = _run(reasoner, puzzles, whole, slots)
    halted = _run(reasoner, puzzles, early_exit.replace(breadth=1), slots)
    raced = _run(reasoner, puzzles, early_exit.replace(race=True), slots)
    single, single_nfe = _accuracy(full[:, :1], puzzles, task, First())
    early, early_nfe = _accuracy(halted, puzzles, task, First())
    majority, majority_nfe = _accuracy(full, puzzles, task, MajorityVote())
    race, race_nfe = _accuracy(raced, puzzles, task, FirstToHalt(abreast=early_exit.abreast))
    lost, share, kept = single - early, early_nfe / single_nfe, race_nfe / majority_nfe
    return [
        Figure(
            name=f"NFE with halting, of fixed depth {depth}",
            value=share,
            wanted="<= 0.25",
            holds=share <= 0.25,
            note=f"{early_nfe:.1f} of {single_nfe:.1f}",
        ),
        Figure(
            name="accuracy lost by halting, points",
            value=100 * lost,
            wanted="<= 1",
            holds=lost <= 0.01,
            note=f"{100 * early:.2f}% against {100 * single:.2f}%, {len(puzzles):,} puzzles",
        ),
        Figure(
            name=f"NFE of racing {breadth} starts, of the majority vote",
            value=kept,
            wanted="<= 0.2",
            holds=kept <= 0.2,
            note=f"{race_nfe:.1f} of {majority_nfe:.1f}",
        ),
        Figure(
            name="accuracy of the race over the majority vote, points",
            value=100 * (race - majority),
            wanted=">= 0",
            holds=race >= majority,
            note=f"{100 * race:.2f}% against {100 * majority:.2f}%",
        ),
    ]


def _run(reasoner: Reasoner, puzzles: PuzzleSet, budget: Budget, slots: int) -> Candidates:
    engine = Engine(reasoner, budget, slots=slots)
    gather = Gather(budget, cells=puzzles.cells, size=len(puzzles))
    rows = zip(puzzles.inputs, puzzles.identities.tolist(), strict=True)
    queue = (Puzzle(index, np.array(grid), identity) for index, (grid, identity) in enumerate(rows))
    (block,) = (block for finished in engine.run(queue) for block in gather.add(finished))
    return block.candidates[:, :, 0]


def _accuracy(
    candidates: Candidates, puzzles: PuzzleSet, task: Task, rule: SelectionRule
) -> tuple[float, float]:
    """Return exact accuracy by a rule and mean NFE per puzzle."""
    found = outcomes(candidates, puzzles, task, [rule])
    right = found.right[np.arange(len(found.right)), found.chosen[:, 0]]
    return float(right.mean()), float(found.nfe.sum(axis=1).mean())


def _drained(engine: Engine, grids: Tokens) -> Usage:
    """Run to the end and return what was done."""
    for _ in engine.run(Puzzle(index, grid) for index, grid in enumerate(grids)):
        pass
    return engine.usage


def _turns(engine: Engine, grids: Tokens, turns: int) -> Callable[[], int]:
    """Keep one endless run going: each call takes it about `turns` further, and returns its row-segments."""
    run = engine.run(Puzzle(index, grid) for index, grid in enumerate(cycle(grids)))

    next(run)  # which also begins a new count of segments

    def further() -> int:
        before = engine.usage.segments
        for _ in run:
            done = engine.usage.segments - before
            if done >= turns * engine.slots:
                return done
        raise AssertionError("an endless run ended")

    return further


def _seconds_per_unit(works: Sequence[Callable[[], int]], rounds: int, bar: Progress) -> NDArray[np.float64]:
    """Time works in turn by what each did, after a round that warms up; (rounds, works)."""
    times = []
    for _ in range(rounds + 1):
        times.append([_timed(work) for work in works])
        bar.advance()
    return np.array(times[1:])


def _middle(values: NDArray[np.float64]) -> float:
    return float(np.median(values))


def _doubt(values: NDArray[np.float64]) -> float:
    """Half of a 95 % interval of the median, by resampling."""
    draws = np.random.default_rng(0).choice(values, (1000, len(values)))
    low, high = np.percentile(np.median(draws, axis=1), [2.5, 97.5])
    return float(high - low) / 2


def _timed(work: Callable[[], int]) -> float:
    began = time.perf_counter()
    done = work()
    return (time.perf_counter() - began) / done


def table(figures: Iterable[Figure]) -> str:
    """Return the figures as text."""
    lines = [f"{'':<54} {'measured':>9}  {'wanted':<11}"]
    for figure in figures:
        verdict = "holds" if figure.holds else "MISSED"
        lines.append(
            f"{figure.name:<54} {figure.value:>9.3f}  {figure.wanted:<11} {verdict}  {figure.note}".rstrip()
        )
    return "\n".join(lines)


def main() -> None:
    """Print every figure beside what it should be."""
    if len(sys.argv) == 1:
        print(table(speed(default_model())))
        return
    run, data = sys.argv[1:]
    reasoner = load(run)
    print(table([*speed(reasoner), *savings(reasoner, load_split(Path(data), "test"))]))


if __name__ == "__main__":
    main()
