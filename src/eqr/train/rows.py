"""The rows of a training batch: what each slot holds, and how a halted one takes a fresh puzzle.

A row's key is hashed from (seed, position in the data stream). Its start and its noise therefore do not
depend on the slot, the rank or the number of ranks.
"""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from eqr.data import Batch
from eqr.model.config import ReasonerConfig
from eqr.model.counters import scramble
from eqr.model.reasoner import Reasoner
from eqr.model.state import State


def position_keys(seed: int, positions: Tensor) -> Tensor:
    """Return the keys of rows drawn at these positions (rows,) of a stream."""
    return scramble(scramble(torch.full_like(positions, seed)) + positions)


@dataclass(frozen=True)
class Rows:
    """Slots of a batch; every tensor has one entry per row, latents along their second axis."""

    inputs: Tensor
    """(rows, cells) uint8."""
    labels: Tensor
    """(rows, cells) int64; 0 is not counted."""
    identities: Tensor
    keys: Tensor
    depths: Tensor
    """Segments each row has behind it."""
    halted: Tensor
    """Whether the row is over and waits for a fresh puzzle."""
    state: State

    @classmethod
    def empty(cls, count: int, config: ReasonerConfig, device: torch.device) -> "Rows":
        """Make slots that all wait for a puzzle."""
        number = torch.zeros(count, dtype=torch.int64, device=device)
        grid = torch.zeros(count, config.cells, dtype=torch.uint8, device=device)
        latent = torch.zeros(config.tokens, count, config.width, device=device)
        return cls(
            inputs=grid,
            labels=grid.to(torch.int64),
            identities=number,
            keys=number.clone(),
            depths=number.clone(),
            halted=number == 0,
            state=State(latent, latent.clone() if config.two_states else None),
        )

    def __len__(self) -> int:
        return len(self.keys)

    def chunk(self, rows: slice) -> "Rows":
        """View a run of rows without copying: what is written to it is written here."""
        return Rows(**{name: part[rows] for name, part in self._flat()}, state=self.state.chunk(rows))

    def take(self, rows: Tensor) -> "Rows":
        """Copy out some rows by index."""
        parts = {name: part.index_select(0, rows) for name, part in self._flat()}
        return Rows(**parts, state=self.state.take(rows))

    def put(self, rows: Tensor, other: "Rows") -> None:
        """Overwrite some rows by index."""
        for (_, mine), (_, theirs) in zip(self._flat(), other._flat(), strict=True):
            mine.index_copy_(0, rows, theirs)
        self.state.put(rows, other.state)

    @torch.no_grad()
    def refill(self, rows: Tensor, batch: Batch, seed: int, model: Reasoner) -> None:
        """Put fresh puzzles with fresh starts into the given rows."""
        device = self.keys.device
        fresh = {
            "inputs": torch.from_numpy(batch.inputs).to(device),
            "labels": torch.from_numpy(batch.labels).to(device, torch.int64),
            "identities": torch.from_numpy(batch.identities).to(device, torch.int64),
            "keys": position_keys(seed, torch.from_numpy(batch.positions)).to(device),
        }
        for name, values in fresh.items():
            getattr(self, name).index_copy_(0, rows, values)
        self.depths.index_fill_(0, rows, 0)
        self.halted.index_fill_(0, rows, False)
        x = model.embed(fresh["inputs"], model.identity_vectors(fresh["identities"]))
        self.state.put(rows, model.start(x, fresh["keys"]))

    def tensors(self) -> dict[str, Tensor]:
        """Return everything by name, rows along the first axis, for a checkpoint."""
        latents = dict(zip(("answer", "scratch"), self.state.tensors(), strict=False))
        return {**dict(self._flat()), **{name: part.transpose(0, 1) for name, part in latents.items()}}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Overwrite everything with what `tensors` returned."""
        for name, mine in self.tensors().items():
            mine.copy_(tensors[name])

    def _flat(self) -> list[tuple[str, Tensor]]:
        return [(field.name, getattr(self, field.name)) for field in fields(self) if field.name != "state"]
