"""Figures of accuracy, residual and cost, each a function from plain rows to a matplotlib `Figure`."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from eqr.errors import UserError
from eqr.figures.style import (
    BLUE,
    CYCLE,
    GREEN,
    GREY,
    NARROW,
    ORANGE,
    ORDERED,
    SEQUENTIAL,
    SKY,
    WIDE,
    error_axis,
    new_figure,
    percent_axis,
    plain_numbers,
    power_axis,
    shades,
    styled,
)
from eqr.result import Result, pivot, select

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SMALLEST = 1e-3
"""Logarithmic axes and colours do not tell smaller residuals apart."""
ROUNDING = 1e-6
"""Smaller shares of errors are what sums of right starts round to, not errors."""


@styled
def training_curves(records: Sequence[Mapping[str, Any]]) -> "Figure":
    """Draw loss, exact accuracy by depth and mean depth at halting over the steps of `metrics.jsonl`."""
    steps = [record for record in records if record["kind"] == "train"]
    checks = [record for record in records if record["kind"] == "validation"]
    if not steps:
        raise UserError("no training records: metrics.jsonl has no line of kind 'train'")
    lacking = [record for record in steps if not {"answer_loss", "halt_loss"} <= record.keys()]
    if lacking:
        raise UserError(f"the training record of step {lacking[0]['step']} lacks answer_loss or halt_loss")
    figure = new_figure(WIDE, 2.3)
    loss, accuracy, depth = figure.subplots(1, 3)
    numbers = [record["step"] for record in steps]
    for name, label, color in (("answer_loss", "answer", BLUE), ("halt_loss", "halt", ORANGE)):
        loss.plot(numbers, [record[name] for record in steps], color=color, label=label, lw=1.2)
    loss.set_yscale("log")
    loss.set(xlabel="optimizer step", ylabel="loss", title="Training loss")
    plain_numbers(loss.yaxis)
    loss.legend(loc="best")
    scores = {key for record in checks for key in record if key.startswith("exact@")}
    depths = sorted(int(key[6:]) for key in scores if key[6:].isdecimal())
    for value, color in zip(depths, shades(len(depths)), strict=True):
        seen = [(record["step"], record[f"exact@{value}"]) for record in checks if f"exact@{value}" in record]
        accuracy.plot(*zip(*seen, strict=True), color=color, label=f"D={value}")
    accuracy.set(xlabel="optimizer step", ylabel="exact accuracy", title="Validation")
    percent_axis(accuracy)
    if depths:
        accuracy.legend(loc="best", ncols=2 if len(depths) > 3 else 1, handlelength=1.2)
    halted = [record for record in steps if "halt_depth" in record]
    depth.plot([r["step"] for r in halted], [r["halt_depth"] for r in halted], color=GREEN, lw=1.2)
    depth.set(xlabel="optimizer step", ylabel="segments", title="Mean depth at halting")
    depth.set_ylim(bottom=0)
    for axes in (loss, accuracy, depth):
        axes.xaxis.set_major_locator(_few_ticks(4))
    depth.yaxis.set_major_locator(_few_ticks(6))
    return figure


@styled
def accuracy_against_residual(rows: Sequence[Result]) -> "Figure":
    """Draw the share of puzzles wrong against residual, both logarithmic, coloured by depth.

    A marker for each of up to three breadths. On a plain axis of accuracy the deeper half would be one blob.
    """
    from matplotlib.colors import LogNorm

    figure = new_figure(NARROW * 1.35, 3.0)
    axes = figure.subplots()
    at = _chosen(rows)
    depths, breadths = (sorted(set(values)) for values in zip(*at, strict=True))
    shown = breadths if len(breadths) <= 2 else [breadths[0], breadths[len(breadths) // 2], breadths[-1]]
    norm = LogNorm(min(depths), max(max(depths), min(depths) + 1))
    points, least = None, _least_error([found["exact"] for found in at.values()])
    for breadth, marker in zip(shown, "osD", strict=False):
        part = [at[depth, breadth] for depth in depths]
        residuals = [max(found["residual"].value, SMALLEST) for found in part]
        shares = _errors([found["exact"] for found in part], least)
        axes.plot(residuals, shares, color="#BBBBBB", lw=0.9, zorder=2)
        points = axes.scatter(
            residuals,
            shares,
            c=depths,
            norm=norm,
            cmap=SEQUENTIAL,
            marker=marker,
            s=38,
            edgecolors="white",
            linewidths=0.5,
            zorder=3,
        )
    axes.set_xscale("log")
    plain_numbers(axes.xaxis)
    axes.set(xlabel="residual of the chosen start (lower: more settled)", ylabel="puzzles wrong")
    error_axis(axes, least, perfect=any(1.0 - found["exact"].value <= ROUNDING for found in at.values()))
    axes.legend(handles=_markers(shown), loc="lower right")
    if points is not None:
        bar = figure.colorbar(points, ax=axes, label="depth D (segments)", pad=0.02)
        bar.set_ticks(depths, labels=[str(depth) for depth in depths])
        bar.minorticks_off()
    return figure


@styled
def depth_and_breadth(rows: Sequence[Result]) -> "Figure":
    """Draw two heat maps over depth and breadth: residual of the chosen start and share of puzzles wrong."""
    at = _chosen(rows)
    depths, breadths = (sorted(set(values)) for values in zip(*at, strict=True))
    residual = np.array([[at[d, b]["residual"].value for d in depths] for b in breadths])
    error = np.array([[1.0 - at[d, b]["exact"].value for d in depths] for b in breadths])
    figure = new_figure(WIDE, 0.34 * len(breadths) + 1.5)
    left, right = figure.subplots(1, 2)
    _heat_map(left, residual, depths, breadths, form=lambda value: f"{value:.{3 if value < 0.1 else 2}f}")
    left.set_title("Residual of the chosen start")
    _heat_map(right, error, depths, breadths, form=lambda share: f"{100 * share:.1f}")
    right.set_title("Puzzles wrong (%)")
    return figure


@styled
def accuracy_against_cost(
    rows: Sequence[Result], *, metric: str = "nfe", cost: str = "NFE: mean segments per puzzle, all starts"
) -> "Figure":
    """Draw the share of puzzles wrong against what a `metric` of cost says, a line per item and rule."""
    figure = new_figure(NARROW * 1.5, 3.1)
    axes = figure.subplots()
    at = pivot(rows, "item", "rule", "breadth", "depth")
    lines = list(dict.fromkeys(place[:3] for place in at))
    least = _least_error([found["exact"] for found in at.values()])
    for line, color, marker in zip(lines, CYCLE, "osD^vP*", strict=False):
        part = sorted(
            ((found[metric].value, found["exact"]) for place, found in at.items() if place[:3] == line),
            key=lambda pair: pair[0],
        )
        costs, shares = [value for value, _ in part], _errors([exact for _, exact in part], least)
        highs, lows = (
            [max(1.0 - end, least) for end in ends]
            for ends in zip(*(_interval(exact) for _, exact in part), strict=True)
        )
        axes.fill_between(costs, lows, highs, color=color, alpha=0.12, lw=0)
        item, rule, breadth = line
        several = f"{item}, {breadth} starts" if breadth > 1 else item
        axes.plot(
            costs, shares, color=color, marker=marker, markeredgecolor="white", mew=0.5,
            label=several if item else rule,
        )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(_plainly)
    axes.set(xlabel=cost, ylabel="puzzles wrong")
    error_axis(axes, least, perfect=any(1.0 - found["exact"].value <= ROUNDING for found in at.values()))
    figure.legend(loc="outside lower center", ncols=2)
    return figure


@styled
def accuracy_against_breadth(rows: Sequence[Result]) -> "Figure":
    """Draw the expected accuracy of selection rules as starts are added; a dashed line marks an oracle."""
    figure = new_figure(NARROW * 1.5, 2.7)
    axes = figure.subplots()
    rules = list(dict.fromkeys(row.rule for row in rows))
    for rule, color, marker in zip(rules, CYCLE, "osD^vP*", strict=False):
        part = sorted(select(rows, rule=rule), key=lambda row: row.breadth or 0)
        breadths = [float(row.breadth or 0) for row in part]
        oracle = "oracle" in rule
        if not oracle:
            _with_interval(axes, breadths, part, color)
        axes.plot(
            breadths,
            [row.value for row in part],
            color=GREY if oracle else color,
            ls="--" if oracle else "-",
            marker=None if oracle else marker,
            markeredgecolor="white",
            mew=0.5,
            label=rule,
        )
    power_axis(axes, sorted({row.breadth or 1 for row in rows}))
    axes.set(xlabel="breadth B (starts per puzzle)", ylabel="expected exact accuracy")
    low = min((_interval(row)[0] for row in rows), default=0.0)
    percent_axis(axes, low=max(0.0, np.floor(low * 20 - 0.5) / 20), high=1.0)
    figure.legend(loc="outside lower center", ncols=3)
    return figure


@styled
def accuracy_by_difficulty(rows: Sequence[Result], *, rating: str = "rating") -> "Figure":
    """Draw exact accuracy with its interval for ranges of the difficulty rating, and how many are in each."""
    figure = new_figure(NARROW * 1.5, 2.7)
    axes = figure.subplots()
    rows = select(rows, metric="exact")
    places = np.arange(len(rows))
    shares = np.array([row.value for row in rows])
    lows, highs = np.array([_interval(row) for row in rows]).T
    bars = np.stack((shares - lows, highs - shares))
    axes.bar(places, shares, color=SKY, width=0.72)
    axes.errorbar(places, shares, yerr=bars.clip(min=0), fmt="none", ecolor="#333333", lw=1, capsize=2.5)
    for place, row in zip(places, rows, strict=True):
        axes.text(float(place), 0.03, f"n={row.n}", ha="center", va="bottom", fontsize=6.5, color="#222222")
    _rating_ticks(axes, rows)
    axes.set(xlabel=rating, ylabel="exact accuracy")
    axes.grid(axis="x", visible=False)
    percent_axis(axes)
    axes.set_ylim(bottom=0)
    return figure


@styled
def depth_by_difficulty(rows: Sequence[Result], *, rating: str = "rating", most: int) -> "Figure":
    """Draw the depth at which a start halts (median, middle half) for ranges of the rating."""
    figure = new_figure(NARROW * 1.5, 2.7)
    axes = figure.subplots()
    rows = select(rows, metric="segments until halting")
    places = np.arange(len(rows))
    middle = np.array([row.value for row in rows])
    lows, highs = np.array([_interval(row) for row in rows]).T
    spread = np.stack((middle - lows, highs - middle))
    axes.bar(places, middle, color=SKY, width=0.72)  # a bar stands even where every start halts alike
    axes.errorbar(places, middle, yerr=spread, fmt="none", ecolor="#333333", lw=1.2, capsize=3)
    for place, row in zip(places, rows, strict=True):
        axes.annotate(
            f"{row.value:g}", (float(place), _interval(row)[1]), ha="center", va="bottom",
            fontsize=7, xytext=(0, 3), textcoords="offset points",
        )  # fmt: skip
    axes.axhline(most, color=GREY, ls=":", lw=1)
    axes.text(len(rows) - 0.55, most, f"greatest depth {most}", ha="right", va="bottom", fontsize=7)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(_plainly)
    axes.set_ylim(0.5, most * 1.6)
    axes.grid(axis="x", visible=False)
    axes.set_xlim(-0.5, len(rows) - 0.5)
    _rating_ticks(axes, rows)
    axes.set(xlabel=rating, ylabel="segments until halting")
    return figure


def _chosen(rows: Sequence[Result]) -> dict[tuple[int, int], dict[str, Result]]:
    """Return exact accuracy and residual of the chosen starts by depth and breadth."""
    residuals = select(rows, metric="residual")
    found = pivot(select(rows, rule=tuple({row.rule for row in residuals})), "depth", "breadth")
    return {(depth, breadth): metrics for (depth, breadth), metrics in found.items()}


def _errors(rows: Sequence[Result], least: float) -> list[float]:
    return [max(1.0 - row.value, least) for row in rows]


def _interval(row: Result) -> tuple[float, float]:
    low, high = row.low, row.high
    return row.value if low is None else low, row.value if high is None else high


def _least_error(rows: Sequence[Result]) -> float:
    """Return where no error at all is drawn on a logarithmic axis: well below the smallest error there is."""
    errors = [1.0 - row.value for row in rows if 1.0 - row.value > ROUNDING]
    return min(errors, default=0.01) / 3


def _few_ticks(count: int) -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(count, integer=True)


def _with_interval(axes: "Axes", places: Sequence[float], rows: Sequence[Result], color: str) -> None:
    lows, highs = zip(*map(_interval, rows), strict=True)
    axes.fill_between(places, lows, highs, color=color, alpha=0.15, lw=0)


def _heat_map(
    axes: "Axes", values: Any, depths: list[int], breadths: list[int], *, form: Callable[[float], str]
) -> None:
    from matplotlib.colors import LogNorm

    shown = np.maximum(values, SMALLEST)
    norm = LogNorm(shown.min(), max(shown.max(), 1.01 * shown.min()))
    axes.imshow(shown, aspect="auto", origin="lower", cmap=ORDERED, norm=norm)
    axes.set_xticks(range(len(depths)), [str(depth) for depth in depths])
    axes.set_yticks(range(len(breadths)), [str(breadth) for breadth in breadths])
    axes.set(xlabel="depth D", ylabel="breadth B")
    axes.grid(visible=False)
    for (row, column), value in np.ndenumerate(values):
        dark = bool(np.asarray(norm(max(value, SMALLEST))) < 0.55)
        axes.text(
            column, row, form(value), ha="center", va="center", fontsize=7, color="white" if dark else "black"
        )


def _plainly(value: float, _: float) -> str:
    return f"{value:g}"


def _markers(breadths: Sequence[int]) -> list[Any]:
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], ls="", marker=marker, color="#555555", label=f"breadth B={breadth}")
        for breadth, marker in zip(breadths, "osD", strict=False)
    ]


def _rating_ticks(axes: "Axes", rows: Sequence[Result]) -> None:
    names = [row.part.replace(" to ", "–") for row in rows]
    axes.set_xticks(range(len(rows)), names, rotation=30 if len(rows) > 6 else 0)
