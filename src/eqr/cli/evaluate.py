"""`eqr evaluate`: run a model once over puzzles and print every metric with its interval."""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eqr.cli.options import Damping, Data, Device, Halt, Json, Model, Noise, On, Race, Seed, Start
from eqr.errors import UserError
from eqr.files import require_own

if TYPE_CHECKING:
    from eqr.data import PuzzleSet
    from eqr.model.reasoner import Reasoner
    from eqr.result import Result
    from eqr.results.evaluate import BudgetSweep, Evaluation, Filler

NAMES = {"verified": "verified (a verifier)", "first-to-halt": "first to halt"}
"""What selection rules are called in the table, where it is not what one types."""


def evaluate(
    model: Model,
    data: Data = None,
    split: Annotated[str, typer.Option(help="Which split of it.")] = "test",
    depth: Annotated[
        str | None,
        typer.Option(metavar="D,...", help="Segments per trajectory; 16, or 1 for feedforward models."),
    ] = None,
    breadth: Annotated[str, typer.Option(metavar="B,...", help="Independent starts per puzzle.")] = "1",
    halt: Halt = "never",
    select: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RULE",
            help="first, residual[:window], logits, converged[:window], probe, majority, halt, "
            "first-to-halt, verified.",
        ),
    ] = None,
    race: Race = False,
    abreast: Annotated[int, typer.Option(help="Starts that race at once.")] = 8,
    noise: Noise = None,
    damping: Damping = None,
    start: Start = "model",
    probe: Annotated[
        bool, typer.Option("--probe", help="Measure residuals by a noise-free segment.")
    ] = False,
    limit: Annotated[int | None, typer.Option(help="Measure a random sample of this many puzzles.")] = None,
    seed: Seed = 0,
    slots: Annotated[int, typer.Option(min=1, help="Trajectories advanced at once.")] = 64,
    device: Device = "auto",
    on: On = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the candidates are kept; by the model if not given."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace another run's candidates.")] = False,
    as_json: Json = False,
) -> None:
    """Measure a model: accuracy against depth and breadth, with intervals and cost.

    An interrupted run goes on where it stopped. `torchrun -m eqr evaluate ...` and --on ray share the work.
    """
    given = locals()
    from eqr.results.evaluate import BudgetSweep

    sweep = BudgetSweep.asked(
        () if depth is None else _numbers(depth, "--depth"),
        _numbers(breadth, "--breadth"),
        halt=halt,
        select=select or (),
        **{name: given[name] for name in ("race", "abreast", "noise", "damping", "start", "probe", "seed")},
    )
    with _filler(on) as filler:
        import torch

        from eqr.data import load_split
        from eqr.data.splits import sample
        from eqr.files import write_json
        from eqr.results.evaluate import evaluate
        from eqr.solve import load
        from eqr.tasks import task_named
        from eqr.train.distributed import joined
        from eqr.train.sources import run_data

        puzzles = load_split(data or run_data(Path(model)), split)
        reasoner = load(model, device=device).for_task(task_named(puzzles.task))
        sweep = sweep.for_model(reasoner.config)
        if limit is not None and limit != len(puzzles):
            puzzles = sample(puzzles, limit, seed=0)
        folder = out or _default_out(model, reasoner, puzzles, sweep, split)
        # processes only wait for one another, and as long as the last of them works
        with joined(torch.device("cpu"), patience=timedelta(days=7)) as world:
            quiet = as_json or not world.first
            found = evaluate(
                reasoner, puzzles, sweep, folder,
                slots=slots, world=world, filler=filler, overwrite=overwrite, quiet=quiet,
            )  # fmt: skip
    if found is None:  # another process prints
        return
    plain = {"split": split, **sweep.to_json(), **found.to_json(), "out": str(folder)}
    write_json(folder / "evaluation.json", plain)
    if as_json:
        print(json.dumps(plain, indent=2))
        return
    heading = f"{found.task}, {split} split, {found.n:,} puzzles; halting: {halt}"
    print("\n".join([heading, "", *_table(found), "", f"candidates: {folder}"]))


@contextmanager
def _filler(on: str | None) -> "Iterator[Filler | None]":
    """Give what runs the parts while the block runs: the cluster that `--on` names; None for this process."""
    if on is None:
        yield None
        return
    if "WORLD_SIZE" in os.environ:
        raise UserError("--on ray under torchrun: either shares the work; use one of them")
    from eqr.cluster.connect import connected

    with connected(on) as ray:
        from eqr.cluster.executor import RayFiller

        yield RayFiller(ray)


def _numbers(text: str, option: str) -> tuple[int, ...]:
    try:
        numbers = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise UserError(f"{option} {text!r} is not a list of numbers such as 16,64") from None
    if numbers[0] < 1:
        raise UserError(f"{option} {numbers[0]}: must be at least 1")
    return numbers


def _default_out(
    model: str, reasoner: "Reasoner", puzzles: "PuzzleSet", sweep: "BudgetSweep", split: str
) -> Path:
    from eqr.behaviour import ANSWERS
    from eqr.model.lookup import local_model, shipped
    from eqr.results.table import model_digest

    made_by = (puzzles.digest, model_digest(reasoner), ANSWERS)
    asked = [sweep.budget.to_json(), sweep.depths, sweep.breadths, *made_by]
    digest = hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:12]
    # nothing is ever written into the package
    home = Path("runs") / model if local_model(model) == shipped().get(model) else local_model(model)
    require_own(home or Path(), "evaluations", f"{split}-{digest}")
    return (home or Path()) / "evaluations" / f"{split}-{digest}"


def _table(found: "Evaluation") -> list[str]:
    from eqr.result import pivot
    from eqr.results.metrics import MEAN, TRIES

    lines = [
        f"{'depth':>5} {'breadth':>7}  {'answer':<24} {'exact %, 95% interval':<22} "
        f"{'valid %, 95% interval':<22} {'NFE':>8} {'layers':>9} {'seconds':>8}"
    ]
    whole = [row for row in found.rows if not row.part]
    places = pivot(found.rows, "depth", "breadth")
    for (depth, breadth, rule), answer in pivot(whole, "depth", "breadth", "rule").items():
        cost = places[depth, breadth]
        if "exact" not in answer or (breadth == 1 and rule not in (MEAN, *TRIES)):
            continue
        name = "the only start" if breadth == 1 and rule == MEAN else NAMES.get(rule, rule)
        lines.append(
            f"{depth:>5} {breadth:>7}  {name:<24} {_interval(answer['exact']):<22} "
            f"{_interval(answer.get('valid')):<22} {cost['nfe'].value:>8,.1f} "
            f"{cost['equivalent layers'].value:>9,.0f} {cost['seconds'].value:>8,.1f}"
        )
    for part in (_breadths(found), _ratings(found)):
        lines += ["", *part] if part else []
    return lines


def _interval(row: "Result | None") -> str:
    if row is None or row.low is None or row.high is None:
        return ""
    return f"{100 * row.value:.2f} [{100 * row.low:.2f}, {100 * row.high:.2f}]"


def _breadths(found: "Evaluation") -> list[str]:
    """Return what smaller breadths reach at the greatest depth."""
    from eqr.result import pivot, select

    depth = found.rows[-1].depth
    curves = pivot(select(found.rows, metric="expected exact", depth=depth), "rule", "breadth")
    if not curves:
        return []
    breadths = list(dict.fromkeys(breadth for _, breadth in curves))
    lines = [
        f"depth {depth}, against the number of starts (expected exact %)",
        f"{'starts':<22}" + "".join(f"{breadth:>8}" for breadth in breadths),
    ]
    for rule in dict.fromkeys(rule for rule, _ in curves):
        values = (100 * curves[rule, breadth]["expected exact"].value for breadth in breadths)
        lines.append(f"{rule:<22}" + "".join(f"{value:>8.2f}" for value in values))
    widest = {"depth": depth, "breadth": max(breadths)}
    each, means = (found.one(f"path dependence {of}", **widest) for of in ("per puzzle", "of means"))
    return [*lines, f"path dependence, points: {_interval(each)} per puzzle, {_interval(means)} of the means"]


def _ratings(found: "Evaluation") -> list[str]:
    """Return accuracy by difficulty at the last budget."""
    last = found.rows[-1]
    rows = [r for r in found.rows if r.part and (r.depth, r.breadth) == (last.depth, last.breadth)]
    head = [f"depth {last.depth}, by difficulty rating (mean over starts)"] if rows else []
    return head + [f"{row.part:>18} {_interval(row):<22} {row.n:>7,} puzzles" for row in rows]
