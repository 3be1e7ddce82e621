"""How near the model comes to the machine's own limit, and to a straightforward implementation.

The limit is what large float32 products sustain on all cores, measured again beside every run, because shared
machines change from second to second. A share is the least time that a segment's products or its bytes would
take at the machine's limits, whichever is longer, over its time. Bytes are those that no cache can save: the
states in and out and the input. All are averages over a good part of a second, and the median of several
rounds is reported. Run: python benchmarks/speed_model.py, on an otherwise idle machine: every figure is
relative to a product measured beside it, yet a busy neighbour moves both.

Notes, from a two-core Xeon (AVX-512, 2 MiB of second-level cache and about 180 GFLOP/s a core). On the
machine to itself, this script gave, forward (with noise / still) and training: 0.88 / 0.87 and 0.76 at
d=512, 0.73 / 0.75 and 0.56 at d=128, 0.49 / 0.56 and 0.46 at d=96, each ahead of the straightforward one
(1.23 to 1.72 times). Runs differ by about +-0.04. Wanted are 0.80 and 0.70 at d=512, 0.60 and 0.50 at
d=128. Notes marked "earlier" were taken before the kernels below, while other work ran: good to +-0.1.

- Helped most: one compiled sweep for each of gate, normalisation and their gradients instead of several
  operations. Per hidden value, one core: gate 0.45 against 0.85 ns, its gradient 0.67 against 2.1 ns; per
  value of the state: normalisation 0.12 to 0.16 against 0.25 to 0.30 ns, its gradient 0.22 to 0.41 against
  0.5 to 0.9 ns. Alone they took d=512 from 0.75 to about 0.80 forward and from 0.65 to 0.75 in training.
- Helped: weights above 1 MiB packed once a segment for MKL (`operators.packing`). The products of a
  segment alone, interleaved, medians of 6: 0.84 to 0.90 of the limit; with everything else, of 8: 0.80 to
  0.87. At d=128 the same gained 0.66 to 0.69, within the noise, so small weights are left as they are.
- Helped small models: a batch whose pieces are not worth a thread stays on one (4x4 training 13 to 7 ms a
  step). Two threads pay from 40 to 90 million operations a piece and application; below, they lose more
  than they share, most likely by passing Python's lock at every operation.
- Did not help: the hidden layer of the channel mixer in two or four slices, each kept in cache (0.73 to
  0.77 against 0.76 to 0.78); oneDNN's packed products with the gate fused into them (0.71 to 0.77 for the
  products of a segment, against 0.83 without any gate and packing).
- Left alone: calling BLAS from the compiled kernels, a whole mixer in one call. Results are bit for bit the
  same, 64 rows at 6x6 took 14 instead of 20 ms on two threads, but it needs symbols that PyTorch does not
  promise to export.
- Helped (earlier): cutting the batch into rows, a single-threaded core each. At d=128, forward, still,
  pieces of 2 to 16 rows ran 2.6 to 3.1 times as fast as 128 rows with every product on all cores; 32 and 64
  rows 1.9 times.
- Helped (earlier): in-place gate and normalisation without a graph, and a hand-written gradient for the
  gated MLP. On one core, d=512, 4 rows, medians of 4 interleaved runs: forward 0.69 to 0.74, training 0.61
  to 0.67.
- Earlier: products of these shapes, alone and in cache, mostly reach 0.8 to 1.2 of the limit in every size
  (the limit itself moved), so what is missing is mostly the work between them: silu takes 0.42 ns and the
  product with u 0.26 ns per hidden value. In a profile of training, products take 81 % of the time at d=512
  and 65 % at d=128.
- Not told apart by the noise: the size of a piece between 2 and 8 rows at d=512, 4 and 16 at d=128, 8 and
  32 at d=96, hence one rule for all (4 MiB for the widest intermediate). In training 4 against 8 rows at
  d=512 gave 0.67 and 0.70, 12 against 48 at d=128 0.49 and 0.47; twice the forward size is a guess in
  between.
- Did not help: weights stored transposed, (in, out) instead of (out, in): within the noise.
- Did not help: `F.rms_norm` (0.35 ns a value) and PyTorch's fused RMS norm (0.38) instead of square, mean,
  rsqrt and multiply (0.37). `linalg.vector_norm` is quicker along rows (0.13 against 0.18 ns for square and
  sum) but thirteen times slower along columns, where the token mixer needs it.
- Allocation costs nothing at these sizes: a warm segment takes no page fault at d=128 and d=96.
- Helped: the norm of a row by `linalg.vector_norm`, one pass and no square in memory (67 against 159
  microseconds for 648 x 512), and choosing the noise of a whole segment at once.
- Path noise, before that: its own time is about 1 % of that of the products at d=512 and 4 % at d=96, half
  of it the small calls that hash indices.
- Not tried: adding weight gradients of successive applications inside the product (beta = 1) instead of
  after it; 512-bit vectors in the kernels (the compiler prefers 256).
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import torch
from straightforward import PlainReasoner, PlainState
from torch import Tensor
from torch.nn import functional as F

from eqr.backends import Cpu, default_backend
from eqr.backends.cpu.row_executor import RowExecutor, one_thread, rows_per_cut
from eqr.model import systems
from eqr.model.config import CandidateSites, ReasonerConfig
from eqr.model.operator import STILL, Perturbation
from eqr.model.reasoner import Reasoner
from eqr.model.structured import Groups, LiveCandidates, Neighbours
from eqr.model.systems import EQR_PATH
from eqr.results.costs import flops_per_block, flops_per_reading, flops_per_segment
from eqr.tasks import task_named

LIMIT_SIZE = 2048
COPIED_NUMBERS = 1 << 24
"""Length of the vector that is copied to see how many bytes a second memory gives: beyond most caches."""
LEAST_SECONDS = 0.2
"""What is measured is repeated this long: threads of the measurement before spin on for a while."""


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


_CANDIDATES: dict[str, Any] = {"mixer": Groups(hidden=96), "sites": CandidateSites()}
_LIVE: dict[str, Any] = {**_CANDIDATES, "sites": CandidateSites(live=True)}

_told = partial(Size, tracked=3, times_plain=3.0)
"""What is told the structure runs short windows and should leave the plain composition far behind."""

SIZES = (
    Size(name="d=512, 81 tokens", config=_config(9, 11, 512), rows=16, forward=0.80, training=0.70),
    Size(name="d=128, 81 tokens", config=_config(9, 11, 128), rows=96, forward=0.60, training=0.50),
    Size(name="d=96, 36 tokens", config=_config(6, 8, 96), rows=192),
    _told(name="d=24, candidates", config=_structured("sudoku-9x9", 24, **_CANDIDATES), rows=16),
    _told(name="d=24, live", config=_structured("sudoku-9x9", 24, **_LIVE), rows=16),
    _told(name="d=48, candidates", config=_structured("sudoku-9x9", 48, **_CANDIDATES), rows=16),
    _told(name="d=32, neighbours", config=_structured("maze-11x11", 32, mixer=Neighbours()), rows=32),
)
"""The paper's size, 42 layers per segment, the two that two cores can train, and the structured ones."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """One line of the table."""

    size: str
    work: str
    limit_gflops: float
    limit_gbytes: float
    """Read and written, in billions a second."""
    binds: str
    """What of the machine would be used up first: products or bytes."""
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
        self.backend = default_backend(size.config)
        self.trained = Cpu(RowExecutor(rows_per_cut=rows_per_cut(size.config, training=True)))
        self.puzzles = _puzzles(size)
        self.keys, self.depths = torch.arange(size.rows), torch.zeros(size.rows, dtype=torch.long)
        self.x = self.model.embed_tokens(self.puzzles).detach()
        self.state = self.model.initial_state(self.x, self.keys)
        self.plain_x = self.x.transpose(0, 1).contiguous()
        self.plain_state = PlainState(*(z.transpose(0, 1).contiguous() for z in self.state.tensors()))
        self.weights = [*self.model.stack.parameters(), self.model.answer_head]

    def forward(self, perturbation: Perturbation | None = None) -> None:
        with torch.no_grad(), self.backend.alone():
            given = self.state, self.x, self.keys, self.depths
            after = self.backend.segment(self.model, *given, perturbation=perturbation)
            self.model.read(after, self.state)

    def plain_forward(self, perturbation: Perturbation | None = None) -> None:
        with torch.no_grad():
            self.plain.read(self.plain.segment(self.plain_state, self.plain_x, perturbation=perturbation))

    def training(self) -> list[Tensor]:
        first, *others = self.trained.map(self._gradients, self.size.rows)
        for piece in others:
            torch._foreach_add_(first, piece)
        return list(first)

    def _gradients(self, rows: slice) -> tuple[Tensor, ...]:
        before = self.state.chunk(rows)
        given = before, self.x[:, rows], self.keys[rows], self.depths[rows]
        after = self.trained.segment(self.model, *given, tracked=self.size.tracked)
        return self._descend(self.model.read(after, before).logits, self.puzzles[rows])

    def plain_training(self) -> tuple[Tensor, ...]:
        after = self.plain.segment(self.plain_state, self.plain_x, tracked=self.size.tracked)
        return self._descend(self.plain.read(after)[0], self.puzzles)

    def _descend(self, logits: Tensor, answers: Tensor) -> tuple[Tensor, ...]:
        loss = F.cross_entropy(logits.flatten(0, 1), answers.flatten(), reduction="sum")
        return torch.autograd.grad(loss, self.weights)

    def bytes(self) -> float:
        """Bytes of all rows: the states in and out, and x."""
        states = 2 * len(self.state.tensors()) + 1
        return float(states * self.x.numel() * self.x.element_size()) * self._open_share()

    def _open_share(self) -> float:
        """How many of the sites a segment changes."""
        live = self.model.sites
        return float(live.open(self.x).float().mean()) if isinstance(live, LiveCandidates) else 1.0

    def _segment_operations(self) -> float:
        """Operations of one segment of one row: all of them, or those of open sites and their groups."""
        config, live = self.config, self.model.sites
        if not isinstance(live, LiveCandidates):
            return flops_per_segment(config)
        busy = float((live.groups.collect(live.open(self.x).float()) > 0).float().mean())
        mixing = 2 * config.mixer.multiply_adds(config)
        channels = flops_per_block(config) - mixing
        return config.layers_per_segment * (mixing * busy + channels * self._open_share())

    def operations(self, *, training: bool) -> float:
        """Operations of all rows; a backward pass has the products of two forward ones."""
        segment, reading = self._segment_operations(), flops_per_reading(self.config)
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
            needs = _Needs(bench.operations(training=work == "training"), bench.bytes())
            yield _compare(size, work, wanted, needs, ours, plain, rounds)


def _still(run: Callable[[Perturbation | None], None]) -> Callable[[], None]:
    return lambda: run(STILL)


@dataclass(frozen=True)
class _Needs:
    """What a segment cannot do without."""

    operations: float
    bytes: float

    def seconds(self, gflops: float, gbytes: float) -> float:
        """The least time at these limits."""
        return max(self.operations / gflops, self.bytes / gbytes) / 1e9


def _compare(
    size: Size,
    work: str,
    wanted: float | None,
    needs: _Needs,
    ours: Callable[[], object],
    plain: Callable[[], object],
    rounds: int,
) -> Share:
    limits, shares, plain_shares = [], [], []
    gbytes = limit_gbytes()
    for _ in range(rounds):
        first = limit_gflops()
        with one_thread():  # as the engine and the trainer do around their executor
            seconds = _seconds(ours)
        second = limit_gflops()
        plain_seconds = _seconds(plain)
        third = limit_gflops()
        limits += [first, second, third]
        shares.append(needs.seconds((first + second) / 2, gbytes) / seconds)
        plain_shares.append(needs.seconds((second + third) / 2, gbytes) / plain_seconds)
    gflops = median(limits)
    return Share(
        size=size.name,
        work=work,
        limit_gflops=gflops,
        limit_gbytes=gbytes,
        binds="bytes" if needs.bytes / gbytes > needs.operations / gflops else "products",
        share=median(shares),
        wanted=wanted,
        plain_share=median(plain_shares),
        times_plain=size.times_plain,
    )


def limit_gflops() -> float:
    """Return what large products sustain now, in billions of operations a second, on all cores."""
    left, right = _large(0), _large(1)
    out = left @ right
    return 2 * LIMIT_SIZE**3 / _seconds(lambda: torch.mm(left, right, out=out)) / 1e9


def limit_gbytes() -> float:
    """Return how many billions of bytes a second copies of long vectors read and write, on all cores."""
    source = torch.zeros(COPIED_NUMBERS)
    target = torch.empty_like(source)
    return 8 * COPIED_NUMBERS / _seconds(lambda: target.copy_(source)) / 1e9


def _puzzles(size: Size) -> Tensor:
    """Puzzles of the task if the model looks at what is given, else any tokens."""
    shape = size.rows, size.config.cells
    if size.config.live:
        made = task_named(size.config.task or "").generate(np.random.default_rng(0))
        return torch.from_numpy(np.stack([next(made).puzzle for _ in range(size.rows)])).long()
    return torch.randint(1, size.config.vocabulary, shape, generator=torch.Generator().manual_seed(0))


def _large(seed: int) -> Tensor:
    return torch.randn(LIMIT_SIZE, LIMIT_SIZE, generator=torch.Generator().manual_seed(seed))


def _seconds(run: Callable[[], object]) -> float:
    """Time of one run, the average over `LEAST_SECONDS` after one that is not counted."""
    run()
    begin, count = time.perf_counter(), 0
    while count == 0 or time.perf_counter() - begin < LEAST_SECONDS:
        run()
        count += 1
    return (time.perf_counter() - begin) / count


HEADER = (
    f"{'size':<18} {'one segment':<15} {'GFLOP/s':>8} {'GB/s':>5} {'binds':>8} {'share':>6} {'wanted':>7} "
    f"{'plain':>6} {'ratio':>6}"
)


def line(share: Share) -> str:
    """Return one line of the table that `HEADER` heads."""
    wanted = "" if share.wanted is None else f"{share.wanted:.2f}"
    limits = f"{share.limit_gflops:>8.0f} {share.limit_gbytes:>5.0f} {share.binds:>8}"
    text = f"{share.size:<18} {share.work:<15} {limits} {share.share:>6.2f} {wanted:>7}"
    return f"{text} {share.plain_share:>6.2f} {share.ratio:>6.2f}{'' if share.holds else '  short'}"


def main() -> None:
    """Print the table line by line."""
    print(HEADER)
    for share in measure():
        print(line(share), flush=True)


if __name__ == "__main__":
    main()
