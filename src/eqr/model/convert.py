"""Official checkpoints of EqR, TRM, HRM and URM, turned into our config and weights (`eqr import`).

The originals share one family of names, so one table of renamings serves all; which system it is shows in the
names themselves. Checkpoints are read with `weights_only=True`: nothing in them is ever executed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isqrt
from pathlib import Path as FilePath
from typing import Any

from torch import Tensor

from eqr.errors import UserError
from eqr.model.config import (
    FixedStart,
    Path,
    Positions,
    RandomStart,
    ReasonerConfig,
    SingleState,
    TwoLevel,
)
from eqr.model.mixers import AnyMixer, Attention, Tokens
from eqr.model.originals import Original, read_checkpoint, read_settings
from eqr.model.reasoner import Reasoner
from eqr.model.saving import load_weights

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


def convert(checkpoint: FilePath, settings: FilePath | None = None, grid: Grid | None = None) -> Reasoner:
    """Build our model from an original's checkpoint and its config (None: the one inside the checkpoint)."""
    original = read_checkpoint(checkpoint)
    given = original.settings if settings is None else read_settings(settings)
    if given is None:
        raise UserError(f"{checkpoint} carries no config; give the one beside it with --config")
    model = Reasoner(convert_config(given, original, grid))
    load_weights(model, rename(original.weights), where=str(checkpoint))
    return model


def rename(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Give an original's weights our names and layout, in float32."""
    renamed = {}
    for theirs, tensor in weights.items():
        ours = theirs
        for pattern, name in _RENAMED:
            ours = re.sub(pattern, name, ours)
        if ours.endswith(".kernel"):
            tensor = tensor.squeeze(1).t()  # (hidden, 1, 2) of a depthwise convolution as (2, hidden)
        renamed[ours] = tensor.float().contiguous()
    return renamed


def convert_config(settings: Mapping[str, Any], original: Original, grid: Grid | None) -> ReasonerConfig:
    """Translate an original's settings; sizes are read off the weights wherever the weights show them."""
    read = _Settings(settings)
    read.must_be("rms_norm_eps", 1e-5)
    read.must_be("rope_theta", 10_000.0)
    embedding = original.weights.get("embed_tokens.embedding_weight")
    if embedding is None:
        raise UserError("the checkpoint has no embed_tokens; is it one of EqR, TRM, HRM or URM?")
    vocabulary, width = embedding.shape
    table = original.weights.get("puzzle_emb.weights")
    if table is not None and table.shape[1] != width:
        raise UserError(f"puzzle_emb_ndim = {table.shape[1]} must equal hidden_size = {width}")
    lead = 0 if table is None else int(read.get("puzzle_emb_len", 0)) or 1
    mixer = Tokens() if original.mixes_tokens else Attention()
    rows, columns = _shape(read, original, grid, lead)
    return ReasonerConfig(
        task=grid.task if grid else None,
        rows=rows,
        columns=columns,
        vocabulary=vocabulary,
        width=width,
        blocks=original.blocks,
        mixer=mixer,
        positions=_positions(read, mixer),
        heads=int(read.get("num_heads", 8)),
        expansion=float(read.get("expansion", 4)),
        convolution=original.system == "URM",
        identities=0 if table is None else table.shape[0],
        identity_tokens=lead,
        **_dynamics(read, original.system),
    )


def _dynamics(read: "_Settings", system: str) -> dict[str, Any]:
    cycles, scratch = int(read.need("H_cycles")), int(read.need("L_cycles"))
    if system == "URM":
        return {"recurrence": SingleState(cycles=cycles, applications=scratch), "start": FixedStart()}
    recurrence = TwoLevel(cycles=cycles, scratch=scratch, separate=system == "HRM")
    if system != "EqR":
        return {"recurrence": recurrence, "start": FixedStart()}
    return {
        "recurrence": recurrence,
        "start": RandomStart(
            answer=float(read.get("H_init_std", 1.0)), scratch=float(read.get("L_init_std", 1.0))
        ),
        # their lambda_ is the share of the new state, the paper's lambda (our damping) of the old one
        "path": Path(
            damping=round(1.0 - float(read.get("lambda_", 0.95)), 12),
            noise=float(read.get("noise_scale", 0.01)),
        ),
    }


def _positions(read: "_Settings", mixer: AnyMixer) -> Positions:
    name = str(read.get("pos_encodings", "rope"))
    if name not in _POSITIONS:
        raise UserError(f"pos_encodings = {name!r} is not one of {', '.join(_POSITIONS)}")
    # the originals ignore rotary positions beside the token mixer, yet their Sudoku config names them
    rotary = name.startswith("rope")
    return Positions.NONE if isinstance(mixer, Tokens) and rotary else _POSITIONS[name]


def _shape(read: "_Settings", original: Original, grid: Grid | None, lead: int) -> tuple[int, int]:
    tokens = original.tokens
    cells = None if tokens is None else tokens - lead
    if cells is None and read.get("seq_len", None) is not None:
        cells = int(read.need("seq_len"))
    height, width = read.get("board_height", None), read.get("board_width", None)
    if grid is not None:
        shape = grid.rows, grid.columns
    elif height and width and (cells is None or int(height) * int(width) == cells):
        shape = int(height), int(width)
    elif cells is not None and isqrt(cells) ** 2 == cells:
        shape = isqrt(cells), isqrt(cells)
    else:
        raise UserError("neither weights nor config say the shape of the grid; name its task with --task")
    if cells is not None and shape[0] * shape[1] != cells:
        raise UserError(f"the checkpoint reads {cells} cells, the grid {shape[0]}x{shape[1]} does not")
    return shape


class _Settings:
    """An original's settings, with errors that name the key."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        arch = values.get("arch", values)
        self._values = arch if isinstance(arch, Mapping) else values

    def get(self, key: str, default: Any) -> Any:
        value = self._values.get(key)
        return default if value is None else value

    def need(self, key: str) -> Any:
        if self._values.get(key) is None:
            raise UserError(f"the config lacks {key!r}; is it the checkpoint's own config?")
        return self._values[key]

    def must_be(self, key: str, value: float) -> None:
        if float(self.get(key, value)) != value:
            raise UserError(f"{key} = {self._values[key]}: only {value:g} is supported")
