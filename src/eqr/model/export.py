"""A reasoner as four graphs that run without eqr: `embed`, `start`, `cycle` and `read`, with dynamic batch.

A graph knows nothing of depth, breadth, halting or selection; whoever runs the graphs owns the loop, as
`eqr.solve` does here and the page in `eqr.serve` does in a browser. A segment is `cycles` runs of `cycle`,
which is told its number: unrolled, a long segment would be many times as large. Damping, noise and keys are
arguments of `cycle`, so that a trajectory is the same wherever it runs. `model.json` beside the graphs says
what they take and give, and what the model is.
"""

import contextlib
import io
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from eqr.errors import UserError, with_extra
from eqr.files import make_folder, new_file, write_json
from eqr.model.definitions import choose_noise, noise_vectors
from eqr.model.operator import Applications, Damped, Move, Noise, Noisy
from eqr.model.reasoner import Reasoner
from eqr.model.state import State

MANIFEST = "model.json"
AGREEMENT = 1e-4
"""Greatest difference between a graph and the model, relative to the largest number, that is let through."""


Run = Callable[..., Any]
"""Runs an exported graph: tensors in, tensors out."""


def _nothing() -> None:
    return


class _Function(nn.Module):
    """A function of a reasoner and tensors, as the module that tracing wants."""

    def __init__(self, reasoner: Reasoner, compute: Callable[..., Tensor | tuple[Tensor, ...]]) -> None:
        super().__init__()
        self.reasoner, self.compute = reasoner, compute

    def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        return self.compute(self.reasoner, *inputs)


@dataclass(frozen=True)
class Graph:
    """One function of the model, with the names under which a runtime sees its tensors."""

    name: str
    module: nn.Module
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    example: tuple[Tensor, ...]
    """Inputs of a few rows, by which the function is traced and checked."""
    row_axes: tuple[int | None, ...]
    """Which axis of each input counts rows; None for scalars and scales."""

    def program(self) -> torch.export.ExportedProgram:
        """Trace it for any number of rows."""
        rows = torch.export.Dim("rows", min=1, max=1 << 20)
        axes = [None if axis is None else {axis: rows} for axis in self.row_axes]
        with _portable():
            program = torch.export.export(self.module, self.example, dynamic_shapes={"inputs": tuple(axes)})
            # our own operators become PyTorch's
            plain: torch.export.ExportedProgram = program.run_decompositions({})
        return plain


def _embed(reasoner: Reasoner, puzzles: Tensor, *identities: Tensor) -> Tensor:
    vectors = reasoner.identity_vectors(identities[0]) if identities else None
    return reasoner.embed_tokens(puzzles, vectors)


def _start(reasoner: Reasoner, x: Tensor, keys: Tensor) -> tuple[Tensor, ...]:
    return reasoner.initial_state(x, keys).tensors()


def _cycle(reasoner: Reasoner, *inputs: Tensor) -> tuple[Tensor, ...]:
    """What `Reasoner.segment` repeats, with damping as an input, and noise where the model has some."""
    config, moves = reasoner.config, repeated(reasoner.moves)
    states = 2 if config.two_states else 1
    x, keys, depths, cycle, damping, *noise = inputs[states:]
    answer = Damped(reasoner.answer_stack or reasoner.stack, damping)
    scratch = Damped(reasoner.stack, damping)
    apply = Applications(answer=answer, scratch=scratch)
    if noise:
        vectors = noise_vectors(config.width, keys.device)
        chosen = choose_noise(keys, depths, len(moves), config.tokens, since=cycle * len(moves))
        apply = Applications(
            answer=Noisy(answer, Noise(vectors, chosen, noise[0][0])),
            scratch=Noisy(scratch, Noise(vectors, chosen, noise[0][-1])),
        )
    return reasoner.run(State(*inputs[:states]), x, apply, moves=moves).tensors()


def _read(reasoner: Reasoner, *inputs: Tensor) -> tuple[Tensor, ...]:
    half = len(inputs) // 2
    reading = reasoner.read(State(*inputs[:half]), State(*inputs[half:]))
    return reading.logits, reading.halt, reading.continue_score, reading.residual


def repeated(moves: Sequence[Move]) -> tuple[Move, ...]:
    """Return the shortest run of moves that a segment repeats: a cycle, or less where all moves are alike."""
    count = len(moves)
    lengths = (length for length in range(1, count + 1) if count % length == 0)
    return next(tuple(moves[:n]) for n in lengths if tuple(moves[:n]) * (count // n) == tuple(moves))


@torch.no_grad()
def graphs(reasoner: Reasoner, *, rows: int = 3, seed: int = 0) -> tuple[Graph, ...]:
    """Return the four graphs, each with an example made by the ones before."""
    config = reasoner.config
    generator = torch.Generator().manual_seed(seed)
    puzzles = torch.randint(0, config.vocabulary, (rows, config.cells), generator=generator)
    keys = torch.randint(0, 1 << 62, (rows,), generator=generator)
    given = (puzzles, *([torch.arange(rows) % config.identities] if config.identities else []))
    x = _embed(reasoner, *given)
    start = _start(reasoner, x, keys)
    scales = (torch.tensor(noise_scales(reasoner)),) if config.path.noise else ()
    if scales:
        noise_vectors(config.width, reasoner.embedding.device)  # cannot be drawn in a graph
    steps = (torch.arange(rows), torch.tensor(1), torch.tensor(config.path.damping), *scales)
    after = _cycle(reasoner, *start, x, keys, *steps)
    states = ("answer", "scratch")[: len(start)]
    latent, free = (1,) * len(states), (None,) * (len(steps) - 1)
    before, moved = (tuple(f"{state}_{when}" for state in states) for when in ("before", "after"))
    cycle_inputs = (*states, "x", "keys", "depths", "cycle", "damping", *("noise",)[: len(scales)])
    heads = ("logits", "halt", "continue_score", "residual")

    def graph(compute: Callable[..., Any], *rest: Any) -> Graph:
        return Graph(compute.__name__.lstrip("_"), _Function(reasoner, compute), *rest)

    return (
        graph(_embed, ("puzzles", "identities")[: len(given)], ("x",), given, (0,) * len(given)),
        graph(_start, ("x", "keys"), states, (x, keys), (1, 0)),
        graph(_cycle, cycle_inputs, moved, (*start, x, keys, *steps), (*latent, 1, 0, 0, *free)),
        graph(_read, (*states, *before), heads, (*after, *start), latent * 2),
    )


def noise_scales(reasoner: Reasoner) -> list[float]:
    """Return the model's own noise of the answer and the scratch state."""
    path = reasoner.config.path
    if path.learned_noise and reasoner.log_noise is not None:
        learned: list[float] = (path.noise * reasoner.log_noise.detach().exp()).tolist()
        return [learned[0], learned[-1]]
    return [path.noise, path.noise]


def export_onnx(
    reasoner: Reasoner, folder: Path, about: dict[str, Any], *, done: Callable[[], object] = _nothing
) -> dict[str, Any]:
    """Write `*.onnx`, each checked against the model by onnxruntime, and return the manifest.

    `about` goes into the manifest; `done` is called after each graph.
    """
    try:
        import onnxruntime
        import onnxscript  # noqa: F401  # what torch.onnx needs, said before any work is done
    except ImportError as error:
        raise UserError(f"exporting needs {error.name}: {with_extra('export')}") from None

    def write(graph: Graph) -> tuple[bytes, Run]:
        program = torch.onnx.export(
            graph.program(),
            dynamo=True,
            verbose=False,
            input_names=list(graph.inputs),
            output_names=list(graph.outputs),
        )
        assert program is not None
        data: bytes = program.model_proto.SerializeToString()
        session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        taken = {taken.name for taken in session.get_inputs()}

        def run(*example: Tensor) -> list[Tensor]:
            named = zip(graph.inputs, example, strict=True)
            found = session.run(None, {name: value.numpy() for name, value in named if name in taken})
            return [torch.from_numpy(value) for value in found]

        return data, run

    return _write_all(reasoner, folder, about, ".onnx", write, done)


def export_programs(
    reasoner: Reasoner, folder: Path, about: dict[str, Any], *, done: Callable[[], object] = _nothing
) -> dict[str, Any]:
    """Write `*.pt2`, PyTorch's own exported programs, each loaded again and checked, likewise."""

    def write(graph: Graph) -> tuple[bytes, Run]:
        buffer = io.BytesIO()
        torch.export.save(graph.program(), buffer)
        return buffer.getvalue(), torch.export.load(io.BytesIO(buffer.getvalue())).module()

    return _write_all(reasoner, folder, about, ".pt2", write, done)


def _write_all(
    reasoner: Reasoner,
    folder: Path,
    about: dict[str, Any],
    suffix: str,
    write: Callable[[Graph], tuple[bytes, Run]],
    done: Callable[[], object],
) -> dict[str, Any]:
    parts = []
    for graph in graphs(reasoner):
        with _quiet():
            data, run = write(graph)
        _require_agreement(graph, run)
        parts.append((graph, data))
        done()
    make_folder(folder)
    written = {}
    for graph, data in parts:
        with new_file(folder / f"{graph.name}{suffix}") as temporary:
            temporary.write_bytes(data)
        written[graph.name] = {
            "file": f"{graph.name}{suffix}",
            "inputs": list(graph.inputs),
            "outputs": list(graph.outputs),
            "bytes": len(data),
            "sha256": sha256(data).hexdigest(),
        }
    manifest = {
        **about,
        "config": reasoner.config.to_json(),
        "parameters": reasoner.parameter_count(),
        "cycles": len(reasoner.moves) // len(repeated(reasoner.moves)),
        "path": {"damping": reasoner.config.path.damping, "noise": noise_scales(reasoner)},
        "graphs": written,
    }
    write_json(folder / MANIFEST, manifest)
    return manifest


@torch.no_grad()
def _require_agreement(graph: Graph, run: Run) -> None:
    """Compare on the example and on its first row alone, since the number of rows must be free."""
    paired = zip(graph.example, graph.row_axes, strict=True)
    alone = tuple(v if axis is None else v.narrow(axis, 0, 1).contiguous() for v, axis in paired)
    for example in (graph.example, alone):
        wanted, found = (
            [given] if isinstance(given, Tensor) else given
            for given in (graph.module(*example), run(*example))
        )
        for name, ours, theirs in zip(graph.outputs, wanted, found, strict=True):
            difference = float((ours - theirs).abs().max()) / max(float(ours.abs().max()), 1.0)
            if not difference <= AGREEMENT:
                raise UserError(
                    f"the exported graph `{graph.name}` gives another {name} than the model "
                    f"(relative difference {difference:.2g}, allowed {AGREEMENT:g}); nothing was written"
                )


@contextmanager
def _portable() -> Iterator[None]:
    """Trace what other runtimes have: ONNX knows erf, not its inverse."""
    with patch.object(torch, "erfinv", erfinv_by_newton):
        yield


def erfinv_by_newton(y: Tensor) -> Tensor:
    """The inverse of erf away from its ends: a first guess by logarithms, then Newton's steps on erf."""
    shrunk = torch.log1p(-y * y)
    half = 2 / (math.pi * 0.147) + shrunk / 2
    x = torch.sign(y) * torch.sqrt(torch.sqrt(half * half - shrunk / 0.147) - half)
    for _ in range(2):
        x = x - (torch.erf(x) - y) * torch.exp(x * x) * (math.pi**0.5 / 2)
    return x


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporters' talk about packages we do not use off the terminal."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    said = io.StringIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(said):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
