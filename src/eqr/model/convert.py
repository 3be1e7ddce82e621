"""Official checkpoints of EqR, TRM, HRM and URM, turned into our config and weights (`eqr convert`).

A checkpoint is a bare table of weights (TRM, HRM, URM) or a training state around one (EqR), possibly of a
compiled or distributed model, possibly with averaged weights beside, which are the ones to evaluate. The
originals share one family of names, so one table of renamings serves all; the names also show which system it
is. Checkpoints are read with `weights_only=True`: nothing in them is ever executed.
"""

import pickle
import re
import struct
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from math import isqrt
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    ValidationInfo,
    field_validator,
)
from torch import Tensor

from eqr.errors import UserError, brief
from eqr.files import read_json, read_text, regular_file
from eqr.model.config import Positions, ReasonerConfig, Side, Size
from eqr.model.mixers import Attention, Tokens
from eqr.model.operator import Count, Perturbation, SingleState, TwoLevel
from eqr.model.reasoner import Reasoner
from eqr.model.saving import fitted, is_pickle, load_weights, read_weights
from eqr.model.state import FixedStart, RandomStart
from eqr.value import Value

_RENAMED = (
    (r"^(?:L_level\.)?layers\.", "stack.blocks."),
    (r"^H_level\.layers\.", "answer_stack.blocks."),
    (r"\.mlp\.gate_up_proj\.weight$", ".channels.up"),
    (r"\.mlp\.down_proj\.weight$", ".channels.down"),
    (r"\.mlp\.dwconv\.weight$", ".channels.kernel"),
    (r"\.mlp\.dwconv\.bias$", ".channels.bias"),
    (r"\.mlp_t\.gate_up_proj\.weight$", ".tokens.up"),
    (r"\.mlp_t\.down_proj\.weight$", ".tokens.down"),
    (r"\.self_attn\.qkv_proj\.weight$", ".attention.qkv"),
    (r"\.self_attn\.o_proj\.weight$", ".attention.out"),
    (r"^embed_tokens\.embedding_weight$", "embedding"),
    (r"^embed_pos\.embedding_weight$", "position"),
    (r"^puzzle_emb\.weights$", "identity_table"),
    (r"^lm_head\.weight$", "answer_head"),
    (r"^q_head\.", "halt_head."),
    (r"^(?:H_init|init_hidden)$", "starter.answer"),
    (r"^L_init$", "starter.scratch"),
)
_POSITIONS = {
    "none": Positions.NONE,
    "learned": Positions.LEARNED,
    "rope": Positions.ROTARY,
    "rope2d": Positions.ROTARY_2D,
}
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
MOST_CELLS = 512 * 512


@dataclass(frozen=True)
class Grid:
    """Shape and name of the puzzles a checkpoint was trained on, where its own files do not say."""

    rows: int
    columns: int
    task: str | None = None


@dataclass(frozen=True)
class Original:
    """The weights of an original under its own names, without the wrappings, and its config if it has one."""

    weights: dict[str, Tensor]
    settings: Mapping[str, Any] | None = None


class Settings(Value):
    """What an original's config says that its weights do not; the rest of it is of no use here."""

    H_cycles: Count
    L_cycles: Count
    H_init_std: NonNegativeFloat = 1.0
    L_init_std: NonNegativeFloat = 1.0
    lambda_: Annotated[float, Field(gt=0.0, le=1.0)] = 0.95
    """The share of the new state; the paper's lambda (our damping) is that of the old one."""
    noise_scale: NonNegativeFloat = 0.01
    num_heads: Size = 8
    expansion: PositiveFloat = 4.0
    pos_encodings: Literal["none", "learned", "rope", "rope2d"] = "rope"
    puzzle_emb_len: NonNegativeInt = 0
    seq_len: Annotated[int, Field(ge=1, le=MOST_CELLS)] | None = None
    board_height: Side | None = None
    board_width: Side | None = None
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10_000.0

    @field_validator("rms_norm_eps", "rope_theta")
    @classmethod
    def _as_here(cls, value: float, info: ValidationInfo) -> float:
        only = cls.model_fields[str(info.field_name)].default
        if value != only:
            raise ValueError(f"only {only:g} is supported")
        return value

    @classmethod
    def read(cls, values: Mapping[str, Any], *, where: str) -> "Settings":
        """Take from a config, or its section `arch`, what is named here; None stands for the default."""
        arch = values.get("arch", values)
        arch = arch if isinstance(arch, Mapping) else values
        given = {name: arch[name] for name in cls.model_fields if arch.get(name) is not None}
        for name in ("H_cycles", "L_cycles"):
            if name not in given:
                raise UserError(f"{where} lacks {name!r}; is it the checkpoint's own config?")
        return cls.from_json(given, where=where)


def convert(checkpoint: Path, settings: Path | None = None, grid: Grid | None = None) -> Reasoner:
    """Build our model from an original's checkpoint and its config (None: the one inside the checkpoint)."""
    original = read_checkpoint(checkpoint)
    given = original.settings if settings is None else read_settings(settings)
    if given is None:
        raise UserError(f"{checkpoint} carries no config; give the one beside it with --config")
    config = convert_config(given, original, grid, where=str(settings or checkpoint))
    weights = rename(original.weights)
    model = fitted(lambda: Reasoner(config), weights, where=str(checkpoint))
    load_weights(model, weights, where=str(checkpoint))
    return model


def rename(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Give an original's weights our names and layout; views, nothing is copied."""
    renamed = {}
    for theirs, tensor in weights.items():
        ours = theirs
        for pattern, name in _RENAMED:
            ours = re.sub(pattern, name, ours)
        if ours.endswith(".kernel") and tensor.dim() == 3 and tensor.shape[1] == 1:
            tensor = tensor.squeeze(1).t()  # (hidden, 1, 2) of a depthwise convolution as (2, hidden)
        renamed[ours] = tensor
    return renamed


def convert_config(
    settings: Mapping[str, Any], original: Original, grid: Grid | None, *, where: str = "the config"
) -> ReasonerConfig:
    """Translate an original's settings; sizes are read off the weights wherever the weights show them."""
    read, weights = Settings.read(settings, where=where), original.weights
    if "embed_tokens.embedding_weight" not in weights:
        raise UserError("the checkpoint has no embed_tokens; is it one of EqR, TRM, HRM or URM?")
    vocabulary, width = _table_shape("embed_tokens", weights["embed_tokens.embedding_weight"])
    identities, lead = 0, 0
    if "puzzle_emb.weights" in weights:
        identities, size = _table_shape("puzzle_emb", weights["puzzle_emb.weights"])
        lead = read.puzzle_emb_len or 1
        if size != width:
            raise UserError(f"puzzle_emb_ndim = {size} must equal hidden_size = {width}")
    mixes_tokens = any(".mlp_t." in name for name in weights)
    positions = _POSITIONS[read.pos_encodings]
    if mixes_tokens and read.pos_encodings.startswith("rope"):
        positions = (
            Positions.NONE
        )  # the originals' Sudoku config names them, and their token mixer ignores them
    rows, columns = _shape(read, weights, grid, lead)
    fields = {
        "task": grid.task if grid else None,
        "rows": rows,
        "columns": columns,
        "vocabulary": vocabulary,
        "width": width,
        "blocks": _blocks(weights),
        "mixer": Tokens() if mixes_tokens else Attention(),
        "positions": positions,
        "heads": read.num_heads,
        "expansion": read.expansion,
        "identities": identities,
        "identity_tokens": lead,
        **_system(read, weights),
    }
    return ReasonerConfig.from_json(fields, where=where)


def _system(read: Settings, weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return what the implementation decides to which the names belong."""
    cycles, inner = read.H_cycles, read.L_cycles
    if any(name.startswith("H_level.layers.") for name in weights):  # HRM
        return {
            "recurrence": TwoLevel(cycles=cycles, scratch=inner, separate=True),
            "start": FixedStart(),
        }
    if any(".dwconv." in name for name in weights):  # URM
        recurrence = SingleState(cycles=cycles, applications=inner)
        return {"recurrence": recurrence, "start": FixedStart(), "convolution": True}
    if "H_init" in weights:  # TRM
        return {"recurrence": TwoLevel(cycles=cycles, scratch=inner), "start": FixedStart()}
    return {
        "recurrence": TwoLevel(cycles=cycles, scratch=inner),
        "start": RandomStart(answer=read.H_init_std, scratch=read.L_init_std),
        "path": Perturbation(damping=round(1.0 - read.lambda_, 12), noise=read.noise_scale),
    }


def _blocks(weights: Mapping[str, Tensor]) -> int:
    """Count the blocks in each stack."""
    counts = {
        len({name.split("layers.")[1].split(".")[0] for name in weights if name.startswith(stack)})
        for stack in ("L_level.layers.", "H_level.layers.", "layers.")
    }
    found = sorted(counts - {0})
    if not found:
        raise UserError("the checkpoint has no blocks (no names with `layers.`)")
    if len(found) > 1:
        raise UserError(f"the two stacks have {found[0]} and {found[1]} blocks; they must be alike")
    return found[0]


def _tokens(weights: Mapping[str, Tensor]) -> int | None:
    """Return the tokens a block sees, where a weight shows it."""
    for name, tensor in weights.items():
        if name.endswith("mlp_t.gate_up_proj.weight"):
            return _table_shape(name, tensor)[1]
        if name == "embed_pos.embedding_weight":
            return _table_shape(name, tensor)[0]
    return None


def _table_shape(name: str, tensor: Tensor) -> tuple[int, int]:
    if tensor.dim() != 2:
        raise UserError(f"{name} has shape {tuple(tensor.shape)}; a table of rows and columns is needed")
    return tensor.shape[0], tensor.shape[1]


def _shape(read: Settings, weights: Mapping[str, Tensor], grid: Grid | None, lead: int) -> tuple[int, int]:
    tokens = _tokens(weights)
    cells = read.seq_len if tokens is None else tokens - lead
    height, width = read.board_height, read.board_width
    if grid is not None:
        shape = grid.rows, grid.columns
    elif height and width and (cells is None or height * width == cells):
        shape = height, width
    elif cells is not None and cells > 0 and isqrt(cells) ** 2 == cells:
        shape = isqrt(cells), isqrt(cells)
    else:
        raise UserError("neither weights nor config say the shape of the grid; name its task with --task")
    if cells is not None and shape[0] * shape[1] != cells:
        raise UserError(f"the checkpoint reads {cells} cells, the grid {shape[0]}x{shape[1]} does not")
    return shape


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
