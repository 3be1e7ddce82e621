"""`eqr bench`: how fast the parts are on this machine, each figure beside what it should be."""

import json
from pathlib import Path
from typing import Annotated

import typer

from eqr.errors import UserError

app = typer.Typer(no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Measure how fast the model, training and inference are on this machine."""


@app.command()
def model(
    rounds: Annotated[int, typer.Option(min=1, help="Repetitions; the median is reported.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Compare one segment with this machine's matmul limit and with a straightforward implementation."""
    from eqr.measure.bench_model import HEADER, line, measure

    if as_json:
        print(json.dumps([share.to_json() for share in measure(rounds=rounds)], indent=2))
        return
    print(HEADER)
    for share in measure(rounds=rounds):
        print(line(share), flush=True)


@app.command()
def train(
    recipes: Annotated[
        list[str] | None, typer.Argument(help="Recipes; by default the small Sudokus.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps timed; medians are reported.")] = 100,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change the recipes.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Time a training step and the share of it that is not the model (it should be below 10%)."""
    from eqr.recipes import recipe_named
    from eqr.train.bench import step_cost

    names = recipes or ["sudoku-4x4", "sudoku-6x6"]
    chosen = {name: recipe_named(name).with_settings(list(settings or [])) for name in names}
    if as_json:
        print(json.dumps({name: step_cost(r, steps=steps).to_json() for name, r in chosen.items()}, indent=2))
        return
    print(f"{'recipe':<28} {'step':>9} {'model':>9} {'outside':>8} {'steps/s':>8}  threads")
    for name, recipe in chosen.items():
        cost = step_cost(recipe, steps=steps)
        print(
            f"{name:<28} {cost.step:>6.1f} ms {cost.model:>6.1f} ms {cost.outside:>8.1%} "
            f"{cost.steps_per_second:>8.1f}  {cost.threads}",
            flush=True,
        )


@app.command()
def inference(
    trained: Annotated[
        str | None,
        typer.Option("--model", metavar="RUN", help="A trained model; an untrained one if not given."),
    ] = None,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Puzzles to measure savings on.")] = None,
    split: Annotated[str, typer.Option(help="Which split of them.")] = "test",
    limit: Annotated[int | None, typer.Option(min=1, help="A random sample of so many puzzles.")] = None,
    slots: Annotated[int, typer.Option(min=1, help="Trajectories advanced at once.")] = 64,
    rounds: Annotated[int, typer.Option(min=1, help="Repetitions; the median is reported.")] = 40,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Measure the engine's slots, overhead and growth; on a trained model, what halting and racing save."""
    from eqr.data import load_split
    from eqr.data.splits import sample
    from eqr.measure.bench_inference import default_model, savings, speed, table
    from eqr.solve import load_reasoner

    if data is not None and trained is None:
        raise UserError("--data needs a trained model to measure: add --model RUN")
    if limit is not None and data is None:
        raise UserError("--limit counts puzzles of --data DIR, which was not given")
    reasoner = default_model() if trained is None else load_reasoner(trained)
    puzzles = None if data is None else load_split(data, split)
    figures = speed(reasoner, slots=slots, rounds=rounds, quiet=as_json)
    if puzzles is not None:
        if limit is not None and limit < len(puzzles):
            puzzles = sample(puzzles, limit, seed=0)
        figures += savings(reasoner, puzzles, slots=slots)
    print(json.dumps([figure.to_json() for figure in figures], indent=2) if as_json else table(figures))
