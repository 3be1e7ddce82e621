"""`eqr bench`: how fast the parts are on this machine, each figure beside what it should be."""

import json
from typing import Annotated

import typer

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
