"""Evaluation: run a model once into a candidates table, then score every metric from the table.

A sweep over depths notes predictions on the way of the deepest run; a sweep over breadths takes the first
starts of the widest. Only races are run one by one, because a race's cost depends on who takes part. Under
`torchrun` each process fills its own parts of the same table, and the first one scores it.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from eqr.backends import default_backend
from eqr.data import PuzzleSet
from eqr.dynamics.halting import HaltingRule, parse_halting
from eqr.errors import UserError
from eqr.model.config import ReasonerConfig
from eqr.model.reasoner import Reasoner
from eqr.progress import progress
from eqr.result import Result, one
from eqr.results.costs import equivalent_layers, flops
from eqr.results.metrics import Outcomes, has_variants, outcomes, report, variant_votes
from eqr.results.table import CandidateTable, Manifest, model_digest
from eqr.solve.budget import Budget, usual_depth
from eqr.solve.candidates import WINDOW, CandidateBlock, Candidates, Gather
from eqr.solve.engine import SLOTS, Engine
from eqr.solve.queue import Puzzle
from eqr.solve.selection import FirstToHalt, SelectionRule, parse_selection
from eqr.tasks import task_named
from eqr.tasks.base import Task
from eqr.train.distributed import World

PART = 512
"""Starts saved at a time, and done by one worker: those that end last have the slots to themselves."""
FEWEST = 16
"""Puzzles of a part, however many starts they have: every part is a file."""
MOST_BYTES = 8 << 30
"""Candidates of one part, which are in memory at once."""
RULES = ("residual", "logits", "majority", "halt", "verified")
"""Selection rules that are scored where nobody names any."""


Filler: TypeAlias = Callable[..., None]
"""Runs what is missing from a table; takes what `fill` takes."""


@dataclass(frozen=True, kw_only=True)
class BudgetSweep:
    """Which budgets to score, and how to choose among starts."""

    budget: Budget
    """Halting, dynamics, race and seed; its depth and breadth do not count."""
    depths: tuple[int, ...]
    """None of them stands for the usual one of a model (see `for_model`)."""
    breadths: tuple[int, ...]
    select: Mapping[str, SelectionRule]
    """Rules by name."""

    @classmethod
    def asked(
        cls,
        depths: Sequence[int],
        breadths: Sequence[int],
        *,
        halt: HaltingRule | str = "never",
        select: Sequence[str] = (),
        **dynamics: Any,
    ) -> "BudgetSweep":
        """Build a sweep from rules as typed on the command line; without `select`, all that fit are scored.

        `dynamics` are further fields of the budget: race, abreast, start, noise, and so on.
        """
        rule = parse_halting(halt) if isinstance(halt, str) else halt
        probe = bool(dynamics.get("probe"))
        if dynamics.get("race"):
            usual = ["first-to-halt"]
        else:
            usual = [*RULES, *["first-to-halt"] * (rule is not None), *["probe"] * probe]
        rules = {name: parse_selection(name) for name in select or usual}
        dynamics["probe"] = probe or any(rule.needs_probe for rule in rules.values())
        dynamics["halting"] = None if rule is None else rule.to_json()
        budget = Budget.from_json(dynamics, where="evaluate")
        if "first-to-halt" in rules:
            rules["first-to-halt"] = FirstToHalt(abreast=budget.abreast)
        return cls(budget=budget, depths=tuple(depths), breadths=tuple(breadths), select=rules)

    def for_model(self, config: ReasonerConfig) -> "BudgetSweep":
        """Return the sweep with a depth, where nobody asked for one."""
        return self if self.depths else replace(self, depths=(usual_depth(config, Budget().depth),))

    def to_json(self) -> dict[str, Any]:
        """Return plain data: every depth and breadth, and what they have in common."""
        shared = {**self.budget.to_json(), "uses_verifier": self.budget.uses_verifier}
        del shared["depth"], shared["breadth"]
        return {"depths": list(self.depths), "breadths": list(self.breadths), "budget": shared}

    def runs(self) -> list[tuple[Budget, tuple[int, ...], tuple[int, ...]]]:
        """Return the runs to make, each with the depths and breadths that are scored from it."""
        depths, breadths = tuple(sorted(set(self.depths))), tuple(sorted(set(self.breadths)))
        groups = [(depths, breadths)]
        if self.budget.competes:
            groups = [((depth,), (breadth,)) for depth in depths for breadth in breadths]
        return [(self.budget.replace(depth=d[-1], breadth=b[-1]), d, b) for d, b in groups]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """A model on puzzles: every metric at every depth and breadth that was asked for."""

    task: str
    model: str
    """Digest of the weights."""
    data: str
    """Digest of the puzzles."""
    n: int
    """Puzzles."""
    rows: tuple[Result, ...]

    def one(self, metric: str, **wanted: Any) -> Result:
        """Return the only row of a metric with the wanted fields: `one("exact", rule="residual")`."""
        return one(self.rows, metric=metric, **wanted)

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {**vars(self), "rows": [row.to_json() for row in self.rows]}


def evaluate(
    reasoner: Reasoner,
    puzzles: PuzzleSet,
    sweep: BudgetSweep,
    out: Path,
    *,
    slots: int = SLOTS,
    world: World | None = None,
    filler: Filler | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> Evaluation | None:
    """Run what is not in `out` yet, and score it; None in all processes but the first.

    `filler` runs the missing parts in another way than this process and those of `world` would.
    """
    world = world or World()
    task = fitting_task(reasoner, puzzles)
    rows: list[Result] = []
    for budget, depths, breadths in sweep.runs():
        _require_room(budget, depths, task)
        part = part_size(budget.breadth)
        manifest = Manifest.of(reasoner, puzzles, budget, depths=depths, window=WINDOW, part=part)
        folder = out / f"depth-{budget.depth}-breadth-{budget.breadth}"
        if world.first:
            CandidateTable.open(folder, manifest, overwrite=overwrite)
        world.together()
        table = CandidateTable.open(folder, manifest)
        (filler or fill)(table, reasoner, puzzles, slots=slots, world=world, quiet=quiet)
        world.together()
        if world.first:
            rows += score(table, puzzles, task, reasoner, breadths, dict(sweep.select))
    if not world.first:
        return None
    return Evaluation(
        task=task.name, model=model_digest(reasoner), data=puzzles.digest, n=len(puzzles), rows=tuple(rows)
    )


def part_size(breadth: int) -> int:
    """Return how many puzzles make a part of a table."""
    return max(PART // breadth, FEWEST)


def _require_room(budget: Budget, depths: tuple[int, ...], task: Task) -> None:
    """Refuse a table of which even one part would not fit into memory."""
    each = Candidates.empty(1, cells=task.cells, window=min(WINDOW, budget.depth))
    puzzles = part_size(budget.breadth)
    size = puzzles * budget.breadth * len(depths) * sum(array.nbytes for array in each.columns().values())
    if size > MOST_BYTES:
        raise UserError(
            f"breadth {budget.breadth:,} at {len(depths)} depths: {puzzles} puzzles would take "
            f"{size / 2**30:,.0f} GiB of candidates; lower --breadth or name fewer depths"
        )


def fill(
    table: CandidateTable,
    reasoner: Reasoner,
    puzzles: PuzzleSet,
    *,
    slots: int = SLOTS,
    world: World | None = None,
    quiet: bool = False,
) -> None:
    """Run the parts that are missing from a table and are this process's, saving each as it completes."""
    world = world or World()
    manifest = table.manifest
    numbers = [n for n in table.missing() if n % world.size == world.rank]
    starts = sum(map(manifest.starts, numbers))
    since = time.perf_counter()
    with progress(manifest.label, starts, unit="starts", quiet=quiet or not starts) as shown:
        for block, ended in run_parts(manifest, numbers, reasoner, puzzles, slots=slots):
            if block is not None:
                now = time.perf_counter()
                table.write(block, now - since)
                since = now
            shown.advance(ended - shown.done)


def run_parts(
    manifest: Manifest,
    numbers: Sequence[int],
    reasoner: Reasoner,
    puzzles: PuzzleSet,
    *,
    slots: int = SLOTS,
    cores: int | None = None,
) -> Iterator[tuple[CandidateBlock | None, int]]:
    """Run some parts of a table; yield each as it completes, or None, with the number of starts ended.

    A part runs by itself and in the pieces of a machine with `cores` cores (None: this one), so that its
    bits are the same whoever runs it: what a product rounds to depends on the rows beside each other.
    """
    device = next(reasoner.parameters()).device
    engine = Engine(
        reasoner,
        manifest.budget,
        slots=slots,
        noted=manifest.depths,
        window=manifest.window,
        backend=default_backend(reasoner.config, device, workers=cores or torch.get_num_threads()),
    )
    gather = Gather(
        manifest.budget,
        cells=puzzles.cells,
        window=manifest.window,
        noted=manifest.depths,
        size=manifest.part,
        total=manifest.puzzles,
    )

    for number in numbers:
        part = (
            Puzzle(index, np.array(puzzles.inputs[index]), int(puzzles.identities[index]))
            for index in manifest.rows(number)
        )
        for finished in engine.run(part):
            for block in gather.add(finished):
                yield block, gather.ended
            yield None, gather.ended


def score(
    table: CandidateTable,
    puzzles: PuzzleSet,
    task: Task,
    reasoner: Reasoner,
    breadths: Sequence[int],
    select: dict[str, SelectionRule],
) -> list[Result]:
    """Score every depth and breadth of a table."""
    depths, widest = table.manifest.depths, max(breadths)
    pairs = [(column, breadth) for column in range(len(depths)) for breadth in breadths]
    parts: dict[tuple[int, int], list[Outcomes]] = {pair: [] for pair in pairs}
    for block in table.blocks():
        here = puzzles.take(np.arange(block.first, block.first + len(block.candidates)))
        for column, breadth in pairs:
            candidates = block.candidates[:, :breadth, column]
            parts[column, breadth].append(outcomes(candidates, here, task, list(select.values())))
    joined = {pair: Outcomes.joined(found) for pair, found in parts.items()}
    voted = Candidates.joined([b.candidates for b in table.blocks()]) if has_variants(puzzles) else None
    seconds, spent = table.seconds(), joined[len(depths) - 1, widest].nfe.sum()
    rows = []
    for (column, breadth), results in joined.items():
        where: dict[str, Any] = {"depth": depths[column], "breadth": breadth}
        rows += report(results, list(select), widest=breadth == widest, **where)
        if voted is not None:  # variants of a puzzle lie in several parts
            votes = variant_votes(voted[:, :breadth, column], puzzles)
            rows += [Result.of("exact", found, rule=rule, **where) for rule, found in votes.items()]
        nfe = float(results.nfe.sum(axis=1).mean())
        costs = {
            "equivalent layers": equivalent_layers(reasoner.config, nfe),
            "flops": flops(reasoner.config, nfe),
            # its share of the segments, where it is a part of a larger run
            "seconds": seconds * float(results.nfe.sum() / spent),
        }
        rows += [Result(metric=metric, value=value, **where) for metric, value in costs.items()]
    return rows


def fitting_task(reasoner: Reasoner, puzzles: PuzzleSet) -> Task:
    """Return the puzzles' task; say so if the model cannot be measured on them."""
    config = reasoner.config
    if config.task is not None and config.task != puzzles.task:
        raise UserError(f"this model is for {config.task}, these puzzles are {puzzles.task}")
    task = task_named(puzzles.task)
    if reasoner.for_task(task) is not reasoner:
        raise UserError(f"this model is made for another size; evaluate reasoner.for_task({task.name})")
    if not len(puzzles):
        raise UserError("the puzzle set is empty: nothing to evaluate")
    if not puzzles.labels.any():
        raise UserError("no puzzle of this set has a label to compare with; `eqr solve` needs none")
    if config.identities and int(puzzles.identities.max()) >= config.identities:
        raise UserError(
            f"this model knows {config.identities} identities, these puzzles have "
            f"{len(puzzles.identity_names)}; use the dataset it was trained on"
        )
    return task
