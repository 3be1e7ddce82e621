"""Figures: all are drawn from plain rows, carry labels, keep text inside and apart, and are reproducible."""

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from eqr.diagnostics import scaling
from eqr.diagnostics.landscape import Mode, landscape
from eqr.diagnostics.traces import run_traces
from eqr.errors import UserError
from eqr.figures import grids as plots_grids
from eqr.figures import plots
from eqr.figures.style import as_bytes, save_figure
from eqr.result import Result
from eqr.solve.budget import Budget
from eqr.tasks import task_named
from settling import Settling, puzzles_4x4
from toy_task import Toy

PUZZLES = puzzles_4x4(14)
MODEL = Settling(PUZZLES, stuck=0.2)
RECORDS = [
    {"kind": "train", "step": 50 * k, "answer_loss": 2.0 / k, "halt_loss": 0.1, "halt_depth": 16.0 / k}
    for k in range(1, 9)
] + [{"kind": "validation", "step": 100 * k, "exact@1": 0.1 * k, "exact@16": 0.2 * k} for k in range(1, 5)]


def _trajectory(name: str) -> Figure:
    task = Toy() if name == "toy" else task_named(name)
    one = next(task.generate(np.random.default_rng(0)))
    grids = np.stack([one.puzzle, one.answer])
    return plots_grids.trajectory_figure(task, one.puzzle, one.answer, grids, [1, 30])


MODES = [
    Result(metric="share", step=step, part=f"({mode.letter}) {mode}", value=0.2, low=0.1, high=0.3)
    for step in (100, 200, 1500)
    for mode in Mode
]
TRACKED = [
    Result(metric="distance", step=step, depth=depth, n=3, value=1 / (depth + step / 100))
    for step in (100, 200, 300, 400, 500, 12_600)
    for depth in range(16)
]
STABLE = [
    Result(part=f"puzzle {number}", metric=metric, value=value)
    for number in range(6)
    for metric, value in (
        ("right", number % 2),
        ("radius", 0.3 * number),
        ("contraction", 1.5 * number),
        ("margin", 5.0 - number),
    )
]


@pytest.fixture(scope="module")
def figures() -> dict[str, Figure]:
    traces = run_traces(MODEL, PUZZLES, Budget(depth=16, breadth=4), quiet=True)
    rows, hard = scaling.scaling_rows(traces), scaling.difficulty_rows(traces)
    view = landscape(MODEL, np.array(PUZZLES.inputs[0]), np.array(PUZZLES.labels[0]), starts=8)
    ends = traces.right[:, :, -1].reshape(-1)
    return {
        "training": plots.training_curves(RECORDS),
        "residual": plots.accuracy_against_residual(rows),
        "heat": plots.depth_and_breadth(rows),
        "cost": plots.accuracy_against_cost(scaling.cost_rows(traces)),
        "breadth": plots.accuracy_against_breadth(scaling.breadth_rows(traces)),
        "accuracy": plots.accuracy_by_difficulty(hard, rating="backtracks"),
        "depth": plots.depth_by_difficulty(hard, rating="backtracks", most=16),
        "traces": plots.residual_traces(traces.residuals.reshape(-1, 16), ends, trained=8),
        "landscape": plots.landscapes([view, view, view], ["one", "two", "three"]),
        "modes": plots.modes_over_training(MODES),
        "tracking": plots.tracking(TRACKED),
        "stability": plots.stability_figure(STABLE),
        "grid": plots_grids.grid_figure(traces.task, np.array(PUZZLES.inputs[0])),
        **{name: _trajectory(name) for name in ("sudoku-9x9", "maze-11x11", "mini-arc", "toy")},
    }


NAMES = (
    "training", "residual", "heat", "cost", "breadth", "accuracy", "depth", "traces",
    "landscape", "modes", "tracking", "stability", "grid", "sudoku-9x9", "maze-11x11", "mini-arc", "toy",
)  # fmt: skip


def drawn(figure: Figure) -> FigureCanvasAgg:
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return canvas


@pytest.mark.parametrize("name", NAMES)
def test_no_text_leaves_the_figure(figures, name):
    figure = figures[name]
    needed = figure.get_tightbbox(drawn(figure).get_renderer())  # in inches
    width, height = figure.get_size_inches()
    assert needed.x0 >= 0
    assert needed.y0 >= 0
    assert needed.x1 <= width
    assert needed.y1 <= height


@pytest.mark.parametrize("name", NAMES)
def test_neighbouring_tick_labels_keep_apart(figures, name):
    figure = figures[name]
    renderer = drawn(figure).get_renderer()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            labels = [label for label in axis.get_ticklabels() if label.get_text() and label.get_visible()]
            boxes = [label.get_window_extent(renderer) for label in labels if axes.axison]
            for one, other in pairwise(boxes):
                assert not one.overlaps(other) or one == other, [label.get_text() for label in labels]


@pytest.mark.parametrize("name", NAMES[:9])
def test_axes_say_what_they_show(figures, name):
    labelled = [axes for axes in figures[name].axes if axes.get_xlabel() or axes.get_ylabel()]
    assert labelled
    assert all(axes.get_xlabel() or axes.get_label() == "<colorbar>" for axes in labelled)


def test_equal_figures_are_equal_files(tmp_path):
    for kind in ("svg", "png"):
        one, other = (as_bytes(plots.training_curves(RECORDS), kind) for _ in range(2))
        assert one == other
    save_figure(plots.training_curves(RECORDS), tmp_path / "one.svg")
    text = (tmp_path / "one.svg").read_text()
    assert text.startswith("<?xml")
    assert "<path" in text
    assert as_bytes(plots.training_curves(RECORDS), "pdf").startswith(b"%PDF")
    with pytest.raises(UserError, match=r"\.svg, \.pdf or \.png"):
        save_figure(plots.training_curves(RECORDS), tmp_path / "one.bmp")


def test_edge_cases_draw(figures):
    one = scaling.scaling_rows(run_traces(MODEL, PUZZLES, Budget(depth=1), quiet=True))
    perfect = [
        replace(row, value=0.0) if row.metric == "residual" else replace(row, value=1.0, low=1.0, high=1.0)
        for row in one
    ]
    for rows in (one, perfect):
        (errors, *_) = drawn(plots.accuracy_against_residual(rows)).figure.axes
        assert errors.get_yscale() == "log", "near 100% the deeper half would be one blob"
        drawn(plots.depth_and_breadth(rows))
    residuals = np.full((3, 4), 0.1, np.float32)
    drawn(plots.residual_traces(residuals, np.ones(3, bool)))
    with pytest.raises(UserError, match="no training records"):
        plots.training_curves([])


def test_wrong_given_and_filled_cells_look_different():
    task = task_named("sudoku-4x4")
    puzzle, label = np.array(PUZZLES.inputs[0]), np.array(PUZZLES.labels[0])
    grid = label.copy()
    wrong = int(np.flatnonzero(puzzle != label)[0])
    grid[wrong] = label[wrong] % 5 + 1 if label[wrong] % 5 + 1 > 1 else 2
    figure = plots_grids.grid_figure(task, grid, puzzle=puzzle, label=label)
    drawn(figure)
    faces = figure.axes[0].collections[0].get_facecolor()
    kinds = [tuple(faces[cell]) for cell in range(16)]
    assert len({kinds[cell] for cell in range(16) if puzzle[cell] == label[cell]}) == 1
    assert kinds.count(kinds[wrong]) == 1
    assert len(set(kinds)) == 3


def test_the_givens_of_every_task_are_shaded():
    task = Toy()
    one = next(task.generate(np.random.default_rng(0)))
    figure = plots_grids.trajectory_figure(task, one.puzzle, one.answer, one.answer[None], [1])
    drawn(figure)
    faces = figure.axes[0].collections[0].get_facecolor()
    given = one.puzzle == one.answer
    assert 0 < given.sum() < len(given)
    shaded = np.array([tuple(face) != (1.0, 1.0, 1.0, 1.0) for face in faces])
    np.testing.assert_array_equal(shaded, given)


def test_telling_segments_are_those_where_the_answer_changes():
    grids = np.zeros((20, 2), np.uint8)
    grids[3:, 0], grids[7:, 1] = 1, 1
    assert plots_grids.telling_segments(grids, 11) == [1, 4, 8]
    busy = np.arange(60, dtype=np.uint8)[:, None]
    chosen = plots_grids.telling_segments(busy, 11)
    assert chosen[:7] == list(range(1, 8))
    assert chosen[-1] == 60
    assert len(chosen) == 11


def test_figures_leave_pyplot_alone():
    code = (
        "import sys; from eqr.figures import plots; assert 'matplotlib' not in sys.modules; "
        "plots.training_curves([{'kind': 'train', 'step': 1, 'answer_loss': 1.0, 'halt_loss': 1.0}]); "
        "assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
