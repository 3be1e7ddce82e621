"""The attractor landscape of a puzzle: where many starts settle, and what that says about the model.

Paper section 4.2 names four modes. Here each puzzle's mode follows from basin statistics by the explicit
thresholds of `ModeRules`: how many starts end right, and whether the wrong ones are as settled as the right.
A limit cycle is an attractor of its own kind, with a fifth mode for puzzles whose wrong starts end on one.
"""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor

from eqr.data.arrays import read_archive
from eqr.dynamics.iterate import unroll
from eqr.errors import UserError
from eqr.files import new_file, parse_json
from eqr.model.definitions import row_key
from eqr.model.reasoner import Reasoner
from eqr.solve.budget import Budget
from eqr.solve.rollout import Inference
from eqr.solve.selection import answer_ids
from eqr.tasks.base import PAD, Tokens
from eqr.value import Value

Share = Annotated[float, Field(ge=0.0, le=1.0)]
ROUNDS = 3
"""How often a limit cycle must have been walked round: two answers can alternate twice by chance."""


class Mode(StrEnum):
    """The paper's four landscape modes, and one for wrong starts that go round in circles."""

    NO_CORRECT = "no correct attractor"
    SPURIOUS = "correct and spurious attractors"
    NARROW = "narrow correct basin"
    ALIGNED = "well aligned"
    CYCLING = "correct attractor and limit cycles"

    @property
    def letter(self) -> str:
        """The paper's letter, a to d, and e."""
        return "abcde"[list(Mode).index(self)]


class ModeRules(Value):
    """Where one mode ends and the next begins.

    (a) at most `absent` of the starts end right. (d) at least `aligned` of them do. In between, (b) if at
    least `spurious` of the starts are wrong yet settled, (e) if at least as many are wrong and on a limit
    cycle (the larger of the two counts), otherwise (c): the wrong starts are still wandering. Fewer than
    `least` starts never make a mode (b) or (e): one start is an accident, not an attractor.
    A start has settled when its answer has not changed over the last `window` segments and its mean residual
    over them is at most `tolerance`, or at most `calm` times the median of the right starts if that is more.
    """

    absent: Share = 0.0
    aligned: Share = 0.9
    spurious: Share = 0.1
    least: PositiveInt = 2
    window: PositiveInt = 3
    tolerance: PositiveFloat = 0.05
    """Root-mean-square change per latent coordinate and segment; path noise alone makes 0.01 to 0.02."""
    calm: PositiveFloat = 2.0
    longest: PositiveInt = 8
    """Longest period of a limit cycle that is looked for, in segments."""
    apart: PositiveFloat = 0.25
    """Root-mean-square distance per coordinate from which two final states are different attractors."""


MODE_RULES = ModeRules()


@dataclass(frozen=True, kw_only=True)
class Basins:
    """What the starts of one puzzle came to."""

    mode: Mode
    starts: int
    right: float
    """Share of starts that end with the right answer: the size of the correct basin."""
    settled: float
    """Share of starts that have settled, right or wrong."""
    spurious: float
    """Share of starts that have settled on a wrong answer."""
    cycling: float
    """Share of starts whose answer goes round in a limit cycle."""
    period: float | None
    """Median period of these cycles, in segments; None without any."""
    amplitude: float | None
    """Mean share of the cells that change on the way round."""
    answers: int
    """Number of distinct final answers."""
    residual_right: float | None
    """Median residual of the right starts; None without any."""
    residual_wrong: float | None


def name_basins(
    answers: Tokens, residuals: NDArray[np.float32], label: Tokens, rules: ModeRules = MODE_RULES
) -> Basins:
    """Name the mode of a puzzle from its starts' last answers and residuals.

    `answers` (starts, segments, cells) and `residuals` (starts, segments) hold the last segments, the latest
    last; `rules.window` of them are looked at for rest, three rounds of each period for cycles.
    """
    periods, amplitudes = answer_cycles(answers, rules.longest)
    answers, residual = answers[:, -rules.window :], residuals[:, -rules.window :].mean(axis=1)
    right = ((answers[:, -1] == label) | (label == PAD)).all(axis=1)
    bar = rules.tolerance
    if right.any():
        bar = max(bar, rules.calm * float(np.median(residual[right])))
    settled = (answers == answers[:, -1:]).all(axis=(1, 2)) & (residual <= bar)
    around = (periods > 0) & ~settled
    return Basins(
        mode=_mode(right, settled & ~right, around & ~right, rules),
        starts=len(answers),
        right=float(right.mean()),
        settled=float(settled.mean()),
        spurious=float((settled & ~right).mean()),
        cycling=float(around.mean()),
        period=_median(periods[around]),
        amplitude=float(amplitudes[around].mean()) if around.any() else None,
        answers=len(np.unique(answer_ids(answers[:, -1]))),
        residual_right=_median(residual[right]),
        residual_wrong=_median(residual[~right]),
    )


def answer_cycles(answers: Tokens, most: int = 8) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Find cycles of at most `most` segments in decoded answers (trajectories, segments, cells).

    Returns each trajectory's shortest period, of which the last `ROUNDS` rounds agree (0: none; a standing
    answer is no cycle), and the share of the cells that change on the way round.
    """
    count, segments, _ = answers.shape
    ids = answer_ids(answers)
    periods, amplitudes = np.zeros(count, np.int64), np.zeros(count)
    for period in range(min(most, segments // ROUNDS), 1, -1):  # the shortest is written last
        last = ids[:, -ROUNDS * period :]
        repeats = (last[:, period:] == last[:, :-period]).all(axis=1)
        periods[repeats & (last != last[:, :1]).any(axis=1)] = period
    for row in np.flatnonzero(periods):
        around = answers[row, -periods[row] :]
        amplitudes[row] = (around != around[:1]).any(axis=0).mean()
    return periods, amplitudes


def _mode(
    right: NDArray[np.bool_], stuck: NDArray[np.bool_], circling: NDArray[np.bool_], rules: ModeRules
) -> Mode:
    """Name a mode from which starts end right, settle wrong, and go round wrong."""
    if right.mean() <= rules.absent:
        return Mode.NO_CORRECT
    if right.mean() >= rules.aligned:
        return Mode.ALIGNED
    if max(stuck.sum(), circling.sum()) < max(rules.spurious * len(right), rules.least):
        return Mode.NARROW
    return Mode.SPURIOUS if stuck.sum() >= circling.sum() else Mode.CYCLING


def _median(values: NDArray[Any]) -> float | None:
    return float(np.median(values)) if len(values) else None


@dataclass(frozen=True, kw_only=True)
class Landscape:
    """Many starts of one puzzle, projected to the plane in which their answer states differ most."""

    puzzle: Tokens
    label: Tokens
    depth: int
    segments: tuple[int, ...]
    """The segments kept, 0 being the start itself."""
    points: NDArray[np.float32]
    """(starts, segments kept, 2)."""
    right: NDArray[np.bool_]
    """(starts, segments kept): whether the state decodes to the right answer."""
    residuals: NDArray[np.float32]
    """(starts, depth)."""
    attractors: NDArray[np.int64]
    """(starts,): number of the group of final states each start ended in, the largest group being 0."""
    explained: tuple[float, float]
    """Share of the states' variance along each axis."""
    basins: Basins

    def save(self, path: Path) -> None:
        """Write everything into one .npz file."""
        record = {"depth": self.depth, "segments": self.segments, "explained": self.explained}
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        with new_file(path) as temporary, temporary.open("wb") as file:
            np.savez(file, record=json.dumps({**record, "basins": asdict(self.basins)}), **arrays)

    @classmethod
    def load(cls, path: Path) -> "Landscape":
        """Read what `save` wrote."""
        arrays: dict[str, Any] = read_archive(path)
        try:
            known = _Record.from_json(parse_json(str(arrays["record"]), where=str(path)), where=str(path))
            found = cls(**dict(known), **{name: arrays[name] for name in _ARRAYS})
        except (KeyError, TypeError, UserError) as error:
            raise UserError(f"{path} is damaged ({error}); delete it to have it made again") from None
        cells, starts, kept = found.puzzle.shape, found.basins.starts, len(found.segments)
        due = (cells, cells, (starts, kept, 2), (starts, kept), (starts, found.depth), (starts,))
        for name, shape in zip(_ARRAYS, due, strict=True):
            if getattr(found, name).shape != shape:
                raise UserError(f"{path} is damaged ({name}); delete it to have it made again")
        return found


_ARRAYS = ("puzzle", "label", "points", "right", "residuals", "attractors")


class _Record(Value):
    """What a saved landscape says besides its arrays."""

    depth: PositiveInt
    segments: tuple[NonNegativeInt, ...]
    explained: tuple[float, float]
    basins: Basins


@torch.inference_mode()
def landscape(
    reasoner: Reasoner,
    puzzle: Tokens,
    label: Tokens,
    *,
    starts: int = 64,
    budget: Budget | None = None,
    identity: int = 0,
) -> Landscape:
    """Run many starts of one puzzle and see where they go; the budget's breadth and halting do not count."""
    budget = (budget or Budget(depth=32)).replace(breadth=1, halting=None, race=False)
    if starts < 2:
        raise UserError(f"starts = {starts}: a landscape needs at least 2")
    kept = kept_segments(budget.depth)
    inference = Inference(reasoner, budget, window=1)
    keys = [row_key(budget.seed, puzzle, restart, identity) for restart in range(starts)]
    rows = inference.begin(np.tile(puzzle, (starts, 1)), keys, np.full(starts, identity, np.int32))
    states = [_flat(reasoner, rows.state.answer)]
    answers, residuals = [reasoner.decode(rows.state).argmax(dim=-1)], []
    for turn in unroll(inference.dynamics, rows):
        if int(turn.depths[0]) in kept:
            states.append(_flat(reasoner, turn.moved.answer))
        answers.append(turn.reading.tokens)
        residuals.append(turn.reading.residual)
    grids = torch.stack(answers, dim=1).to(torch.uint8).cpu().numpy()
    trace = torch.stack(residuals, dim=1).cpu().numpy()
    points, explained = project(torch.stack(states, dim=1))
    right = ((grids == label) | (label == PAD)).all(axis=2)
    return Landscape(
        puzzle=puzzle,
        label=label,
        depth=budget.depth,
        segments=kept,
        points=points.cpu().numpy(),
        right=right[:, list(kept)],
        residuals=trace,
        attractors=group(states[-1], MODE_RULES.apart),
        explained=explained,
        basins=name_basins(grids[:, 1:], trace, label),
    )


def kept_segments(depth: int) -> tuple[int, ...]:
    """Return which segments of a trajectory are kept: all at first, then ever fewer, the last one always."""
    segments, step = [0], 1
    while segments[-1] + step <= depth:
        segments.append(segments[-1] + step)
        step = max(1, segments[-1] // 4)
    return tuple(sorted({*segments, depth}))


def project(states: Tensor) -> tuple[Tensor, tuple[float, float]]:
    """Project states (starts, segments, coordinates) to their two principal axes.

    Starts themselves (segment 0) are shown but do not decide the axes: they are noise by design. Exact and
    free of random numbers: the eigenvectors come from the small matrix of inner products.
    """
    moved = states[:, 1:].reshape(-1, states.shape[-1])
    center = moved.mean(dim=0)
    moved = moved - center
    values, vectors = torch.linalg.eigh(moved @ moved.t())
    axes = moved.t() @ vectors[:, -2:].flip(1)
    axes = axes / axes.norm(dim=0).clamp_min(1e-12)
    signs = axes.gather(0, axes.abs().argmax(dim=0, keepdim=True)).sign()
    total = max(float(values.clamp_min(0).sum()), 1e-12)
    explained = (float(values[-1].clamp_min(0)) / total, float(values[-2].clamp_min(0)) / total)
    return (states - center) @ (axes * signs), explained


def group(states: Tensor, apart: float) -> NDArray[np.int64]:
    """Group final states (starts, coordinates): a chain of steps below `apart` joins two (single linkage).

    Groups are numbered by size, the largest being 0.
    """
    from scipy.sparse.csgraph import connected_components

    near = (torch.cdist(states, states) / states.shape[1] ** 0.5 < apart).cpu().numpy()
    groups = connected_components(near, directed=False)[1]
    order = np.argsort(-np.bincount(groups), kind="stable")
    return np.asarray(np.argsort(order)[groups])


def _flat(reasoner: Reasoner, answer: Tensor) -> Tensor:
    """Copy the answer states of the grid's cells, (starts, cells * width): the engine moves on in place."""
    grid = answer[reasoner.config.identity_tokens :]
    return grid.transpose(0, 1).reshape(answer.shape[1], -1).float().clone()
