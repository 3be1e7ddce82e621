"""`eqr evaluate`: run a model once over puzzles and print every metric with its interval."""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eqr.cli.reproduce import On
from eqr.cli.solve import ASSUME_HELP, HALT_HELP, RACE_HELP, RETELL_HELP, START_HELP
from eqr.errors import UserError

if TYPE_CHECKING:
    from eqr.data import PuzzleSet
    from eqr.measure.evaluate import BudgetSweep, Filler
    from eqr.measure.scores import Evaluation, Scored
    from eqr.measure.statistics import Estimate

app = typer.Typer()


@app.command()
def evaluate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Model folder, run folder or hub name.")],
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Dataset folder; a run's own if not given.")
    ] = None,
    split: Annotated[str, typer.Option(help="Which split of it.")] = "test",
    depth: Annotated[
        str | None,
        typer.Option(metavar="D,...", help="Segments per trajectory; 16, or 1 for feedforward models."),
    ] = None,
    breadth: Annotated[str, typer.Option(metavar="B,...", help="Independent starts per puzzle.")] = "1",
    halt: Annotated[str, typer.Option(metavar="RULE", help=HALT_HELP)] = "never",
    select: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RULE",
            help="first, residual[:window], logits, converged[:window], probe, majority, halt, "
            "first-to-halt, verified.",
        ),
    ] = None,
    race: Annotated[bool, typer.Option("--race", help=RACE_HELP)] = False,
    abreast: Annotated[int, typer.Option(help="Starts that race at once.")] = 8,
    assume: Annotated[bool, typer.Option("--assume", help=ASSUME_HELP)] = False,
    retell: Annotated[int | None, typer.Option(metavar="SEGMENTS", help=RETELL_HELP)] = None,
    noise: Annotated[float | None, typer.Option(help="Path noise instead of the model's.")] = None,
    damping: Annotated[float | None, typer.Option(help="Damping instead of the model's.")] = None,
    start: Annotated[str, typer.Option(metavar="START", help=START_HELP)] = "model",
    probe: Annotated[
        bool, typer.Option("--probe", help="Measure residuals by a noise-free segment.")
    ] = False,
    limit: Annotated[int | None, typer.Option(help="A random sample of so many puzzles.")] = None,
    seed: Annotated[int, typer.Option(help="Of the starts and the noise.")] = 0,
    slots: Annotated[int, typer.Option(min=1, help="Trajectories advanced at once.")] = 64,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")] = "auto",
    on: On = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the candidates are kept; by the model if not given."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace another run's candidates.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Measure a model: accuracy against depth and breadth, with intervals and cost.

    An interrupted run goes on where it stopped. `torchrun -m eqr evaluate ...` and --on ray share the work.
    """
    budget = {
        "race": race,
        "abreast": abreast,
        "assume": assume,
        "retell": retell,
        "noise": noise,
        "damping": damping,
        "start": start,
        "probe": probe,
        "seed": seed,
    }
    sweep = _sweep(depth, breadth, halt, select, budget)
    with _filler(on) as filler:
        _run(model, data, split, limit, sweep, out, slots, device, filler, overwrite, as_json, halt)


def _sweep(
    depth: str | None, breadth: str, halt: str, select: list[str] | None, budget: dict[str, Any]
) -> "BudgetSweep":
    from eqr.measure.evaluate import BudgetSweep

    depths = () if depth is None else _numbers(depth, "--depth")
    return BudgetSweep.asked(depths, _numbers(breadth, "--breadth"), halt=halt, select=select or (), **budget)


def _run(
    model: str,
    data: Path | None,
    split: str,
    limit: int | None,
    sweep: "BudgetSweep",
    out: Path | None,
    slots: int,
    device: str,
    filler: "Filler | None",
    overwrite: bool,
    as_json: bool,
    halt: str,
) -> None:
    """Evaluate; one process keeps the result beside the candidates and prints it."""
    from datetime import timedelta

    import torch

    from eqr.data import load_split
    from eqr.data.splits import sample
    from eqr.files import write_json
    from eqr.measure.evaluate import evaluate
    from eqr.solve import load_reasoner
    from eqr.tasks import task_named
    from eqr.train.distributed import joined
    from eqr.train.sources import run_data

    puzzles = load_split(data or run_data(Path(model)), split)
    reasoner = load_reasoner(model, device=device).for_task(task_named(puzzles.task))
    sweep = sweep.for_model(reasoner.config)
    if limit is not None and limit != len(puzzles):
        puzzles = sample(puzzles, limit, seed=0)
    folder = out or _default_out(model, reasoner, puzzles, sweep, split)
    # processes only wait for one another, and as long as the last of them works
    with joined(torch.device("cpu"), patience=timedelta(days=7)) as world:
        found = evaluate(
            reasoner,
            puzzles,
            sweep,
            folder,
            slots=slots,
            world=world,
            filler=filler,
            overwrite=overwrite,
            quiet=as_json or not world.first,
        )
    if found is None:
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
        from eqr.cluster.evaluate import RayFiller

        yield RayFiller(ray)


def _numbers(text: str, option: str) -> tuple[int, ...]:
    try:
        numbers = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise UserError(f"{option} {text!r} is not a list of numbers such as 16,64") from None
    if numbers[0] < 1:
        raise UserError(f"{option} {numbers[0]}: must be at least 1")
    return numbers


def _default_out(model: str, reasoner: Any, puzzles: "PuzzleSet", sweep: "BudgetSweep", split: str) -> Path:
    from eqr.measure.code import code_digest
    from eqr.measure.table import model_digest
    from eqr.model.lookup import local_model, shipped

    made_by = (puzzles.digest, model_digest(reasoner), code_digest())
    asked = [sweep.budget.to_json(), sweep.depths, sweep.breadths, *made_by]
    digest = hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:12]
    # nothing is ever written into the package
    home = Path("runs") / model if local_model(model) == shipped().get(model) else local_model(model)
    return (home or Path()) / "evaluations" / f"{split}-{digest}"


def _table(found: "Evaluation") -> list[str]:
    lines = [
        f"{'depth':>5} {'breadth':>7}  {'answer':<24} {'exact %, 95% interval':<22} "
        f"{'valid %, 95% interval':<22} {'NFE':>8} {'layers':>9} {'seconds':>8}",
    ]
    for row in found.budgets:
        lines += _rows(row)
    widest = found.budgets[-1]
    for part in (_breadths(widest), _ratings(widest)):
        lines += ["", *part] if part else []
    return lines


def _rows(row: "Scored") -> list[str]:
    scores = row.scores
    cost = f"{scores.nfe.value:>8,.1f} {row.equivalent_layers:>9,.0f} {row.seconds:>8,.1f}"
    answers: list[tuple[str, Estimate, Estimate | None]] = []
    if scores.starts is not None:
        label = "the only start" if row.breadth == 1 else "mean over starts"
        answers.append((label, scores.starts.exact, scores.starts.valid))
    if row.breadth > 1:
        marks = {"verified": "verified (a verifier)", "first-to-halt": "first to halt"}
        for name, chosen in scores.selected.items():
            answers.append((marks.get(name, name), chosen.exact, chosen.valid))
        if scores.breadths is not None:
            answers.append(("any correct (oracle)", scores.breadths.oracle_any_correct, None))
    tries = {"top_1": "vote of the variants", "top_2": "vote, two tries"}
    answers += [(tries[name], won, None) for name, won in (row.variant_votes or {}).items()]
    place = f"{row.depth:>5} {row.breadth:>7}"
    return [
        f"{place}  {label:<24} {_interval(exact):<22} {_interval(valid):<22} {cost}"
        for label, exact, valid in answers
    ]


def _interval(estimate: "Estimate | None") -> str:
    if estimate is None:
        return ""
    return f"{100 * estimate.value:.2f} [{100 * estimate.low:.2f}, {100 * estimate.high:.2f}]"


def _breadths(row: "Scored") -> list[str]:
    found = row.scores.breadths
    if found is None:
        return []
    apart = found.path_independence
    lines = [
        f"depth {row.depth}, against the number of starts (expected exact %)",
        "starts    " + "".join(f"{k:>8}" for k in found.pass_at),
        "pass@k    " + "".join(f"{100 * one.value:>8.2f}" for one in found.pass_at.values()),
    ]
    for name, curve in found.expected.items():
        lines.append(f"{name:<10}" + "".join(f"{100 * one.value:>8.2f}" for one in curve.values()))
    lines.append(
        f"path independence, points: {_interval(apart.per_puzzle)} per puzzle, "
        f"{_interval(apart.of_means)} of the means"
    )
    return lines


def _ratings(row: "Scored") -> list[str]:
    starts = row.scores.starts
    if starts is None or not starts.by_rating:
        return []
    lines = [f"depth {row.depth}, by difficulty rating (mean over starts)"]
    for one in starts.by_rating:
        lines.append(f"{one.low:>7,} to {one.high:<7,} {_interval(one.exact):<22} {one.exact.n:>7,} puzzles")
    return lines
