"""Several runs side by side, at equal budgets, on the same puzzles from the same numbered starts.

Differences are paired: what counts is how each puzzle fares under one run and under another, so that puzzles
which all runs solve, or none does, do not blur them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eqr.errors import UserError
from eqr.measure.accounting import equivalent_layers, flops
from eqr.measure.metrics import outcomes
from eqr.measure.report.source import ReportPlan, Source, open_source
from eqr.measure.results import CompareRow, CostRow
from eqr.measure.scaling import TOP
from eqr.measure.statistics import average, expected_of_lowest, powers_of_two, share
from eqr.measure.traces import Traces, run_traces

Place = tuple[int, int]
"""A budget: depth and breadth."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What several runs reach on the same puzzles."""

    task: str
    split: str
    puzzles: int
    sources: list[Source]
    names: list[str]
    rows: list[CompareRow]

    @property
    def same_segments(self) -> bool:
        """Whether a segment means as many layers in every run, so that NFE compares their cost."""
        return len({source.reasoner.config.layers_per_segment for source in self.sources}) == 1

    def costs(self) -> list[CostRow]:
        """Return the rows as lines of a figure: against NFE, or layers where segments differ."""
        return [
            CostRow(
                method=row.run if row.breadth == 1 else f"{row.run}, {row.breadth} starts",
                depth=row.depth,
                breadth=row.breadth,
                nfe=row.nfe if self.same_segments else row.equivalent_layers,
                exact=row.exact,
                low=row.low,
                high=row.high,
            )
            for row in self.rows
        ]


def compare(
    runs: Sequence[Path],
    plan: ReportPlan | None = None,
    *,
    data: Path | None = None,
    device: str = "auto",
    quiet: bool = False,
) -> Comparison:
    """Measure runs at depths in powers of two, one start each and all starts; the first is the reference.

    Without `data` the runs must have been trained on the same puzzles, whose test split (else validation) is
    used. Candidates are kept in each run's `report/cache`, where a report of the same size finds them too.
    """
    if len(runs) < 2:
        raise UserError(f"{len(runs)} run given: a comparison needs at least two")
    plan = plan or ReportPlan()
    sources = [open_source(run, plan, data=data, device=device) for run in runs]
    _same_puzzles(sources)
    scores = []
    for source in sources:
        budget = plan.budget(source.reasoner.config)
        cache = source.folder / "report" / "cache"
        scores.append(_scores(run_traces(source.reasoner, source.puzzles, budget, cache, quiet=quiet)))
    names = _names(runs)
    rows = [
        row
        for name, source, score in zip(names, sources, scores, strict=True)
        for row in _rows(name, source, score, None if score is scores[0] else scores[0])
    ]
    first = sources[0]
    return Comparison(
        task=first.puzzles.task,
        split=first.split,
        puzzles=len(first.puzzles),
        sources=sources,
        names=names,
        rows=rows,
    )


def _same_puzzles(sources: Sequence[Source]) -> None:
    first = sources[0]
    for other in sources[1:]:
        if other.puzzles.digest != first.puzzles.digest:
            raise UserError(
                f"{first.folder} and {other.folder} have different {first.split} puzzles ({first.data}, "
                f"{other.data}); name those to compare on with --data DIR"
            )


def _names(runs: Sequence[Path]) -> list[str]:
    """Call runs by their folders' names, by whole paths where these are equal."""
    names = [run.resolve().name for run in runs]
    return names if len(set(names)) == len(names) else [str(run) for run in runs]


def _scores(traces: Traces) -> dict[Place, NDArray[np.float64]]:
    """Return the accuracy on each puzzle by budget: over starts, and of Top-1 converged among all of them."""
    found: dict[Place, NDArray[np.float64]] = {}
    for depth in powers_of_two(traces.depth):
        scored = outcomes(traces.at(depth), traces.puzzles, traces.task, [])
        for breadth in sorted({1, traces.breadth}):
            found[depth, breadth] = expected_of_lowest(scored.costs, scored.right, breadth)
    return found


def _rows(
    name: str,
    source: Source,
    scores: dict[Place, NDArray[np.float64]],
    reference: dict[Place, NDArray[np.float64]] | None,
) -> list[CompareRow]:
    config, rows = source.reasoner.config, []
    for (depth, breadth), values in scores.items():
        exact, nfe = share(values), depth * breadth
        row = CompareRow(
            run=name,
            depth=depth,
            breadth=breadth,
            rule="mean over starts" if breadth == 1 else TOP,
            exact=exact.value,
            low=exact.low,
            high=exact.high,
            nfe=nfe,
            equivalent_layers=equivalent_layers(config, nfe),
            flops=flops(config, nfe),
            parameters=source.reasoner.parameter_count(),
        )
        if reference is not None and (depth, breadth) in reference:
            apart = values - reference[depth, breadth]
            found = average(apart)
            row = replace(
                row,
                difference=found.value,
                difference_low=found.low,
                difference_high=found.high,
                better=int((apart > 0).sum()),
                worse=int((apart < 0).sum()),
            )
        rows.append(row)
    return rows
