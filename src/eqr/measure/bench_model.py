"""How near the model comes to the machine's own limit, and to a straightforward implementation.

The limit is what large float32 products sustain on all cores, measured again beside every run, because shared
machines change from second to second. A share is the operations of a segment's products over its time, over
that limit; both are averages over a good part of a second, and the median of several rounds is reported. Run
by `eqr bench model` and benchmarks/model.py, whose notes say what was tried.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from eqr.cpu.rows import RowExecutor, rows_per_cut, shared_executor
from eqr.measure.accounting import flops_per_reading, flops_per_segment
from eqr.model import systems
from eqr.model.config import STILL, Candidates, Path, ReasonerConfig
from eqr.model.mixers import Groups, Neighbours
from eqr.model.plain import PlainReasoner, PlainState
from eqr.model.reasoner import Reasoner
from eqr.model.systems import EQR_PATH
from eqr.solve.rollout import segment_and_read
from eqr.tasks import task_named

LIMIT_SIZE = 2048


@dataclass(frozen=True, kw_only=True)
class Size:
    """A model size, how many rows to run, and the shares it should reach."""

    name: str
    config: ReasonerConfig
    rows: int
    tracked: int = 7
    """The gradient window of training; seven is TRM's and EqR's, the last of three cycles."""
    forward: float | None = None
    training: float | None = None
    times_plain: float = 1.0
    """How many times faster than the straightforward implementation it should be."""


def _config(side: int, vocabulary: int, width: int) -> ReasonerConfig:
    return ReasonerConfig(rows=side, columns=side, vocabulary=vocabulary, width=width, path=EQR_PATH)


def _structured(task_name: str, width: int, **fields: Any) -> ReasonerConfig:
    """The small loop and the sizes of the recipes whose mixer is told the structure."""
    sizes: dict[str, Any] = {"blocks": 1, "cycles": 2, "scratch": 2, "expansion": 1.5, "round_hidden_to": 8}
    return systems.eqr(task_named(task_name), width=width, **sizes, **fields)


_CANDIDATES: dict[str, Any] = {"mixer": Groups(hidden=96), "sites": Candidates()}

SIZES = (
    Size(name="d=512, 81 tokens", config=_config(9, 11, 512), rows=16, forward=0.80, training=0.70),
    Size(name="d=128, 81 tokens", config=_config(9, 11, 128), rows=96, forward=0.60, training=0.50),
    Size(name="d=96, 36 tokens", config=_config(6, 8, 96), rows=192),
    Size(
        name="d=24, candidates",
        config=_structured("sudoku-9x9", 24, **_CANDIDATES),
        rows=16,
        tracked=3,
        times_plain=3.0,
    ),
    Size(
        name="d=48, candidates",
        config=_structured("sudoku-9x9", 48, **_CANDIDATES),
        rows=16,
        tracked=3,
        times_plain=3.0,
    ),
    Size(
        name="d=32, neighbours",
        config=_structured("maze-11x11", 32, mixer=Neighbours()),
        rows=32,
        tracked=3,
        times_plain=3.0,
    ),
)
"""The paper's size, 42 layers per segment, the two that two cores can train, and the structured ones."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """One line of the table."""

    size: str
    work: str
    limit_gflops: float
    share: float
    wanted: float | None
    plain_share: float
    times_plain: float = 1.0

    @property
    def ratio(self) -> float:
        """How many times faster than the straightforward implementation."""
        return self.share / self.plain_share

    @property
    def holds(self) -> bool:
        """Whether the share and the gain on the straightforward implementation are as wanted."""
        return self.share >= (self.wanted or 0.0) and self.ratio >= self.times_plain

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {**asdict(self), "ratio": self.ratio, "holds": self.holds}


class _Bench:
    """One size's model, inputs and the six things to time."""

    def __init__(self, size: Size) -> None:
        self.size, self.config = size, size.config
        self.model = Reasoner(size.config)
        self.plain = PlainReasoner(self.model)
        self.executor = shared_executor(size.config, torch.device("cpu"))
        self.training_executor = RowExecutor(rows_per_cut=rows_per_cut(size.config, training=True))
        generator = torch.Generator().manual_seed(0)
        shape = size.rows, size.config.cells
        self.puzzles = torch.randint(1, size.config.vocabulary, shape, generator=generator)
        self.keys, self.depths = torch.arange(size.rows), torch.zeros(size.rows, dtype=torch.long)
        self.x = self.model.embed(self.puzzles).detach()
        self.state = self.model.start(self.x, self.keys)
        self.plain_x = self.x.transpose(0, 1).contiguous()
        self.plain_state = PlainState(*(z.transpose(0, 1).contiguous() for z in self.state.tensors()))
        self.weights = [*self.model.stack.parameters(), self.model.answer_head]

    def forward(self, path: Path | None = None) -> None:
        segment_and_read(self.model, self.executor, self.state, self.x, self.keys, self.depths, path=path)

    def plain_forward(self, path: Path | None = None) -> None:
        with torch.no_grad():
            self.plain.read(self.plain.segment(self.plain_state, self.plain_x, path=path))

    def training(self) -> list[Tensor]:
        first, *others = self.training_executor.map(self._gradients, self.size.rows)
        for piece in others:
            torch._foreach_add_(first, piece)
        return list(first)

    def _gradients(self, rows: slice) -> tuple[Tensor, ...]:
        before = self.state.chunk(rows)
        after = self.model.segment(
            before, self.x[:, rows], self.keys[rows], self.depths[rows], tracked=self.size.tracked
        )
        return self._descend(self.model.read(after, before).logits, self.puzzles[rows])

    def plain_training(self) -> tuple[Tensor, ...]:
        after = self.plain.segment(self.plain_state, self.plain_x, tracked=self.size.tracked)
        return self._descend(self.plain.read(after)[0], self.puzzles)

    def _descend(self, logits: Tensor, answers: Tensor) -> tuple[Tensor, ...]:
        loss = F.cross_entropy(logits.flatten(0, 1), answers.flatten(), reduction="sum")
        return torch.autograd.grad(loss, self.weights)

    def operations(self, *, training: bool) -> float:
        """Operations of all rows; a backward pass has the products of two forward ones."""
        segment, reading = flops_per_segment(self.config), flops_per_reading(self.config)
        if training:
            tracked = self.size.tracked / self.config.applications
            return self.size.rows * (segment * (1 + 2 * tracked) + 3 * reading)
        return float(self.size.rows * (segment + reading))


def measure(sizes: tuple[Size, ...] = SIZES, *, rounds: int = 5) -> Iterator[Share]:
    """Yield the table line by line."""
    for size in sizes:
        bench = _Bench(size)
        for work, wanted, ours, plain in (
            ("forward", size.forward, bench.forward, bench.plain_forward),
            ("forward, still", size.forward, _still(bench.forward), _still(bench.plain_forward)),
            ("training", size.training, bench.training, bench.plain_training),
        ):
            operations = bench.operations(training=work == "training")
            yield _compare(size, work, wanted, operations, ours, plain, rounds)


def _still(run: Callable[[Path | None], None]) -> Callable[[], None]:
    return lambda: run(STILL)


def _compare(
    size: Size,
    work: str,
    wanted: float | None,
    operations: float,
    ours: Callable[[], object],
    plain: Callable[[], object],
    rounds: int,
) -> Share:
    limits, shares, plain_shares = [], [], []
    ours(), plain()
    for _ in range(rounds):
        first = limit_gflops()
        rate = operations / _seconds(ours) / 1e9
        second = limit_gflops()
        plain_rate = operations / _seconds(plain) / 1e9
        third = limit_gflops()
        limits += [first, second, third]
        shares.append(2 * rate / (first + second))
        plain_shares.append(2 * plain_rate / (second + third))
    return Share(
        size=size.name,
        work=work,
        limit_gflops=median(limits),
        share=median(shares),
        wanted=wanted,
        plain_share=median(plain_shares),
        times_plain=size.times_plain,
    )


def limit_gflops(repeats: int = 8) -> float:
    """Return what large products sustain now, in billions of operations a second, on all cores."""
    left, right = _large(0), _large(1)
    out = left @ right
    seconds = _seconds(lambda: [torch.mm(left, right, out=out) for _ in range(repeats)])
    return repeats * 2 * LIMIT_SIZE**3 / seconds / 1e9


def _large(seed: int) -> Tensor:
    return torch.randn(LIMIT_SIZE, LIMIT_SIZE, generator=torch.Generator().manual_seed(seed))


def _seconds(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


HEADER = f"{'size':<18} {'one segment':<15} {'limit':>8} {'share':>6} {'wanted':>7} {'plain':>6} {'ratio':>6}"


def line(share: Share) -> str:
    """Return one line of the table that `HEADER` heads; the limit is in GFLOP/s."""
    wanted = "" if share.wanted is None else f"{share.wanted:.2f}"
    text = f"{share.size:<18} {share.work:<15} {share.limit_gflops:>8.0f} {share.share:>6.2f} {wanted:>7}"
    return f"{text} {share.plain_share:>6.2f} {share.ratio:>6.2f}{'' if share.holds else '  short'}"
