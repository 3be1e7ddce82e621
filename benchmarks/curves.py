"""What more depth and more starts are worth to a shipped model, and what halting and racing save of it.

    python benchmarks/curves.py sudoku-9x9 --data minimal=data/minimal --data hardest=data/hard --out curves

Writes OUT.csv and OUT.svg. Depth: one start, no halting, every power of two up to 1,024. Breadth: every power
of two up to 128 at D=64, expected over subsets of the starts; `residual` chooses blindly by the least
residual, `any` is the oracle. Savings: the same starts ended by `head+stable:1`, or raced, with what they
spent. A set's samples are `--puzzles` for depth and `--broad` for breadth, which costs 128 starts each.
"""

import argparse
import csv
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from matplotlib.figure import Figure

from eqr import evaluate, load_split
from eqr.data import PuzzleSet
from eqr.data.splits import sample
from eqr.figures.style import CYCLE, new_figure, percent_axis, plain_numbers, save_figure, styled
from eqr.result import Result, select
from eqr.results.metrics import powers_of_two

HALTING = "head+stable:1"
ABREAST = 8
"""Starts that race at once."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One number of a curve."""

    puzzles: str
    count: int
    curve: str
    depth: int
    breadth: int
    exact: float
    low: float
    high: float
    nfe: float

    @classmethod
    def of(
        cls, puzzles: str, count: int, curve: str, exact: Result, *, depth: int, breadth: int, nfe: float
    ) -> "Point":
        """Take an accuracy apart."""
        return cls(
            puzzles=puzzles,
            count=count,
            curve=curve,
            depth=depth,
            breadth=breadth,
            exact=exact.value,
            low=exact.low,
            high=exact.high,
            nfe=nfe,
        )


def points(model: str, name: str, puzzles: PuzzleSet, *, narrow: int, most: int) -> Iterator[Point]:
    """Measure a set; the first `narrow` puzzles of it get many starts."""
    few = puzzles.take(range(min(narrow, len(puzzles))))
    depths, breadths = powers_of_two(1024), powers_of_two(most)

    def point(
        curve: str, exact: Result, depth: int, breadth: int, nfe: float, of: PuzzleSet = puzzles
    ) -> Point:
        return Point.of(name, len(of), curve, exact, depth=depth, breadth=breadth, nfe=nfe)

    plain = evaluate(model, puzzles, depth=depths, select=["residual"])
    for exact in select(plain.rows, metric="exact", rule="residual"):
        yield point("depth", exact, exact.depth, 1, exact.depth)
    halted = evaluate(model, puzzles, depth=1024, halt=HALTING, select=["residual"])
    yield point("depth, halting", halted.one("exact", rule="residual"), 1024, 1, halted.one("nfe").value)
    wide = evaluate(model, few, depth=64, breadth=[most], select=["residual"])
    for breadth in breadths:
        for curve, rule in (("residual", "residual"), ("any", "any correct (oracle)")):
            exact = wide.one("expected exact", rule=rule, breadth=breadth)
            yield point(curve, exact, 64, breadth, 64 * breadth, few)
    raced = evaluate(
        model,
        few,
        depth=64,
        breadth=breadths,
        halt=HALTING,
        race=True,
        abreast=ABREAST,
        select=["first-to-halt"],
    )
    for exact in select(raced.rows, metric="exact", rule="first-to-halt"):
        nfe = raced.one("nfe", breadth=exact.breadth).value
        yield point("race", exact, 64, exact.breadth, nfe, few)


@styled
def drawn(found: list[Point]) -> Figure:
    """Accuracy against depth, against starts, and against what was spent."""
    figure = new_figure(height=2.9)
    left, middle, right = figure.subplots(1, 3, sharey=True)
    lines = (
        (left, "depth", "depth", "-o"),
        (middle, "residual", "breadth", "-o"),
        (middle, "any", "breadth", ":"),
        (right, "depth", "nfe", "-o"),
        (right, "residual", "nfe", "-s"),
        (right, "race", "nfe", "--^"),
        (right, "depth, halting", "nfe", "*"),
    )
    for color, name in zip(CYCLE, dict.fromkeys(point.puzzles for point in found), strict=False):
        for axes, curve, along, style in lines:
            chosen = [point for point in found if point.puzzles == name and point.curve == curve]
            places = [getattr(point, along) for point in chosen]
            label = name if curve == "depth" else None
            axes.plot(places, [point.exact for point in chosen], style, color=color, label=label)
            if axes is not right and style == "-o":
                low, high = [point.low for point in chosen], [point.high for point in chosen]
                axes.fill_between(places, low, high, color=color, alpha=0.15, linewidth=0)
    for axes, words in (
        (left, "depth D, one start"),
        (middle, "starts at D=64, least residual\n(dotted: any right)"),
        (right, "segments spent (squares: starts,\ntriangles: race, star: halting)"),
    ):
        axes.set_xscale("log")
        plain_numbers(axes.xaxis)
        axes.set_xlabel(words)
        percent_axis(axes)
    left.set_ylabel("exact accuracy")
    handles, names = left.get_legend_handles_labels()
    left.legend(handles, names, loc="center right")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--data", action="append", required=True, metavar="NAME=DIR[:SPLIT]")
    parser.add_argument("--puzzles", type=int, default=64)
    parser.add_argument("--broad", type=int, default=16)
    parser.add_argument("--breadth", type=int, default=128)
    parser.add_argument("--out", type=Path, default=Path("curves"))
    given = parser.parse_args()
    found: list[Point] = []
    for one in given.data:
        name, _, place = one.partition("=")
        folder, _, split = place.partition(":")
        whole = load_split(folder, split or "test")
        some = sample(whole, min(given.puzzles, len(whole)), seed=0)
        for point in points(given.model, name, some, narrow=given.broad, most=given.breadth):
            found.append(point)
            print(
                f"{point.puzzles:10s} {point.curve:15s} D={point.depth:<5d} B={point.breadth:<4d} "
                f"{point.exact:6.1%} ({point.low:.1%} to {point.high:.1%})  NFE {point.nfe:,.0f}",
                flush=True,
            )
    with given.out.with_suffix(".csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(asdict(found[0])))
        writer.writeheader()
        writer.writerows(asdict(point) for point in found)
    save_figure(drawn(found), given.out.with_suffix(".svg"))


if __name__ == "__main__":
    main()
