"""The `compiled` backend: `torch.compile` of the segment, with CUDA graphs where there is CUDA.

Compiled code is for one number of rows, so a batch is filled up to the next power of two by repeating its
last row. The first segment of each size waits for the compiler, which needs a C++ compiler on a cpu.
"""

import time
from typing import Any, Self

import torch

from eqr.backends.base import CPU, Backend, Segment
from eqr.model.config import ReasonerConfig
from eqr.model.definitions import noise_vectors, transformed
from eqr.model.reasoner import Reasoner
from eqr.model.state import State
from eqr.registry import register

VARIANTS = 64
"""Numbers of rows, perturbations and gradient windows that are compiled before PyTorch gives up."""


@register
class Compiled(Backend):
    """Fuses what stands in `eqr.model`; function transforms and forward derivatives are left to the model."""

    name = "compiled"

    def __init__(self, *, cuda_graphs: bool = False) -> None:
        """With CUDA graphs, segments without a gradient are recorded once and replayed."""
        self.compile_seconds = 0.0
        """What first segments of their kind took so far, nearly all of it the compiler's."""
        self._known: set[tuple[object, ...]] = set()
        self._plain = torch.compile(_segment, dynamic=False, fullgraph=True)
        mode = "reduce-overhead" if cuda_graphs else None
        self._replayed = torch.compile(_segment, dynamic=False, fullgraph=True, mode=mode)

    @classmethod
    def solving(
        cls, config: ReasonerConfig, device: torch.device = CPU, *, workers: int | None = None
    ) -> Self:
        """Record graphs where there is CUDA."""
        return cls(cuda_graphs=device.type == "cuda")

    def compute(self, segment: Segment) -> State:
        """Fill up, run, and take the rows that were asked for."""
        from torch._dynamo import config  # takes seconds to load

        model, x, how = segment.model, segment.x, (segment.perturbation, segment.tracked)
        if transformed():
            return segment.composed()
        if segment.perturbation.noise:
            noise_vectors(model.config.width, x.device)  # cannot be drawn in a graph
        rows = segment.state.rows
        filled = torch.arange(1 << (rows - 1).bit_length(), device=x.device).clamp(max=rows - 1)
        latents = segment.state.map(lambda latent: latent.index_select(1, filled))
        given = latents, x.index_select(1, filled), segment.keys[filled], segment.depths[filled]
        recording = torch.is_grad_enabled()
        run = self._plain if recording else self._replayed
        kind, began = (id(model), len(filled), recording, *how), time.perf_counter()
        with config.patch(recompile_limit=VARIANTS):
            after: Any = run(model, *given, *how)
        if kind not in self._known:
            self._known.add(kind)
            self.compile_seconds += time.perf_counter() - began
        return State(*(latent[:, :rows].clone() for latent in after.tensors()))


def _segment(model: Reasoner, *given: Any) -> State:
    return Segment(model, *given).composed()
