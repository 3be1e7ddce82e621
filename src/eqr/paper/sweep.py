"""A sweep: one recipe under every combination of some settings, gathered into one table.

    eqr sweep sudoku-6x6 --set seed=0..9 --set optimizer.rate=1e-3,2e-3

Runs go into the same store as those of `eqr reproduce`, by content, so a sweep that is cut short goes on and
one that grows trains only what is new. Seeds become the interval of a row; other settings make rows.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from eqr.errors import UserError
from eqr.files import write_json, write_text
from eqr.paper.executor import Executor, Tally, counted
from eqr.paper.experiment import Final
from eqr.paper.plan import Job, Plan, run_key
from eqr.paper.store import Store
from eqr.paper.verdicts import over_seeds
from eqr.result import csv_text
from eqr.train.recipe import Recipe

MEASURED = Final()
SEED = "seed"
MOST = 100_000
"""Runs of one sweep; more is a mistyped range."""
_RANGE = re.compile(r"(-?\d{1,18})\.\.(-?\d{1,18})")


@dataclass(frozen=True)
class Axis:
    """A setting and the values it takes, as typed."""

    key: str
    values: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> "Axis":
        """Read `key=a,b,c` or `key=0..9`; commas inside brackets belong to one value."""
        key, equals, values = text.partition("=")
        if not equals or not key.strip() or not values:
            raise UserError(f"--set {text!r} is not of the form key=value,value or key=first..last")
        found: list[str] = []
        for part in _parts(values):
            span = _RANGE.fullmatch(part)
            if span is None:
                found.append(part)
                continue
            first, last = int(span[1]), int(span[2])
            if not 0 <= last - first < MOST:
                raise UserError(
                    f"--set {key}={part}: a range goes from small to large, {MOST:,} values at most"
                )
            found += map(str, range(first, last + 1))
        return cls(key.strip(), tuple(dict.fromkeys(found)))


def _parts(text: str) -> list[str]:
    """Cut at the commas that are in no bracket and no quotation."""
    parts, depth, quoted = [""], 0, False
    for letter in text:
        quoted ^= letter == '"'
        depth += 0 if quoted else (letter in "[{") - (letter in "]}")
        if letter == "," and not depth and not quoted:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


@dataclass(frozen=True)
class Point:
    """One run of a sweep and the row it counts in."""

    row: tuple[str, ...]
    """Values of the axes but the seed's."""
    seed: int
    job: Job


@dataclass(frozen=True)
class Sweep:
    """Every combination of the axes."""

    name: str
    axes: tuple[Axis, ...]
    points: tuple[Point, ...]

    @property
    def varied(self) -> list[Axis]:
        """The axes that make rows: what takes several values and is not the seed."""
        return [axis for axis in self.axes if axis.key != SEED and len(axis.values) > 1]

    def plan(self) -> Plan:
        """Return its jobs, each run once."""
        return Plan(jobs=list({point.job.key: point.job for point in self.points}.values()))


def make_sweep(recipe: Recipe, settings: Sequence[str]) -> Sweep:
    """Build and check every recipe of a sweep; all rows of a first seed come before those of a second."""
    axes = tuple(Axis.parse(text) for text in settings)
    keys = [axis.key for axis in axes]
    twice = [key for key in keys if keys.count(key) > 1]
    if twice:
        raise UserError(f"--set {twice[0]} is given twice; name its values in one, separated by commas")
    count = prod(len(axis.values) for axis in axes)
    if count > MOST:
        raise UserError(f"{count:,} runs are more than {MOST:,}; take fewer values")
    ordered = sorted(axes, key=lambda axis: axis.key != SEED)
    varied = [axis.key for axis in axes if axis.key != SEED and len(axis.values) > 1]
    points = []
    for values in product(*(axis.values for axis in ordered)):
        chosen = dict(zip((axis.key for axis in ordered), values, strict=True))
        one = fixed_place(recipe.with_settings([f"{key}={value}" for key, value in chosen.items()]))
        label = ", ".join([recipe.name, *(f"{key} {chosen[key]}" for key in varied), f"seed {one.seed}"])
        job = Job(key=run_key(one), label=label, recipe=one, measurements=(MEASURED,))
        points.append(Point(tuple(chosen[key] for key in varied), one.seed, job))
    return Sweep(recipe.name, axes, tuple(points))


def fixed_place(recipe: Recipe) -> Recipe:
    """Return a recipe that gives the same weights anywhere: one thread and the cpu, unless it says."""
    device = "cpu" if recipe.device == "auto" else recipe.device
    return recipe.replace(threads=recipe.threads or 1, device=device)


def run_sweep(
    sweep: Sweep,
    executor: Executor,
    *,
    store: Store,
    out: Path,
    time_limit: float | None = None,
    quiet: bool = False,
) -> Tally:
    """Run what the store lacks, then write the table of all there is."""
    plan = sweep.plan()
    missing = plan.missing(store)
    tally = Tally(done=len(plan.jobs) - len(missing))
    for _ in counted(missing, executor, store, tally, time_limit=time_limit, quiet=quiet):
        pass
    write_table(sweep, store, out)
    return tally


def values(sweep: Sweep, store: Store) -> list[dict[str, Any]]:
    """Return a record for each number of each run: its settings, seed, metric and value."""
    keys = [axis.key for axis in sweep.varied]
    records = []
    for point in sweep.points:
        output = store[point.job.key].output(MEASURED)
        where = {**dict(zip(keys, point.row, strict=True)), SEED: point.seed}
        records += [
            {**where, "metric": metric, "value": value}
            for metric, value in (output.numbers if output else {}).items()
        ]
    return records


def gathered(sweep: Sweep, store: Store) -> list[dict[str, Any]]:
    """Return a record for each number of each row: its settings, and mean, interval and count of seeds."""
    rows: dict[tuple[Any, ...], dict[int, float]] = {}
    keys = [axis.key for axis in sweep.varied]
    for record in values(sweep, store):
        place = (*(record[key] for key in keys), record["metric"])
        rows.setdefault(place, {})[record[SEED]] = record["value"]
    records = []
    for place, by_seed in rows.items():
        found = over_seeds(place[-1], [by_seed[seed] for seed in sorted(by_seed)])
        assert found is not None
        numbers = {name: getattr(found, name) for name in ("metric", "value", "low", "high", "n")}
        records.append({**dict(zip(keys, place, strict=False)), **numbers})
    return records


def table_text(sweep: Sweep, records: Sequence[dict[str, Any]]) -> str:
    """Return the rows as a Markdown table: accuracy at the greatest depth, in percent, with its interval."""
    keys, names = [axis.key for axis in sweep.varied], _deepest({record["metric"] for record in records})
    lines = [[*keys, "seeds", *(f"{name} (%)" for name in names)]]
    lines.append([*["---"] * len(keys), "---:", *["---:"] * len(names)])
    for row in dict.fromkeys(point.row for point in sweep.points):
        here = {record["metric"]: record for record in records if tuple(record[key] for key in keys) == row}
        count = max((record["n"] for record in here.values()), default=0)
        lines.append([*row, str(count), *(_percent(here.get(name)) for name in names)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _deepest(names: set[str]) -> list[str]:
    """Return the names of the test's and the validation's accuracy at the greatest depth that is there."""
    found: list[str] = []
    for kind in ("test", "validation"):
        own = [name for name in names if name.startswith(f"{kind} exact@")]
        found += sorted(own, key=lambda name: int(name.partition("@")[2]))[-1:]
    return found


def _percent(one: dict[str, Any] | None) -> str:
    if one is None:
        return "–"
    interval = "" if one["low"] is None else f" ± {100 * (one['value'] - one['low']):.2f}"
    return f"{100 * one['value']:.2f}{interval}"


def write_table(sweep: Sweep, store: Store, out: Path) -> None:
    """Write the gathered table as Markdown and JSON, and every number by seed as CSV."""
    records = gathered(sweep, store)
    runs = {point.job.label: point.job.key for point in sweep.points}
    write_json(out / "sweep.json", {"recipe": sweep.name, "rows": records, "runs": runs})
    write_text(out / "values.csv", csv_text(values(sweep, store)))
    write_text(out / "table.md", table_text(sweep, records) + "\n")
