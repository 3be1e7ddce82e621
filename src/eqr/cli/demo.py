"""`eqr demo`: the paper's idea on your machine in a few minutes: train, scale, solve, show.

Every step keeps what it made, so that a second run only shows, and an interrupted one goes on.
"""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eqr.errors import UserError, with_extra

if TYPE_CHECKING:
    from eqr.diagnostics.traces import Traces
    from eqr.report import ReportPlan
    from eqr.train.recipe import Recipe

RECIPE = "sudoku-6x6"


def demo(
    out: Annotated[Path, typer.Option(metavar="RUN", help="Folder of the demo.")] = Path("runs/demo"),
    steps: Annotated[int | None, typer.Option(help="Optimizer steps, instead of the recipe's.")] = None,
    puzzles: Annotated[int, typer.Option(help="Test puzzles to measure on.")] = 256,
    starts: Annotated[int, typer.Option(help="Independent starts per puzzle.")] = 8,
    depth: Annotated[int, typer.Option(help="Segments per trajectory.")] = 64,
) -> None:
    """Train a small equilibrium reasoner from scratch, scale it at test time, and write a report."""
    from eqr.diagnostics.traces import run_traces
    from eqr.recipes import recipe_named
    from eqr.report import ReportPlan, open_source, write_report

    for package in ("matplotlib", "jinja2"):  # said before minutes of training
        if find_spec(package) is None:
            raise UserError(f"the demo's report needs {package}: {with_extra('plots')}")
    recipe = recipe_named(RECIPE)
    if steps is not None:
        recipe = recipe.replace(steps=steps)
    plan = ReportPlan(puzzles=puzzles, starts=starts, depth=depth, landscape_starts=8 * starts, stability=4)
    _head(1, f"Train on {RECIPE}: z <- f(z; x), over and over, until it settles on the answer")
    _train(recipe, out)
    _head(2, "Spend more compute at test time, without touching the weights")
    source = open_source(out, plan, data=None, device="auto")
    traces = run_traces(
        source.reasoner, source.puzzles, plan.budget(source.reasoner.config), out / "report" / "cache"
    )
    _show_scaling(traces)
    _head(3, "Solve the hardest of the test puzzles")
    _solve_hardest(out, traces, starts)
    _head(4, "Write the report")
    written = write_report(out, plan)
    _show_next(out, written.page, traces, plan)


def _head(number: int, text: str) -> None:
    print(f"\n[{number}/4] {text}\n", flush=True)


def _train(recipe: "Recipe", run: Path) -> None:
    from eqr.runs import RunFolder
    from eqr.train.run import train

    folder = RunFolder(run)
    summary = folder.summary()
    if summary is not None and summary.recipe_digest == recipe.digest():
        print(f"{run} is trained already ({summary.steps:,} steps, {summary.seconds:.0f} s): reusing it.")
        return
    model = recipe.model
    print(
        f"width {model.width}, {model.layers_per_segment} layers a segment, {recipe.rows} rows, "
        f"{recipe.steps:,} steps of {recipe.optimizer.kind}; Ctrl-C keeps what was learned."
    )
    outcome = train(recipe, run, resume=folder.begun and summary is None, overwrite=summary is not None)
    if outcome.interrupted is not None:
        print("stopped; `eqr demo` goes on from here", file=sys.stderr)
        raise typer.Exit(128 + outcome.interrupted)
    ended = outcome.summary
    print(
        f"{ended.parameters:,} parameters, {ended.steps:,} steps, "
        f"{ended.seconds:.0f} s of training: {ended.best['exact']:.1%} exact on validation puzzles"
    )


def _show_scaling(traces: "Traces") -> None:
    from eqr.diagnostics.scaling import HALTED, cost_rows, scaling_rows
    from eqr.result import pivot, select

    breadth = traces.breadth
    rows = pivot(scaling_rows(traces), "depth", "breadth")
    costs = pivot(select(cost_rows(traces), rule=HALTED), "depth")
    wide = f"Top-1 of {breadth} starts"
    print(f"{len(traces.puzzles):,} test puzzles never seen in training; exact accuracy:\n")
    print(f"{'depth D':>8}  {'1 start':>8}  {'residual':>9}  {wide:>17}  {'halting':>8}  {'NFE used':>8}")
    for depth in sorted({depth for depth, _ in rows}):
        one, many = rows[depth, 1], rows[depth, breadth]
        halted = costs[depth,]
        print(
            f"{depth:>8}  {one['exact'].value:>8.1%}  {one['residual'].value:>9.4f}  "
            f"{many['exact'].value:>17.1%}  {halted['exact'].value:>8.1%}  {halted['nfe'].value:>8.1f}"
        )
    print(
        "\nOne NFE is one segment of one start. Deeper settles (the residual falls) and solves more; "
        "halting\nreaches the same for a fraction of the segments, because easy puzzles settle at once."
    )


def _solve_hardest(run: Path, traces: "Traces", starts: int) -> None:
    import numpy as np

    from eqr.cli.solve import show_answer
    from eqr.dynamics.halting import SETTLED
    from eqr.solve import Budget, FirstToHalt, Solver

    hardest = int(np.argmax(traces.puzzles.ratings))
    budget = Budget(depth=traces.depth, breadth=starts, halting=SETTLED, race=starts > 1)
    solver = Solver(run, budget=budget, select=FirstToHalt())
    puzzle = np.array(traces.puzzles.inputs[hardest])
    print(solver.task.render(puzzle) + "\n")
    show_answer(solver, solver.solve(puzzle), trace=True)


def _show_next(run: Path, page: Path, traces: "Traces", plan: "ReportPlan") -> None:
    from eqr.runs import RunFolder

    puzzle = "".join(traces.task.symbols[token - 1] for token in traces.puzzles.inputs[0])
    print(
        f"report: {page} (open it in a browser; {plan.puzzles} puzzles, {plan.starts} starts each)\n"
        f"model:  {RunFolder(run).best}\n\n"
        f"Try next:\n"
        f"  eqr solve {run} {puzzle} --trace\n"
        f"  eqr train sudoku-9x9 --out runs/sudoku-9x9\n"
        f"  eqr train sudoku-6x6 --set model.start.kind=fixed --set model.path.noise=0 --out runs/fixed\n"
        f"  eqr --help"
    )
