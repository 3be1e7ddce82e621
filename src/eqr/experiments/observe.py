"""Taking a look: from a trained run, or a recipe alone, to numbers by name.

Everything here asks `eqr.measure` and `eqr.solve`; only the naming of numbers is done here. A look at a model
keeps its candidates in a table on disk while it is taken, so that it goes on after a kill.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eqr.data import PuzzleSet
from eqr.data.splits import sample
from eqr.experiments.costs import observe_cost, observe_shape
from eqr.experiments.looks import (
    RATINGS,
    Cost,
    Curve,
    Decoding,
    Final,
    Found,
    Look,
    Modes,
    Puzzles,
    Shape,
    Solve,
    rated,
)
from eqr.experiments.score import mode_numbers, numbers_of, within
from eqr.measure.diagnostics import landscape
from eqr.measure.evaluate import fill
from eqr.measure.statistics import powers_of_two
from eqr.measure.table import CandidateTable, Manifest
from eqr.measure.traces import run_traces
from eqr.model.reasoner import Reasoner
from eqr.runs import RunFolder
from eqr.solve import Budget, Solver, load_reasoner, parse_halting
from eqr.solve.candidates import Candidates
from eqr.tasks import task_named
from eqr.train.recipe import Recipe
from eqr.train.sources import load_data

WINDOW = 3
"""Residuals kept at each depth: what Top-1 converged averages."""
PART = 32
"""Puzzles saved at a time."""


@dataclass(frozen=True)
class Seen:
    """What there is to look at."""

    recipe: Recipe
    run: RunFolder
    scratch: Path
    """Where a look may keep what it needs while it is taken."""

    def model(self) -> Reasoner:
        """Return the trained model, its best weights by validation."""
        return load_reasoner(self.run.path, device=self.recipe.device)

    def puzzles(self, look: Solve) -> PuzzleSet:
        """Return the puzzles of a look: a seeded sample, or the first ones."""
        recipe = self.recipe.with_settings([f"data.{change}" for change in look.data])
        whole = load_data(recipe.data, self.run, quiet=True)[look.split]
        count = min(look.puzzles, len(whole))
        return whole.take(range(count)) if look.first else sample(whole, count, seed=0)


def observe(look: Look, seen: Seen) -> Found:
    """Take a look."""
    return _OBSERVE[type(look)](look, seen)


def _solve(look: Solve, seen: Seen) -> Found:
    reasoner, puzzles = seen.model(), seen.puzzles(look)
    rule = None if look.halt is None else parse_halting(look.halt)
    fields: dict[str, Any] = {"halting": rule and rule.to_json()}
    if look.start is not None:
        fields["start"] = look.start
    budget = Budget.from_json({"depth": look.depth, "breadth": look.breadth, **fields}, where="look")
    candidates = _candidates(reasoner, puzzles, budget, seen.scratch)
    own = None
    if look.start is not None:  # the first start of path independence is the model's own
        own = _candidates(reasoner, puzzles, Budget(depth=look.depth), seen.scratch)
    depths = powers_of_two(look.depth)
    return Found(numbers=numbers_of(candidates, depths, puzzles, own=own), puzzles=len(puzzles))


def _candidates(reasoner: Reasoner, puzzles: PuzzleSet, budget: Budget, scratch: Path) -> Candidates:
    """Run a model within a budget, noting every power of two of its depth, (puzzles, starts, depths)."""
    manifest = Manifest.of(
        reasoner, puzzles, budget, depths=powers_of_two(budget.depth), window=WINDOW, part=PART
    )
    table = CandidateTable.open(scratch / manifest.digest(), manifest)
    fill(table, reasoner, puzzles, quiet=True)
    joined = Candidates.joined([block.candidates for block in table.blocks()])
    shutil.rmtree(table.folder)
    return joined


def _modes(look: Modes, seen: Seen) -> Found:
    reasoner = seen.model()
    puzzles = seen.puzzles(Solve(puzzles=look.puzzles))
    budget = Budget(depth=look.depth, breadth=look.starts)
    traces = run_traces(reasoner, puzzles, budget, seen.scratch, quiet=True)
    numbers, kinds = mode_numbers(traces)
    shutil.rmtree(seen.scratch, ignore_errors=True)
    drawn = _one_of_each(kinds, look.drawn)
    files = []
    for index in drawn:
        view = landscape(
            reasoner, puzzles.inputs[index], puzzles.labels[index], starts=look.starts, budget=budget
        )
        path = seen.run.path.parent / "landscapes" / f"{look.digest()}-{index}.npz"
        view.save(path)
        files.append(path.relative_to(seen.run.path.parent).as_posix())
    return Found(numbers=numbers, data={"landscapes": files, "puzzles": [int(index) for index in drawn]})


def _one_of_each(kinds: list[str], most: int) -> list[int]:
    """Return the first puzzle of each kind, then the next ones, `most` in all."""
    firsts = [kinds.index(kind) for kind in sorted(set(kinds))]
    return sorted([*firsts, *(index for index in range(len(kinds)) if index not in firsts)][:most])


def _curve(_: Curve, seen: Seen) -> Found:
    """Held-out accuracy at shares of the steps, and training accuracy of the rows that ended there."""
    records = seen.run.records()
    numbers: dict[str, float] = {}
    for share in range(10, 101, 10):
        step = share * seen.recipe.steps / 100
        for kind, value in (("validation", _deepest), ("train", lambda r: r.get("exact", r["right"]))):
            close = [r for r in records if r["kind"] == kind and r["step"] <= step]
            if close:
                numbers[f"{kind} at {share}%"] = value(close[-1])
        held_out, fitted = numbers.get(f"validation at {share}%"), numbers.get(f"train at {share}%")
        if held_out is not None and fitted is not None:
            numbers[f"gap at {share}%"] = held_out - fitted
    ended = [r["halt_depth"] for r in records if r["kind"] == "train" and "halt_depth" in r]
    if ended:
        numbers["halt depth at the end"] = ended[-1]
    return Found(numbers=numbers)


def _final(_: Final, seen: Seen) -> Found:
    summary = seen.run.summary()
    assert summary is not None, "looked at after its end"
    scores = {"validation": summary.best, "test": summary.test}
    numbers = {
        f"{split} {name}": value
        for split, score in scores.items()
        for name, value in score.items()
        if name.startswith("exact@")
    }
    return Found(numbers={**numbers, "steps": summary.steps})


def _deepest(record: dict[str, Any]) -> float:
    depths = [int(key.removeprefix("exact@")) for key in record if key.startswith("exact@")]
    return float(record[f"exact@{max(depths)}"])


def _trajectory(look: Decoding, seen: Seen) -> Found:
    puzzles = seen.puzzles(Solve(puzzles=1, first=True))
    solver = Solver(seen.model(), budget=Budget(depth=look.depth))
    frames = list(solver.trace(puzzles.inputs[0]))
    changes = sum(bool(frame.changed) for frame in frames)
    return Found(
        numbers={
            "segments": len(frames),
            "segments with a change": changes,
            "right at the end": float((frames[-1].grid == puzzles.labels[0]).all()),
            "cells that change more than once": _returning([frame.changed for frame in frames]),
        },
        data={
            "task": puzzles.task,
            "puzzle": puzzles.inputs[0].tolist(),
            "label": puzzles.labels[0].tolist(),
            "grids": [frame.grid.tolist() for frame in frames],
        },
    )


def _returning(changed: list[tuple[int, ...]]) -> int:
    cells = [cell for cells in changed for cell in cells]
    return sum(cells.count(cell) > 1 for cell in set(cells))


def _puzzles(look: Puzzles, seen: Seen) -> Found:
    splits = load_data(seen.recipe.data, seen.run, quiet=True)
    task = task_named(splits.task)
    test = splits["test"]
    ratings = np.asarray(test.ratings)
    numbers: dict[str, float] = {
        "train": len(splits["train"]),
        "test": len(test),
        "rows": task.shape[0],
        "vocabulary": task.vocabulary,
    }
    both = np.concatenate([np.asarray(splits[name].inputs) for name in ("train", "test")])
    measures = task.measures(both)
    numbers |= {name: float(values.mean()) for name, values in measures.items()}
    if "shortest paths" in measures:
        numbers["unique"] = float((measures["shortest paths"][-len(test) :] == 1).mean())
    for low, high in RATINGS:
        numbers[rated("share", low, high)] = float(within(ratings, low, high).mean())
    drawn = [[test.inputs[index].tolist(), test.labels[index].tolist()] for index in range(look.drawn)]
    return Found(numbers=numbers, data={"task": splits.task, "drawn": drawn})


_OBSERVE: dict[type[Look], Callable[[Any, Seen], Found]] = {
    Solve: _solve,
    Modes: _modes,
    Curve: _curve,
    Final: _final,
    Decoding: _trajectory,
    Puzzles: _puzzles,
    Shape: lambda _, seen: observe_shape(seen.recipe),
    Cost: lambda look, seen: observe_cost(look, seen.recipe),
}
