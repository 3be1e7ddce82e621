"""Numbers that a results folder shows, put back into a store: a clone goes on without training it all again.

A results folder holds every number by cell and seed and the key of every run behind it, but no weights. So a
run is put back if the folder has whatever the plan wants of its model, and is trained anew otherwise: no two
trainings are ever mixed under one seed.
"""

from collections import defaultdict
from pathlib import Path
from typing import Any

from eqr.experiments.jobs import Job
from eqr.experiments.looks import AnyLook, Cost, Curve, Final, Found, Shape, Solve
from eqr.experiments.plan import Place, Plan
from eqr.experiments.results import read_values
from eqr.experiments.store import RESTORED, Store
from eqr.experiments.tables import cell_name
from eqr.files import read_json

NUMBERS_ONLY = (Solve, Curve, Final, Shape, Cost)
"""Looks of which nothing but numbers is shown; pictures need what only a store has."""

_Runs = dict[str, dict[str, dict[str, Any]]]
"""What `provenance.json` says about each run, by item and key."""


def restore(plan: Plan, store: Store, results: Path) -> int:
    """Put back what the store lacks and the results folder has; return how many runs that were."""
    experiments = {place.cell.experiment.item: place.cell.experiment for place in plan.places}
    runs = {item: _runs(results / item / "provenance.json") for item in experiments}
    shown = read_values(results, experiments)
    places: dict[str, list[Place]] = defaultdict(list)
    for place in plan.places:
        places[place.key].append(place)
    count = 0
    for job in plan.missing(store):
        if store[job.key].made() is None:
            count += _put_back(job, places[job.key], store, runs, shown)
    return count


def _runs(path: Path) -> dict[str, dict[str, Any]]:
    record = read_json(path) if path.is_file() else {"runs": [], "machines": []}
    machines = record["machines"]
    # a folder that several machines filled does not say which run is whose
    machine = machines[0] if len(machines) == 1 else {"processor": "one of several"}
    return {run["key"]: {**run, "machine": machine} for run in record["runs"]}


def _put_back(
    job: Job, places: list[Place], store: Store, runs: _Runs, shown: dict[str, dict[int, float]]
) -> bool:
    found: dict[str, dict[str, float]] = {}
    record: dict[str, Any] = {}
    for place in places:
        run = runs[place.cell.experiment.item].get(place.key)
        name = place.look.digest()
        if run is None or name not in run["look_seconds"] or not isinstance(place.look, NUMBERS_ONLY):
            if place.look.trained:
                return False
            continue  # taken again in a moment
        record = run
        experiment, row, column = place.cell.experiment, place.cell.row, place.cell.column
        value = shown.get(cell_name(experiment, row, column), {}).get(place.seed)
        numbers = found.setdefault(name, {})
        if value is not None:  # what does not occur has none
            numbers[place.number] = value / 100 if column.percent else value
    if not found:
        return False
    entry = store[job.key]
    fields = ("code", "machine", "steps", "parameters", "core_seconds")
    told = {name: record[name] for name in fields if name in record}
    entry.begin({"recipe": job.recipe.to_json(), "label": job.label, "smoke": False, RESTORED: True, **told})
    for look in job.looks:
        if look.digest() in found:
            seconds = _seconds(look, job.key, runs)
            kept = Found(numbers=found[look.digest()], code=record["code"], core_seconds=seconds)
            entry.keep(look, kept)
    return True


def _seconds(look: AnyLook, key: str, runs: _Runs) -> float:
    spent = (run[key]["look_seconds"].get(look.digest()) for run in runs.values() if key in run)
    return next((float(seconds) for seconds in spent if seconds is not None), 0.0)
