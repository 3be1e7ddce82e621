"""`eqr reproduce`: tables, figures and claims of the paper; `eqr sweep`: one recipe under many settings."""

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eqr.cli.options import Accepted, DryRun, Json, Kept, Limit, On, Workers, seconds
from eqr.cli.train import recipe_at
from eqr.errors import UserError

if TYPE_CHECKING:
    from eqr.paper.executor import Executor, Tally
    from eqr.paper.experiment import Experiment
    from eqr.paper.plan import Plan
    from eqr.paper.store import Store

SMOKE = Path("runs") / "smoke"
"""Where smoke runs and what comes of them go, apart from real ones."""

GPU = 60e12
"""Operations a second that training sustains on one accelerator in bfloat16: an assumption, stated."""


def reproduce(
    items: Annotated[
        list[str] | None, typer.Argument(metavar="ITEM...", help="T3, F1, C8, ... or all.")
    ] = None,
    as_list: Annotated[
        bool, typer.Option("--list", help="List items and claims, their cost, state and verdict.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compute all verdicts again from the numbers in --out.")
    ] = False,
    scale: Annotated[
        str, typer.Option(help="lab: small models on these cores; paper: the published recipes, on GPUs.")
    ] = "lab",
    seeds: Annotated[int | None, typer.Option(help="Seeds of each row, instead of the item's own.")] = None,
    time_limit: Limit = None,
    workers: Workers = None,
    on: On = None,
    dry_run: DryRun = False,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Run everything at a tiny size, as a check.")
    ] = False,
    store: Kept = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where results go; results if not given.")
    ] = None,
    accept_store: Accepted = False,
    reuse: Annotated[
        bool,
        typer.Option(
            "--reuse",
            help="Take numbers that --out shows for the same recipes and seeds; train only the rest.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Reproduce tables, figures and claims of the paper.

    Runs are kept by content and shared: nothing is trained twice. Stopped at any moment, the same command
    goes on. Results are tables, figures and verdicts, with what made them.
    """
    folder = out or (SMOKE / "results" if smoke else Path("results"))
    if as_list:
        _print_list(folder, as_json)
        return
    if verify:
        _verify(folder)
        return
    if scale not in ("lab", "paper"):
        raise UserError(f"--scale {scale!r}: lab (small models, these cores) or paper (published recipes)")
    if seeds is not None and seeds < 1:
        raise UserError(f"--seeds {seeds}: at least 1; an interval needs 2 or more")
    from eqr.paper.reproduce import chosen

    experiments = chosen(items or [])
    if scale == "paper":
        _paper(experiments, seeds, as_json)
        return
    from eqr.paper.plan import make_plan
    from eqr.paper.reproduce import reproduce as reproduced
    from eqr.paper.reproduce import restore
    from eqr.paper.store import Store

    kept = Store(store or (SMOKE / "store" if smoke else Path("runs") / "store"))
    plan = make_plan(experiments, "lab", seeds=seeds, smoke=smoke)
    if reuse and not smoke:
        count = restore(plan, kept, folder)
        print(f"{count} runs are taken from {folder}: their numbers, without weights", file=sys.stderr)
    if dry_run:
        _print_plan(plan, kept, as_json)
        return
    _accept(plan, kept, accept_store or reuse)
    limit = None if time_limit is None else seconds(time_limit)
    options: dict[str, Any] = {"seeds": seeds, "smoke": smoke, "time_limit": limit, "quiet": as_json}
    with _executor_for(on, workers) as executor:
        tally = reproduced(experiments, executor, store=kept, out=folder, **options)
    names = [experiment.item for experiment in experiments]
    print(json.dumps(_as_json(tally, names, folder), indent=2) if as_json else _text(tally, names, folder))
    if tally.failed:
        raise typer.Exit(1)


@contextmanager
def _executor_for(on: str | None, workers: int | None) -> "Iterator[Executor]":
    """Give what does the runs while the block runs: this machine's cores, or the cluster `--on` names."""
    if workers is not None and workers < 1:
        raise UserError(f"--workers {workers}: at least 1")
    if on is None:
        from eqr.paper.executor import LocalExecutor

        yield LocalExecutor(workers)
        return
    if workers is not None:
        raise UserError("--workers is for this machine; a cluster does as many runs as it has cores for")
    from eqr.cluster.connect import connected, require_on

    require_on(on)
    with connected(on) as ray:
        from eqr.cluster.executor import RayExecutor

        yield RayExecutor(ray)


def _accept(plan: "Plan", store: "Store", accepted: bool) -> None:
    """Runs by code that trains or answers otherwise are used only if somebody says so."""
    from eqr.paper.reproduce import other_versions

    words = other_versions(plan, store)
    if words is None:
        return
    if accepted:
        print(f"{words}; used as they are", file=sys.stderr)
        return
    if sys.stdin.isatty() and typer.confirm(f"{words}. Use them as they are?"):
        return
    raise UserError(f"{words}; add --accept-store to use them as they are, or --store DIR to begin another")


def _paper(experiments: "list[Experiment]", seeds: int | None, as_json: bool) -> None:
    """Build and check every published recipe that the items need, and say what they would cost."""
    from eqr.paper.plan import make_plan
    from eqr.results.costs import training_operations

    jobs = [job for job in make_plan(experiments, "paper", seeds=seeds).jobs if job.trains]
    rows: list[dict[str, Any]] = []
    for job in jobs:
        cost = training_operations(job.recipe)
        rows.append(
            {"run": job.label, "recipe": job.recipe.name, "flop": cost, "gpu_hours": cost / GPU / 3600}
        )
    total = sum(row["gpu_hours"] for row in rows)
    if as_json:
        print(json.dumps({"runs": rows, "gpu_hours": total, "flop_per_second": GPU}, indent=2))
        return
    for row in rows:
        print(f"{row['flop']:9.2e} FLOP {row['gpu_hours']:8.1f} h  {row['run']}  ({row['recipe']})")
    print(
        f"{len(rows)} trainings by the published recipes: all build; about {total:,.0f} hours of a GPU that "
        f"sustains {GPU / 1e12:,.0f} TFLOP/s, which is an assumption."
    )


def _print_plan(plan: "Plan", store: "Store", as_json: bool) -> None:
    """Print which runs of a plan are there already."""
    rows = [{"run": job.label, "key": job.key, "state": job.state(store)} for job in plan.jobs]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        print(f"{row['state']:<10} {row['key']}  {row['run']}")
    counts = Counter(row["state"] for row in rows)
    print(", ".join(f"{counts[name]} {name}" for name in ("there", "to measure", "to train")))


def _print_list(folder: Path, as_json: bool) -> None:
    from eqr.paper.items import EXPERIMENTS, ITEMS, JUDGED
    from eqr.paper.page import listed

    rows = listed(folder)
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    for number, row in enumerate(rows[: len(ITEMS)]):
        if number == len(EXPERIMENTS):
            print("\nStudies that decide claims")
        print(f"{row['item']:<4} {row['minutes']:>5g} min  {row['state']:<8} {row['shows']}")
    print()
    for row in rows[len(ITEMS) :]:
        print(f"{row['item']:<4} {row['verdict']}: {row['shows']}  ({', '.join(JUDGED[row['item']].items)})")
    print("\nMinutes are of one core beyond runs that items share; two cores take half.")


def _verify(folder: Path) -> None:
    """Compute verdicts, plots and page again, and fail if one is not as it was written."""
    from eqr.paper.page import verdicts, verify

    wrong = verify(folder)
    for item, tests in verdicts(folder).items():
        print(f"{item:<4} " + ", ".join(f"{test.verdict} ({test.test.operator})" for test in tests))
    if wrong:
        raise UserError(
            f"not what the numbers in {folder} say: {', '.join(wrong)}; run eqr reproduce with an item to "
            "write them anew"
        )
    print(f"{folder}: all verdicts, plots and the page follow from the numbers")


def _as_json(tally: "Tally", names: list[str], out: Path) -> dict[str, Any]:
    from eqr.paper.page import listed

    rows = [row for row in listed(out) if row["item"] in names or "verdict" in row]
    fields = {"done": tally.done, "failed": tally.failed, "stopped": tally.stopped}
    return {"out": str(out), **fields, "items": rows}


def _text(tally: "Tally", names: list[str], out: Path) -> str:
    lines = [f"{item}: {out / item / 'table.md'}" for item in names if (out / item / "table.md").is_file()]
    lines += _left(tally.failed, tally.stopped)
    return "\n".join([*lines, f"all results: {out / 'README.md'}"])


def sweep(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="A recipe's name (with variants), or a recipe.json.")
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUES",
            help="Values of a setting: 1e-3,2e-3 or 0..9; every combination is trained.",
        ),
    ] = None,
    time_limit: Limit = None,
    workers: Workers = None,
    on: On = None,
    dry_run: DryRun = False,
    store: Kept = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the table goes; runs/sweeps/... if not given.")
    ] = None,
    accept_store: Accepted = False,
    as_json: Json = False,
) -> None:
    """Train a recipe under every combination of settings, and gather one table with intervals over seeds.

    Each run takes `threads` cores (one, unless set) or a GPU (--set device=cuda). Stopped at any moment, the
    same command goes on; nothing is trained twice.
    """
    from eqr.paper.store import Store
    from eqr.paper.sweep import gathered, make_sweep, run_sweep, table_text

    limit = None if time_limit is None else seconds(time_limit)
    asked = make_sweep(recipe_at(recipe), settings or [])
    kept = Store(store or Path("runs") / "store")
    if dry_run:
        _print_plan(asked.plan(), kept, as_json)
        return
    _accept(asked.plan(), kept, accept_store)
    text = json.dumps([(axis.key, axis.values) for axis in asked.axes])
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    folder = out or Path("runs") / "sweeps" / f"{asked.name.replace('/', '-')}-{digest}"
    with _executor_for(on, workers) as executor:
        tally = run_sweep(asked, executor, store=kept, out=folder, time_limit=limit, quiet=as_json)
    rows = gathered(asked, kept)
    if as_json:
        counts = {"done": tally.done, "failed": tally.failed, "stopped": tally.stopped}
        print(json.dumps({"out": str(folder), **counts, "rows": rows}, indent=2))
    else:
        lines = [table_text(asked, rows), "", *_left(tally.failed, tally.stopped)]
        print("\n".join([*lines, f"table: {folder / 'table.md'}"]))
    if tally.failed:
        raise typer.Exit(1)


def _left(failed: Mapping[str, str], stopped: int) -> list[str]:
    """Return lines on what was not done."""
    lines = [f"failed: {label}: {reason}" for label, reason in failed.items()]
    return [*lines, f"{stopped} runs are left; the same command goes on"] if stopped else lines
