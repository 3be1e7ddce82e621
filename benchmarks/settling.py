"""How many segments a puzzle takes to settle, why some take many, and whether what settles is right.

    python benchmarks/settling.py sudoku-9x9-hard --data data/extreme --puzzles 300 --out runs/settling

Every condition is a table of candidates in OUT, so an interrupted call goes on where it stopped. From the
tables come OUT/trajectories.csv (one row per start), settling.csv (every number that is printed) and three
figures. Conditions: the model as it is, from several starts; other noise, damping and lengths of a
segment, from one start; puzzles without an answer (a clue changed) and with several (clues taken away).
docs/settling.md says what they show.
"""

import argparse
import csv
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import betaln
from scipy.stats import binom, spearmanr

from eqr.data import PuzzleSet, load_split
from eqr.data.splits import sample
from eqr.figures.style import CYCLE, GREY, new_figure, plain_numbers, save_figure, styled
from eqr.model.reasoner import Reasoner
from eqr.result import Estimate
from eqr.results.evaluate import fill
from eqr.results.metrics import average, share
from eqr.results.table import CandidateTable, Manifest
from eqr.solve import Budget, load
from eqr.solve.candidates import Status
from eqr.tasks import task_named

HALTING = "head+stable:1"
OCTAVES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
BASE = "as it is"
SEEN = 64
"""Segments that the law is fitted to; what comes later it foretells."""
SAME = "of those not settled, settle in as many again"
OTHER = "another start of the puzzle settles"
FORETOLD, RIGHT = "not settled, foretold", "right of those that halted"
EASY = 3.0
"""Sources of which the median puzzle settles sooner say nothing about time."""


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One way to run the puzzles; None leaves the model's own."""

    most: int | None = 200
    """The first of the puzzles, if not all."""
    starts: int = 1
    depth: int = 64
    noise: float | None = None
    damping: float | None = None
    cycles: int | None = None
    """Cycles of a segment; depths are scaled so that the applications are as many."""
    puzzles: str = "as they are"


CONDITIONS: Mapping[str, Condition] = {
    BASE: Condition(most=None, starts=4, depth=1024),
    "noise 0": Condition(noise=0.0),
    "noise 0.03": Condition(noise=0.03),
    "noise 0.1": Condition(noise=0.1),
    "noise 0.3": Condition(noise=0.3),
    "damping 0": Condition(damping=0.0),
    "damping 0.2": Condition(damping=0.2),
    "damping 0.4": Condition(damping=0.4),
    "quarter segments": Condition(cycles=6, depth=256),
    "half segments": Condition(cycles=12, depth=128),
    "double segments": Condition(cycles=48, depth=32),
    "no answer": Condition(puzzles="no answer", depth=32),
    "several answers": Condition(puzzles="several answers"),
}


@dataclass(frozen=True, kw_only=True)
class Settled:
    """Where the starts of a condition ended; arrays are (puzzles, starts)."""

    condition: Condition
    puzzles: PuzzleSet
    segments: NDArray[np.float64]
    """Run until the start halted or ran out, in segments of the model's own length."""
    halted: NDArray[np.bool_]
    right: NDArray[np.bool_]
    """The answer obeys the rules and keeps the givens: with one answer, it is that."""
    score: NDArray[np.float32]
    residual: NDArray[np.float32]
    unit: float = 1.0
    """Segments of the model's own length in one of this condition."""
    on_the_way: Mapping[int, tuple[NDArray[np.float32], NDArray[np.bool_]]] = field(default_factory=dict)
    """Score and rightness of those that are still on their way, at noted depths."""


class Found(NamedTuple):
    """One number about the puzzles of a source."""

    puzzles: str
    metric: str
    at: float | None
    """Segments, where the number is about a depth."""
    estimate: Estimate


@dataclass(frozen=True, kw_only=True)
class Number:
    """One line of the summary."""

    table: str
    condition: str
    puzzles: str
    n: int
    metric: str
    at: float | None
    value: float
    low: float
    high: float


def plain(value: float, n: int) -> Estimate:
    """Return a number that has no interval."""
    return Estimate(float(value), float("nan"), float("nan"), n)


def changed(puzzles: PuzzleSet, kind: str, seed: int = 0) -> PuzzleSet:
    """Return the puzzles as they are, without an answer or with several; the exact search checks which."""
    if kind == "as they are":
        return puzzles
    task, rng = task_named(puzzles.task), np.random.default_rng(seed)
    inputs, kept = np.array(puzzles.inputs), []
    symbols = np.unique(puzzles.labels)
    blank = int(np.setdiff1d(inputs, symbols)[0])
    several = kind == "several answers"
    others = [blank] if several else symbols
    for index, grid in enumerate(inputs):
        given = np.flatnonzero(grid != blank)
        for cell, token in rng.permutation([(cell, token) for cell in given for token in others]):
            before, grid[cell] = grid[cell], token
            answers = int(task.count_answers(grid[None])[0]) if task.check_puzzle(grid) else 1
            if answers > 1 if several else answers == 0:
                kept.append(index)
                break
            grid[cell] = before
    return replace(puzzles.take(kept), inputs=inputs[kept])


def run(model: Reasoner, puzzles: PuzzleSet, condition: Condition, out: Path) -> Settled:
    """Run what is missing of a condition's table and read it."""
    unit = 1.0
    if condition.cycles is not None:
        recurrence = model.config.recurrence
        unit = condition.cycles / recurrence.cycles
        longer = Reasoner(model.config.replace(recurrence=recurrence.replace(cycles=condition.cycles)))
        longer.load_state_dict(model.state_dict())
        model = longer.requires_grad_(False)
    puzzles = changed(puzzles.take(range(len(puzzles))[: condition.most]), condition.puzzles)
    budget = Budget(
        depth=condition.depth,
        breadth=condition.starts,
        halting=HALTING,
        noise=condition.noise,
        damping=condition.damping,
    )
    noted = tuple(depth for depth in OCTAVES[2:] if depth <= condition.depth)
    manifest = Manifest.of(model, puzzles, budget, depths=noted, window=2, part=64)
    table = CandidateTable.open(out, manifest)
    fill(table, model, puzzles)
    found = [block.candidates for block in table.blocks()]
    task = task_named(puzzles.task)

    def right(depth: int) -> NDArray[np.bool_]:
        tokens = np.concatenate([part.tokens[:, :, depth] for part in found])
        grids = np.repeat(puzzles.inputs[:, None], tokens.shape[1], axis=1)
        return task.check_many(
            grids.reshape(-1, grids.shape[-1]), tokens.reshape(-1, tokens.shape[-1])
        ).reshape(tokens.shape[:2])

    last = [part[:, :, -1] for part in found]
    way = {}
    for column, depth in enumerate(noted[:-1]):
        here = [part[:, :, column] for part in found]
        going = np.concatenate([(part.depth == depth) & (part.status != Status.HALTED) for part in here])
        way[depth] = np.concatenate([part.halt for part in here])[going], right(column)[going]
    return Settled(
        condition=condition,
        puzzles=puzzles,
        segments=np.concatenate([part.depth for part in last]) * unit,
        halted=np.concatenate([part.status == Status.HALTED for part in last]),
        right=right(-1),
        score=np.concatenate([part.halt for part in last]),
        residual=np.concatenate([part.residuals[..., -1] for part in last]),
        unit=unit,
        on_the_way=way,
    )


def named(settled: Settled) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yield all puzzles, then those of each source."""
    yield "all", np.ones(len(settled.puzzles), np.bool_)
    for index, name in enumerate(settled.puzzles.source_names):
        rows = settled.puzzles.sources == index
        if rows.sum() >= 10:
            yield name.split("_", 1)[1] if name.startswith("puzzles") else name, rows


def slow_sources(settled: Settled) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yield all puzzles and the sources whose puzzles take time."""
    for words, rows in named(settled):
        if words == "all" or np.median(settled.segments[rows]) >= EASY:
            yield words, rows


def by_budget(settled: Settled) -> Iterator[Found]:
    """Yield accuracy and cost by the greatest depth, and how many segments the starts take."""
    for words, rows in named(settled):
        times, done = settled.segments[rows], (settled.halted & settled.right)[rows]
        for depth in OCTAVES:
            if depth > settled.condition.depth * settled.unit:
                break
            yield Found(words, "settled and right", depth, share((done & (times <= depth)).mean(axis=1)))
            yield Found(words, "mean segments", depth, average(np.minimum(times, depth).mean(axis=1)))
        for quantile in (0.5, 0.9, 0.99):
            yield Found(words, f"quantile {quantile}", None, plain(np.quantile(times, quantile), len(times)))


def ratio(parts: NDArray[Any], wholes: NDArray[Any], seed: int = 0) -> Estimate:
    """Estimate a ratio of sums over puzzles, with a bootstrap interval over puzzles."""
    draws = np.random.default_rng(seed).integers(len(parts), size=(1000, len(parts)))
    drawn = parts[draws].sum(axis=1) / np.maximum(wholes[draws].sum(axis=1), 1e-9)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return Estimate(float(parts.sum() / wholes.sum()), float(low), float(high), len(parts))


def hazards(settled: Settled) -> Iterator[Found]:
    """Yield the share of the starts on their way that settle in a segment, by octaves of segments."""
    for words, rows in slow_sources(settled):
        times, halted = settled.segments[rows], settled.halted[rows]
        for first, last in pairwise(OCTAVES):
            exposed = (np.minimum(times, last) - first).clip(min=0).sum(axis=1)
            events = (halted & (times > first) & (times <= last)).sum(axis=1)
            if events.sum() >= 5:
                yield Found(
                    words, "settle in a segment", float(np.sqrt(first * last)), ratio(events, exposed)
                )


def starts(settled: Settled) -> Iterator[Found]:
    """Yield what tells a mixture over puzzles from chance within one, and whether wandering gets anywhere.

    Were all puzzles alike, starts of one would agree no more than starts of two. Had every segment of a
    puzzle the same chance, a start that has wandered for D segments would settle within D more as often as
    another start of the same puzzle settles in its first D.
    """
    for words, rows in slow_sources(settled):
        times, halted = settled.segments[rows], settled.halted[rows]
        count, logs = times.shape[1], np.log2(times)
        within = logs.var(axis=1, ddof=1).mean()
        between = max(logs.mean(axis=1).var(ddof=1) - within / count, 0.0)
        yield Found(words, "variance between puzzles", None, plain(between / (between + within), len(times)))
        for depth in OCTAVES[3:-1]:
            slow = times > depth
            several = slow.sum(axis=1)
            if several.sum() < 20:
                break
            soon = (slow & halted & (times <= 2 * depth)).sum(axis=1)
            other = several * (count - several) / (count - 1)
            yield Found(words, "not settled", depth, ratio(several, np.full(len(times), count)))
            yield Found(words, SAME, depth, ratio(soon, several))
            yield Found(words, OTHER, depth, ratio(other, several))
            for many in range(count + 1):
                yield Found(words, f"{many} of {count} starts not settled", depth, share(several == many))


def log_unsettled(a: float, b: float, past: Any) -> Any:
    """Return the log of the share that is not settled, of chances that follow a beta distribution."""
    return betaln(a, b + past) - betaln(a, b)


def fitted(soon: NDArray[Any], over: int, limit: float) -> tuple[float, float]:
    """Return the likeliest a and b for times `soon` and for `over` more than are beyond the limit."""

    def misfit(logs: NDArray[np.float64]) -> float:
        a, b = np.exp(logs)
        events = betaln(a + 1, b + soon - 1) - betaln(a, b)
        return -float(events.sum() + over * log_unsettled(a, b, limit))

    a, b = np.exp(minimize(misfit, np.zeros(2), method="Nelder-Mead").x)
    return float(a), float(b)


def law(settled: Settled) -> Iterator[Found]:
    """Yield a law of the time until a start settles, fitted to the first segments, and what it foretells.

    A chance a segment that differs from puzzle to puzzle by a beta distribution leaves a share
    B(a, b + t) / B(a, b) unsettled t segments after the quickest.
    """
    for words, rows in slow_sources(settled):
        times, n = settled.segments[rows].ravel(), int(rows.sum())
        least = float(np.quantile(times, 0.01))
        past, limit = np.maximum(times - least + 1, 1), SEEN - least + 1
        a, b = fitted(past[past <= limit], int((past > limit).sum()), limit)
        yield Found(words, "exponent", SEEN, plain(a, n))
        yield Found(words, "scale", SEEN, plain(b, n))
        for depth in OCTAVES:
            if least < depth < settled.condition.depth:
                foretold = np.exp(log_unsettled(a, b, depth - least + 1))
                yield Found(words, FORETOLD, depth, plain(foretold, n))
                yield Found(words, "not settled", depth, share((settled.segments[rows] > depth).mean(axis=1)))
        depths = np.arange(int(least) + 1, 1 << 20)
        left = np.exp(log_unsettled(a, b, depths - least + 1))
        for wanted in (0.95, 0.99, 0.999):
            if left[-1] <= 1 - wanted:
                enough = float(depths[np.argmax(left <= 1 - wanted)])
                yield Found(words, "depth foretold for a share", wanted, plain(enough, n))


def calibration(settled: Settled) -> Iterator[Found]:
    """Yield how many of those that halted are right, and how often a state on its way with some score is."""
    halted = settled.halted
    yield Found("all", "halted", None, share(halted.mean(axis=1)))
    if halted.any():
        yield Found("all", RIGHT, None, share(settled.right[halted]))
        yield Found("all", "residual of those that halted", None, average(settled.residual[halted]))
    if not halted.all():
        yield Found("all", "residual of the others", None, average(settled.residual[~halted]))
    for depth, (scores, right) in settled.on_the_way.items():
        for low, high in pairwise((-np.inf, -4, -2, 0, 2, np.inf)):
            rows = (scores > low) & (scores <= high)
            if rows.sum() >= 10:
                yield Found(f"score {low} to {high}", "right on the way", depth, share(right[rows]))


def singles(candidates: NDArray[np.bool_], members: NDArray[np.intp]) -> None:
    """Fill in what is forced, in place (grids, cells, symbols), until nothing is."""
    changing = True
    while changing:
        before = candidates.sum()
        for cells in members:
            sure = candidates[:, cells] & (candidates[:, cells].sum(axis=2) == 1)[..., None]
            candidates[:, cells] &= ~sure.any(axis=1, keepdims=True) | sure
            alone = candidates[:, cells] & (candidates[:, cells].sum(axis=1) == 1)[:, None]
            candidates[:, cells] = np.where(alone.any(axis=2, keepdims=True), alone, candidates[:, cells])
        changing = bool(candidates.sum() != before)


def assumed(grid: NDArray[np.bool_], members: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Cross out every candidate (cells, symbols) that singles refute, until no single assumption is."""
    while True:
        cells, symbols = np.nonzero(grid & (grid.sum(axis=1) > 1)[:, None])
        tries = np.repeat(grid[None], len(cells), axis=0)
        tries[np.arange(len(cells)), cells] = np.arange(grid.shape[1]) == symbols[:, None]
        singles(tries, members)
        wrong = ~tries.any(axis=2).all(axis=1) | ~tries[:, members].any(axis=2).all(axis=(1, 2))
        if not wrong.any():
            return grid
        grid = grid.copy()
        grid[cells[wrong], symbols[wrong]] = False
        singles(grid[None], members)


def traits(puzzles: PuzzleSet) -> dict[str, NDArray[np.float64]]:
    """Return numbers about each puzzle that might say why it is slow.

    `keys` counts the cells of which the answer alone lets singles solve the rest.
    """
    members = np.concatenate(list(task_named(puzzles.task).groups().values()))
    symbols = np.unique(puzzles.labels)
    rows: list[dict[str, float]] = []
    for grid, label, rating in zip(puzzles.inputs, puzzles.labels, puzzles.ratings, strict=True):
        given = np.isin(grid, symbols)
        start = ((grid[:, None] == symbols) | ~given[:, None])[None].copy()
        singles(start, members)
        empty = np.flatnonzero(start[0].sum(axis=1) > 1)
        told = np.repeat(start, len(empty), axis=0)
        told[np.arange(len(empty)), empty] = label[empty, None] == symbols
        singles(told, members)
        rows.append(
            {
                "clues": given.sum(),
                "candidates left by singles": start.sum() - len(grid),
                "keys": (told.sum(axis=(1, 2)) == len(grid)).sum() if len(empty) else len(grid),
                "candidates left by single assumptions": assumed(start[0], members).sum() - len(grid),
                "rating": rating,
            }
        )
    return {name: np.array([row[name] for row in rows], np.float64) for name in rows[0]}


def why(settled: Settled) -> Iterator[Found]:
    """Yield traits of the puzzles by source, and how well each foretells the mean log of the time."""
    slow = np.log2(settled.segments).mean(axis=1)
    for trait, values in traits(settled.puzzles).items():
        for words, rows in named(settled):
            yield Found(words, f"mean {trait}", None, average(values[rows]))
        for words, rows in slow_sources(settled):
            if len(np.unique(values[rows])) > 1:
                rank = spearmanr(values[rows], slow[rows]).statistic
                yield Found(words, f"rank correlation of {trait}", None, plain(rank, int(rows.sum())))


ALWAYS = (by_budget, calibration)
ONCE = (hazards, starts, law, why)


def _points(axes: Axes, numbers: list[Number], colour: str, label: str | None = None) -> None:
    """Draw numbers over depth with their intervals."""
    values = np.array([n.value for n in numbers])
    bars = np.abs(np.array([[n.low, n.high] for n in numbers]).T - values) if numbers else None
    axes.errorbar(
        [n.at for n in numbers], values, yerr=bars, color=colour, marker="o", capsize=2, label=label
    )


def _of(numbers: list[Number], metric: str, puzzles: str = "all", condition: str = BASE) -> list[Number]:
    return [n for n in numbers if (n.metric, n.puzzles, n.condition) == (metric, puzzles, condition)]


@styled
def draw_law(settled: Settled, numbers: list[Number]) -> Figure:
    """Draw how many starts have not settled after so many segments, and how many settle in one."""
    figure = new_figure(height=2.9)
    left, right = figure.subplots(1, 2)
    for (words, rows), colour in zip(slow_sources(settled), CYCLE, strict=False):
        times = np.sort(settled.segments[rows][settled.halted[rows]])
        rest = 1 - np.arange(1, len(times) + 1) / settled.halted[rows].size
        left.step(times, rest, where="post", color=colour, label=words)
        fit = _of(numbers, FORETOLD, words)
        left.plot([n.at for n in fit], [n.value for n in fit], color=colour, linestyle=":", linewidth=1.0)
        _points(right, _of(numbers, "settle in a segment", words), colour)
    left.axvline(SEEN, color=GREY, linewidth=0.7)
    left.set(xscale="log", yscale="log", xlabel="segments", ylabel="share of starts not settled")
    left.set(ylim=(1e-3, 1.2))
    right.set(xscale="log", yscale="log", xlabel="segments", ylabel="share that settles in a segment")
    for axes in (left, right):
        plain_numbers(axes.xaxis)
    left.legend()
    return figure


@styled
def draw_starts(settled: Settled, numbers: list[Number], depth: int = 16) -> Figure:
    """Draw how many of a puzzle's starts are slow, and what becomes of those that wander."""
    figure = new_figure(height=2.7)
    left, right = figure.subplots(1, 2)
    slow, count = settled.segments > depth, settled.segments.shape[1]
    ticks = np.arange(count + 1)
    measured = np.bincount(slow.sum(axis=1), minlength=count + 1) / len(slow)
    left.bar(ticks - 0.2, measured, 0.4, label="measured", color=CYCLE[0])
    alike = binom.pmf(ticks, count, slow.mean())
    left.bar(ticks + 0.2, alike, 0.4, label="if all puzzles were alike", color=GREY)
    left.set(xlabel=f"of {count} starts, not settled after {depth} segments", ylabel="share of puzzles")
    left.set(yscale="log", ylim=(1e-3, 1.2))
    left.legend()
    _points(right, _of(numbers, SAME), CYCLE[0], "the same start, in as many again")
    _points(right, _of(numbers, OTHER), CYCLE[1], "another start of the puzzle")
    right.set(xscale="log", xlabel="segments wandered", ylabel="share that settles", ylim=(0, 1))
    plain_numbers(right.xaxis)
    right.legend()
    return figure


@styled
def draw_conditions(numbers: list[Number]) -> Figure:
    """Draw accuracy and cost at 64 segments by condition, and how many of those that halt are right."""
    figure = new_figure(height=3.2)
    panels = figure.subplots(1, 3, sharey=True)
    names = list(dict.fromkeys(n.condition for n in numbers))
    metrics = (("settled and right", 64), ("mean segments", 64), (RIGHT, None))
    for panel, (metric, at) in zip(panels, metrics, strict=True):
        for row, name in enumerate(names):
            for n in _of(numbers, metric, condition=name):
                if n.at == at:
                    bars = [[n.value - n.low], [n.high - n.value]]
                    panel.errorbar([n.value], [row], xerr=bars, color=CYCLE[0], marker="o", capsize=2)
        panel.set(xlabel=metric if at is None else f"{metric}, at most {at}")
    panels[0].set_yticks(range(len(names)), names)
    panels[0].invert_yaxis()
    return figure


def write_trajectories(found: Mapping[str, Settled], path: Path) -> None:
    """Write one row per start."""
    columns = "condition puzzle source rating start segments halted right score residual"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns.split())
        for name, settled in found.items():
            puzzles = settled.puzzles
            for place in np.ndindex(settled.segments.shape):
                source = puzzles.source_names[puzzles.sources[place[0]]]
                about = (name, place[0], source, puzzles.ratings[place[0]], place[1], settled.segments[place])
                ended = (int(settled.halted[place]), int(settled.right[place]))
                writer.writerow(
                    (*about, *ended, f"{settled.score[place]:.3g}", f"{settled.residual[place]:.3g}")
                )


def write(numbers: list[Number], path: Path) -> None:
    """Write the summary and print it."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(asdict(numbers[0])))
        writer.writeheader()
        for n in numbers:
            row = {
                key: f"{value:.4g}" if isinstance(value, float) else value for key, value in asdict(n).items()
            }
            writer.writerow(row)
            spread = "" if np.isnan(n.low) else f" [{row['low']}, {row['high']}]"
            at = "" if n.at is None else f" at {n.at:.4g}"
            about = f"{n.table:11} {n.condition:16} {n.puzzles:24} n={n.n:<5}"
            print(f"{about} {n.metric}{at}: {row['value']}{spread}")


def main() -> None:
    """Run, then write numbers and figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--split", default="test")
    parser.add_argument("--puzzles", type=int, default=300)
    parser.add_argument("--only", action="append", choices=CONDITIONS, help="conditions, all unless given")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--out", type=Path, required=True, help="where tables of candidates are kept")
    parser.add_argument("--to", type=Path, help="where numbers and figures go, if not there too")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    model = load(options.model)
    puzzles = load_split(options.data, options.split)
    puzzles = sample(puzzles, min(options.puzzles, len(puzzles)), seed=0)
    found: dict[str, Settled] = {}
    numbers: list[Number] = []
    for name in options.only or CONDITIONS:
        found[name] = run(model, puzzles, CONDITIONS[name], options.out / name.replace(" ", "-"))
        for table in (*ALWAYS, *(ONCE if name == BASE else ())):
            place = {"table": table.__name__, "condition": name}
            for row in table(found[name]):
                about = {"puzzles": row.puzzles, "metric": row.metric, "at": row.at}
                numbers.append(Number(**place, **about, **row.estimate.to_json()))
    to = options.to or options.out
    to.mkdir(parents=True, exist_ok=True)
    write(numbers, to / "settling.csv")
    write_trajectories(found, options.out / "trajectories.csv")
    if BASE in found:
        save_figure(draw_law(found[BASE], numbers), to / "settling_law.svg")
        save_figure(draw_starts(found[BASE], numbers), to / "settling_starts.svg")
    save_figure(draw_conditions(numbers), to / "settling_conditions.svg")


if __name__ == "__main__":
    main()
