"""The rows of a training batch: what each slot holds, and how a halted one takes a fresh puzzle.

A row's key is hashed from (seed, position in the data stream). Its start and its noise therefore do not
depend on the slot, the rank or the number of ranks.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from eqr.data import Batch
from eqr.dynamics.rows import Rows, put
from eqr.model.config import ReasonerConfig
from eqr.model.definitions import scramble
from eqr.model.reasoner import Reasoner
from eqr.model.state import State


def position_keys(seed: int, positions: Tensor) -> Tensor:
    """Return the keys of rows drawn at these positions (rows,) of a stream."""
    return scramble(scramble(torch.full_like(positions, seed)) + positions)


@dataclass(frozen=True)
class TrainingRows:
    """Trajectories with their puzzles and labels; every tensor has one entry per row."""

    rows: Rows
    """Without x: weights move, so each window embeds the puzzles anew."""
    inputs: Tensor
    """(rows, cells) uint8."""
    labels: Tensor
    """(rows, cells) int64; 0 is not counted."""
    identities: Tensor
    halted: Tensor
    """Whether the row is over and waits for a fresh puzzle."""

    @classmethod
    def empty(cls, count: int, config: ReasonerConfig, device: torch.device) -> "TrainingRows":
        """Make slots that all wait for a puzzle."""
        number = torch.zeros(count, dtype=torch.int64, device=device)
        grid = torch.zeros(count, config.cells, dtype=torch.uint8, device=device)
        latent = torch.zeros(config.tokens, count, config.width, device=device)
        state = State(latent, latent.clone() if config.two_states else None)
        return cls(
            rows=Rows(x=None, state=state, keys=number.clone(), depths=number.clone()),
            inputs=grid,
            labels=grid.to(torch.int64),
            identities=number,
            halted=number == 0,
        )

    def __len__(self) -> int:
        return len(self.rows)

    @torch.no_grad()
    def refill(self, index: Tensor, batch: Batch, seed: int, model: Reasoner) -> None:
        """Put fresh puzzles with fresh starts into the given rows."""
        device = self.halted.device
        inputs = torch.from_numpy(batch.inputs).to(device)
        identities = torch.from_numpy(batch.identities).to(device, torch.int64)
        keys = position_keys(seed, torch.from_numpy(batch.positions)).to(device)
        x = model.embed_tokens(inputs, model.identity_vectors(identities))
        state = model.initial_state(x, keys)
        fresh = TrainingRows(
            rows=Rows(x=None, state=state, keys=keys, depths=torch.zeros_like(keys)),
            inputs=inputs,
            labels=torch.from_numpy(batch.labels).to(device, torch.int64),
            identities=identities,
            halted=torch.zeros_like(keys, dtype=torch.bool),
        )
        put(self, index, fresh)

    def tensors(self) -> dict[str, Tensor]:
        """Return everything by name, rows along the first axis, for a checkpoint."""
        latents = zip(("answer", "scratch"), self.rows.state.tensors(), strict=False)
        return {
            "inputs": self.inputs,
            "labels": self.labels,
            "identities": self.identities,
            "keys": self.rows.keys,
            "depths": self.rows.depths,
            "halted": self.halted,
            **{name: latent.transpose(0, 1) for name, latent in latents},
        }

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Overwrite everything with what `tensors` returned."""
        for name, mine in self.tensors().items():
            mine.copy_(tensors[name])
