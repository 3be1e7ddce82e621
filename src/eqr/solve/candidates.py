"""`Candidates`: what trajectories ended with, as columns; any leading shape, usually (puzzles, starts).

The engine yields them in batches as rows finish, the solver and the table on disk gather them by puzzle, and
selection rules choose among them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eqr.tasks.base import Tokens

WINDOW = 64
"""Residuals kept of each trajectory unless asked for more: its last ones, at the usual depths all of them."""


class Status(IntEnum):
    """How a trajectory ended."""

    NOT_RUN = 0  # its race was over before it began
    RAN_OUT = 1  # reached the greatest depth
    HALTED = 2  # stopped by the halting rule
    CANCELLED = 3  # a sibling won the race first


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Final readings; every array has the same leading shape."""

    tokens: Tokens
    """(..., cells): decoded grids."""
    status: NDArray[np.uint8]
    depth: NDArray[np.int32]
    """Segments run."""
    halt: NDArray[np.float32]
    """Halt score of the last reading."""
    residuals: NDArray[np.float32]
    """(..., window): change of the latents in each of the last segments, the latest last; NaN before."""
    logit_residuals: NDArray[np.float32]
    """(..., window): mean over cells of the L2 change of the logits, likewise."""
    probe: NDArray[np.float32]
    """Change of the latents in a further segment without noise; NaN where not asked for."""
    seconds: NDArray[np.float32]
    """From entering a slot to leaving it."""

    @classmethod
    def empty(cls, *shape: int, cells: int, window: int) -> "Candidates":
        """Return candidates none of which has run."""
        return cls(
            tokens=np.zeros((*shape, cells), np.uint8),
            status=np.zeros(shape, np.uint8),
            depth=np.zeros(shape, np.int32),
            halt=np.full(shape, np.nan, np.float32),
            residuals=np.full((*shape, window), np.nan, np.float32),
            logit_residuals=np.full((*shape, window), np.nan, np.float32),
            probe=np.full(shape, np.nan, np.float32),
            seconds=np.zeros(shape, np.float32),
        )

    @classmethod
    def joined(cls, parts: Sequence["Candidates"]) -> "Candidates":
        """Put candidates behind each other along their first axis."""
        names = [field.name for field in fields(cls)]
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})

    def __len__(self) -> int:
        return len(self.status)

    def __getitem__(self, index: Any) -> "Candidates":
        """Index the leading axes of every column alike."""
        return Candidates(**{name: array[index] for name, array in self.columns().items()})

    def put(self, index: Any, other: "Candidates") -> None:
        """Overwrite some rows in place."""
        for name, array in self.columns().items():
            array[index] = getattr(other, name)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def complete(self) -> NDArray[np.bool_]:
        """Which rows ran to an end of their own: those a selection may choose."""
        return np.isin(self.status, (Status.HALTED, Status.RAN_OUT))

    @property
    def nfe(self) -> NDArray[np.int64]:
        """Segments paid for, probes included."""
        return self.depth.astype(np.int64) + np.isfinite(self.probe)
