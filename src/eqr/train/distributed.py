"""Several processes as one: `torchrun` starts them, each holds a share of the rows, gradients are summed.

There is no wrapper around the model. A step already ends in one flat vector of sums (gradient, statistics,
and what the ranks must agree on), so one all-reduce per step is the whole of it; wrapping the module instead
would tie the sum to one backward pass, where a step here has one per cut and window. The data stream is read
by global position on every rank, so that several processes see what one process sees.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from eqr.errors import UserError


class LostRank(UserError):
    """Another process of the job has ended, so no more steps are possible."""


class World:
    """The processes of a job; alone, every operation returns what it is given."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size

    @property
    def first(self) -> bool:
        """Whether this process writes files and reports."""
        return self.rank == 0

    def share(self, rows: int) -> int:
        """Return how many of a batch's rows each process holds."""
        if rows % self.size:
            raise UserError(f"rows = {rows} does not divide among {self.size} processes; choose a multiple")
        return rows // self.size

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum over all processes of a tensor that has the same shape everywhere."""
        if self.size > 1:
            with _reported():
                dist.all_reduce(values)
        return values

    def gather(self, values: Tensor) -> Tensor:
        """Return every process's values, in order of rank along the first axis; same shape everywhere."""
        if self.size == 1:
            return values
        values = values.contiguous()
        flat = values.to(torch.uint8) if values.dtype is torch.bool else values
        parts = [torch.empty_like(flat) for _ in range(self.size)]
        with _reported():
            dist.all_gather(parts, flat)
        return torch.cat(parts).to(values.dtype)

    def agree(self, mine: bool) -> bool:
        """Return whether every process gives True."""
        if self.size == 1:
            return mine
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        return self.sum(torch.tensor([float(mine)], device=device)).item() == self.size

    def together(self) -> None:
        """Wait until every process has come here."""
        if self.size > 1:
            with _reported():
                dist.barrier()


@contextmanager
def joined(device: torch.device, *, patience: timedelta = timedelta(minutes=10)) -> Iterator[World]:
    """Join the job that `torchrun` started, if it did; one that keeps the others waiting longer is lost."""
    if "RANK" not in os.environ or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield World()
        return
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=patience)
    try:
        yield World(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()


@contextmanager
def _reported() -> Iterator[None]:
    """Say plainly that a collective failed, which is what a rank's death looks like from the others."""
    try:
        yield
    except RuntimeError as error:
        raise LostRank(f"another process of this job has ended ({str(error).splitlines()[0]})") from error
