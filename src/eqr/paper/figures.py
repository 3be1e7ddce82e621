"""Figures of experiments, drawn from their tables in the house style; grids and landscapes from kept data."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eqr.figures.style import BLUE, CYCLE, NARROW, ORANGE, ORDERED, WIDE, new_figure, save_figure, styled
from eqr.paper.experiment import Column
from eqr.paper.table import Table
from eqr.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKS = "osD^vP*X"


def draw(table: Table, store: Path) -> "Figure | None":
    """Draw an experiment's picture; None where it has none or nothing has run yet."""
    kind = table.experiment.picture.kind
    if kind == "none":
        return None
    if kind in ("grids", "landscapes", "trajectory"):
        return _from_data(table, store)
    if not table.values:
        return None
    return {"bars": bars, "lines": lines, "points": points, "heat": heat}[kind](table)


def save(figure: "Figure", folder: Path, *, remark: str = "") -> None:
    """Write a figure as SVG and PNG, a remark across it."""
    if remark:
        figure.text(0.5, 0.5, remark, ha="center", va="center", rotation=20, color="#D55E00", alpha=0.7)
    for suffix in ("svg", "png"):
        save_figure(figure, folder / f"figure.{suffix}")


@styled
def bars(table: Table) -> "Figure":
    """Draw a panel per column: ours with its interval, and the printed number as a ring."""
    columns = _drawn(table)
    rows = table.experiment.rows
    figure = new_figure(WIDE, 0.24 * len(rows) + 1.1)
    panels = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
    places = np.arange(len(rows))[::-1]
    for axes, column in zip(panels, columns, strict=True):
        for place, row in zip(places, rows, strict=True):
            found = table.mean(row, column)
            if found is not None:
                axes.barh(place, found.value, height=0.55, color=BLUE, alpha=0.85)
                _whisker(axes, float(place), found)
                seeds = list(table.values[found.metric].values())
                axes.plot(seeds, np.full(len(seeds), place), "o", color="#222222", ms=2.2, mew=0)
            printed = row.published.get(column.name)
            if isinstance(printed, float | int):
                axes.plot(printed, place, "o", mfc="white", mec=ORANGE, mew=1.4, ms=5.5)
        axes.set_yticks(places, [row.name for row in rows])
        axes.set_xlabel(f"{column.name}{' (%)' if column.percent else ''}")
        axes.grid(axis="y", visible=False)
        axes.margins(x=0.06)
        if column.percent:  # an interval may say more than is possible
            left, right = axes.get_xlim()
            axes.set_xlim(max(left, -104.0 if _goes_below(table, column) else 0.0), min(right, 104.0))
    handles = [_mark("s", BLUE, "ours, each seed, mean and 95% interval")]
    if any(isinstance(value, float | int) for row in rows for value in row.published.values()):
        handles.append(_mark("o", ORANGE, "printed in the paper (its own scale)", hollow=True))
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


@styled
def lines(table: Table) -> "Figure":
    """Draw a line per row over the columns, whose names begin with a number."""
    figure = new_figure(NARROW * 1.6, 3.0)
    axes, picture = figure.subplots(), table.experiment.picture
    columns = _drawn(table)
    places = [_number(column.name) for column in columns]
    for row, color, mark in zip(table.experiment.rows, CYCLE * 3, MARKS * 3, strict=False):
        found = [(x, table.mean(row, column)) for x, column in zip(places, columns, strict=True)]
        _line(axes, [(x, s) for x, s in found if s is not None], color, mark, row.name)
    if picture.log_x:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set(xlabel=picture.x_label, ylabel=picture.y_label)
    figure.legend(loc="outside lower center", ncols=2)
    return figure


@styled
def points(table: Table) -> "Figure":
    """Draw one column against another, a line for each series of rows."""
    figure = new_figure(NARROW * 1.6, 3.1)
    axes, picture = figure.subplots(), table.experiment.picture
    by_name = {column.name: column for column in table.experiment.columns}
    across, up = by_name[str(picture.x)], by_name[str(picture.y)]
    series = list(dict.fromkeys(row.series or "" for row in table.experiment.rows))
    for name, color, mark in zip(series, CYCLE * 3, MARKS * 3, strict=False):
        found = []
        for row in table.experiment.rows:
            x, y = table.mean(row, across), table.mean(row, up)
            if (row.series or "") == name and x is not None and y is not None:
                found.append((x.value, y))
        _line(axes, found, color, mark, name)
    if picture.log_x:
        from matplotlib.ticker import LogLocator, NullLocator

        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))  # an axis of one decade has ticks too
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set(xlabel=picture.x_label or across.name, ylabel=picture.y_label)
    if any(series):
        figure.legend(loc="outside lower center", ncols=2)
    return figure


@styled
def heat(table: Table) -> "Figure":
    """Draw a map per column over depth and breadth, which rows give as their budget."""
    columns = _drawn(table)
    budgets = [row.at or (1, 1) for row in table.experiment.rows]
    depths, breadths = sorted({d for d, _ in budgets}), sorted({b for _, b in budgets})
    figure = new_figure(WIDE, 0.36 * len(breadths) + 1.4)
    for axes, column in zip(figure.subplots(1, len(columns), squeeze=False)[0], columns, strict=True):
        values = np.full((len(breadths), len(depths)), np.nan)
        for row, (depth, breadth) in zip(table.experiment.rows, budgets, strict=True):
            found = table.mean(row, column)
            if found is not None:
                values[breadths.index(breadth), depths.index(depth)] = found.value
        axes.imshow(values, aspect="auto", origin="lower", cmap=ORDERED)
        axes.set_xticks(range(len(depths)), [str(depth) for depth in depths])
        axes.set_yticks(range(len(breadths)), [str(breadth) for breadth in breadths])
        axes.set(
            xlabel="depth D", ylabel="breadth B", title=f"{column.name}{' (%)' if column.percent else ''}"
        )
        axes.grid(visible=False)
        middle = np.nanmean(values) if np.isfinite(values).any() else 0.0
        for (up, across), value in np.ndenumerate(values):
            if np.isfinite(value):
                ink = "black" if value > middle else "white"
                shown = f"{value:.{column.digits}f}"
                axes.text(across, up, shown, ha="center", va="center", fontsize=7, color=ink)
    return figure


def _from_data(table: Table, store: Path) -> "Figure | None":
    kind = table.experiment.picture.kind
    shown = [(key, one.data) for (key, _), one in table.outputs.items() if one.data]
    if not shown:
        return None
    if kind == "grids":
        return _grids([data for _, data in shown])
    key, data = shown[0]
    if kind == "landscapes":
        from eqr.diagnostics.landscape import Landscape
        from eqr.figures.plots import landscapes

        views = [Landscape.load(store / key / path) for path in data["landscapes"]]
        return landscapes(views, [f"puzzle {number}" for number in data["puzzles"]])
    from eqr.figures.grids import trajectory_figure
    from eqr.tasks import task_named

    grids = np.array(data["grids"], np.uint8)
    puzzle, label = (np.array(data[name], np.uint8) for name in ("puzzle", "label"))
    across = 6 if len(grids) > 11 else None
    return trajectory_figure(
        task_named(data["task"]), puzzle, label, grids, range(1, len(grids) + 1), across=across
    )


@styled
def _grids(sets: Sequence[dict[str, Any]]) -> "Figure":
    """Draw a row of panels per set: puzzles and their answers."""
    from eqr.figures.grids import draw_grid
    from eqr.tasks import task_named

    across = max(2 * len(data["drawn"]) for data in sets)
    figure = new_figure(WIDE, len(sets) * (WIDE / across + 0.2))
    panels = figure.subplots(len(sets), across, squeeze=False)
    for line, data in zip(panels, sets, strict=True):
        task = task_named(data["task"])
        for number, (puzzle, label) in enumerate(data["drawn"]):
            for offset, (grid, name) in enumerate(((puzzle, task.name), (label, "answer"))):
                axes = line[2 * number + offset]
                given = np.array(puzzle, np.uint8)
                shown = np.array(grid, np.uint8)
                answer = np.array(label, np.uint8) if offset else None
                draw_grid(axes, task, shown, puzzle=given if offset else None, label=answer)
                axes.set_title(name, fontsize=7.5)
    for axes in figure.axes:
        axes.set_axis_off()
    return figure


def _drawn(table: Table) -> list[Column]:
    chosen = table.experiment.picture.columns
    return [column for column in table.experiment.columns if chosen is None or column.name in chosen]


def _goes_below(table: Table, column: Column) -> bool:
    """Whether a value of the column is negative, as differences can be."""
    cells = [cell for cell in table.experiment.cells() if cell.column.name == column.name]
    return any(value < 0 for cell in cells for value in table.seeds(cell).values())


def _line(axes: "Axes", found: Sequence[tuple[float, Result]], color: str, mark: str, name: str) -> None:
    if not found:
        return
    found = sorted(found, key=lambda pair: pair[0])
    places, means = [x for x, _ in found], [s.value for _, s in found]
    axes.plot(places, means, color=color, marker=mark, markeredgecolor="white", mew=0.5, label=name or None)
    lows, highs = (
        [s.value if s.low is None else s.low for _, s in found],
        [s.value if s.high is None else s.high for _, s in found],
    )
    axes.fill_between(places, lows, highs, color=color, alpha=0.15, lw=0)


def _whisker(axes: "Axes", place: float, found: Result) -> None:
    if found.low is not None and found.high is not None:
        axes.plot([found.low, found.high], [place, place], color="#222222", lw=1.1)


def _mark(shape: str, color: str, label: str, *, hollow: bool = False) -> Any:
    from matplotlib.lines import Line2D

    return Line2D(
        [], [], ls="", marker=shape, ms=5.5, mec=color, mfc="white" if hollow else color, label=label
    )


def _number(name: str) -> float:
    digits = "".join(character for character in name.split()[-1] if character.isdigit() or character == ".")
    return float(digits) if digits else 0.0
