"""Who computes a segment: `eager` is what stands in `eqr.model`, `cpu` the fast one on a machine's cores."""

from eqr.backends.base import BACKENDS, Backend, Eager, Segment, default_backend
from eqr.backends.compiled import Compiled
from eqr.backends.cpu.backend import Cpu

BACKENDS.close()

__all__ = ["BACKENDS", "Backend", "Compiled", "Cpu", "Eager", "Segment", "default_backend"]
