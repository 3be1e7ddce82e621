"""The one way to advance rows: `start`, `step`, `read`, `stop`, and `iterate`, which drives them.

    for turn in iterate(model, x, z, depth=64):
        turn.state, turn.residual, turn.reading

`Dynamics` holds no run state. Whoever fills rows (a rollout, the engine's slots, a training window) calls the
same four. Nothing here sets a grad mode: the caller's holds.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias

import torch
from torch import Tensor

from eqr.backends import BACKENDS, Backend, default_backend
from eqr.dynamics.halting import HaltingRule, parse_halting
from eqr.dynamics.rows import leaves, take
from eqr.errors import UserError
from eqr.model.definitions import truncated_normal
from eqr.model.operator import STILL, Perturbation
from eqr.model.reasoner import Reasoner
from eqr.model.state import Input, Reading, State
from eqr.tasks import task_named


@dataclass(frozen=True)
class Rows:
    """What the next segment needs of trajectories under way; row i of everything belongs to trajectory i."""

    x: Any
    """What conditions the operator: of a reasoner an `Input`."""
    state: Any
    """Of a reasoner a `State`."""
    keys: Tensor
    """(rows,) int64: stand for (seed, puzzle, restart) and decide what a row draws at random."""
    depths: Tensor
    """(rows,) int64: segments behind each row."""
    memory: Any = ()
    """What the halting rule remembers."""
    history: Any = ()
    """What the solver remembers."""
    noted: Any = ()
    """What the observer has noted."""

    def __len__(self) -> int:
        return len(self.keys)


class Operator(Protocol):
    """One segment of a dynamical system on rows."""

    @property
    def has_heads(self) -> bool:
        """Whether a reading has answers and scores, not the residual alone."""

    def segment(self, state: Any, x: Any, keys: Tensor, depths: Tensor, tracked: int | None = None) -> Any:
        """Return the next state of every row; `tracked` is the gradient window in applications."""

    def read(self, state: Any, before: Any) -> Reading:
        """Read the heads, if there are any, and how far each row has moved."""

    def alone(self) -> AbstractContextManager[None]:
        """Keep small operations between two segments from waking threads that the segments need."""


@dataclass(frozen=True)
class Reasoning:
    """A reasoner under a perturbation, by a backend."""

    model: Reasoner
    perturbation: Perturbation
    backend: Backend
    has_heads = True

    def segment(
        self, state: State, x: Input, keys: Tensor, depths: Tensor, tracked: int | None = None
    ) -> State:
        """Let the backend run the segment."""
        return self.backend.segment(
            self.model, state, x.embedding, keys, depths, perturbation=self.perturbation, tracked=tracked
        )

    def read(self, state: State, before: State) -> Reading:
        """Read both heads."""
        return self.model.read(state, before)

    def alone(self) -> AbstractContextManager[None]:
        """Ask the backend."""
        return self.backend.alone()


@dataclass(frozen=True)
class Function:
    """A function (z, x) -> z of tensors that count rows first, or of tuples of such; perturbed if asked."""

    call: Callable[[Any, Any], Any]
    perturbation: Perturbation
    has_heads = False

    def segment(self, state: Any, x: Any, keys: Tensor, depths: Tensor, tracked: int | None = None) -> Any:
        """Call it once, then damp and add noise to each tensor it returns."""
        moved, rule = self.call(state, x), self.perturbation
        if type(moved) is not type(state):
            raise TypeError(f"f(z, x) returned {type(moved).__name__} for a z of {type(state).__name__}")
        if isinstance(moved, State):  # a function around a reasoner: whoever wraps one perturbs it inside
            return moved

        def perturbed(z: Tensor, new: Tensor, stream: int) -> Tensor:
            new = torch.lerp(z, new, 1.0 - rule.damping) if rule.damping else new
            if not rule.noise:
                return new
            drawn = truncated_normal(keys + (depths << 20), stream << 40, 1, z[0].numel())
            return new + rule.noise * drawn[0].view_as(z).to(z.dtype)

        if isinstance(moved, Tensor):
            return perturbed(state, moved, 0)
        return tuple(
            perturbed(z, new, place) for place, (z, new) in enumerate(zip(state, moved, strict=True))
        )

    def read(self, state: Any, before: Any) -> Reading:
        """Measure how far each row has moved, root mean square per coordinate."""
        if isinstance(state, State):
            return Reading.of_residual(state.distance(before))
        pairs = [(state, before)] if isinstance(state, Tensor) else zip(state, before, strict=True)
        moved = torch.cat([(new - old).detach().flatten(1) for new, old in pairs], 1)
        return Reading.of_residual(moved.float().square().mean(1).sqrt())

    def alone(self) -> AbstractContextManager[None]:
        """Leave threads as they are."""
        return nullcontext()


Judge = Callable[[Any, Reading], Tensor]
"""Says of x and a reading which answers are accepted, bool (rows,), for a halting rule that asks."""


class Solver(Protocol):
    """A frozen rule that makes the next state of f(z) and of what it remembers, row by row.

    What is read and halted on is f(z) all the same.
    """

    def start(self, z: Any) -> Any:
        """Return the history of rows that begin at z: a tree that counts rows."""

    def update(self, history: Any, z: Any, moved: Any) -> tuple[Any, Any]:
        """Return the new history and the next state, given z and f(z)."""


class Observer(Protocol):
    """A frozen rule that notes something about each row, segment by segment."""

    def start(self, operator: Operator, z: Any, rows: int) -> Any:
        """Return what is noted of rows that begin at z: a tree that counts rows."""

    def update(self, noted: Any, reading: Reading) -> Any:
        """Return what is noted after a segment."""


@dataclass(frozen=True)
class Turn:
    """Rows after a segment, those that end here included."""

    rows: Rows
    """What the next segment needs."""
    moved: Any
    """f(z), as it was read; a solver may go on from another state."""
    reading: Reading
    """What the heads say and how far the segment moved each row."""
    halted: Tensor
    """Which rows the halting rule stops, bool (rows,)."""
    done: Tensor
    """Which rows end here, by the rule or for lack of depth."""
    numbers: Tensor | None = None
    """Which of the rows that began are still here; None outside of `unroll`."""

    @property
    def state(self) -> Any:
        """f(z); of a reasoner with its keys and depths, so that another iteration may go on from it."""
        if isinstance(self.moved, State):
            return replace(self.moved, keys=self.rows.keys, depths=self.rows.depths)
        return self.moved

    @property
    def residual(self) -> Tensor:
        """How far the segment moved each row, root mean square per coordinate, (rows,)."""
        return self.reading.residual

    @property
    def depths(self) -> Tensor:
        """Segments behind each row, this one included, (rows,)."""
        return self.rows.depths


@dataclass(frozen=True, kw_only=True)
class Dynamics:
    """How rows begin, advance and end."""

    operator: Operator
    depth: int = 64
    halting: HaltingRule | None = None
    judge: Judge | None = None
    solver: Solver | None = None
    observer: Observer | None = None

    def start(self, x: Any, z: Any, keys: Tensor, depths: Tensor | None = None) -> Rows:
        """Put rows together from where they begin."""
        halting, solver, observer = self.halting, self.solver, self.observer
        return Rows(
            x=x,
            state=z,
            keys=keys,
            depths=torch.zeros_like(keys) if depths is None else depths,
            memory=() if halting is None else halting.start(len(keys), device=keys.device),
            history=() if solver is None else solver.start(z),
            noted=() if observer is None else observer.start(self.operator, z, len(keys)),
        )

    def step(self, rows: Rows, *, tracked: int | None = None) -> Rows:
        """Move every row by a segment; `tracked` is the gradient window in applications."""
        state = self.operator.segment(rows.state, rows.x, rows.keys, rows.depths, tracked)
        return replace(rows, state=state, depths=rows.depths + 1)

    def read(self, rows: Rows, before: Rows) -> Turn:
        """Read rows that were just moved."""
        reading = self.operator.read(rows.state, before.state)
        if self.observer is not None:
            rows = replace(rows, noted=self.observer.update(rows.noted, reading))
        halted = torch.zeros_like(rows.keys, dtype=torch.bool)
        return Turn(rows, rows.state, reading, halted, rows.depths >= self.depth)

    def stop(self, turn: Turn) -> Turn:
        """Ask the halting rule."""
        rule, rows, reading = self.halting, turn.rows, turn.reading
        if rule is None:
            return turn
        if rule.uses_verifier and self.judge is not None:
            reading = replace(reading, accepted=self.judge(rows.x, reading))
        memory, halted = rule.update(rows.memory, reading, rows.depths)
        rows = replace(rows, memory=memory)
        return replace(turn, rows=rows, reading=reading, halted=halted, done=turn.done | halted)

    def advance(self, rows: Rows) -> Turn:
        """Step, read and stop; a solver then says where to go on from."""
        with self.operator.alone():
            turn = self.stop(self.read(self.step(rows), rows))
            if self.solver is None:
                return turn
            history, state = self.solver.update(rows.history, rows.state, turn.moved)
            return replace(turn, rows=replace(turn.rows, history=history, state=state))


def unroll(dynamics: Dynamics, rows: Rows, *, most: int | None = None) -> Iterator[Turn]:
    """Advance rows until each has ended; a row that has ended leaves and never changes again.

    All end after `most` turns, wherever rows began to count.
    """
    numbers, turns = torch.arange(len(rows), device=rows.keys.device), 0
    while len(rows):
        turn, turns = replace(dynamics.advance(rows), numbers=numbers), turns + 1
        if turns == most:
            turn = replace(turn, done=torch.ones_like(turn.done))
        yield turn
        rows = turn.rows
        if bool(turn.done.any()):
            going = (~turn.done).nonzero().squeeze(1)
            rows, numbers = take(rows, going), numbers[going]


Perturb: TypeAlias = Perturbation | Literal["own"] | None
"""Damping and noise: a model's own, others, or neither."""


def iterate(
    f: Reasoner | Callable[[Any, Any], Any],
    x: Any,
    z: Any,
    *,
    depth: int = 64,
    halting: HaltingRule | str | None = None,
    perturb: Perturb = "own",
    backend: Backend | str | None = None,
    solver: Solver | None = None,
) -> Iterator[Turn]:
    """Iterate z <- f(z; x) and yield every segment, at most `depth` of them; rows that halt leave.

    `f` is a reasoner, or a function (z, x) -> z on tensors that count rows first. `z` is whatever the first
    segment begins with: a drawn start, a perturbed rest, another puzzle's rest, the state of an earlier turn,
    which goes on with fresh noise. `perturb` is damping and noise: a reasoner's own unless given, None for
    neither. `backend` computes a reasoner's segments: by default the fast one, `eager` what stands in
    `eqr.model`. `solver` takes the place of z <- f(z).
    """
    if depth < 1:
        raise UserError(f"depth = {depth}: give at least 1 segment")
    halting = parse_halting(halting) if isinstance(halting, str) else halting
    operator = operator_of(f, perturb, backend)
    if halting is not None and halting.needs_heads and not operator.has_heads:
        raise UserError(f"halting = {halting.kind}: this f has no heads; give a rule such as residual:0.001")
    keys = depths = None
    if isinstance(z, State):
        keys, depths = z.keys, z.depths
        z = replace(z, keys=None, depths=None)
    count, device = _rows_of(z)
    if (given := _rows_of(x)[0]) != count:
        raise UserError(
            f"x has {given} rows and z {count}: give both the same, such as embed(..., copies={count})"
        )
    if keys is None:
        keys = torch.arange(count, device=device)
    most = depth if depths is None else depth + int(depths.max())
    dynamics = Dynamics(operator=operator, depth=most, halting=halting, judge=_judge_of(f), solver=solver)
    return unroll(dynamics, dynamics.start(x, z, keys, depths), most=depth)


def operator_of(f: Any, perturb: Perturb, backend: Backend | str | None) -> Operator:
    """Return what iterates `f`."""
    if isinstance(f, Reasoner):
        rule, named = f.config.path if perturb == "own" else perturb, (f.config, f.embedding.device)
        if not isinstance(backend, Backend):
            backend = default_backend(*named) if backend is None else BACKENDS[backend].solving(*named)
        return Reasoning(f, rule or STILL, backend)
    return Function(f, STILL if perturb is None or perturb == "own" else perturb)


def _rows_of(tree: Any) -> tuple[int, torch.device]:
    for axis, tensor in leaves(tree):
        return tensor.shape[axis], tensor.device
    raise UserError(
        "x and z hold no tensor: give tensors that count rows first, or what embed and start return"
    )


def _judge_of(f: Any) -> Judge | None:
    """Return what accepts a reasoner's answers by the rules of its task; None where it has none."""
    if not isinstance(f, Reasoner) or f.config.task is None:
        return None
    task = task_named(f.config.task)

    def judge(x: Input, reading: Reading) -> Tensor:
        valid = task.check_many(x.puzzles.cpu().numpy(), reading.tokens.cpu().numpy())
        return torch.as_tensor(valid, device=reading.residual.device)

    return judge
