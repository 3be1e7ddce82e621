"""Checkpoints: everything needed to go on as if never interrupted, in files without code.

A checkpoint is one safetensors file, tensors plus a JSON record in its header, written atomically and
verified by digest when read. A damaged one is passed over for the one before it.

Whether a run may begin or go on in a folder is asked before anything is written or removed: what is there
must be this run, whole, and changed by nobody else. So a refusal leaves the folder as it was.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import NonNegativeFloat, NonNegativeInt
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from eqr.errors import UserError
from eqr.files import new_file, parse_json, read_object, regular_file, require_object
from eqr.model.saving import DIGEST, digest_of
from eqr.runs import RunFolder
from eqr.signals import deferred_interrupts
from eqr.train.recipe import Recipe
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
        path, first = (self.folder / f"step-{step:09d}.safetensors" for step in (checkpoint.step, 0))
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()}
        record = json.dumps({"step": checkpoint.step, **checkpoint.record})
        metadata = {"format": FORMAT, "record": record, DIGEST: digest_of(tensors, record)}
        with new_file(path) as temporary:
            temporary.write_bytes(save(tensors, metadata))
        past = [other for other in self.paths() if other < path]
        future = [other for other in self.paths() if other > path]  # passed over when the run went on
        for other in past[: max(len(past) - self.keep + 1, 0)] + future:
            other.unlink(missing_ok=True)
        if first < path:  # written before any step
            first.unlink(missing_ok=True)
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
            ways = "restore one, choose another --out, or add --overwrite to begin anew"
            raise UserError("\n".join([f"no checkpoint can be read ({ways}):", *damaged]))
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
    if metadata.get(DIGEST) != digest_of(tensors, metadata.get("record", "")):
        raise UserError(f"{path} is damaged: its content does not match its digest")
    record = require_object(parse_json(metadata["record"], where=str(path)), where=str(path))
    known = Known.from_json(record, where=str(path))
    return Checkpoint(known.step, tensors, {name: value for name, value in record.items() if name != "step"})


def require_place(recipe: Recipe, folder: RunFolder, *, resume: bool, overwrite: bool) -> None:
    """Say why this recipe cannot train in this folder, if it cannot."""
    run, foreign = folder.path, folder.foreign()
    if foreign and not folder.recipe.is_file():
        raise UserError(f"{run} is not a training run ({foreign[0]} is in it); choose another --out")
    if overwrite and folder.recipe.is_file() and not _is_recipe(folder.recipe):
        raise UserError(f"{folder.recipe} is no training run's; move it away, or choose another --out")
    if not overwrite:  # which removes links first
        folder.require_own()
    if folder.begun and not resume and not overwrite:
        raise UserError(f"{run} already exists; add --resume to go on or --overwrite to begin anew")
    if resume and folder.recipe.is_file():
        before = Recipe.of_run(folder)
        # the table of identities follows from the data, which are compared by themselves
        model = recipe.model.replace(identities=before.model.identities)
        changed = recipe.replace(model=model).changed_since(before)
        if changed:
            raise UserError(
                f"cannot resume {run}: the recipe has changed in {'; '.join(changed)}. "
                "Undo the change, or train in another folder"
            )


def require_whole(folder: RunFolder, found: Latest | None) -> None:
    """Say so if a run has come further than its newest checkpoint: going on would remove its results."""
    summary, results = folder.summary(), folder.results()
    if found is None and results:
        there = f"{', '.join(results)}, but no checkpoint to go on from"
    elif found is not None and summary is not None and summary.steps > found.checkpoint.step:
        there = (
            f"results of step {summary.steps:,} ({', '.join(results)}), but its newest whole checkpoint "
            f"is of step {found.checkpoint.step:,}"
        )
    else:
        return
    damaged = "".join(f"; {problem}" for problem in found.damaged) if found is not None else ""
    raise UserError(
        f"cannot resume {folder.path}: it has {there}{damaged}. Restore {folder.checkpoints}, choose another "
        "--out for a new run, or add --overwrite to begin anew and lose what is there"
    )


def _is_recipe(path: Path) -> bool:
    """Whether a file is a recipe, as this or any other version of eqr wrote it."""
    try:
        return read_object(path).keys() >= {"name", "data", "model"}
    except UserError:
        return False
