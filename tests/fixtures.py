"""What tests of models and backends share: small configs of every system, the originals' recorded runs."""

import json
import pathlib
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from eqr.model.config import CandidateSites, Positions, ReasonerConfig
from eqr.model.convert import Original, convert_config, rename
from eqr.model.mixers import Attention
from eqr.model.operator import Perturbation, SingleState
from eqr.model.reasoner import Reasoner
from eqr.model.saving import load_weights
from eqr.model.state import LearnedStart, State
from eqr.model.structured import Groups, Neighbours
from eqr.model.systems import SYSTEMS, eqr
from eqr.tasks import task_named
from reference import Reference
from toy_task import Toy

PARITY = pathlib.Path(__file__).resolve().parents[1] / ".." / "shared" / "parity"
NAMES = (
    "eqr_mixer",
    "eqr_mixer_damped",
    "eqr_attention_rope",
    "eqr_attention_rope2d",
    "trm_mixer",
    "trm_attention_rope",
    "trm_attention_learned",
    "hrm_rope",
    "urm_rope",
)


def small(system: str, **fields: object) -> ReasonerConfig:
    """Return a system on the toy task, small enough to run in no time."""
    if system == "feedforward":
        fields = {"blocks": 3, **fields}
    return SYSTEMS[system](Toy(), width=32, heads=4, round_hidden_to=16, **fields)


ATTENTION = {"mixer": Attention(), "positions": Positions.ROTARY}


NOISY = Perturbation(damping=0.05, noise=0.1)


def variants() -> dict[str, ReasonerConfig]:
    """Every system, with either of the paper's mixers, and what a config can vary besides."""
    found = {name: small(name) for name in SYSTEMS}
    found |= {f"{name}, attention": small(name, **ATTENTION) for name in SYSTEMS}
    found |= {f"eqr, {p}": small("eqr", mixer=Attention(), positions=p) for p in Positions}
    found["eqr, identities"] = small("eqr", identities=5, identity_tokens=2)
    learned = NOISY.replace(learned_noise=True)
    found["eqr, learned start and noise"] = small("eqr", start=LearnedStart(), path=learned)
    alone = SingleState(close_alone=True)
    found["single state, closing alone"] = small("weight-tied").replace(recurrence=alone)
    return found


SIZES = {"width": 16, "cycles": 2, "scratch": 2, "round_hidden_to": 8}
STRUCTURED = {
    "candidates": eqr(task_named("sudoku-4x4"), mixer=Groups(hidden=32), sites=CandidateSites(), **SIZES),
    "live candidates": eqr(
        task_named("sudoku-4x4"), mixer=Groups(hidden=32), sites=CandidateSites(live=True), **SIZES
    ),
    "groups of cells": eqr(task_named("sudoku-4x4"), mixer=Groups(), **SIZES),
    "groups of 6x6": eqr(task_named("sudoku-6x6"), mixer=Groups(hidden=8), blocks=1, **SIZES),
    "neighbours": eqr(task_named("maze-7x7"), mixer=Neighbours(), **SIZES),
    "neighbours, hidden": eqr(task_named("maze-7x7"), mixer=Neighbours(hidden=24), blocks=1, **SIZES),
}
"""Models whose mixer is told the structure of the task."""


@dataclass(frozen=True)
class Recording:
    """An original's run: its model in our form, its inputs and what it gave after each segment."""

    settings: dict[str, object]
    weights: dict[str, Tensor]
    tensors: dict[str, Tensor]
    model: Reasoner

    def embed(self, model: Reasoner) -> Tensor:
        identities = self.tensors.get("in.puzzle_identifiers")
        vectors = None if identities is None else model.identity_vectors(identities)
        return model.embed_tokens(self.tensors["in.tokens"], vectors)

    def state(self, segment: int) -> State:
        """The latents after a segment (0: at the start), token-major."""
        place = f"out.{segment}." if segment else "in."
        names = ("z",) if place + "z" in self.tensors else ("z_H", "z_L")
        return State(*(self.tensors[place + name].transpose(0, 1).contiguous() for name in names))


@cache
def recording(name: str) -> Recording:
    if not PARITY.is_dir():
        pytest.skip("the originals' recordings are not here")
    settings = json.loads((PARITY / f"{name}.json").read_text())
    tensors = load_file(PARITY / f"{name}.safetensors")
    lead = "weight.inner."
    weights = {key.removeprefix(lead): value for key, value in tensors.items() if key.startswith(lead)}
    model = Reasoner(convert_config(settings, Original(weights), None))
    load_weights(model, rename(weights), where=name)
    return Recording(settings, weights, tensors, model)


def reference_of(model: Reasoner) -> Reference:
    """The same weights under the reference."""
    return Reference(model.config.to_json(), dict(model.named_parameters()) | dict(model.named_buffers()))


def keys_of(rows: int) -> tuple[Tensor, Tensor]:
    """Return keys and depths of rows that have just started."""
    return torch.arange(rows) * 7919 + 3, torch.zeros(rows, dtype=torch.long)


def puzzles_of(config: ReasonerConfig, rows: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, config.vocabulary, (rows, config.cells), generator=generator)
