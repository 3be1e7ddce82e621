"""The table of declared puzzles: train each kind of examples/puzzles by its default recipe, and measure it.

    python benchmarks/gallery.py                       # all kinds: about an hour of one core
    python benchmarks/gallery.py takuzu queens         # some
    python benchmarks/gallery.py --steps 1000          # shorter trainings, noted in the table
    python benchmarks/gallery.py --only-table          # write docs/gallery.md anew from docs/gallery.csv

Every kind is measured once and kept as a line of docs/gallery.csv; --again measures it anew. Times are those
of one core, of processes and not of the clock, so that they hold on a machine that does other work besides.
CP-SAT solves the same puzzles from the same rows, one thread, building its model included.
"""

import argparse
import csv
import runpy
import tempfile
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import torch

from eqr.data import PuzzleSet, load_split
from eqr.model.reasoner import Reasoner
from eqr.puzzles import Puzzle
from eqr.puzzles.generating import answers_by_cp_sat
from eqr.recipes import recipe_named
from eqr.results.evaluate import BudgetSweep, evaluate
from eqr.solve import Budget, LowestResidual, parse_halting
from eqr.tasks.filling import FIRST
from eqr.train.run import train
from eqr.train.sources import run_data

ROOT = Path(__file__).resolve().parents[1]
FILES = {path.stem.replace("_", "-"): path for path in sorted((ROOT / "examples" / "puzzles").glob("*.py"))}
TABLE, PAGE = ROOT / "docs" / "gallery.csv", ROOT / "docs" / "gallery.md"
BEGIN, END = "<!-- table -->", "<!-- end of table -->"
DEPTHS = (4, 16, 64)
HALTING, RULE = "head+stable:1", "residual"


@dataclass(frozen=True)
class Line:
    """A kind of puzzle, as measured."""

    puzzle: str
    lines: int
    """Of code in its file."""
    candidates: int
    parameters: int
    steps: int
    training_seconds: float
    puzzles: int
    """Fresh ones that it was judged by; `exact` is the share of them solved exactly."""
    exact_4: float
    exact_16: float
    exact_64: float
    low_64: float
    high_64: float
    exact_halted: float
    nfe_halted: float
    seconds: float
    """A puzzle, halted."""
    cpsat_seconds: float


def lines_of(path: Path) -> int:
    """Count lines of code: no docstring, blank or comment."""
    code = path.read_text(encoding="utf-8").split('"""', 2)[2]
    return sum(1 for line in code.splitlines() if line.strip() and not line.strip().startswith("#"))


def measured(name: str, runs: Path, steps: int | None, train_on: int | None, count: int) -> Line:
    """Train a kind, or take up its training, and measure what it learned."""
    task = runpy.run_path(str(FILES[name]))["puzzle"]
    recipe = recipe_named(name).replace(threads=1)
    recipe = recipe if steps is None else recipe.replace(steps=min(steps, recipe.steps))
    sizes = {"validation": 64, "test": count} | ({} if train_on is None else {"train": train_on})
    recipe = recipe.replace(data=recipe.data.replace(**sizes))
    next(task.generate(np.random.default_rng(0)))  # what is compiled once does not count
    began = time.process_time()
    outcome = train(recipe, runs / name, resume=True)
    spent = time.process_time() - began
    if outcome.interrupted:
        raise SystemExit("interrupted; run the same command to go on")
    model = Reasoner.from_pretrained(runs / name)
    puzzles = load_split(run_data(runs / name), "test")
    puzzles = puzzles.take(np.arange(min(count, len(puzzles))))
    plain = scored(model, puzzles, Budget(), DEPTHS)
    began = time.process_time()
    halted = scored(model, puzzles, Budget(halting=parse_halting(HALTING)), DEPTHS[-1:])
    seconds = (time.process_time() - began) / len(puzzles)
    exact = {depth: plain.one("exact", depth=depth, rule=RULE) for depth in DEPTHS}
    return Line(
        puzzle=name,
        lines=lines_of(FILES[name]),
        candidates=task.cells * len(task.values),
        parameters=model.parameter_count(),
        steps=recipe.steps,
        training_seconds=round(spent, 1),
        puzzles=len(puzzles),
        **{f"exact_{depth}": round(exact[depth].value, 4) for depth in DEPTHS},
        low_64=round(exact[64].low, 4),
        high_64=round(exact[64].high, 4),
        exact_halted=round(halted.one("exact", rule=RULE).value, 4),
        nfe_halted=round(halted.one("nfe", depth=DEPTHS[-1], breadth=1).value, 2),
        seconds=round(seconds, 5),
        cpsat_seconds=round(by_cpsat(task, puzzles), 5),
    )


def scored(model: Reasoner, puzzles: PuzzleSet, budget: Budget, depths: tuple[int, ...]):
    """Evaluate one start of every puzzle."""
    sweep = BudgetSweep(budget=budget, depths=depths, breadths=(1,), select={RULE: LowestResidual()})
    with tempfile.TemporaryDirectory() as folder:
        found = evaluate(model, puzzles, sweep, Path(folder))
    assert found is not None
    return found


def by_cpsat(task: Puzzle, puzzles: PuzzleSet) -> float:
    """Return the seconds that CP-SAT takes for a puzzle, the mean of up to 50, all of them solved."""
    some = puzzles.inputs[:50].astype(np.int64) - FIRST
    began = time.process_time()
    for givens in some:
        answers, _ = answers_by_cp_sat(task.rows, givens, limit=1, seconds=60)
        assert answers
    return (time.process_time() - began) / len(some)


def known() -> dict[str, Line]:
    """Read the lines measured so far."""
    if not TABLE.is_file():
        return {}
    kinds = {field.name: field.type for field in fields(Line)}
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = [{name: kinds[name](text) for name, text in row.items()} for row in csv.DictReader(file)]
    return {row["puzzle"]: Line(**row) for row in rows}


def write(lines: dict[str, Line]) -> None:
    """Write the lines to the CSV file, and as a table into the page."""
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Line)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(lines[name]) for name in sorted(lines))
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{table(lines)}\n{END}{after}", encoding="utf-8")


def table(lines: dict[str, Line]) -> str:
    """Return the lines as Markdown."""
    head = (
        "puzzle", "lines", "parameters", "steps", "training, core s", "D=4", "D=16", "D=64 [95%]", "n",
        "halted, NFE", "s a puzzle", "CP-SAT, s",
    )  # fmt: skip
    rows = [head, ("---",) * len(head)]
    for _, line in sorted(lines.items()):
        shares = [100 * share for share in (line.exact_4, line.exact_16, line.exact_64)]
        interval = f"{shares[2]:.1f} [{100 * line.low_64:.1f}, {100 * line.high_64:.1f}]"
        file = FILES[line.puzzle].name
        rows.append(
            (
                f"[{line.puzzle}](../examples/puzzles/{file})",
                f"{line.lines}",
                f"{line.parameters:,}",
                f"{line.steps:,}",
                f"{line.training_seconds:.0f}",
                f"{shares[0]:.1f}",
                f"{shares[1]:.1f}",
                interval,
                f"{line.puzzles}",
                f"{100 * line.exact_halted:.1f}, {line.nfe_halted:.1f}",
                f"{line.seconds:.3f}",
                f"{line.cpsat_seconds:.3f}",
            )
        )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    """Measure what is not known yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("kinds", nargs="*", choices=[[], *FILES], metavar="KIND", default=[])
    parser.add_argument("--steps", type=int, help="most steps of a training")
    parser.add_argument("--train", type=int, help="puzzles to train on")
    parser.add_argument("--puzzles", type=int, default=200, help="fresh puzzles that judge")
    parser.add_argument("--runs", type=Path, default=Path("runs/gallery"))
    parser.add_argument("--again", action="store_true", help="measure what is known, too")
    parser.add_argument("--only-table", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = known()
    for name in [] if options.only_table else options.kinds or list(FILES):
        if name not in lines or options.again:
            lines[name] = measured(name, options.runs, options.steps, options.train, options.puzzles)
            write(lines)
    write(lines)
    print(table(lines))


if __name__ == "__main__":
    main()
