"""Reading the files of the original implementations: their checkpoints and their configs.

A checkpoint is a bare table of weights (TRM, HRM, URM) or a training state around one (EqR), possibly of a
compiled or distributed model, possibly with averaged weights beside, which are the ones to evaluate.
"""

import pickle
import re
import struct
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from eqr.errors import UserError, brief
from eqr.files import read_json, read_text, regular_file
from eqr.model.weights import is_pickle, read_weights

_WRAPPERS = {"_orig_mod", "module"}  # torch.compile's and DistributedDataParallel's
_LEADS = ("model.", "inner.")
_CACHES = ("puzzle_emb.local_weights", "puzzle_emb.local_ids", "rotary_emb.")
_BYSTANDERS = ("numpy", "models", "config", "utils", "dataset", "evaluators", "pathlib", "random")
"""Packages whose objects ride along in training states (random states, carries) and are not needed."""
_UNREADABLE = (
    pickle.UnpicklingError,
    struct.error,
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What PyTorch's reader raises, depending on where a file stops making sense."""


@dataclass(frozen=True)
class Original:
    """The weights of an original under its own names, without the wrappings, and its config if it has one."""

    weights: dict[str, Tensor]
    settings: Mapping[str, Any] | None = None

    @property
    def system(self) -> str:
        """Which implementation the names belong to."""
        if any(name.startswith("H_level.layers.") for name in self.weights):
            return "HRM"
        if any(".dwconv." in name for name in self.weights):
            return "URM"
        return "TRM" if "H_init" in self.weights else "EqR"

    @property
    def blocks(self) -> int:
        """Blocks in each stack."""
        counts = {
            stack: len(
                {name.split("layers.")[1].split(".")[0] for name in self.weights if name.startswith(stack)}
            )
            for stack in ("L_level.layers.", "H_level.layers.", "layers.")
        }
        found = sorted({count for count in counts.values() if count})
        if not found:
            raise UserError("the checkpoint has no blocks (no names with `layers.`)")
        if len(found) > 1:
            raise UserError(f"the two stacks have {found[0]} and {found[1]} blocks; they must be alike")
        return found[0]

    @property
    def mixes_tokens(self) -> bool:
        """Whether blocks mix tokens by an MLP instead of attention."""
        return any(".mlp_t." in name for name in self.weights)

    @property
    def tokens(self) -> int | None:
        """Tokens a block sees, where a weight shows it."""
        for name, tensor in self.weights.items():
            if name.endswith("mlp_t.gate_up_proj.weight"):
                return table_shape(name, tensor)[1]
            if name == "embed_pos.embedding_weight":
                return table_shape(name, tensor)[0]
        return None


def table_shape(name: str, tensor: Tensor) -> tuple[int, int]:
    """Return the rows and columns of a weight that must be a table."""
    if tensor.dim() != 2:
        raise UserError(f"{name} has shape {tuple(tensor.shape)}; a table of rows and columns is needed")
    return tensor.shape[0], tensor.shape[1]


def read_checkpoint(path: Path) -> Original:
    """Read a checkpoint, safetensors or PyTorch's; averaged weights win over the raw ones."""
    if not path.exists():
        raise UserError(f"{path}: no such checkpoint file")
    data: Any = _unpickle(path) if is_pickle(path) else read_weights(path)
    if not isinstance(data, Mapping):
        raise UserError(f"{path} holds a {type(data).__name__}, not a table of weights")
    table = data["model"] if isinstance(data.get("model"), Mapping) else data
    weights = _plain(table, path)
    averaged = data.get("ema")
    if isinstance(averaged, Mapping):
        shadow = averaged.get("shadow", averaged)
        if not isinstance(shadow, Mapping):
            raise UserError(f"{path}: ema.shadow is a {type(shadow).__name__}, not a table of weights")
        weights.update({name: value for name, value in _plain(shadow, path).items() if name in weights})
    if not weights:
        raise UserError(f"{path} holds no weights")
    settings = data.get("config")
    return Original(weights, settings if isinstance(settings, Mapping) else None)


def read_settings(path: Path) -> Mapping[str, Any]:
    """Read an original's config: JSON, or YAML such as `all_config.yaml`; `arch` may be a section of it."""
    if path.suffix.lower() not in (".yaml", ".yml"):
        data = read_json(path)
    else:
        import yaml  # comes with huggingface_hub

        text = read_text(path)
        try:
            data = yaml.safe_load(text)
        except (yaml.YAMLError, *_UNREADABLE) as error:  # the reader's own slips are not all YAMLErrors
            raise UserError(f"{path} is not valid YAML: {brief(str(error))}") from None
    if not isinstance(data, Mapping):
        raise UserError(f"{path} must hold a table of settings, not {brief(data)}")
    return data


def _plain(table: Mapping[Any, Any], path: Path) -> dict[str, Tensor]:
    """Strip what compilation, distribution and the loss head put around names; drop caches."""
    plain = {}
    for name, value in table.items():
        if not isinstance(value, Tensor):
            continue
        short = ".".join(part for part in str(name).split(".") if part not in _WRAPPERS)
        for lead in _LEADS:
            short = short.removeprefix(lead)
        if not any(cache in short for cache in _CACHES):
            _require_stored(value, f"{path}: {short}")
            plain[short] = value
    return plain


def _require_stored(tensor: Tensor, where: str) -> None:
    """Refuse a tensor that claims more numbers than the file holds, as one with a stride of 0 does."""
    dense = tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
    if not dense or tensor.numel() * tensor.itemsize > tensor.untyped_storage().nbytes():
        raise UserError(
            f"{where}, of shape {tuple(tensor.shape)}, is not stored number by number in the file"
        )


class _Ignored:
    """Stands in for objects of the originals' own code: takes anything, does nothing."""

    def __init__(self, *values: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass


def _unpickle(path: Path) -> Any:
    _require_uncompressed(path)
    try:
        # given a path, torch goes by the name's ending, and this one may be called anything
        with (
            torch.serialization.safe_globals(_stand_ins(path)),
            path.open("rb") as file,
            warnings.catch_warnings(action="ignore"),  # what is odd about a file ends in an error of ours
        ):
            return torch.load(file, map_location="cpu", weights_only=True)
    except _UNREADABLE as error:
        reason = re.split(r"[.\n]", str(error).strip())[0]
        raise UserError(f"{path} cannot be read as weights: {reason}") from None


def _require_uncompressed(path: Path) -> None:
    """Refuse an archive that unpacks to more than its own size; PyTorch never compresses what it saves."""
    try:
        with zipfile.ZipFile(regular_file(path)) as archive:
            packed = [member.filename for member in archive.infolist() if member.compress_type]
    except (zipfile.BadZipFile, *_UNREADABLE):
        return  # not a zip archive, or a broken one: torch.load itself says what is wrong
    if packed:
        raise UserError(f"{path} is compressed ({packed[0]}); PyTorch's own files are not")


def _stand_ins(path: Path) -> list[Any]:
    """Map what a training state holds besides tensors to `_Ignored`; anything unexpected is refused."""
    try:
        with path.open("rb") as file:
            names = torch.serialization.get_unsafe_globals_in_checkpoint(file)
    except _UNREADABLE:
        return []  # not a zip archive: torch.load itself says what is wrong
    strange = [name for name in names if name.split(".")[0] not in _BYSTANDERS]
    if strange:
        raise UserError(
            f"{path} wants to run {strange[0]!r} when loaded; it is not a checkpoint we can trust"
        )
    return [(_Ignored, name) for name in names]
