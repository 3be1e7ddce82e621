"""`eqr tasks`: the kinds of puzzles; `eqr data`: build, import, export and look at puzzle sets."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eqr.cli.options import Json, Out, Overwrite
from eqr.errors import UserError
from eqr.files import new_folder, parse_word

if TYPE_CHECKING:
    from eqr.data import Splits
    from eqr.tasks import Task

data = typer.Typer(no_args_is_help=True, help="Build, import, export and show puzzle sets.")

Dataset = Annotated[Path, typer.Argument(help="A folder made by `eqr data build` or `import`.")]
Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same puzzles.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
BAR = 40


def tasks(as_json: Json = False) -> None:
    """List the kinds of puzzles there are."""
    from eqr.tasks import task_named, task_names

    known = [task_named(name) for name in task_names()]
    if as_json:
        rows = [
            {
                "name": task.name,
                "shape": list(task.shape),
                "vocabulary": task.vocabulary,
                "summary": task.summary,
                "rating": task.rating_name,
                "options": task.generate_options.model_json_schema().get("properties", {}),
            }
            for task in known
        ]
        print(json.dumps(rows, indent=2))
        return
    for task in known:
        size = f"{task.shape[0]}x{task.shape[1]}"
        print(f"{task.name:<14} {size:>6}  {task.vocabulary - 1:>2} symbols  {task.summary}")
    print(
        "\nMazes of other sizes: maze-11x11, maze-unique-15x15, maze-1k-12x12. Your own: docs/custom-tasks.md"
    )


@data.command()
def build(
    task: Annotated[str, typer.Argument(help="Such as sudoku-9x9 or maze-unique; see `eqr tasks`.")],
    out: Out,
    count: Annotated[int, typer.Option(min=1, help="Training puzzles.")] = 1000,
    validation: Annotated[int | None, typer.Option(min=0, help="A tenth of the count by default.")] = None,
    test: Annotated[int | None, typer.Option(min=0, help="A tenth of the count by default.")] = None,
    seed: Seed = 0,
    size: Annotated[str | None, typer.Option(metavar="N|RxC", help="Grid size, such as 11 or 11x15.")] = None,
    clues: Annotated[int | None, typer.Option(help="Sudoku: exact number of clues.")] = None,
    min_rating: Annotated[int | None, typer.Option(help="Sudoku: fewest backtracks.")] = None,
    max_rating: Annotated[int | None, typer.Option(help="Sudoku: most backtracks.")] = None,
    option: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Any other option of the task's generator.")
    ] = None,
    workers: Annotated[int, typer.Option(min=0, help="Further processes that generate puzzles.")] = 0,
    one_stream: Annotated[
        bool, typer.Option("--one-stream", help="Draw all from one generator, as published sets were made.")
    ] = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Generate puzzles whose train, validation and test splits share none."""
    from eqr.data.generated import generate
    from eqr.data.splits import DATASET
    from eqr.tasks import task_named

    kind = task_named(_sized(task, size))
    named = {"clues": clues, "min_rating": min_rating, "max_rating": max_rating}
    given: dict[str, Any] = {key: value for key, value in named.items() if value is not None}
    for key, value in _pairs(option or [], "--option", "KEY=VALUE, such as min_length=20"):
        given[key] = parse_word(value, where=f"--option {key}")
    tenth = min(count // 10, 1000)
    sizes = {
        "train": count,
        "validation": tenth if validation is None else validation,
        "test": tenth if test is None else test,
    }
    if one_stream:  # published sets have no validation split: ours comes after theirs
        sizes = {name: sizes[name] for name in ("train", "test", "validation")}
    options = kind.options(given)
    with new_folder(out, replacing=DATASET if overwrite else None) as folder:
        made = generate(
            kind, sizes, seed=seed, options=options, workers=workers, one_stream=one_stream, quiet=quiet
        )
        made.write(folder)
    _say_made(made, out)


@data.command("import")
def import_(
    source: Annotated[
        str, typer.Argument(help="CSV file, HRM/TRM/EqR folder, ARC JSON folder, or hub dataset name.")
    ],
    out: Out,
    task: Annotated[str | None, typer.Option(help="Kind of puzzle, if the file does not show it.")] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Training rows to draw; all by default.")] = None,
    validation: Annotated[int, typer.Option(min=0, help="Rows to split off from training.")] = 0,
    test: Annotated[
        int | None, typer.Option(min=1, help="Test rows to draw (2048: Sudoku-Lite), or to split off.")
    ] = None,
    split: Annotated[
        str, typer.Option(metavar="NAME", help="Which split a CSV file is: train, validation or test.")
    ] = "train",
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="OURS=THEIRS", help="A CSV file's own name of a column: question=puzzle."),
    ] = None,
    validation_from: Annotated[Path | None, typer.Option(metavar="CSV", help="The validation split.")] = None,
    test_from: Annotated[Path | None, typer.Option(metavar="CSV", help="The test split.")] = None,
    variants: Annotated[int, typer.Option(min=0, help="Mini-ARC: augmented copies of each family.")] = 0,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Import puzzles made elsewhere, checking every row."""
    given = locals()
    from eqr.data.sources import Import, read_source
    from eqr.data.splits import DATASET
    from eqr.tasks import task_named

    given["columns"] = dict(_pairs(column or [], "--column", "OURS=THEIRS, such as question=puzzle"))
    wanted = Import.from_json({name: given[name] for name in Import.model_fields}, where="import")
    with new_folder(out, replacing=DATASET if overwrite else None) as folder:
        made = read_source(wanted, quiet=quiet)
        made.write(folder)
    _say_made(made, out)
    _warn_of_leaks(made, task_named(made.task))


@data.command()
def export(
    dataset: Dataset,
    out: Out,
    overwrite: Overwrite = False,
) -> None:
    """Write a dataset as the folder that the HRM, TRM and EqR code bases read."""
    from eqr.data import Splits
    from eqr.data.folders import write_folder
    from eqr.tasks import task_named

    splits = Splits.load(dataset)
    write_folder(splits, task_named(splits.task), out, overwrite=overwrite)
    print(f"{out}: {', '.join(f'{name} {len(puzzles):,}' for name, puzzles in splits)}")


@data.command()
def show(
    dataset: Dataset,
    number: Annotated[int, typer.Option("-n", min=0, help="Puzzles to draw.")] = 3,
    as_json: Json = False,
) -> None:
    """Show what is in a dataset: statistics, histograms, repeats and leaks, and a few puzzles."""
    from eqr.data import Splits
    from eqr.data.splits import describe
    from eqr.tasks import task_named

    splits = Splits.load(dataset)
    task = task_named(splits.task)
    facts = describe(splits, task)
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    print(f"{dataset}: {task.name}, {task.summary}")
    for name, about in facts["splits"].items():
        print(f"\n{name}: {_line(about)}")
        for what, numbers in about["numbers"].items():
            print(f"  {what}: {numbers['least']} to {numbers['most']}, mean {numbers['mean']:g}")
            for line in _bars(numbers["histogram"]):
                print(f"    {line}")
    print()
    for pair, count in facts["leaks"].items():
        print(f"{pair.replace('-', ' and ')} share {count:,} puzzles, up to the task's cheap symmetries")
    _draw(splits, task, number)


def _sized(task: str, size: str | None) -> str:
    if size is None:
        return task
    sides = size.lower().split("x")
    if len(sides) > 2 or not all(side.isascii() and side.isdigit() for side in sides):
        raise UserError(f"--size {size}: write a number such as 11, or rows x columns such as 11x15")
    return f"{task}-{sides[0]}x{sides[-1]}"


def _pairs(texts: list[str], option: str, form: str) -> Iterator[tuple[str, str]]:
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals and value):
            raise UserError(f"{option} {text}: write {form}")
        yield key, value


def _say_made(splits: "Splits", out: Path) -> None:
    print(f"{out}: {splits.task}")
    for name, puzzles in splits:
        print(f"  {name:<10} {len(puzzles):>9,} puzzles  digest {puzzles.digest}")


def _warn_of_leaks(splits: "Splits", task: "Task") -> None:
    from eqr.data.splits import leaks

    sets = dict(splits)
    for name in ("validation", "test"):
        if "train" in sets and name in sets:
            shared = len(leaks(sets["train"], sets[name], task))
            if shared:
                print(
                    f"warning: {shared:,} {name} puzzles are training puzzles up to symmetry", file=sys.stderr
                )


def _line(about: dict[str, Any]) -> str:
    parts = [f"{about['count']:,} puzzles"]
    if about["groups"] != about["count"]:
        parts.append(f"{about['groups']:,} groups")
    if about["identities"]:
        parts.append(f"{about['identities']:,} identities")
    parts.append("from " + ", ".join(f"{name} ({n:,})" for name, n in about["sources"].items()))
    parts.append(f"{about['repeats']:,} repeats ({about['repeats_up_to_symmetry']:,} up to symmetry)")
    return "; ".join([*parts, f"digest {about['digest']}"])


def _bars(histogram: list[tuple[int, int, int]]) -> list[str]:
    most = max(count for _, _, count in histogram)
    names = [str(low) if low == high else f"{low}-{high}" for low, high, _ in histogram]
    width = max(map(len, names))
    return [
        f"{name:>{width}} {'#' * -(-BAR * count // most):<{BAR}} {count:,}"
        for name, (_, _, count) in zip(names, histogram, strict=True)
    ]


def _draw(splits: "Splits", task: "Task", number: int) -> None:
    name, puzzles = next(iter(splits))
    for row in range(min(number, len(puzzles))):
        rating = f", {task.rating_name} {puzzles.ratings[row]}" if puzzles.ratings.any() else ""
        print(f"\n{name} {row}{rating}")
        left = task.render(puzzles.inputs[row]).splitlines()
        color = sys.stdout.isatty()
        right = task.render(puzzles.labels[row], puzzle=puzzles.inputs[row], color=color).splitlines()
        width = max(map(len, left))
        for puzzle, answer in zip(left, right, strict=True):
            print(f"{puzzle:<{width}}    {answer}")
