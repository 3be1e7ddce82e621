"""Who computes a segment: `eager` is what stands in `eqr.model`, `cpu` the fast one on a machine's cores."""

import torch

from eqr.backends.base import BACKENDS, Backend, Eager
from eqr.backends.compiled import Compiled
from eqr.backends.cpu.backend import Cpu
from eqr.model.config import ReasonerConfig

BACKENDS.close()

__all__ = ["BACKENDS", "Backend", "Compiled", "Cpu", "Eager", "backend_named", "default_backend"]


def backend_named(
    name: str, config: ReasonerConfig, device: torch.device | None = None, *, workers: int | None = None
) -> Backend:
    """Return the backend of that name for solving with models of this config."""
    return BACKENDS[name].solving(config, device or torch.device("cpu"), workers=workers)


def default_backend(
    config: ReasonerConfig, device: torch.device | None = None, *, workers: int | None = None
) -> Backend:
    """Return the fast one."""
    return Cpu.solving(config, device or torch.device("cpu"), workers=workers)
