"""A moving picture shows every segment, keeps what was given, and is small."""

import io

import numpy as np
import pytest

from eqr.errors import UserError
from eqr.solve import Solver
from eqr.solve.solver import SolveOptions

image = pytest.importorskip("PIL.Image", reason="pip install -e '.[plots]'")

from eqr.figures.moving import COLOURS, moving_picture  # noqa: E402


@pytest.mark.parametrize(("model", "text"), [("sudoku-4x4", "1..4........2..3"), ("maze", None)])
def test_a_gif_has_the_puzzle_and_every_segment(model, text):
    asked = SolveOptions(depth=5, halt="never")
    solver = Solver(model)
    solver = Solver(solver.reasoner, budget=asked.budget(solver.reasoner.config))
    puzzle = (
        next(solver.task.generate(np.random.default_rng(0))).puzzle
        if text is None
        else solver.task.parse(text)
    )
    frames = list(solver.trace(puzzle))
    assert all(((f.confidence > 0) & (f.confidence <= 1)).all() for f in frames)
    data = moving_picture(solver.task, puzzle, frames)
    picture = image.open(io.BytesIO(data))
    assert (picture.format, picture.n_frames) == ("GIF", 6)
    assert len(data) < 100_000
    seen = []
    for number in range(6):
        picture.seek(number)
        seen.append(np.asarray(picture.convert("RGB")))
    assert len(np.unique(seen[-1].reshape(-1, 3), axis=0)) <= COLOURS
    assert picture.info["duration"] > 2000  # the last one stays
    if text is not None:
        corner = (slice(14, 90), slice(14, 90))  # a given cell, which never moves
        assert all((one[corner] == seen[0][corner]).mean() > 0.99 for one in seen)
        beside = (slice(14, 90), slice(100, 160))  # a blank one, which is filled in
        assert (seen[0][beside] != seen[-1][beside]).any()


def test_nothing_to_show_is_said():
    task = Solver("sudoku-4x4").task
    with pytest.raises(UserError, match="depth of at least 1"):
        moving_picture(task, task.parse("1..4........2..3"), [])
