"""Measure a trained model and put it into the package with its card: src/eqr/weights/NAME.

    python benchmarks/ship.py runs/sudoku-6x6 sudoku-6x6 --limit 1000
    python benchmarks/ship.py runs/maze-11x11 maze --data maze-unique=data/maze-unique

Every number has its depth, breadth, NFE and 95% interval. Starts are chosen blindly, by residual or by who
halts first.
"""

import argparse
import tempfile
from pathlib import Path

from eqr.data import PuzzleSet, load_split
from eqr.data.splits import sample
from eqr.files import read_json
from eqr.measure.evaluate import BudgetSweep, evaluate
from eqr.model.card import Measured, TrainingFacts
from eqr.model.lookup import SHIPPED
from eqr.model.reasoner import Reasoner
from eqr.recipes import recipe_named
from eqr.runs import RunFolder
from eqr.solve import Budget, FirstToHalt, LowestResidual, parse_halting
from eqr.tasks import task_named
from eqr.train.recipe import Recipe
from eqr.train.sources import run_data

HALTING = "head+stable:1"
TOLD = Budget(assume=True, retell=10, halting=parse_halting("head+residual:0.02"), race=True, abreast=32)
"""Starts that are told guesses, where a task says what can be guessed, and race to rest."""
TOLD_DEPTH = 128


def numbers(
    model: Reasoner, puzzles: PuzzleSet, name: str, depths: list[int], broad: list[int], breadth: int
) -> list[Measured]:
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
    if task_named(puzzles.task).distinct():
        rested = {"first to halt": FirstToHalt(abreast=TOLD.abreast)}
        sweeps.append(
            (
                BudgetSweep(budget=TOLD, depths=(TOLD_DEPTH,), breadths=(TOLD.abreast,), select=rested),
                "first to halt",
            )
        )
    found = []
    for sweep, chosen in sweeps:
        with tempfile.TemporaryDirectory() as folder:
            evaluation = evaluate(model, puzzles, sweep, Path(folder))
        assert evaluation is not None
        for row in evaluation.budgets:
            exact = row.scores.selected[chosen].exact
            words = f"halting by {HALTING}" if row.budget.halting else "single start"
            several = f"{chosen} of {row.breadth}" + (", told guesses" if row.budget.assume else "")
            found.append(
                Measured(
                    metric="exact accuracy",
                    value=exact.value,
                    low=exact.low,
                    high=exact.high,
                    puzzles=name,
                    count=len(puzzles),
                    depth=row.depth,
                    breadth=row.breadth,
                    selection=words if row.breadth == 1 else several,
                    mean_nfe=row.scores.nfe.value,
                )
            )
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
    measured = []
    for name, (puzzles, most) in sets.items():
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
