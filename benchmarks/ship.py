"""Measure a trained model and put it into the package with its card: src/eqr/weights/NAME.

    python benchmarks/ship.py runs/sudoku-6x6 sudoku-6x6 --limit 1000
    python benchmarks/ship.py runs/maze-11x11 maze --data maze-unique=data/maze-unique
    python benchmarks/ship.py runs/sudoku-extreme sudoku-extreme --records docs/figures/records.csv

Every number has its depth, breadth, NFE and 95% interval. Starts are chosen blindly, by residual or by who
halts first.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

from record import read

from eqr.data import PuzzleSet, load_split
from eqr.data.splits import sample
from eqr.files import read_json
from eqr.model.lookup import SHIPPED
from eqr.model.reasoner import Reasoner
from eqr.model.saving import SINGLE, TrainingFacts
from eqr.recipes import recipe_named
from eqr.result import Result, select
from eqr.results.evaluate import BudgetSweep, evaluate
from eqr.results.table import model_digest
from eqr.runs import RunFolder
from eqr.solve import Budget, FirstToHalt, LowestResidual, parse_halting
from eqr.tasks import task_named
from eqr.train.recipe import Recipe
from eqr.train.sources import run_data

HALTING = "head+stable:1"


def numbers(
    model: Reasoner, puzzles: PuzzleSet, name: str, depths: list[int], broad: list[int], breadth: int
) -> list[Result]:
    """Measure one start at some depths, the best settled of `breadth` at others, halting, and a race."""
    rule = parse_halting(HALTING)
    plain = {"residual": LowestResidual()}
    first = {"first to halt": FirstToHalt(abreast=Budget().abreast)}
    racing = Budget(halting=rule, race=True)
    sweeps = [
        (BudgetSweep(budget=Budget(), depths=tuple(depths), breadths=(1,), select=plain), "residual"),
        (BudgetSweep(budget=Budget(), depths=tuple(broad), breadths=(breadth,), select=plain), "residual"),
        (
            BudgetSweep(budget=Budget(halting=rule), depths=(depths[-1],), breadths=(1,), select=plain),
            "residual",
        ),
        (
            BudgetSweep(budget=racing, depths=(depths[-1],), breadths=(breadth,), select=first),
            "first to halt",
        ),
    ]
    found = []
    for sweep, chosen in sweeps:
        with tempfile.TemporaryDirectory() as folder:
            evaluation = evaluate(model, puzzles, sweep, Path(folder))
        assert evaluation is not None
        for exact in select(evaluation.rows, metric="exact", rule=chosen):
            nfe = evaluation.one("nfe", depth=exact.depth, breadth=exact.breadth)
            words = f"halting by {HALTING}" if sweep.budget.halting else SINGLE
            several = f"{chosen} of {exact.breadth}"
            where = {"item": name, "rule": words if exact.breadth == 1 else several}
            found += [replace(row, part="", **where) for row in (exact, nfe)]
    return found


def recorded(path: Path, model: Reasoner) -> list[Result]:
    """Return what `benchmarks/record.py` measured of a model."""
    digest, found = model_digest(model), []
    for record in read(path):
        if record.digest == digest and record.puzzles == "all":
            words = f"halting by {HALTING}" if record.starts == 1 else f"first to halt of {record.starts}"
            exact = Result(
                item="test puzzles of Sudoku-Extreme",
                metric="exact",
                rule=words,
                depth=record.depth,
                breadth=record.starts,
                value=record.exact,
                low=record.low,
                high=record.high,
                n=record.n,
            )
            assert record.segments is not None, "record.py counts them"
            found += [exact, replace(exact, metric="nfe", value=record.segments, low=None, high=None)]
    if not found:
        raise SystemExit(f"{path} has no line of these weights ({digest}); run benchmarks/record.py first")
    return found


def main() -> None:
    """Measure, then write the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("name")
    parser.add_argument("--threads", type=int, default=2, help="cores that the training had")
    parser.add_argument("--limit", type=int, default=500)
    parser.add_argument("--breadth", type=int, default=8)
    parser.add_argument("--depths", default="16,64")
    parser.add_argument(
        "--broad-depths", help="where several starts are compared, as at --depths unless given"
    )
    parser.add_argument("--data", action="append", default=[], metavar="NAME=DIR[:SPLIT][:COUNT]")
    parser.add_argument("--records", type=Path, help="take the numbers of a record table, measure nothing")
    options = parser.parse_args()
    folder = RunFolder(options.run)
    recipe = Recipe.from_json(read_json(folder.recipe), where=str(folder.recipe))
    model = Reasoner.from_pretrained(options.run).requires_grad_(False)
    summary = folder.summary()
    if summary is None:
        raise SystemExit(f"{options.run} has not ended")
    depths = [int(depth) for depth in options.depths.split(",")]
    broad = [int(depth) for depth in (options.broad_depths or options.depths).split(",")]
    sets = {f"test puzzles of {recipe.name}": (load_split(run_data(options.run), "test"), options.limit)}
    for given in options.data:
        name, _, place = given.partition("=")
        where, split, count = (*place.split(":"), "", "")[:3]
        sets[name] = load_split(Path(where), split or "test"), int(count or options.limit)
    measured = [] if options.records is None else recorded(options.records, model)
    for name, (puzzles, most) in ({} if options.records else sets).items():
        some = sample(puzzles, min(most, len(puzzles)), seed=0)
        for_task = model.for_task(task_named(some.task))
        measured += numbers(for_task, some, name, depths, broad, options.breadth)
    seed = "" if recipe.seed == recipe_named(recipe.name).seed else f" --set seed={recipe.seed}"
    model.origin = TrainingFacts(
        command=f"eqr train {recipe.name}{seed} --out runs/{recipe.name}",
        seed=recipe.seed,
        steps=summary.steps,
        seconds=summary.seconds,
        threads=recipe.threads or options.threads,
    )
    model.save_pretrained(SHIPPED / options.name, measured=measured)
    print((SHIPPED / options.name / "README.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
