"""`eqr sweep`: one recipe under many settings and seeds, on these cores or on a cluster."""

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eqr.cli.reproduce import (
    Accepted,
    DryRun,
    Kept,
    Limit,
    On,
    Workers,
    accept,
    executor_for,
    print_plan,
    require_workers,
)
from eqr.cli.train import recipe_at, seconds

if TYPE_CHECKING:
    from eqr.paper.store import Store
    from eqr.paper.sweep import Sweep

app = typer.Typer()


@app.command()
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
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Train a recipe under every combination of settings, and gather one table with intervals over seeds.

    Each run takes `threads` cores (one, unless set) or a GPU (--set device=cuda). Stopped at any moment, the
    same command goes on; nothing is trained twice.
    """
    from eqr.paper.store import Store
    from eqr.paper.sweep import make_sweep

    require_workers(workers)
    limit = None if time_limit is None else seconds(time_limit)
    asked = make_sweep(recipe_at(recipe), settings or [])
    kept = Store(store or Path("runs") / "store")
    if dry_run:
        print_plan(asked.plan(), kept, as_json)
        return
    accept(asked.plan(), kept, accept_store)
    _run(asked, kept, out or _default_out(asked), limit, workers, on, as_json)


def _run(
    asked: "Sweep",
    store: "Store",
    out: Path,
    limit: float | None,
    workers: int | None,
    on: str | None,
    as_json: bool,
) -> None:
    from eqr.paper.sweep import gathered, run_sweep, table_text

    with executor_for(on, workers) as executor:
        tally = run_sweep(asked, executor, store=store, out=out, time_limit=limit, quiet=as_json)
    rows = gathered(asked, store)
    if as_json:
        counts = {"done": tally.done, "failed": tally.failed, "stopped": tally.stopped}
        print(json.dumps({"out": str(out), **counts, "rows": rows}, indent=2))
    else:
        lines = [
            table_text(asked, rows),
            "",
            *(f"failed: {name}: {why}" for name, why in tally.failed.items()),
        ]
        lines += [f"{tally.stopped} runs are left; the same command goes on"] if tally.stopped else []
        print("\n".join([*lines, f"table: {out / 'table.md'}"]))
    if tally.failed:
        raise typer.Exit(1)


def _default_out(asked: "Sweep") -> Path:
    text = json.dumps([(axis.key, axis.values) for axis in asked.axes])
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return Path("runs") / "sweeps" / f"{asked.name.replace('/', '-')}-{digest}"
