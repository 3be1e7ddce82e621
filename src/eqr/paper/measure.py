"""Taking a measurement: of a trained run, or of a recipe alone; and from candidates to its numbers.

A model's candidates are kept in a table on disk while it is measured, so that this goes on after a kill. Of
the numbers, `exact` averages over starts; `top`, `vote` and `any` are expectations over subsets of so many
starts (Top-1 converged, majority, oracle); `variants` is by vote of a puzzle's variants.
"""

import shutil
import tempfile
import time
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eqr.data import PuzzleSet
from eqr.data.splits import sample
from eqr.diagnostics.landscape import MODE_RULES, Basins, Mode, landscape, name_basins
from eqr.diagnostics.scaling import all_basins
from eqr.diagnostics.traces import Traces, run_traces
from eqr.model.config import ReasonerConfig
from eqr.model.operator import SingleState, TwoLevel
from eqr.model.reasoner import Reasoner
from eqr.paper.experiment import (
    RATINGS,
    Cost,
    Curve,
    Decoding,
    Final,
    Halves,
    Measurement,
    Modes,
    Output,
    Puzzles,
    Shape,
    Solve,
    named,
    rated,
)
from eqr.result import Result, one, select
from eqr.results.costs import own_row, training_cost_rows, unit_costs
from eqr.results.evaluate import fill
from eqr.results.metrics import (
    TRIES,
    Outcomes,
    auroc,
    expected,
    expected_of_lowest,
    has_variants,
    outcomes,
    powers_of_two,
    rank_correlation,
    variant_votes,
)
from eqr.results.table import CandidateTable, Manifest
from eqr.runs import RunFolder
from eqr.solve import Budget, Solver, load, parse_halting
from eqr.solve.candidates import Candidates, changes
from eqr.tasks import task_named
from eqr.train.recipe import Recipe
from eqr.train.sources import load_data, open_stream
from eqr.train.trainer import Trainer

WINDOW = 3
"""Residuals kept at each depth: what Top-1 converged averages."""
PART = 32
"""Puzzles saved at a time."""


@dataclass(frozen=True)
class Subject:
    """What is measured."""

    recipe: Recipe
    run: RunFolder
    scratch: Path
    """Where a measurement may keep what it needs while it is taken."""

    def model(self) -> Reasoner:
        """Return the trained model, its best weights by validation."""
        return load(self.run.path, device=self.recipe.device)

    def puzzles(self, wanted: Solve) -> PuzzleSet:
        """Return the puzzles of a measurement: a seeded sample, or the first ones."""
        recipe = self.recipe.changed({f"data.{name}": value for name, value in wanted.data})
        whole = load_data(recipe.data, self.run, quiet=True)[wanted.split]
        if wanted.least_rating:
            whole = whole.take(np.flatnonzero(whole.ratings >= wanted.least_rating))
        count = min(wanted.puzzles, len(whole))
        return whole.take(range(count)) if wanted.first else sample(whole, count, seed=0)


def measure(wanted: Measurement, of: Subject) -> Output:
    """Take a measurement."""
    return _MEASURE[type(wanted)](wanted, of)


def _solve(wanted: Solve, of: Subject) -> Output:
    reasoner, puzzles = of.model(), of.puzzles(wanted)
    rule = None if wanted.halt is None else parse_halting(wanted.halt)
    given = {"start": wanted.start, "noise": wanted.noise, "damping": wanted.damping}
    fields = {name: value for name, value in given.items() if value is not None}
    size = {"depth": wanted.depth, "breadth": wanted.breadth, "halting": rule and rule.to_json()}
    budget = Budget.from_json({**size, **fields}, where="measurement")
    candidates = _candidates(reasoner, puzzles, budget, of.scratch)
    own = None
    if wanted.start is not None:  # the first start of path independence is the model's own
        own = _candidates(reasoner, puzzles, Budget(depth=wanted.depth), of.scratch)
    depths = powers_of_two(wanted.depth)
    kept = {"by puzzle": by_puzzle(candidates, depths, puzzles, own=own)} if wanted.by_puzzle else None
    rows = rows_of(candidates, depths, puzzles, own=own)
    numbers = {named(row.metric, row.depth, row.breadth): row.value for row in rows}
    return Output(numbers=numbers, data=kept, puzzles=len(puzzles))


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


def _halves(wanted: Halves, of: Subject) -> Output:
    puzzles, budget = (
        of.puzzles(Solve(puzzles=wanted.puzzles)),
        Budget(depth=wanted.depth, breadth=wanted.starts),
    )
    traces = run_traces(of.model(), puzzles, budget, of.scratch, quiet=True)
    shutil.rmtree(of.scratch, ignore_errors=True)
    return Output(numbers=half_numbers(traces, wanted.shallow), puzzles=len(puzzles))


def _modes(wanted: Modes, of: Subject) -> Output:
    reasoner, puzzles = of.model(), of.puzzles(Solve(puzzles=wanted.puzzles))
    budget = Budget(depth=wanted.depth, breadth=wanted.starts)
    traces = run_traces(reasoner, puzzles, budget, of.scratch, quiet=True)
    numbers, kinds = mode_numbers(traces)
    shutil.rmtree(of.scratch, ignore_errors=True)
    firsts = [kinds.index(kind) for kind in sorted(set(kinds))]  # one of each kind, then the next ones
    drawn = sorted([*firsts, *(index for index in range(len(kinds)) if index not in firsts)][: wanted.drawn])
    files = []
    for index in drawn:
        view = landscape(
            reasoner, puzzles.inputs[index], puzzles.labels[index], starts=wanted.starts, budget=budget
        )
        path = of.run.path.parent / "landscapes" / f"{wanted.digest()}-{index}.npz"
        view.save(path)
        files.append(path.relative_to(of.run.path.parent).as_posix())
    return Output(numbers=numbers, data={"landscapes": files, "puzzles": drawn})


def _curve(_: Curve, of: Subject) -> Output:
    """Held-out accuracy at shares of the steps, and training accuracy of the rows that ended there."""
    records, numbers = of.run.records(), dict[str, float]()
    for share in range(10, 101, 10):
        step = share * of.recipe.steps / 100
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
    return Output(numbers=numbers)


def _deepest(record: dict[str, Any]) -> float:
    depths = [int(key.removeprefix("exact@")) for key in record if key.startswith("exact@")]
    return float(record[f"exact@{max(depths)}"])


def _final(_: Final, of: Subject) -> Output:
    summary = of.run.summary()
    assert summary is not None, "measured after its end"
    scores = {"validation": summary.best, "test": summary.test}
    numbers = {
        f"{split} {name}": value
        for split, score in scores.items()
        for name, value in score.items()
        if name.startswith("exact@")
    }
    return Output(numbers={**numbers, "steps": summary.steps})


def _trajectory(wanted: Decoding, of: Subject) -> Output:
    puzzles = of.puzzles(Solve(puzzles=1, first=True))
    frames = list(Solver(of.model(), budget=Budget(depth=wanted.depth)).trace(puzzles.inputs[0]))
    changed = changes(puzzles.inputs[0], frames)
    cells = [cell for cells in changed for cell in cells]
    return Output(
        numbers={
            "segments": len(frames),
            "segments with a change": sum(map(bool, changed)),
            "right at the end": float((frames[-1].grid == puzzles.labels[0]).all()),
            "cells that change more than once": sum(cells.count(cell) > 1 for cell in set(cells)),
        },
        data={
            "task": puzzles.task,
            "puzzle": puzzles.inputs[0].tolist(),
            "label": puzzles.labels[0].tolist(),
            "grids": [frame.grid.tolist() for frame in frames],
        },
    )


def _puzzles(wanted: Puzzles, of: Subject) -> Output:
    splits = load_data(of.recipe.data, of.run, quiet=True)
    task, test = task_named(splits.task), splits["test"]
    ratings = np.asarray(test.ratings)
    numbers: dict[str, float] = {
        "train": len(splits["train"]),
        "test": len(test),
        "rows": task.shape[0],
        "vocabulary": task.vocabulary,
    }
    measures = task.measures(np.concatenate([np.asarray(splits[name].inputs) for name in ("train", "test")]))
    numbers |= {name: float(values.mean()) for name, values in measures.items()}
    if "shortest paths" in measures:
        numbers["unique"] = float((measures["shortest paths"][-len(test) :] == 1).mean())
    for low, high in RATINGS:
        numbers[rated("share", low, high)] = float(within(ratings, low, high).mean())
    drawn = [[test.inputs[index].tolist(), test.labels[index].tolist()] for index in range(wanted.drawn)]
    return Output(numbers=numbers, data={"task": splits.task, "drawn": drawn})


def _shape(_: Shape, of: Subject) -> Output:
    """Name the sizes of a recipe as the paper's table of hyper-parameters does."""
    recipe, model, recurrence = of.recipe, of.recipe.model, of.recipe.model.recurrence
    parameters = Reasoner(model).parameter_count()
    return Output(
        numbers={
            "parameters": parameters,
            "parameters (M)": parameters / 1e6,
            "blocks": model.blocks,
            "layers": model.layers_per_segment,
            "evaluated layers": model.layers_per_segment * max(recipe.evaluation.depths),
            "cycles": recurrence.cycles if isinstance(recurrence, TwoLevel | SingleState) else 1,
            "scratch": recurrence.scratch if isinstance(recurrence, TwoLevel) else 0,
            "applications": model.applications,
            "segments": recipe.schedule.depth,
            "width": model.width,
            "rows": recipe.rows,
            "steps": recipe.steps,
            "rate": recipe.optimizer.rate,
        }
    )


def _cost(wanted: Cost, of: Subject) -> Output:
    """Evaluate one row of the paper's cost table for a recipe, and measure it."""
    recipe = of.recipe
    tracked = recipe.schedule.applications or max(recipe.model.applications // 3, 1)
    unit = unit_costs(_as_tied(recipe.model), rows=recipe.rows, tracked=tracked)
    row = training_cost_rows(unit, depth=recipe.schedule.depth)[own_row(recipe) - 1]
    seconds, held = _steps(recipe, wanted.steps)
    return Output(
        numbers={
            "forward GFLOP": row.forward / 1e9,
            "backward GFLOP": row.backward / 1e9,
            "memory MB": row.memory / 1e6,
            "measured MB": held / 1e6,
            "measured ms": 1e3 * seconds,
        },
        data={"backward": row.backward_formula, "memory": row.memory_formula},
    )


def _as_tied(model: ReasonerConfig) -> ReasonerConfig:
    """Return a feedforward model's tied counterpart, in whose units the formulas count: a block a layer."""
    if model.recurrence.iterates:
        return model
    return model.replace(recurrence=SingleState(cycles=1, applications=model.blocks), blocks=1)


def _steps(recipe: Recipe, count: int) -> tuple[float, int]:
    """Return the median seconds of an optimizer step and the most bytes autograd held at once in one."""
    with tempfile.TemporaryDirectory() as folder:
        splits = load_data(recipe.data, RunFolder(Path(folder)), quiet=True)
        trainer = Trainer(recipe, open_stream(recipe, splits))
        times = []
        for _ in range(count):
            began = time.process_time()
            trainer.step()
            times.append(time.process_time() - began)
        held = _HeldBytes()
        with torch.autograd.graph.saved_tensors_hooks(held.pack, lambda kept: kept.tensor):
            trainer.step()
    return median(times), held.most


class _Held:
    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


class _HeldBytes:
    """Counts the bytes that autograd holds for its backward pass, each storage once."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self._users = Counter[int]()

    def pack(self, tensor: Tensor) -> _Held:
        """Take note of a tensor that is being kept."""
        storage = tensor.untyped_storage()
        place, size = storage.data_ptr(), storage.nbytes()
        self.now += 0 if self._users[place] else size
        self.most = max(self.most, self.now)
        self._users[place] += 1
        held = _Held(tensor.detach())
        weakref.finalize(held, self._drop, place, size)
        return held

    def _drop(self, place: int, size: int) -> None:
        self._users[place] -= 1
        self.now -= 0 if self._users[place] else size


_MEASURE: dict[type[Measurement], Callable[[Any, Subject], Output]] = {
    Solve: _solve,
    Modes: _modes,
    Halves: _halves,
    Curve: _curve,
    Final: _final,
    Decoding: _trajectory,
    Puzzles: _puzzles,
    Shape: _shape,
    Cost: _cost,
}


TARGETS = (50, 60, 70, 80, 85, 90, 95)
"""Accuracies whose cost is told, in percent."""


def rows_of(
    candidates: Candidates, depths: Sequence[int], puzzles: PuzzleSet, *, own: Candidates | None = None
) -> list[Result]:
    """Score candidates (puzzles, starts, depths); `own` are those of the model's own start, if others ran."""
    task, rows = task_named(puzzles.task), list[Result]()
    for column, depth in enumerate(depths):
        scored = outcomes(candidates[:, :, column], puzzles, task, [])
        starts = scored.right.shape[1]
        residual = float(np.nanmean(candidates.residuals[:, :, column, -1]))
        numbers = {(metric, 1): value for metric, value in _at_depth(scored, residual, depth).items()}
        if starts > 1:
            first = scored if own is None else outcomes(own[:, :, column], puzzles, task, [])
            numbers |= _at_breadths(scored, first.right[:, 0])
        if has_variants(puzzles):
            votes = variant_votes(candidates[:, :, column], puzzles)
            numbers |= {
                (name, 1): votes[rule].value
                for name, rule in zip(("variants", "two tries"), TRIES, strict=True)
            }
        rows += [
            Result(metric=metric, depth=depth, breadth=breadth, value=float(value))
            for (metric, breadth), value in numbers.items()
        ]
    return [*rows, *_tracking(rows), *_reaching(rows, depths)]


def _at_depth(scored: Outcomes, residual: float, depth: int) -> dict[str, float | np.floating[Any]]:
    """Return what does not depend on how many starts there are."""
    right, starts = scored.right, scored.right.shape[1]
    spent = scored.nfe.sum(axis=1).mean()
    numbers: dict[str, float | np.floating[Any] | None] = {
        "spurious": _calm_but_wrong(scored).mean(),
        "exact": right.mean(),
        "error": 1 - right.mean(),
        "valid": scored.valid.mean(),
        "token": scored.share_right.mean(),
        "nfe": spent,
        "residual": residual,
        "saving": depth * starts / spent,
        "auroc": auroc(-scored.costs.ravel(), right.ravel()),
        "rating auroc": auroc(-np.repeat(scored.ratings, starts).astype(np.float64), right.ravel()),
    }
    for low, high in RATINGS:
        inside = within(scored.ratings, low, high)
        if inside.any():
            numbers[rated("exact", low, high)] = right[inside].mean()
            numbers[rated("nfe", low, high)] = scored.nfe[inside].mean()
    return {metric: value for metric, value in numbers.items() if value is not None}


def _calm_but_wrong(scored: Outcomes) -> NDArray[np.bool_]:
    """Return which starts are wrong yet as settled as right ones, by the bar of `ModeRules`."""
    bar = MODE_RULES.tolerance
    if scored.right.any():
        bar = max(bar, MODE_RULES.calm * float(np.median(scored.costs[scored.right])))
    return np.asarray(~scored.right & (scored.costs <= bar))


def _at_breadths(scored: Outcomes, first: NDArray[np.bool_]) -> dict[tuple[str, int], float]:
    """Return what choices among starts reach; `first` is which puzzles the model's own start solves."""
    numbers, starts = dict[tuple[str, int], float](), scored.right.shape[1]
    for breadth in powers_of_two(starts):
        top, vote, any_right = (float(found.mean()) for found in expected(scored, breadth).values())
        # the least of a random subset, so that accuracy and residual are of the same starts
        calmest = expected_of_lowest(scored.costs, scored.costs, breadth).mean()
        numbers |= {
            ("top", breadth): top,
            ("top error", breadth): 1 - top,
            ("vote", breadth): vote,
            ("any", breadth): any_right,
            ("top - vote", breadth): top - vote,
            ("chosen residual", breadth): float(calmest),
            ("spent", breadth): float(scored.nfe.mean() * breadth),
        }
    # both readings of the paper's measure: per puzzle, and of the two accuracies
    mean = scored.right.mean(axis=1)
    numbers["path per puzzle", starts] = float(np.abs(mean - first).mean())
    numbers["path of means", starts] = abs(float(mean.mean()) - float(first.mean()))
    return numbers


def _tracking(rows: Sequence[Result]) -> list[Result]:
    """Rank correlation of residual and error over budgets, where there are several."""
    chosen = bool(select(rows, metric="chosen residual"))
    residual, error = ("chosen residual", "top error") if chosen else ("residual", "error")
    pairs = [
        (row.value, one(rows, metric=error, depth=row.depth, breadth=row.breadth).value)
        for row in select(rows, metric=residual)
    ]
    found = rank_correlation(*np.array(pairs).T) if len(pairs) > 2 else None
    last = max(select(rows, metric=("top", "exact")), key=lambda row: (row.depth, row.breadth))
    if found is None:
        return []
    return [Result(metric="tracking", depth=last.depth, breadth=last.breadth, value=found)]


def _reaching(rows: Sequence[Result], depths: Sequence[int]) -> list[Result]:
    """Return log2 of the NFE at which one start reaches each accuracy, linear between the depths run."""
    costs = [float(np.log2(row.value)) for row in select(rows, metric="nfe")]
    shares = [row.value for row in select(rows, metric="exact")]
    found = []
    for percent in TARGETS:
        last = next((number for number, share in enumerate(shares) if share >= percent / 100), None)
        if last is None:
            continue
        cost = costs[last]
        if last:
            low, high = shares[last - 1], shares[last]
            cost -= (costs[last] - costs[last - 1]) * (high - percent / 100) / (high - low)
        name = f"log2 nfe for {percent}%"
        found.append(Result(metric=name, depth=depths[-1], breadth=1, value=cost))
    return found


def by_puzzle(
    candidates: Candidates, depths: Sequence[int], puzzles: PuzzleSet, *, own: Candidates | None = None
) -> dict[str, list[float]]:
    """Return what `rows_of` averages over puzzles, puzzle by puzzle, by the names of its rows."""
    task, values = task_named(puzzles.task), dict[str, NDArray[Any]]()
    for column, depth in enumerate(depths):
        scored = outcomes(candidates[:, :, column], puzzles, task, [])
        right, starts = scored.right, scored.right.shape[1]
        values |= {
            named("exact", depth): right.mean(axis=1),
            named("nfe", depth): scored.nfe.sum(axis=1),
            named("residual", depth): scored.costs.mean(axis=1),
        }
        for breadth in powers_of_two(starts) if starts > 1 else ():
            top, vote, _ = expected(scored, breadth).values()
            values |= {named("top", depth, breadth): top, named("vote", depth, breadth): vote}
        if starts > 1:
            first = right if own is None else outcomes(own[:, :, column], puzzles, task, []).right
            values[named("path per puzzle", depth, starts)] = np.abs(right.mean(axis=1) - first[:, 0])
    values["rating"] = puzzles.ratings
    return {name: [float(f"{value:.4g}") for value in column] for name, column in values.items()}


def within(ratings: NDArray[np.int32], low: int, high: int | None) -> NDArray[np.bool_]:
    """Return which ratings lie in a range, both ends inside; no high end is no bound."""
    return np.asarray((ratings >= low) & (ratings <= high if high is not None else True))


def mode_numbers(traces: Traces) -> tuple[dict[str, float], list[str]]:
    """Return the share of puzzles in each landscape mode and what depth and breadth buy there."""
    early, late = (_outcomes(traces, depth) for depth in (max(traces.depth // 4, 1), traces.depth))
    before, deeper = early.right.mean(axis=1), late.right.mean(axis=1)
    broader = expected_of_lowest(late.costs, late.right, traces.breadth) - deeper
    return _by_mode(all_basins(traces), deeper, deeper - before, broader)


def half_numbers(traces: Traces, shallow: int) -> dict[str, float]:
    """Return, by the mode that half of the starts have when shallow, what the other half gains.

    Depth goes on to the end; breadth takes as many starts as cost the same, the best settled of them.
    """
    half, wider = traces.breadth // 2, max(traces.depth // shallow, 1)
    tokens, residuals = traces.candidates.tokens[:, :half, :shallow], traces.residuals[:, :half, :shallow]
    basins = [name_basins(*parts) for parts in zip(tokens, residuals, traces.puzzles.labels, strict=True)]
    early, late = (_outcomes(traces, depth, half) for depth in (shallow, traces.depth))
    before = early.right.mean(axis=1)
    broader = expected_of_lowest(early.costs, early.right, min(wider, half)) - before
    return _by_mode(basins, before, late.right.mean(axis=1) - before, broader)[0]


def _outcomes(traces: Traces, depth: int, first: int = 0) -> Outcomes:
    return outcomes(traces.at(depth)[:, first:], traces.puzzles, traces.task, [])


def _by_mode(
    basins: Sequence[Basins],
    right: NDArray[np.float64],
    deeper: NDArray[np.float64],
    broader: NDArray[np.float64],
) -> tuple[dict[str, float], list[str]]:
    kinds = [part.mode.letter for part in basins]
    numbers = {"right": float(right.mean())}
    gains = {"depth gain": deeper, "breadth gain": broader, "breadth over depth": broader - deeper}
    for mode in Mode:
        inside = np.array(kinds) == mode.letter
        numbers[f"share {mode.letter}"] = float(inside.mean())
        if inside.any():
            numbers |= {f"{name} {mode.letter}": float(gain[inside].mean()) for name, gain in gains.items()}
    return numbers, kinds
