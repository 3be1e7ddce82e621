"""Reproducing items: plan, run what the store lacks, write what came of it. `eqr reproduce` is this."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eqr.errors import UserError, nearest
from eqr.experiments.board import Tally, watched
from eqr.experiments.catalogue import CLAIMS, EXPERIMENTS
from eqr.experiments.executor import Executor
from eqr.experiments.experiment import Experiment, Scale
from eqr.experiments.plan import Place, Plan, make_plan, seeds_of
from eqr.experiments.results import fill_table, require_kind, write_item, write_overview
from eqr.experiments.store import Store
from eqr.experiments.tables import cell_name, read_table
from eqr.experiments.versions import code_version

ALL = "all"


@dataclass(kw_only=True)
class Report(Tally):
    """What a call of `reproduce` came to."""

    items: list[str]


def chosen(names: Sequence[str]) -> list[Experiment]:
    """Return the experiments that items and claims name, in the order asked for: the first are run first."""
    items: dict[str, None] = {}
    for name in names:
        if name.lower() == ALL:
            items |= dict.fromkeys(EXPERIMENTS)
        elif name.upper() in EXPERIMENTS:
            items[name.upper()] = None
        elif name.upper() in CLAIMS:
            items |= dict.fromkeys(CLAIMS[name.upper()].items)
        else:
            raise UserError(f"no item {name!r}{nearest(name.upper(), [*EXPERIMENTS, *CLAIMS, ALL])}")
    if not items:
        raise UserError("name an item such as T3, a claim such as C8, or all; --list shows them")
    return [EXPERIMENTS[item] for item in items]


def other_code(plan: Plan, store: Store) -> str | None:
    """Return words about runs that another version of the code made; None if there are none."""
    others = store.of_other_code([job.key for job in plan.jobs], code_version())
    if not others:
        return None
    count, versions = sum(map(len, others.values())), ", ".join(sorted(others))
    return (
        f"{count} of the {len(plan.jobs)} runs in {store.folder} were made by another version of the code "
        f"({versions}; this is {code_version()})"
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
) -> Report:
    """Run what is missing and write the results of each item as soon as nothing of it is."""
    require_kind(out, smoke=smoke)
    plan = make_plan(experiments, scale, seeds=seeds, smoke=smoke)
    missing = plan.missing(store)
    items = [experiment.item for experiment in experiments]
    report = Report(items=items, done=len(plan.jobs) - len(missing))
    waiting = {
        experiment.item: _keys(plan, experiment) & {job.key for job in missing} for experiment in experiments
    }
    for outcome in watched(missing, executor, store, report, time_limit=time_limit, quiet=quiet):
        for experiment in experiments:
            left = waiting[experiment.item]
            if outcome.job.key in left and not outcome.stopped:
                left.discard(outcome.job.key)
                if not left:
                    _write(experiment, scale, seeds, store, out, smoke)
    for experiment in experiments:
        _write(experiment, scale, seeds, store, out, smoke)
    write_overview(out, smoke=smoke)
    return report


def _keys(plan: Plan, experiment: Experiment) -> set[str]:
    return {place.key for place in plan.places if place.cell.experiment.item == experiment.item}


def _write(
    experiment: Experiment, scale: Scale, seeds: int | None, store: Store, out: Path, smoke: bool
) -> None:
    """Write an item with every seed there is, so that asking for fewer loses none that were shown before."""
    shown = read_table(experiment, out / experiment.item).values

    def wanted(place: Place) -> bool:
        before = shown.get(cell_name(experiment, place.cell.row, place.cell.column), {})
        own = seeds_of(place.cell, scale, smoke)
        return place.seed < max(1 + max(before, default=-1), seeds or 0, own)

    most = max((1 + max(by_seed) for by_seed in shown.values()), default=0)
    most = max(most, seeds or 0, *(seeds_of(cell, scale, smoke) for cell in experiment.cells()))
    planned = make_plan([experiment], scale, seeds=most, smoke=smoke).places
    places = [place for place in planned if wanted(place)]
    table, kept = fill_table(experiment, places, store)
    if table.values or table.failures:
        write_item(table, kept, places, store, out, smoke=smoke)
