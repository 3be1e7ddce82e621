"""`eqr report`: every figure and table of a run, in one page that opens offline."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eqr.cli.compare import show

if TYPE_CHECKING:
    from eqr.report import Written

app = typer.Typer()


@app.command()
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run folder, or a model folder together with --data."),
    ],
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Dataset folder instead of the run's own.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="Which split of it: test, else validation.")] = None,
    puzzles: Annotated[int, typer.Option(help="Measure a random sample of this many puzzles.")] = 128,
    starts: Annotated[int, typer.Option(help="Independent starts per puzzle.")] = 8,
    depth: Annotated[
        int | None, typer.Option(help="Segments per trajectory; 64, or 1 for feedforward models.")
    ] = None,
    landscapes: Annotated[int, typer.Option(help="Puzzles whose attractor landscape is drawn.")] = 4,
    landscape_puzzles: Annotated[int, typer.Option(help="Puzzles whose landscape mode is named.")] = 32,
    landscape_starts: Annotated[int, typer.Option(help="Starts of each of them.")] = 64,
    landscape_depth: Annotated[int | None, typer.Option(help="Segments of each of those; 32.")] = None,
    stability: Annotated[int, typer.Option(help="Puzzles at whose final state stability is measured.")] = 8,
    panels: Annotated[int, typer.Option(help="Grids of the decoded trajectory, at most.")] = 11,
    seed: Annotated[int, typer.Option(help="Of the starts and the noise.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")] = "auto",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The page; RUN/report.html if not given.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Measure a run and write its report: one page, and every figure and table as a file beside it.

    Several runs are compared, as `eqr compare` does.

    The first time takes about a minute for a small model; candidates are kept, so that later times only draw.
    """
    from eqr.report import ReportPlan, write_report

    plan = ReportPlan.from_json(
        {
            "puzzles": puzzles,
            "starts": starts,
            "depth": depth,
            "landscapes": landscapes,
            "landscape_puzzles": landscape_puzzles,
            "landscape_starts": landscape_starts,
            "landscape_depth": landscape_depth,
            "stability": stability,
            "panels": panels,
            "split": split,
            "seed": seed,
        },
        where="report",
    )
    if len(runs) > 1:
        show(runs, plan, data=data, out=out, device=device, as_json=as_json)
        return
    written = write_report(runs[0], plan, data=data, out=out, device=device, quiet=as_json)
    print(json.dumps(written.to_json(), indent=2) if as_json else summary(written))


def summary(written: "Written") -> str:
    """Return the headline numbers as a small table, and where everything is."""
    width = max(len(row["budget"]) for row in written.headline)
    lines = [f"{'exact accuracy':<{width}}          {'95% interval':>16}      NFE"]
    for row in written.headline:
        interval = f"{row['low']:.1%} to {row['high']:.1%}"
        lines.append(f"{row['budget']:<{width}}  {row['exact']:>6.1%}  {interval:>16}  {row['nfe']:>7,.1f}")
    made = f"{len(written.figures) // 2} figures, {len(written.tables)} tables, {written.seconds:.0f} s"
    return "\n".join([*lines, "", f"{written.page} ({made})", f"as files: {written.page.with_suffix('')}"])
