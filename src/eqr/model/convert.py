"""Official checkpoints of EqR, TRM, HRM and URM, turned into our config and weights (`eqr convert`).

The originals share one family of names, so one table of renamings serves all; which system it is shows in the
names themselves. Checkpoints are read with `weights_only=True`: nothing in them is ever executed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isqrt
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    ValidationInfo,
    field_validator,
)
from torch import Tensor

from eqr.errors import UserError
from eqr.model.config import Positions, ReasonerConfig, Side, Size
from eqr.model.mixers import AnyMixer, Attention, Tokens
from eqr.model.operator import Count, Perturbation, SingleState, TwoLevel
from eqr.model.originals import Original, read_checkpoint, read_settings, table_shape
from eqr.model.reasoner import Reasoner
from eqr.model.state import FixedStart, RandomStart
from eqr.model.weights import fitted, load_weights, shapes_of
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


@dataclass(frozen=True)
class Grid:
    """Shape and name of the puzzles a checkpoint was trained on, where its own files do not say."""

    rows: int
    columns: int
    task: str | None = None


MOST_CELLS = 512 * 512


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


def convert(checkpoint: FilePath, settings: FilePath | None = None, grid: Grid | None = None) -> Reasoner:
    """Build our model from an original's checkpoint and its config (None: the one inside the checkpoint)."""
    original = read_checkpoint(checkpoint)
    given = original.settings if settings is None else read_settings(settings)
    if given is None:
        raise UserError(f"{checkpoint} carries no config; give the one beside it with --config")
    config = convert_config(given, original, grid, where=str(settings or checkpoint))
    weights = rename(original.weights)
    model = fitted(lambda: Reasoner(config), shapes_of(weights), where=str(checkpoint))
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
    read = Settings.read(settings, where=where)
    embedding = original.weights.get("embed_tokens.embedding_weight")
    if embedding is None:
        raise UserError("the checkpoint has no embed_tokens; is it one of EqR, TRM, HRM or URM?")
    vocabulary, width = table_shape("embed_tokens", embedding)
    table = original.weights.get("puzzle_emb.weights")
    identities, columns_of_table = (0, width) if table is None else table_shape("puzzle_emb", table)
    if columns_of_table != width:
        raise UserError(f"puzzle_emb_ndim = {columns_of_table} must equal hidden_size = {width}")
    lead = 0 if table is None else read.puzzle_emb_len or 1
    mixer = Tokens() if original.mixes_tokens else Attention()
    rows, columns = _shape(read, original, grid, lead)
    fields = {
        "task": grid.task if grid else None,
        "rows": rows,
        "columns": columns,
        "vocabulary": vocabulary,
        "width": width,
        "blocks": original.blocks,
        "mixer": mixer,
        "positions": _positions(read, mixer),
        "heads": read.num_heads,
        "expansion": read.expansion,
        "convolution": original.system == "URM",
        "identities": identities,
        "identity_tokens": lead,
        **_dynamics(read, original.system),
    }
    return ReasonerConfig.from_json(fields, where=where)


def _dynamics(read: Settings, system: str) -> dict[str, Any]:
    cycles, scratch = read.H_cycles, read.L_cycles
    if system == "URM":
        return {"recurrence": SingleState(cycles=cycles, applications=scratch), "start": FixedStart()}
    recurrence = TwoLevel(cycles=cycles, scratch=scratch, separate=system == "HRM")
    if system != "EqR":
        return {"recurrence": recurrence, "start": FixedStart()}
    return {
        "recurrence": recurrence,
        "start": RandomStart(answer=read.H_init_std, scratch=read.L_init_std),
        "path": Perturbation(damping=round(1.0 - read.lambda_, 12), noise=read.noise_scale),
    }


def _positions(read: Settings, mixer: AnyMixer) -> Positions:
    # the originals ignore rotary positions beside the token mixer, yet their Sudoku config names them
    rotary = read.pos_encodings.startswith("rope")
    return Positions.NONE if isinstance(mixer, Tokens) and rotary else _POSITIONS[read.pos_encodings]


def _shape(read: Settings, original: Original, grid: Grid | None, lead: int) -> tuple[int, int]:
    tokens = original.tokens
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
