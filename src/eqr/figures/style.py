"""One look for every figure: sizes, colours that colour-blind readers tell apart, and saving.

Figures are `matplotlib.figure.Figure` objects without pyplot, so nothing is shown, kept or shared between
them; in a notebook the last expression of a cell displays itself. Needs the extra `eqr[plots]`.
"""

import io
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

from eqr.errors import UserError, with_extra
from eqr.files import new_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

P = ParamSpec("P")

WIDE, NARROW = 6.9, 3.4
"""Inches: the text width and the column width of a paper."""

BLUE, ORANGE, GREEN, VERMILLION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PURPLE, BLACK, GREY = "#56B4E9", "#CC79A7", "#1A1A1A", "#8A8A8A"
CYCLE = (BLUE, ORANGE, GREEN, VERMILLION, PURPLE, SKY, BLACK)
"""Okabe and Ito's colours, without the yellow that vanishes on white."""
MARKERS = "osD^vP*X"
RIGHT, WRONG = BLUE, VERMILLION
SEQUENTIAL = "viridis"
ORDERED = "cividis"

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.labelsize": 8.5,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E3E3E3",
    "grid.linewidth": 0.6,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "savefig.dpi": 200,
    "svg.fonttype": "path",
    "svg.hashsalt": "eqr",
    "pdf.fonttype": 42,
}


def styled(draw: "Callable[P, Figure]") -> "Callable[P, Figure]":
    """Make a function that draws a figure draw it in this style, whatever the caller's own settings."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> "Figure":
        with _rc_context(STYLE):
            return draw(*args, **kwargs)

    return drawn


def new_figure(width: float = WIDE, height: float = 2.6) -> "Figure":
    """Return an empty figure, inches, whose parts keep out of each other's way."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def one_panel(height: float = 2.7, *, width: float = NARROW * 1.5) -> "tuple[Figure, Axes]":
    """Return an empty figure, inches, of one panel."""
    figure = new_figure(width, height)
    return figure, figure.subplots()


def save_figure(figure: "Figure", path: Path) -> None:
    """Write a figure as the suffix says (.svg, .pdf, .png); equal figures give equal files."""
    with new_file(path) as temporary:
        temporary.write_bytes(as_bytes(figure, path.suffix.lstrip(".")))


def as_bytes(figure: "Figure", kind: str) -> bytes:
    """Return a figure as a file's content."""
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}
    if kind not in dates:
        raise UserError(f"figures are written as .svg, .pdf or .png, not .{kind}")
    buffer = io.BytesIO()
    with _rc_context(STYLE):
        figure.savefig(buffer, format=kind, metadata=dates[kind])
    return buffer.getvalue()


def plain_numbers(axis: "Axis") -> None:
    """Write a logarithmic axis as 0.01, 0.1, 1 instead of powers of ten; call it when all is drawn.

    An axis of few decades gets 0.2 and 0.5 too, or there would be no number on it.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = sorted(axis.get_view_interval())
    subs = (1.0,) if high > 100 * low else (1.0, 2.0, 5.0)
    axis.set_major_locator(LogLocator(10.0, subs=subs, numticks=12))
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(NullFormatter())


def percent_axis(axes: "Axes", *, low: float = 0.0, high: float = 1.0) -> None:
    """Label shares on the vertical axis as percentages, with a little room above."""
    from matplotlib.ticker import PercentFormatter

    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    room = 0.03 * (high - low)
    axes.set_ylim(low - room, high + room)


def error_axis(axes: "Axes", least: float, *, perfect: bool) -> None:
    """Label shares of errors as percentages on a logarithmic vertical axis.

    `least` is where no error at all is drawn: if it occurs (`perfect`), in a band of its own below the scale.
    """
    from matplotlib.ticker import FixedLocator, NullLocator

    axes.set_yscale("log")
    bottom = (2.0 if perfect else 0.8) * least
    ticks = [
        ten * tick for ten in (1e-5, 1e-4, 1e-3, 1e-2, 0.1) for tick in (1, 2, 5) if ten * tick >= bottom
    ]
    ticks += [1.0]
    if perfect:
        axes.axhspan(least / 2, 1.5 * least, color="#EFEFEF", lw=0, zorder=0)
    axes.yaxis.set_major_locator(FixedLocator([*([least] if perfect else []), *ticks]))
    axes.yaxis.set_major_formatter(lambda value, _: "none" if value == least else f"{100 * value:g}%")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylim(least / 2 if perfect else bottom, 1.25)


def shades(count: int) -> list[Any]:
    """Return so many colours in order, from dark to light."""
    import numpy as np
    from matplotlib import colormaps

    return list(colormaps[SEQUENTIAL](np.linspace(0.0, 0.88, count)))


def power_axis(axes: "Axes", values: list[int]) -> None:
    """Put powers of two on a logarithmic horizontal axis under their own names."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(values, [f"{value:,}" for value in values])
    axes.minorticks_off()


def _rc_context(settings: dict[Any, Any]) -> Any:
    try:
        from matplotlib import rc_context
    except ImportError:
        raise UserError(f"figures need matplotlib; {with_extra('plots')}") from None
    return rc_context(settings)
