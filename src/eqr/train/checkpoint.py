"""Checkpoints: everything needed to go on as if never interrupted, in files without code.

A checkpoint is one safetensors file, tensors plus a JSON record in its header, written atomically and
verified by digest when read. A damaged one is passed over for the one before it.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import NonNegativeFloat, NonNegativeInt
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from eqr.errors import UserError
from eqr.files import new_file, parse_json, regular_file, require_object
from eqr.signals import deferred_interrupts
from eqr.value import Value

FORMAT = "eqr-checkpoint-1"


@dataclass(frozen=True)
class Checkpoint:
    """Tensors by name and a record of plain JSON data."""

    step: int
    tensors: dict[str, Tensor]
    record: dict[str, Any]


class Known(Value, extra="ignore"):
    """What every record holds, in the form in which a run goes on from it."""

    step: NonNegativeInt
    seconds: NonNegativeFloat
    best: dict[str, float]
    meter: dict[str, float]
    stream: dict[str, Any]


@dataclass(frozen=True)
class Latest:
    """The newest checkpoint that is whole, and which newer ones were not."""

    checkpoint: Checkpoint
    damaged: tuple[str, ...]


class Checkpoints:
    """The checkpoints of a run, the last `keep` of them."""

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder, self.keep = folder, keep

    def paths(self) -> list[Path]:
        """Return all checkpoint files, oldest first."""
        return sorted(self.folder.glob("step-*.safetensors"))

    def save(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint; only then remove older ones beyond the last `keep`, and newer, damaged ones."""
        path = self.folder / f"step-{checkpoint.step:09d}.safetensors"
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()}
        record = json.dumps({"step": checkpoint.step, **checkpoint.record})
        metadata = {"format": FORMAT, "record": record, "digest": _digest(tensors, record)}
        with new_file(path) as temporary:
            temporary.write_bytes(save(tensors, metadata))
        past = [other for other in self.paths() if other < path]
        future = [other for other in self.paths() if other > path]  # passed over when the run went on
        for other in past[: max(len(past) - self.keep + 1, 0)] + future:
            other.unlink(missing_ok=True)
        return path

    def latest(self) -> Latest | None:
        """Return the newest whole checkpoint, or None if there never was one."""
        damaged: list[str] = []
        for path in reversed(self.paths()):
            try:
                return Latest(read(path), tuple(damaged))
            except UserError as error:
                damaged.append(str(error))
        if damaged:
            raise UserError("no checkpoint can be read:\n" + "\n".join(damaged))
        return None


def read(path: Path) -> Checkpoint:
    """Read one checkpoint; anything wrong with it is a `UserError` that names the file."""
    try:
        # in compiled code a signal would come out as an error of another kind
        with deferred_interrupts(), safe_open(regular_file(path), "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is damaged: {error}") from None
    if metadata.get("format") != FORMAT:
        raise UserError(f"{path} is not an eqr checkpoint (format {metadata.get('format')!r})")
    if metadata.get("digest") != _digest(tensors, metadata.get("record", "")):
        raise UserError(f"{path} is damaged: its content does not match its digest")
    record = require_object(parse_json(metadata["record"], where=str(path)), where=str(path))
    known = Known.from_json(record, where=str(path))
    return Checkpoint(known.step, tensors, {name: value for name, value in record.items() if name != "step"})


def _digest(tensors: dict[str, Tensor], record: str) -> str:
    digest = hashlib.sha256(record.encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        digest.update(tensors[name].view(torch.uint8).numpy().data if tensors[name].numel() else b"")
    return digest.hexdigest()
