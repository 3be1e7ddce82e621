"""Figures of accuracy, residual, cost, training and landscapes: functions from rows to matplotlib figures."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from eqr.diagnostics.landscape import Landscape
from eqr.errors import UserError
from eqr.figures.style import (
    BLACK,
    BLUE,
    CYCLE,
    GREEN,
    GREY,
    MARKERS,
    NARROW,
    ORANGE,
    ORDERED,
    PURPLE,
    RIGHT,
    SEQUENTIAL,
    SKY,
    VERMILLION,
    WIDE,
    WRONG,
    error_axis,
    new_figure,
    one_panel,
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
TRACES = 12
"""Single trajectories drawn behind the medians, of each kind."""
MARKED: dict[str, Any] = {"markeredgecolor": "white", "mew": 0.5}
DOTS: dict[str, Any] = {"edgecolors": "white", "linewidths": 0.5}
MODE_COLORS = (VERMILLION, ORANGE, SKY, BLUE, PURPLE)


@styled
def training_curves(records: Sequence[Mapping[str, Any]]) -> "Figure":
    """Draw loss, exact accuracy by depth and mean depth at halting over the steps of `metrics.jsonl`."""
    from matplotlib.ticker import MaxNLocator

    steps = [record for record in records if record["kind"] == "train"]
    checks = [record for record in records if record["kind"] == "validation"]
    if not steps:
        raise UserError("no training records: metrics.jsonl has no line of kind 'train'")
    lacking = [record for record in steps if not {"answer_loss", "halt_loss"} <= record.keys()]
    if lacking:
        raise UserError(f"the training record of step {lacking[0]['step']} lacks answer_loss or halt_loss")
    figure = new_figure(WIDE, 2.3)
    loss, accuracy, depth = figure.subplots(1, 3)
    for name, label, color in (("answer_loss", "answer", BLUE), ("halt_loss", "halt", ORANGE)):
        loss.plot(*_series(steps, name), color=color, label=label, lw=1.2)
    loss.set_yscale("log")
    loss.set(ylabel="loss", title="Training loss")
    plain_numbers(loss.yaxis)
    loss.legend(loc="best")
    scores = {key for record in checks for key in record if key.startswith("exact@")}
    depths = sorted(int(key[6:]) for key in scores if key[6:].isdecimal())
    for value, color in zip(depths, shades(len(depths)), strict=True):
        accuracy.plot(*_series(checks, f"exact@{value}"), color=color, label=f"D={value}")
    accuracy.set(ylabel="exact accuracy", title="Validation")
    percent_axis(accuracy)
    if depths:
        accuracy.legend(loc="best", ncols=2 if len(depths) > 3 else 1, handlelength=1.2)
    depth.plot(*_series(steps, "halt_depth"), color=GREEN, lw=1.2)
    depth.set(ylabel="segments", title="Mean depth at halting")
    depth.set_ylim(bottom=0)
    for axes in (loss, accuracy, depth):
        axes.set_xlabel("optimizer step")
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    depth.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    return figure


@styled
def accuracy_against_residual(rows: Sequence[Result]) -> "Figure":
    """Draw the share of puzzles wrong against residual, both logarithmic, coloured by depth.

    A marker for each of up to three breadths. On a plain axis of accuracy the deeper half would be one blob.
    """
    from matplotlib.colors import LogNorm

    figure, axes = one_panel(3.0, width=NARROW * 1.35)
    at, depths, breadths = _chosen(rows)
    shown = breadths if len(breadths) <= 2 else [breadths[0], breadths[len(breadths) // 2], breadths[-1]]
    norm = LogNorm(min(depths), max(max(depths), min(depths) + 1))
    least = _least_error(found["exact"] for found in at.values())
    for breadth, marker in zip(shown, "osD", strict=False):
        part = [at[depth, breadth] for depth in depths]
        residuals = [max(found["residual"].value, SMALLEST) for found in part]
        errors = [max(1.0 - found["exact"].value, least) for found in part]
        axes.plot(residuals, errors, color="#BBBBBB", lw=0.9, zorder=2)
        colors: dict[str, Any] = {"c": depths, "norm": norm, "cmap": SEQUENTIAL}
        points = axes.scatter(residuals, errors, s=38, marker=marker, zorder=3, **colors, **DOTS)
        axes.plot([], [], ls="", marker=marker, color="#555555", label=f"breadth B={breadth}")
    axes.set_xscale("log")
    plain_numbers(axes.xaxis)
    axes.set(xlabel="residual of the chosen start (lower: more settled)", ylabel="puzzles wrong")
    error_axis(axes, least, perfect=_some_perfect(at.values()))
    axes.legend(loc="lower right")
    bar = figure.colorbar(points, ax=axes, label="depth D (segments)", pad=0.02)
    bar.set_ticks(depths, labels=[str(depth) for depth in depths])
    bar.minorticks_off()
    return figure


@styled
def depth_and_breadth(rows: Sequence[Result]) -> "Figure":
    """Draw two heat maps over depth and breadth: residual of the chosen start and share of puzzles wrong."""
    at, depths, breadths = _chosen(rows)
    residual = np.array([[at[d, b]["residual"].value for d in depths] for b in breadths])
    error = np.array([[1.0 - at[d, b]["exact"].value for d in depths] for b in breadths])
    figure = new_figure(WIDE, 0.34 * len(breadths) + 1.5)
    left, right = figure.subplots(1, 2)
    _heat_map(left, residual, depths, breadths, lambda value: f"{value:.{3 if value < 0.1 else 2}f}")
    left.set_title("Residual of the chosen start")
    _heat_map(right, error, depths, breadths, lambda share: f"{100 * share:.1f}")
    right.set_title("Puzzles wrong (%)")
    return figure


@styled
def accuracy_against_cost(
    rows: Sequence[Result], *, metric: str = "nfe", cost: str = "NFE: mean segments per puzzle, all starts"
) -> "Figure":
    """Draw the share of puzzles wrong against what a `metric` of cost says, a line per item and rule."""
    figure, axes = one_panel(3.1)
    lines: dict[tuple[str, str, int], list[dict[str, Result]]] = {}
    for (item, rule, breadth, _), found in pivot(rows, "item", "rule", "breadth", "depth").items():
        lines.setdefault((item, rule, breadth), []).append(found)
    everything = [found for line in lines.values() for found in line]
    least = _least_error(found["exact"] for found in everything)
    for ((item, rule, breadth), line), color, marker in zip(lines.items(), CYCLE, MARKERS, strict=False):
        line.sort(key=lambda found: found[metric].value)
        costs = [found[metric].value for found in line]
        ends = [
            [max(1.0 - end, least) for end in (*_interval(found["exact"]), found["exact"].value)]
            for found in line
        ]
        highs, lows, errors = zip(*ends, strict=True)
        axes.fill_between(costs, lows, highs, color=color, alpha=0.12, lw=0)
        several = f"{item}, {breadth} starts" if breadth > 1 else item
        axes.plot(costs, errors, color=color, marker=marker, label=several if item else rule, **MARKED)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(_plainly)
    axes.set(xlabel=cost, ylabel="puzzles wrong")
    error_axis(axes, least, perfect=_some_perfect(everything))
    figure.legend(loc="outside lower center", ncols=2)
    return figure


@styled
def accuracy_against_breadth(rows: Sequence[Result]) -> "Figure":
    """Draw the expected accuracy of selection rules as starts are added; a dashed line marks an oracle."""
    figure, axes = one_panel()
    rules = dict.fromkeys(row.rule for row in rows)
    for rule, color, marker in zip(rules, CYCLE, MARKERS, strict=False):
        part = sorted(select(rows, rule=rule), key=lambda row: row.breadth or 0)
        breadths = [float(row.breadth or 0) for row in part]
        style: dict[str, Any] = {"color": color, "marker": marker, **MARKED}
        if "oracle" in rule:
            style = {"color": GREY, "ls": "--"}
        else:
            lows, highs = zip(*map(_interval, part), strict=True)
            axes.fill_between(breadths, lows, highs, color=color, alpha=0.15, lw=0)
        axes.plot(breadths, [row.value for row in part], label=rule, **style)
    power_axis(axes, sorted({row.breadth or 1 for row in rows}))
    axes.set(xlabel="breadth B (starts per puzzle)", ylabel="expected exact accuracy")
    low = min((_interval(row)[0] for row in rows), default=0.0)
    percent_axis(axes, low=max(0.0, np.floor(low * 20 - 0.5) / 20), high=1.0)
    figure.legend(loc="outside lower center", ncols=3)
    return figure


@styled
def accuracy_by_difficulty(rows: Sequence[Result], *, rating: str = "rating") -> "Figure":
    """Draw exact accuracy with its interval for ranges of the difficulty rating, and how many are in each."""
    figure, axes = one_panel()
    rows = select(rows, metric="exact")
    _bars(axes, rows, lw=1, capsize=2.5)
    for place, row in enumerate(rows):
        axes.text(place, 0.03, f"n={row.n}", ha="center", va="bottom", fontsize=6.5, color="#222222")
    axes.set(xlabel=rating, ylabel="exact accuracy")
    percent_axis(axes)
    axes.set_ylim(bottom=0)
    return figure


@styled
def depth_by_difficulty(rows: Sequence[Result], *, rating: str = "rating", most: int) -> "Figure":
    """Draw the depth at which a start halts (median, middle half) for ranges of the rating."""
    figure, axes = one_panel()
    rows = select(rows, metric="segments until halting")
    _bars(axes, rows, lw=1.2, capsize=3)  # a bar stands even where every start halts alike
    for place, row in enumerate(rows):
        axes.annotate(
            f"{row.value:g}", (place, _interval(row)[1]), ha="center", va="bottom",
            fontsize=7, xytext=(0, 3), textcoords="offset points",
        )  # fmt: skip
    axes.axhline(most, color=GREY, ls=":", lw=1)
    axes.text(len(rows) - 0.55, most, f"greatest depth {most}", ha="right", va="bottom", fontsize=7)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(_plainly)
    axes.set_ylim(0.5, most * 1.6)
    axes.set_xlim(-0.5, len(rows) - 0.5)
    axes.set(xlabel=rating, ylabel="segments until halting")
    return figure


@styled
def residual_traces(
    residuals: NDArray[np.float32], right: NDArray[np.bool_], *, trained: int | None = None
) -> "Figure":
    """Draw residuals (trajectories, depth) over segments: median and middle half, right and wrong apart.

    `right` (trajectories,) says which end with the right answer, `trained` marks the depth of training.
    """
    figure, axes = one_panel(2.8)
    depth = residuals.shape[1]
    segments = np.arange(1, depth + 1)
    for chosen, color, name in ((right, RIGHT, "end right"), (~right, WRONG, "end wrong")):
        traces = residuals[chosen]
        if not len(traces):
            continue
        few = traces[np.linspace(0, len(traces) - 1, min(TRACES, len(traces))).astype(int)]
        axes.plot(segments, few.T, color=color, lw=0.5, alpha=0.3)
        low, middle, high = np.quantile(traces, (0.25, 0.5, 0.75), axis=0)
        axes.fill_between(segments, low, high, color=color, alpha=0.2, lw=0)
        axes.plot(segments, middle, color=color, label=f"{name} ({len(traces):,} trajectories)")
    axes.set_yscale("log")
    power_axis(axes, [2**k for k in range(int(np.log2(depth)) + 1)])
    if trained is not None and trained < depth:
        axes.axvline(trained, color=GREY, ls=":", lw=1)
        axes.annotate(
            "training depth", (trained, 0.98), xycoords=("data", "axes fraction"), rotation=90, ha="right",
            va="top", fontsize=7, color="#555555", xytext=(-2, 0), textcoords="offset points",
        )  # fmt: skip
    axes.set(xlabel="segment", ylabel="residual (RMS per coordinate)")
    plain_numbers(axes.yaxis)
    axes.legend(loc="lower left")
    return figure


@styled
def landscapes(views: Sequence[Landscape], names: Sequence[str]) -> "Figure":
    """Draw a panel per puzzle: every start's path in its principal plane, coloured by right or wrong."""
    from matplotlib.lines import Line2D

    across = min(2, len(views))
    down = ceil(len(views) / across)
    figure = new_figure(WIDE, 2.9 * down + 0.35)
    panels = figure.subplots(down, across, squeeze=False).flat
    for axes, view, name in zip(panels, views, names, strict=False):
        _paths(axes, view)
        basins = view.basins
        title = f"{name}: ({basins.mode.letter}) {basins.mode}\n{round(basins.right * basins.starts)} of "
        title += f"{basins.starts} starts right, {view.attractors.max() + 1} final group"
        title += "s" if view.attractors.max() else ""
        if basins.cycling:
            title += f"\n{round(basins.cycling * basins.starts)} on a limit cycle: period {basins.period:g}, "
            title += f"{basins.amplitude:.0%} of the cells change"
        axes.set_title(title, fontsize=8)
    for axes in figure.axes[len(views) :]:
        axes.set_axis_off()
    marks = (("o", 3, "#A0A0A0", "start"), ("o", 5, RIGHT, "ends right"), ("X", 5, WRONG, "ends wrong"))
    handles = [Line2D([], [], ls="", marker=m, ms=size, color=c, label=name) for m, size, c, name in marks]
    for color, what in ((RIGHT, "decodes to the right answer"), (WRONG, "decodes to a wrong one")):
        handles.append(Line2D([], [], color=color, lw=1, label=what))
    figure.legend(handles=handles, loc="outside lower center", ncols=5, labelcolor=BLACK)
    return figure


def _paths(axes: "Axes", view: Landscape) -> None:
    from matplotlib.collections import LineCollection

    points, right = view.points, view.right
    pieces = np.stack((points[:, :-1], points[:, 1:]), axis=2).reshape(-1, 2, 2)
    colors = np.where(right[:, 1:].reshape(-1), RIGHT, WRONG)
    axes.add_collection(LineCollection(list(pieces), colors=colors.tolist(), linewidths=0.45, alpha=0.4))
    axes.scatter(points[:, 0, 0], points[:, 0, 1], s=5, color="#A0A0A0", linewidths=0, zorder=2)
    for chosen, color, marker in ((~right[:, -1], WRONG, "X"), (right[:, -1], RIGHT, "o")):
        x, y = points[chosen, -1].T
        axes.scatter(x, y, s=26, color=color, marker=marker, zorder=3, **DOTS)
    axes.autoscale()
    axes.margins(0.08)
    one, two = (f"{100 * share:.0f}%" for share in view.explained)
    axes.set(xlabel=f"PC 1 ({one} of variance)", ylabel=f"PC 2 ({two})", xticks=[], yticks=[])


@styled
def modes_over_training(rows: Sequence[Result]) -> "Figure":
    """Draw the share of puzzles in each landscape mode over the steps of training, stacked."""
    figure, axes = one_panel()
    at = {(row.step or 0, row.part): row.value for row in select(rows, metric="share")}
    steps, modes = sorted({step for step, _ in at}), list(dict.fromkeys(mode for _, mode in at))
    shares = [[at[step, mode] for step in steps] for mode in modes]
    axes.stackplot(steps, shares, colors=MODE_COLORS[: len(modes)], labels=modes, lw=0)
    axes.set(xlabel="optimizer step", ylabel="share of puzzles", xlim=(steps[0], steps[-1]))
    percent_axis(axes)
    figure.legend(loc="outside lower center", ncols=2)
    return figure


@styled
def tracking(rows: Sequence[Result]) -> "Figure":
    """Draw how far carried states are from their attractor over their depth, for up to four steps."""
    figure, axes = one_panel()
    rows = select(rows, metric="distance")
    there = sorted({row.step or 0 for row in rows})
    steps = [there[n] for n in np.unique(np.linspace(0, len(there) - 1, 4).round().astype(int))]
    for step, color in zip(steps, shades(len(steps)), strict=True):
        part = sorted((row.depth or 0, row.value) for row in select(rows, step=step))
        axes.plot(*zip(*part, strict=True), "o-", color=color, label=f"step {step:,}")
    axes.set_yscale("log")
    plain_numbers(axes.yaxis)
    axes.set(xlabel="segments behind the row", ylabel="RMS distance to attractor")
    figure.legend(loc="outside lower center", ncols=4)
    return figure


@styled
def stability_figure(rows: Sequence[Result]) -> "Figure":
    """Draw output margin against spectral radius, and spectral radius against the contraction factor."""
    figure = new_figure(WIDE, 2.7)
    left, right = figure.subplots(1, 2)
    for is_right, color, marker, name in ((True, RIGHT, "o", "right"), (False, WRONG, "X", "wrong")):
        part = [found for found in pivot(rows, "part").values() if bool(found["right"].value) is is_right]
        radius, margin, contraction = (
            [found[metric].value for found in part] for metric in ("radius", "margin", "contraction")
        )
        label = f"{name} ({len(part)})"
        left.scatter(radius, margin, s=26, color=color, marker=marker, label=label, **DOTS)
        right.scatter(contraction, radius, s=26, color=color, marker=marker, **DOTS)
    for axes, level in ((left, 0.0), (right, 1.0)):
        axes.axvline(1.0, color=GREY, ls=":", lw=1)
        axes.axhline(level, color=GREY, ls=":", lw=1)
    left.set(xlabel="spectral radius of a segment", ylabel="output margin (logits)")
    left.legend(loc="best")
    right.set(xlabel="local contraction factor L", ylabel="spectral radius")
    return figure


def _series(records: Sequence[Mapping[str, Any]], name: str) -> tuple[list[Any], list[Any]]:
    """Return the steps of the records that have a number, and the numbers."""
    there = [record for record in records if name in record]
    return [record["step"] for record in there], [record[name] for record in there]


def _chosen(
    rows: Sequence[Result],
) -> tuple[dict[tuple[int, int], dict[str, Result]], list[int], list[int]]:
    """Return exact accuracy and residual of the chosen starts by depth and breadth, and which there are."""
    rules = {row.rule for row in select(rows, metric="residual")}
    at = {
        (d, b): found for (d, b), found in pivot(select(rows, rule=tuple(rules)), "depth", "breadth").items()
    }
    return at, sorted({depth for depth, _ in at}), sorted({breadth for _, breadth in at})


def _interval(row: Result) -> tuple[float, float]:
    low, high = row.low, row.high
    return row.value if low is None else low, row.value if high is None else high


def _least_error(rows: Iterable[Result]) -> float:
    """Return where no error at all is drawn on a logarithmic axis: well below the smallest error there is."""
    return min((1.0 - row.value for row in rows if 1.0 - row.value > ROUNDING), default=0.01) / 3


def _some_perfect(places: Iterable[Mapping[str, Result]]) -> bool:
    return any(1.0 - found["exact"].value <= ROUNDING for found in places)


def _bars(axes: "Axes", rows: Sequence[Result], **whiskers: Any) -> None:
    """Draw values with their intervals as bars under the names of their ranges."""
    places, values = np.arange(len(rows)), np.array([row.value for row in rows])
    lows, highs = np.array([_interval(row) for row in rows]).T
    ends = np.stack((values - lows, highs - values)).clip(min=0)
    axes.bar(places, values, color=SKY, width=0.72)
    axes.errorbar(places, values, yerr=ends, fmt="none", ecolor="#333333", **whiskers)
    names = [row.part.replace(" to ", "–") for row in rows]
    axes.set_xticks(places, names, rotation=30 if len(rows) > 6 else 0)
    axes.grid(axis="x", visible=False)


def _heat_map(
    axes: "Axes", values: Any, depths: list[int], breadths: list[int], form: Callable[[float], str]
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
        ink = "white" if np.asarray(norm(max(value, SMALLEST))) < 0.55 else "black"
        axes.text(column, row, form(value), ha="center", va="center", fontsize=7, color=ink)


def _plainly(value: float, _: float) -> str:
    return f"{value:g}"
