"""`eqr report`: every figure and table of a run in one page that opens offline; `eqr compare`: of several."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eqr.cli.options import Data, Depth, Device, Json, Page, Runs, Sample, Seed, Split, Starts
from eqr.errors import UserError

if TYPE_CHECKING:
    from eqr.report import ReportPlan, Written


def report(
    runs: Runs,
    data: Data = None,
    split: Split = None,
    puzzles: Sample = 128,
    starts: Starts = 8,
    depth: Depth = None,
    landscapes: Annotated[int, typer.Option(help="Puzzles whose attractor landscape is drawn.")] = 4,
    landscape_puzzles: Annotated[int, typer.Option(help="Puzzles whose landscape mode is named.")] = 32,
    landscape_starts: Annotated[int, typer.Option(help="Starts of each of them.")] = 64,
    landscape_depth: Annotated[int | None, typer.Option(help="Segments of each of those; 32.")] = None,
    stability: Annotated[int, typer.Option(help="Puzzles at whose final state stability is measured.")] = 8,
    panels: Annotated[int, typer.Option(help="Grids of the decoded trajectory, at most.")] = 11,
    seed: Seed = 0,
    device: Device = "auto",
    out: Page = None,
    as_json: Json = False,
) -> None:
    """Measure a run and write its report: one page, and every figure and table as a file beside it.

    Several runs are compared, as `eqr compare` does.

    The first time takes about a minute for a small model; candidates are kept, so that later times only draw.
    """
    plan = _plan(locals(), "report")
    if len(runs) > 1:
        _compare(runs, plan, data, out, device, as_json)
        return
    from eqr.report import write_report

    written = write_report(runs[0], plan, data=data, out=out, device=device, quiet=as_json)
    print(json.dumps(written.to_json(), indent=2) if as_json else summary(written))


def compare(
    runs: Runs,
    data: Data = None,
    split: Split = None,
    puzzles: Sample = 256,
    starts: Starts = 1,
    depth: Depth = None,
    seed: Seed = 0,
    device: Device = "auto",
    out: Page = None,
    as_json: Json = False,
) -> None:
    """Compare runs on the same puzzles: a table with paired intervals and a figure, as files and a page.

    Candidates are kept with each run, so that asking again only draws.
    """
    _compare(runs, _plan(locals(), "compare"), data, out, device, as_json)


def _plan(given: dict[str, Any], verb: str) -> "ReportPlan":
    from eqr.report import ReportPlan

    asked = {name: given[name] for name in ReportPlan.model_fields if name in given}
    return ReportPlan.from_json(asked, where=verb)


def _compare(
    runs: list[Path], plan: "ReportPlan", data: Path | None, out: Path | None, device: str, as_json: bool
) -> None:
    """Compare runs, write the page and print the table."""
    from eqr.report.compare import as_text, compare, write_comparison

    if out is not None and out.suffix not in (".html", ".htm"):
        raise UserError(f"--out {out}: a comparison is an .html file")
    found = compare(runs, plan, data=data, device=device, quiet=as_json)
    others = "-".join(run.resolve().name for run in runs[1:])
    page = out or runs[0] / f"comparison-with-{others}.html"
    files = [str(path) for path in write_comparison(found, page)]
    if as_json:
        print(json.dumps({**found.to_json(), "page": str(page), "files": files}, indent=2))
    else:
        print(f"{as_text(found)}\n\n{page}\nas files: {page.with_suffix('')}")


def summary(written: "Written") -> str:
    """Return the headline numbers as a small table, and where everything is."""
    width = max(len(row["budget"]) for row in written.headline)
    lines = [f"{'exact accuracy':<{width}}          {'95% interval':>16}      NFE"]
    for row in written.headline:
        interval = f"{row['low']:.1%} to {row['high']:.1%}"
        lines.append(f"{row['budget']:<{width}}  {row['exact']:>6.1%}  {interval:>16}  {row['nfe']:>7,.1f}")
    made = f"{len(written.figures) // 2} figures, {len(written.tables)} tables, {written.seconds:.0f} s"
    return "\n".join([*lines, "", f"{written.page} ({made})", f"as files: {written.page.with_suffix('')}"])
