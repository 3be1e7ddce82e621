"""Figures: functions from rows to matplotlib figures, in one style.

    from eqr import figures, scaling
    sweep = scaling.run_sweep(reasoner, puzzles)
    figures.depth_and_breadth(scaling.scaling_rows(sweep))

Matplotlib is loaded when something is drawn.
"""

from eqr.figures.grids import draw_grid, grid_figure, telling_segments, trajectory_figure
from eqr.figures.plots import (
    accuracy_against_breadth,
    accuracy_against_cost,
    accuracy_against_residual,
    accuracy_by_difficulty,
    depth_and_breadth,
    depth_by_difficulty,
    landscapes,
    modes_over_training,
    residual_traces,
    stability_figure,
    tracking,
    training_curves,
)
from eqr.figures.style import save_figure

__all__ = [
    "accuracy_against_breadth",
    "accuracy_against_cost",
    "accuracy_against_residual",
    "accuracy_by_difficulty",
    "depth_and_breadth",
    "depth_by_difficulty",
    "draw_grid",
    "grid_figure",
    "landscapes",
    "modes_over_training",
    "residual_traces",
    "save_figure",
    "stability_figure",
    "telling_segments",
    "tracking",
    "training_curves",
    "trajectory_figure",
]
