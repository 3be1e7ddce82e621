"""Measure weights for the record table of docs/benchmarks.md: accuracy and cost by budget and by source.

    python benchmarks/record.py sudoku-extreme --data data/extreme-test --minutes 130
    python benchmarks/record.py runs/mine --data data/extreme-test --minutes 30 --words "wider, 1 block"

The model is a shipped name, a run or a model folder. One run of one start that halts gives every depth, one
race of starts the last row. Rows are added to --csv (older ones of the same weights, puzzles and budget go),
then the tables in --page and the figure are written anew. The tables of candidates are kept in --out, so an
interrupted call goes on where it stopped.
"""

import argparse
import csv
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from eqr.data import PuzzleSet, load_split
from eqr.data.splits import sample
from eqr.figures.style import CYCLE, GREY, new_figure, plain_numbers, save_figure, styled
from eqr.model.reasoner import Reasoner
from eqr.results.costs import flops
from eqr.results.evaluate import fill, part_size
from eqr.results.metrics import share
from eqr.results.table import CandidateTable, Manifest, model_digest
from eqr.solve import Budget, load
from eqr.solve.candidates import Candidates, Status

HALTING = "head+stable:1"
DEPTHS = (16, 64, 256, 1024, 4096)
BREADTH, RACE_DEPTH = 8, 64
FEWEST = 10
"""Puzzles of a source that has a column."""
MARKS = "<!-- records -->", "<!-- end of records -->"
SOURCE_MARKS = "<!-- by source -->", "<!-- end of by source -->"


@dataclass(frozen=True, kw_only=True)
class Record:
    """One line of the table; an empty field is not known."""

    weights: str
    parameters: str
    """As people write it."""
    minutes: float | None
    """Core-minutes of training, those of the weights it began with included."""
    puzzles: str
    """All, or a source."""
    n: int
    """0 where it is not known."""
    depth: int
    starts: int
    exact: float
    low: float | None = None
    high: float | None = None
    segments: float | None = None
    """Mean over puzzles, all starts together."""
    tera: float | None = None
    """10^12 multiply-adds a puzzle, every candidate counted."""
    wrong: int | None = None
    """Answers that halted and are wrong."""
    digest: str = ""
    date: str = ""
    commit: str = ""
    by: str = ""
    """Who measured: a publication, or a contributor."""


def table(
    model: Reasoner, puzzles: PuzzleSet, budget: Budget, noted: tuple[int, ...], out: Path
) -> CandidateTable:
    """Run what is missing of a table."""
    part = part_size(budget.breadth)
    manifest = Manifest.of(model, puzzles, budget, depths=noted, window=1, part=part)
    kept = CandidateTable.open(out, manifest)
    fill(kept, model, puzzles)
    return kept


def sources(puzzles: PuzzleSet) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yield all puzzles, then those of each source."""
    yield "all", np.ones(len(puzzles), np.bool_)
    for index, name in enumerate(puzzles.source_names):
        rows = puzzles.sources == index
        if rows.any() and not rows.all():
            yield name, rows


def outcomes(
    puzzles: PuzzleSet, found: Candidates, depth: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.int64]]:
    """Return which puzzles are right, which halted wrongly, and the segments they took.

    Of several starts the one that halts first answers; where none does, the first start.
    """
    halted = found.status == Status.HALTED
    chosen = np.where(halted, found.depth, depth + 1).argmin(axis=1)
    rows = np.arange(len(chosen))
    right = (found.tokens[rows, chosen] == puzzles.labels).all(axis=1)
    return right, halted[rows, chosen] & ~right, np.minimum(found.depth, depth).sum(axis=1, dtype=np.int64)


def measured(model: Reasoner, puzzles: PuzzleSet, raced: PuzzleSet, out: Path) -> Iterator[Record]:
    """Run both tables and yield a line for every budget and source."""
    halting = Budget(depth=DEPTHS[-1], halting=HALTING)
    single = table(model, puzzles, halting, DEPTHS, out / "single")
    racing = halting.replace(depth=RACE_DEPTH, breadth=BREADTH, race=True, abreast=BREADTH)
    race = table(model, raced, racing, (RACE_DEPTH,), out / "race")
    runs = [(puzzles, single, column, depth, 1) for column, depth in enumerate(DEPTHS)]
    for puzzles, kept, column, depth, starts in [*runs, (raced, race, 0, RACE_DEPTH, BREADTH)]:
        found = Candidates.joined([part.candidates[:, :, column] for part in kept.blocks()])
        right, wrong, segments = outcomes(puzzles, found, depth)
        for words, rows in sources(puzzles):
            exact, mean = share(right[rows]), float(segments[rows].mean())
            yield Record(
                weights="",
                parameters=f"{sum(part.numel() for part in model.parameters()):,}",
                minutes=None,
                puzzles=words,
                n=exact.n,
                depth=depth,
                starts=starts,
                exact=exact.value,
                low=exact.low,
                high=exact.high,
                segments=mean,
                tera=flops(model.config, mean) / 2e12,
                wrong=int(wrong[rows].sum()),
                digest=model_digest(model),
            )


def read(path: Path) -> list[Record]:
    """Read a table of records."""
    if not path.is_file():
        return []
    kinds = {field.name: str(field.type) for field in fields(Record)}
    with path.open(newline="", encoding="utf-8") as file:
        return [
            Record(**{key: _read(kinds[key], text) for key, text in row.items()})
            for row in csv.DictReader(file)
        ]


def _read(kind: str, text: str) -> object:
    if "str" in kind:
        return text
    if not text:
        return None
    return int(text) if "int" in kind else float(text)


def write(records: list[Record], path: Path) -> None:
    """Write a table of records."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Record)], lineterminator="\n")
        writer.writeheader()
        for record in records:
            row = {
                key: f"{value:.5g}" if isinstance(value, float) else value
                for key, value in asdict(record).items()
            }
            writer.writerow(row)


def markdown(records: list[Record]) -> str:
    """Return the table of the page: every line that is about all puzzles, the most exact first."""
    names = ("weights", "parameters", "core-minutes", "segments, starts", "exact, %", "n")
    names += ("mean segments", "multiply-adds", "measured")
    lines = [f"| {' | '.join(names)} |", "| --- " * len(names) + "|"]
    for record in sorted(records, key=lambda record: -record.exact):
        if record.puzzles != "all":
            continue
        lines.append(f"| {' | '.join(_cells(record))} |")
    return "\n".join(lines)


def sources_markdown(records: list[Record]) -> str:
    """Return the table of our weights by source of the puzzles, the most puzzles first."""
    ours = [record for record in records if record.digest and record.puzzles != "all"]
    counts = {record.puzzles: record.n for record in ours if record.starts == 1}
    names = sorted((name for name in counts if counts[name] >= FEWEST), key=lambda name: -counts[name])
    titles = [f"{re.sub(r'puzzles[0-9]_', '', name)}, n = {counts[name]:,}" for name in names]
    lines = [f"| weights | segments, starts | {' | '.join(titles)} |", "| --- " * (2 + len(names)) + "|"]
    for weights, budget in dict.fromkeys((record.weights, _budget(record)) for record in ours):
        found = {r.puzzles: r for r in ours if (r.weights, _budget(r)) == (weights, budget)}
        cells = [_share(found[name]) if name in found else "" for name in names]
        lines.append(f"| `{weights}` | {budget} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _share(record: Record) -> str:
    """Return a cell of it: how many are solved, and by how many segments."""
    return f"{100 * record.exact:.1f} ({_number(record.segments, ',.1f')})"


def _budget(record: Record) -> str:
    """Return the limit on segments and the starts, which race if they are ours."""
    if not record.digest:
        return f"D={record.depth:,}" + f", {record.starts} starts" * (record.starts > 1)
    return f"D<={record.depth:,}" + f", race of {record.starts}" * (record.starts > 1)


def _cells(record: Record) -> tuple[str, ...]:
    """Return a line of the page."""
    ours = bool(record.digest)
    exact = f"{100 * record.exact:.2f}"
    if record.low is not None and record.high is not None:
        exact += f" [{100 * record.low:.2f}, {100 * record.high:.2f}]"
    return (
        f"`{record.weights}`" if ours else f"*{record.weights}*",
        record.parameters,
        _number(record.minutes, ",.0f"),
        _budget(record),
        exact,
        _number(record.n or None, ","),
        _number(record.segments, ",.1f" if ours else ",.0f"),
        _number(record.tera, ".3g") + " T" * (record.tera is not None),
        " ".join(word for word in (record.date, record.commit, record.by) if word),
    )


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _left(record: Record) -> float:
    """Return the percentage that is not solved, of which a logarithm can be taken."""
    return 100 * max(1 - record.exact, 0.5 / (record.n or 1_000_000))


@styled
def draw(records: list[Record]) -> Figure:
    """Draw the share that is not solved over the multiply-adds of a puzzle."""
    figure = new_figure(height=3.2)
    axes = figure.subplots()
    known = [record for record in records if record.puzzles == "all" and record.tera]
    ours = iter(CYCLE)
    for name in dict.fromkeys(record.weights for record in known):
        rows = sorted((r for r in known if r.weights == name), key=lambda r: r.tera or 0.0)
        colour = next(ours) if rows[0].digest else GREY
        for wide, label in ((False, name), (True, None)):
            points = [(r.tera, _left(r)) for r in rows if (r.starts > 1) is wide]
            axes.plot(
                *zip(*points, strict=True) if points else ((), ()),
                color=colour,
                label=label,
                marker="o" if rows[0].digest else "s",
                linestyle="" if wide else "-",
                markerfacecolor="white" if wide else colour,
            )
        if not rows[0].digest:
            for row in ([r for r in rows if r.starts == 1][-1], *(r for r in rows if r.starts > 1)):
                alone = row.starts == 1
                axes.annotate(
                    name if alone else f"{name}, {row.starts} starts",
                    (row.tera or 0.0, _left(row)),
                    xytext=(4, -10) if alone else (-5, -2.5),
                    textcoords="offset points",
                    horizontalalignment="left" if alone else "right",
                    fontsize=7,
                )
    axes.set(xscale="log", yscale="log", xlabel="10^12 multiply-adds a puzzle", ylabel="not solved, %")
    for axis in (axes.xaxis, axes.yaxis):
        plain_numbers(axis)
    lines = [line for line in axes.get_lines() if line.get_color() != GREY]
    axes.legend(handles=[line for line in lines if not str(line.get_label()).startswith("_")])
    return figure


def main() -> None:
    """Measure, then write table, page and figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", nargs="?", help="none: only write page and figure anew")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--split", default="test")
    parser.add_argument("--puzzles", type=int, help="a seeded sample of so many; all unless given")
    parser.add_argument("--raced", type=int, help="of these, how many race, if not all")
    parser.add_argument("--words", help="what to call the weights, their name unless given")
    parser.add_argument("--minutes", type=float, help="core-minutes of training, of every rung")
    parser.add_argument("--by", default="", help="who measured")
    parser.add_argument("--out", type=Path, default=Path("runs/record"))
    parser.add_argument("--csv", type=Path, default=Path("docs/figures/records.csv"))
    parser.add_argument("--page", type=Path, default=Path("docs/benchmarks.md"))
    options = parser.parse_args()
    records = read(options.csv)
    if options.model:
        model = load(options.model)
        puzzles = load_split(options.data, options.split)
        if options.puzzles:
            puzzles = sample(puzzles, min(options.puzzles, len(puzzles)), seed=0)
        raced = puzzles.take(range(min(options.raced or len(puzzles), len(puzzles))))
        facts = {
            "weights": options.words or Path(options.model).name,
            "minutes": options.minutes,
            "date": time.strftime("%Y-%m-%d"),
            "commit": subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], text=True).strip(),
            "by": options.by,
        }
        out = options.out / model_digest(model)
        found = [replace(record, **facts) for record in measured(model, puzzles, raced, out)]
        new = {(r.digest, r.puzzles, r.depth, r.starts) for r in found}
        records = [r for r in records if (r.digest, r.puzzles, r.depth, r.starts) not in new] + found
        write(records, options.csv)
    page = options.page.read_text(encoding="utf-8")
    for marks, lines in ((MARKS, markdown(records)), (SOURCE_MARKS, sources_markdown(records))):
        before, _, rest = page.partition(marks[0])
        _, _, after = rest.partition(marks[1])
        page = f"{before}{marks[0]}\n{lines}\n{marks[1]}{after}"
    options.page.write_text(page, encoding="utf-8")
    save_figure(draw(records), options.csv.with_suffix(".svg"))
    print(markdown(records))


if __name__ == "__main__":
    main()
