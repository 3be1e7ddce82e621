"""Weights in files: written atomically, read without running code or taking memory on a stranger's word.

Names and shapes are compared on PyTorch's meta device, where a model has shapes but no memory, before a model
is made; values must be finite floating-point numbers, since nothing else was ever trained. A digest in the
file's header says what they were when they were written.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor, nn

from eqr.errors import UserError
from eqr.files import new_file, regular_file
from eqr.signals import deferred_interrupts

PICKLES = (".bin", ".ckpt", ".pkl", ".pt", ".pth")
NUMBERS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""What weights may be stored as; shorter ones need scales beside them, which no file of ours has."""
DIGEST = "digest"
"""Of the weights and what they belong to, in the header of their file."""

Model = TypeVar("Model", bound=nn.Module)
Shape = tuple[int, ...]


def write_weights(path: Path, weights: Mapping[str, Tensor], *, belonging: str) -> None:
    """Write tensors as safetensors, atomically, with a digest of them and of the text that they belong to."""
    with new_file(path) as temporary:
        plain = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
        metadata = {"format": "pt", DIGEST: digest_of(plain, belonging)}
        temporary.write_bytes(_with_metadata(save(plain), metadata))


def _with_metadata(content: bytes, metadata: Mapping[str, str]) -> bytes:
    """Return a safetensors file with metadata in its header, in their order: its own writer shuffles them."""
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.dumps(
        {"__metadata__": metadata, **json.loads(content[8:end])}, separators=(",", ":")
    ).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + content[end:]


def stored_digest(path: Path) -> str | None:
    """Return the digest in a safetensors file; None for one that eqr did not write, or before it did that."""
    with _undamaged(path), safe_open(path, "pt") as file:
        return (file.metadata() or {}).get(DIGEST)


def digest_of(weights: Mapping[str, Tensor], belonging: str) -> str:
    """Return a content hash of tensors by name, bit for bit, and of a text that they belong to."""
    digest = hashlib.sha256(belonging.encode())
    for name, tensor in sorted(weights.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        if tensor.numel():
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file; a missing, truncated or pickled one is a `UserError` that says what to do."""
    _require_safetensors(path)
    with _undamaged(path):
        return load_file(path)


def stored_shapes(path: Path) -> dict[str, Shape]:
    """Return the shapes in a safetensors file by name, reading only its header."""
    _require_safetensors(path)
    with _undamaged(path), safe_open(path, "pt") as file:
        names = list(file.keys())
        return {name: tuple(file.get_slice(name).get_shape()) for name in names}


def is_pickle(path: Path) -> bool:
    """Say whether a file is one of PyTorch's own (a zip archive or a bare pickle)."""
    with regular_file(path).open("rb") as file:
        first = file.read(9)
    # safetensors begin with the length of their header, whose bytes may be anything, then the header itself
    return not first.endswith(b"{") and first.startswith((b"PK", b"\x80"))


def shapes_of(weights: Mapping[str, Tensor]) -> dict[str, Shape]:
    """Return shapes by name."""
    return {name: tuple(tensor.shape) for name, tensor in weights.items()}


def fitted(make: Callable[[], Model], shapes: Mapping[str, Shape], *, where: str) -> Model:
    """Make a model, having seen that weights of these shapes are exactly its own."""
    with torch.device("meta"):
        own = shapes_of(make().state_dict())
    require_shapes(own, shapes, where=where)
    return make()


def require_shapes(own: Mapping[str, Shape], given: Mapping[str, Shape], *, where: str) -> None:
    """Say which name or shape differs, if one does."""
    missing, unknown = sorted(own.keys() - given.keys()), sorted(given.keys() - own.keys())
    if missing or unknown:
        words = [f"lacks {missing[0]!r}"] if missing else []
        words += [f"has {unknown[0]!r}, which this model has not"] if unknown else []
        count = len(missing) + len(unknown)
        raise UserError(f"{where} {' and '.join(words)} ({count} names differ); does it match the config?")
    for name, shape in own.items():
        if given[name] != shape:
            raise UserError(
                f"{where}: {name} has shape {given[name]}, the config needs {shape}; "
                "weights and config belong to different models"
            )


def require_numbers(weights: Mapping[str, Tensor], *, where: str) -> None:
    """Say which weight is not made of floating-point numbers that float32 can hold, if one is."""
    for name, tensor in weights.items():
        if tensor.dtype not in NUMBERS:
            raise UserError(
                f"{where}: {name} is {tensor.dtype}, weights are floating-point numbers of 16 to 64 bits"
            )
        if not bool(torch.isfinite(tensor.float()).all()):
            raise UserError(
                f"{where}: {name} holds NaN or infinity; the file is damaged or its training failed"
            )


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], *, where: str) -> None:
    """Copy weights into a model; names and shapes must be exactly the model's, values finite."""
    require_shapes(shapes_of(model.state_dict()), shapes_of(weights), where=where)
    require_numbers(weights, where=where)
    model.load_state_dict(weights)


def _require_safetensors(path: Path) -> None:
    if not path.exists():
        others = [file.name for file in path.parent.glob("*") if file.suffix in PICKLES]
        hint = f"; {others[0]} is a pickle, which `eqr convert` converts" if others else ""
        raise UserError(f"{path} is missing{hint}")
    if is_pickle(path):
        raise UserError(f"{path} is a pickle, not safetensors; `eqr convert` converts official checkpoints")


@contextmanager
def _undamaged(path: Path) -> Iterator[None]:
    try:
        with deferred_interrupts():  # in compiled code a signal would look like damage
            yield
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, RuntimeError, MemoryError) as error:
        raise UserError(f"{path} is damaged or truncated ({error}); copy or download it again") from None
