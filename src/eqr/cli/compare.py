"""`eqr compare`: several runs side by side at equal budgets, with paired differences."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eqr.errors import UserError

if TYPE_CHECKING:
    from eqr.report import ReportPlan

app = typer.Typer()


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, the reference first.")],
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Dataset folder instead of the runs' own.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="Which split of it: test, else validation.")] = None,
    puzzles: Annotated[int, typer.Option(help="Measure a random sample of this many puzzles.")] = 256,
    starts: Annotated[int, typer.Option(help="Independent starts per puzzle.")] = 1,
    depth: Annotated[
        int | None, typer.Option(help="Segments per trajectory; 64, or 1 for feedforward models.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the starts and the noise.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")] = "auto",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The page; in the first run's folder if not given.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Compare runs on the same puzzles: a table with paired intervals and a figure, as files and a page.

    Candidates are kept with each run, so that asking again only draws.
    """
    from eqr.report.source import ReportPlan

    asked = {"puzzles": puzzles, "starts": starts, "depth": depth, "split": split, "seed": seed}
    plan = ReportPlan.from_json(asked, where="compare")
    show(runs, plan, data=data, out=out, device=device, as_json=as_json)


def show(
    runs: list[Path], plan: "ReportPlan", *, data: Path | None, out: Path | None, device: str, as_json: bool
) -> None:
    """Compare runs, write the page and print the table."""
    from eqr.report.compare import as_text, write_comparison
    from eqr.report.compare import compare as measure

    if out is not None and out.suffix not in (".html", ".htm"):
        raise UserError(f"--out {out}: a comparison is an .html file")
    found = measure(runs, plan, data=data, device=device, quiet=as_json)
    others = "-".join(run.resolve().name for run in runs[1:])
    written = write_comparison(found, out or runs[0] / f"comparison-with-{others}.html")
    if as_json:
        print(json.dumps({**found.to_json(), **written.to_json()}, indent=2))
    else:
        print(f"{as_text(found)}\n\n{written.page}\nas files: {written.folder}")
