"""`eqr train`: train a recipe in a folder, resumably; `torchrun -m eqr train ...` uses several processes."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eqr.cli.options import Json, seconds
from eqr.errors import UserError

if TYPE_CHECKING:
    from eqr.runs import Summary
    from eqr.train.recipe import Recipe


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(help="A recipe's name, with or without variants, or a recipe.json."),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="RUN", help="Folder of the run.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change the recipe; dotted keys, as often as you like."
        ),
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Optimizer steps, instead of the recipe's.")] = None,
    time_limit: Annotated[
        str | None, typer.Option(metavar="TIME", help="Training time, such as 90s, 3m, 2h.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoint in --out.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run that is there.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Print the resolved recipe and stop.")] = False,
    as_list: Annotated[bool, typer.Option("--list", help="List the recipes.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print the whole recipe first.")] = False,
    as_json: Json = False,
) -> None:
    """Train a model by a recipe."""
    from eqr.runs import RunFolder
    from eqr.train.checkpoint import require_place

    if as_list:
        _list(as_json)
        return
    if recipe is None and resume and out is not None:
        recipe = _recipe_of_run(out)
    if recipe is None:
        raise UserError("name a recipe, such as sudoku-6x6; `eqr train --list` shows them all")
    changes = list(settings or [])
    changes += [] if steps is None else [f"steps={steps}"]
    changes += [] if time_limit is None else [f"time_limit={seconds(time_limit)}"]
    resolved = recipe_at(recipe).with_settings(changes)
    if show:
        print(json.dumps(resolved.to_json(), indent=2))
        return
    if resume and overwrite:
        raise UserError("--resume and --overwrite exclude each other")
    # one flat folder of runs: a variant's must not lie inside that of the recipe it varies
    run = out or Path("runs") / resolved.name.replace("/", "-")
    speaks = os.environ.get("RANK", "0") == "0"
    if speaks:  # before anything is said of what will not be done
        require_place(resolved, RunFolder(run), resume=resume, overwrite=overwrite)
    if speaks and not as_json:
        print(json.dumps(resolved.to_json(), indent=2) if verbose else _outline(resolved, run), flush=True)
    _train(resolved, run, resume, overwrite, as_json, speaks)


def _recipe_of_run(run: Path) -> str:
    from eqr.runs import RunFolder

    recipe = RunFolder(run).recipe
    if not recipe.is_file():
        raise UserError(f"--resume: {run} holds no run to go on with; name a recipe to begin one there")
    return str(recipe)


def recipe_at(name: str) -> "Recipe":
    """Return a recipe by its name, or from its file."""
    from eqr.files import read_json
    from eqr.recipes import recipe_named
    from eqr.train.recipe import Recipe

    if name.endswith(".json"):
        return Recipe.from_json(read_json(Path(name)), where=name)
    return recipe_named(name)


def _outline(recipe: "Recipe", run: Path) -> str:
    """Return what a person wants to see before it starts, in a few lines."""
    data, model = recipe.data, recipe.model
    if data.kind == "folder":
        puzzles = f"puzzles of {data.path}"
    else:
        puzzles = "endless fresh puzzles" if data.endless else f"{data.train:,} generated puzzles"
    limit = "" if recipe.time_limit is None else f", {recipe.time_limit:,.0f} s at most"
    return (
        f"{recipe.name}: {data.task}, {puzzles}\n"
        f"model: width {model.width}, {model.blocks} blocks, {model.applications} applications a segment\n"
        f"training: {recipe.steps:,} steps of {recipe.rows} rows{limit}; {recipe.schedule.kind}, "
        f"{recipe.optimizer.kind} at rate {recipe.optimizer.rate:g}\n"
        f"run: {run} (recipe.json there has the whole recipe; --verbose prints it)"
    )


def _train(recipe: "Recipe", run: Path, resume: bool, overwrite: bool, as_json: bool, speaks: bool) -> None:
    from eqr.runs import RunFolder
    from eqr.train.run import train

    if recipe.begin is not None and not (resume and RunFolder(run).begun):
        begin, shown = Path(recipe.begin), speaks and not as_json
        before = _before(recipe, begin)
        if before is not None:
            if shown:
                print(f"first:\n{_outline(before, begin)}", flush=True)
            _train(before, begin, RunFolder(begin).begun, False, as_json, shown)
    outcome = train(recipe, run, resume=resume, overwrite=overwrite, quiet=as_json)
    if speaks:
        print(json.dumps(outcome.summary.to_json(), indent=2) if as_json else _report(outcome.summary, run))
    if outcome.interrupted is not None:
        if speaks:
            typer.echo(f"stopped by {outcome.interrupted.name}; go on with --resume", err=True)
        raise typer.Exit(128 + outcome.interrupted)


def _before(recipe: "Recipe", begin: Path) -> "Recipe | None":
    """Return the recipe of the run that a recipe begins with, if that run has not come to its end yet."""
    from eqr.recipes import RECIPES, recipe_named
    from eqr.runs import RunFolder

    if begin.parent != Path("runs") or begin.name not in RECIPES or RunFolder(begin).summary() is not None:
        return None
    return recipe_named(begin.name).replace(threads=recipe.threads, device=recipe.device)


def _report(summary: "Summary", run: Path) -> str:
    from eqr.runs import RunFolder

    lines = [f"{summary.steps:,} steps in {summary.seconds:.0f} s, {summary.parameters:,} parameters"]
    for title, scores in (("validation, best", summary.best), ("test", summary.test)):
        shares = [f"{name[6:]}: {value:.1%}" for name, value in scores.items() if name.startswith("exact@")]
        if shares:
            lines.append(f"{title}: exact accuracy by depth {', '.join(shares)}")
    return "\n".join([*lines, f"model: {RunFolder(run).best}"])


def _list(as_json: bool) -> None:
    from eqr.recipes import RECIPES, VARIANTS, training_dynamics

    recipes = {name: make() for name, make in RECIPES.items()}
    if as_json:
        print(json.dumps({name: recipe.to_json() for name, recipe in recipes.items()}, indent=2))
        return
    for name, recipe in recipes.items():
        model = recipe.model
        print(
            f"{name:<28} {recipe.data.task:<12} width {model.width:>3}, {model.blocks:>2} blocks, "
            f"{model.applications:>2} applications, batch {recipe.rows:>3}, {recipe.steps:>7,} steps"
        )
    print("\nvariants, as in sudoku-6x6/attention/trm:")
    for name, (meaning, _) in VARIANTS.items():
        print(f"{name:<28} {meaning}")
    rows = [*training_dynamics(recipes["sudoku-6x6-tokens"])]
    print(f"{rows[0]} ...".ljust(28), "rows of the paper's training-dynamics table:", ", ".join(rows))
