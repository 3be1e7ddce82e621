"""Figures of trajectories in latent space: residuals as they fall, and the attractor landscape of puzzles."""

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from eqr.diagnostics.landscape import Landscape
from eqr.figures.style import (
    BLACK,
    BLUE,
    GREY,
    NARROW,
    ORANGE,
    PURPLE,
    RIGHT,
    SKY,
    VERMILLION,
    WIDE,
    WRONG,
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

MODE_COLORS = (VERMILLION, ORANGE, SKY, BLUE, PURPLE)
TRACES = 12
"""Single trajectories drawn behind the medians, of each kind."""


@styled
def residual_traces(
    residuals: NDArray[np.float32], right: NDArray[np.bool_], *, trained: int | None = None
) -> "Figure":
    """Draw residuals (trajectories, depth) over segments: median and middle half, right and wrong apart.

    `right` (trajectories,) says which end with the right answer, `trained` marks the depth of training.
    """
    figure = new_figure(NARROW * 1.5, 2.8)
    axes = figure.subplots()
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
    across = min(2, len(views))
    down = ceil(len(views) / across)
    figure = new_figure(WIDE, 2.9 * down + 0.35)
    panels = figure.subplots(down, across, squeeze=False).flat
    for axes, view, name in zip(panels, views, names, strict=False):
        _landscape(axes, view)
        basins = view.basins
        count = round(basins.right * basins.starts)
        axes.set_title(
            f"{name}: ({basins.mode.letter}) {basins.mode}\n{count} of {basins.starts} starts right, "
            f"{view.attractors.max() + 1} final group{'s' if view.attractors.max() else ''}{_cycles(view)}",
            fontsize=8,
        )
    for axes in figure.axes[len(views) :]:
        axes.set_axis_off()
    _key(figure)
    return figure


@styled
def modes_over_training(rows: Sequence[Result]) -> "Figure":
    """Draw the share of puzzles in each landscape mode over the steps of training, stacked."""
    figure = new_figure(NARROW * 1.5, 2.7)
    axes = figure.subplots()
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
    figure = new_figure(NARROW * 1.5, 2.7)
    axes = figure.subplots()
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
    """Draw spectral radius against output margin, and residual against what the bound asks for."""
    figure = new_figure(WIDE, 2.7)
    left, right = figure.subplots(1, 2)
    for is_right, color, marker, name in ((True, RIGHT, "o", "right"), (False, WRONG, "X", "wrong")):
        part = [
            {name: row.value for name, row in found.items()}
            for found in pivot(rows, "part").values()
            if bool(found["right"].value) is is_right
        ]
        style = {"color": color, "marker": marker, "s": 26, "edgecolors": "white", "linewidths": 0.5}
        label = f"{name} ({len(part)})"
        left.scatter([r["radius"] for r in part], [r["margin"] for r in part], label=label, **style)
        right.scatter([r["contraction"] for r in part], [r["radius"] for r in part], **style)
    left.axvline(1.0, color=GREY, ls=":", lw=1)
    left.axhline(0.0, color=GREY, ls=":", lw=1)
    left.set(xlabel="spectral radius of a segment", ylabel="output margin (logits)")
    left.legend(loc="best")
    right.axvline(1.0, color=GREY, ls=":", lw=1)
    right.axhline(1.0, color=GREY, ls=":", lw=1)
    right.set(xlabel="local contraction factor L", ylabel="spectral radius")
    return figure


def _landscape(axes: "Axes", view: Landscape) -> None:
    from matplotlib.collections import LineCollection

    points, right = view.points, view.right
    pieces = np.stack((points[:, :-1], points[:, 1:]), axis=2).reshape(-1, 2, 2)
    colors = np.where(right[:, 1:].reshape(-1), RIGHT, WRONG)
    axes.add_collection(LineCollection(list(pieces), colors=colors.tolist(), linewidths=0.45, alpha=0.4))
    axes.scatter(points[:, 0, 0], points[:, 0, 1], s=5, color="#A0A0A0", linewidths=0, zorder=2)
    ended = right[:, -1]
    for chosen, color, marker in ((~ended, WRONG, "X"), (ended, RIGHT, "o")):
        axes.scatter(
            points[chosen, -1, 0],
            points[chosen, -1, 1],
            s=26,
            color=color,
            marker=marker,
            edgecolors="white",
            linewidths=0.5,
            zorder=3,
        )
    axes.autoscale()
    axes.margins(0.08)
    one, two = (f"{100 * share:.0f}%" for share in view.explained)
    axes.set(xlabel=f"PC 1 ({one} of variance)", ylabel=f"PC 2 ({two})", xticks=[], yticks=[])


def _cycles(view: Landscape) -> str:
    around = view.periods > 0
    if not around.any():
        return ""
    period, amplitude = np.median(view.periods[around]), view.amplitudes[around].mean()
    return f"\n{int(around.sum())} on a limit cycle: period {period:g}, amplitude {amplitude:.2g}"


def _key(figure: "Figure") -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], ls="", marker="o", ms=3, color="#A0A0A0", label="start"),
        Line2D([], [], ls="", marker="o", ms=5, color=RIGHT, label="ends right"),
        Line2D([], [], ls="", marker="X", ms=5, color=WRONG, label="ends wrong"),
        Line2D([], [], color=RIGHT, lw=1, label="decodes to the right answer"),
        Line2D([], [], color=WRONG, lw=1, label="decodes to a wrong one"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=5, labelcolor=BLACK)
