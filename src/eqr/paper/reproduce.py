"""Reproducing items: plan, run what the store lacks, write what came of it. `eqr reproduce` is this."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eqr.behaviour import described, stated
from eqr.errors import UserError, nearest
from eqr.files import read_json
from eqr.paper.executor import Executor, Tally, counted
from eqr.paper.experiment import Cost, Curve, Experiment, Final, Output, Scale, Shape, Solve
from eqr.paper.items import ITEMS, JUDGED
from eqr.paper.page import require_kind, write_page
from eqr.paper.plan import Job, Place, Plan, make_plan, seeds_of
from eqr.paper.store import RESTORED, Store
from eqr.paper.table import PROVENANCE, Table, write_item

ALL = "all"


def chosen(names: Sequence[str]) -> list[Experiment]:
    """Return the experiments that items and claims name, in the order asked for: the first are run first."""
    items: dict[str, None] = {}
    for name in names:
        if name.lower() == ALL:
            items |= dict.fromkeys(ITEMS)
        elif name.upper() in ITEMS:
            items[name.upper()] = None
        elif name.upper() in JUDGED:
            items |= dict.fromkeys(JUDGED[name.upper()].items)
        else:
            raise UserError(f"no item {name!r}{nearest(name.upper(), [*ITEMS, *JUDGED, ALL])}")
    if not items:
        raise UserError("name an item such as T3, a claim such as C8, or all; --list shows them")
    return [ITEMS[item] for item in items]


def other_versions(plan: Plan, store: Store) -> str | None:
    """Return words about runs that code of another behaviour made; None if there are none."""
    others = store.of_other_versions([job.key for job in plan.jobs])
    if not others:
        return None
    return (
        f"{len(others)} of the {len(plan.jobs)} runs in {store.folder} were made by code that trains or "
        f"answers otherwise than this (eqr {described()})"
    )


def reproduce(
    experiments: Sequence[Experiment],
    executor: Executor,
    *,
    store: Store,
    out: Path,
    scale: Scale = "lab",
    seeds: int | None = None,
    smoke: bool = False,
    time_limit: float | None = None,
    quiet: bool = False,
) -> Tally:
    """Run what is missing and write the results of each item as soon as nothing of it is."""
    require_kind(out, smoke=smoke)
    plan = make_plan(experiments, scale, seeds=seeds, smoke=smoke)
    missing = plan.missing(store)
    tally, keys = Tally(done=len(plan.jobs) - len(missing)), {job.key for job in missing}
    waiting = defaultdict[str, set[str]](set)
    for place in plan.places:
        waiting[place.cell.experiment.item] |= {place.key} & keys
    for outcome in counted(missing, executor, store, tally, time_limit=time_limit, quiet=quiet):
        for experiment in experiments:
            left = waiting[experiment.item]
            if outcome.job.key in left and not outcome.stopped:
                left.discard(outcome.job.key)
                if not left:
                    _write(experiment, scale, seeds, store, out, smoke)
    for experiment in experiments:
        _write(experiment, scale, seeds, store, out, smoke)
    write_page(out, smoke=smoke)
    return tally


def _write(
    experiment: Experiment, scale: Scale, seeds: int | None, store: Store, out: Path, smoke: bool
) -> None:
    """Write an item with every seed there is, so that asking for fewer loses none that were shown before."""
    before = Table.read(experiment, out / experiment.item)
    counts = {name: 1 + max(by_seed) for name, by_seed in before.values.items()}
    most = max([*counts.values(), seeds or 0, *(seeds_of(cell, scale, smoke) for cell in experiment.cells())])
    places = [
        place
        for place in make_plan([experiment], scale, seeds=most, smoke=smoke).places
        if place.seed < max(counts.get(place.cell.name, 0), seeds or 0, seeds_of(place.cell, scale, smoke))
    ]
    table = Table.gathered(experiment, places, store)
    for name, by_seed in before.puzzles.items():  # numbers that were put back have no puzzles of their own
        table.puzzles[name] = by_seed | table.puzzles.get(name, {})
    if table.values or table.failures:
        write_item(table, places, store, out, smoke=smoke)


NUMBERS_ONLY = (Solve, Curve, Final, Shape, Cost)
"""Measurements of which nothing but numbers is shown; pictures need what only a store has."""


def restore(plan: Plan, store: Store, results: Path) -> int:
    """Put back what the store lacks and the results folder has; return how many runs that were.

    A results folder holds every number by cell and seed and the key of every run behind it, but no weights.
    So a run is put back if the folder has whatever the plan wants of its model, and is trained anew
    otherwise: no two trainings are ever mixed under one seed.
    """
    places: dict[str, list[Place]] = defaultdict(list)
    for place in plan.places:
        places[place.key].append(place)
    experiments = {place.cell.experiment.item: place.cell.experiment for place in plan.places}
    shown = {item: _shown(one, results / item) for item, one in experiments.items()}
    fresh = [job for job in plan.missing(store) if store[job.key].made() is None]
    return sum(_put_back(job, places[job.key], store, shown) for job in fresh)


Shown = tuple[Table, dict[str, dict[str, Any]]]
"""The numbers of an item that a results folder has, and by key what it says of the runs behind them."""


def _shown(experiment: Experiment, folder: Path) -> Shown:
    path = folder / PROVENANCE
    record = read_json(path) if path.is_file() else {"runs": [], "machines": []}
    machines = record["machines"]
    # a folder that several machines filled does not say which run is whose
    machine = machines[0] if len(machines) == 1 else {"processor": "one of several"}
    runs = {run["key"]: {**run, "machine": machine} for run in record["runs"]}
    return Table.read(experiment, folder), runs


def _put_back(job: Job, places: Sequence[Place], store: Store, shown: dict[str, Shown]) -> bool:
    found: dict[str, dict[str, float]] = {}
    seconds: dict[str, float] = {}
    record: dict[str, Any] = {}
    for place in places:
        (table, runs), name = shown[place.cell.experiment.item], place.measurement.digest()
        run = runs.get(place.key)
        if run is None or name not in run["look_seconds"] or not isinstance(place.measurement, NUMBERS_ONLY):
            if place.measurement.trained:
                return False
            continue  # taken again in a moment
        record, seconds[name] = run, run["look_seconds"][name]
        value = table.seeds(place.cell).get(place.seed)
        numbers = found.setdefault(name, {})
        if value is not None:  # what does not occur has none
            numbers[place.number] = value / 100 if place.cell.column.percent else value
    if not found:
        return False
    entry = store[job.key]
    kept = ("machine", "steps", "parameters", "core_seconds")
    told = {name: value for name, value in record.items() if name in kept}
    told |= {"training": stated(record, "training"), RESTORED: True}
    entry.begin({"recipe": job.recipe.to_json(), "label": job.label, "smoke": False, **told})
    for measurement in job.measurements:
        name = measurement.digest()
        if name in found:
            output = Output(
                numbers=found[name], answers=stated(record, "answers"), core_seconds=seconds[name]
            )
            entry.keep(measurement, output)
    return True
