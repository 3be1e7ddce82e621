"""Mini-ARC from its public files: one JSON file per family, `{"train": [...], "test": [...]}` of grid pairs.

Demonstrations of all families are the training set, their test pairs the test set. A family, and each of its
turned and recoloured variants, is an identity that both share; the k-th demonstration of a family and its
variants are one group, so that an epoch sees each demonstration once, in a random variant.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from eqr.data.puzzles import BLANK, PuzzleSet
from eqr.data.splits import Splits
from eqr.errors import UserError
from eqr.files import read_json
from eqr.tasks.base import Tokens
from eqr.tasks.mini_arc import MiniArc
from eqr.tasks.mini_arc import variants as distinct_variants
from eqr.tasks.registry import task_named

PARTS = ("train", "test")


def is_arc_folder(path: Path) -> bool:
    """Whether a path is a folder of JSON files."""
    return path.is_dir() and any(path.glob("*.json"))


def read_arc_folder(path: Path, *, variants: int = 0, seed: int = 0) -> Splits:
    """Read a folder of families, each with up to `variants` augmented copies beside the original.

    The facts `family` (from 1) and `variant` (0 is the original) say where a row comes from, the identity's
    name how to undo its variant (`Variant.from_name`).
    """
    task = task_named("mini-arc")
    assert isinstance(task, MiniArc)
    rows: dict[str, _Rows] = {part: _Rows() for part in PARTS}
    names = [BLANK]
    for family, file in enumerate(sorted(path.glob("*.json")), 1):
        pairs = _read_family(file, task)
        rng = np.random.default_rng([seed, family])
        for number, variant in enumerate(distinct_variants(rng, pairs["train"], variants)):
            names.append(variant.name(file.stem))
            for part in PARTS:
                rows[part].add(variant.apply(pairs[part]), family, number, len(names) - 1)
    made = {"made_by": "eqr data import", "folder": path.name, "variants": variants, "seed": seed}
    return Splits({part: rows[part].puzzles(task.name, tuple(names), made) for part in PARTS})


class _Rows:
    """Grows one split; pairs come as (2 x pairs, cells): input, output, input, output, ..."""

    def __init__(self) -> None:
        self._grids: list[Tokens] = []
        self._columns: list[tuple[int, int, int, int]] = []

    def add(self, pairs: Tokens, family: int, variant: int, identity: int) -> None:
        self._grids.append(pairs)
        self._columns += [(family, pair, variant, identity) for pair in range(len(pairs) // 2)]

    def puzzles(self, task: str, names: tuple[str, ...], metadata: dict[str, Any]) -> PuzzleSet:
        grids = np.concatenate(self._grids)
        columns = np.array(self._columns)
        _, groups = np.unique(columns[:, :2], axis=0, return_inverse=True)
        return PuzzleSet.of(
            task,
            grids[0::2],
            grids[1::2],
            groups=groups.reshape(-1),
            identities=columns[:, 3],
            identity_names=names,
            source_names=("mini-arc",),
            facts={"family": columns[:, 0], "variant": columns[:, 2]},
            metadata=metadata,
        )


def _read_family(file: Path, task: MiniArc) -> dict[str, Tokens]:
    data = read_json(file)
    if not isinstance(data, dict) or not all(isinstance(data.get(part), list) for part in PARTS):
        raise UserError(f'{file} must hold {{"train": [...], "test": [...]}}; is it a Mini-ARC file?')
    grids: dict[str, Tokens] = {}
    for part in PARTS:
        if not data[part]:
            raise UserError(f"{file}: {part!r} is empty; a family needs demonstrations and a test pair")
        pairs = [_read_pair(pair, task, f"{file}, {part} pair {i}") for i, pair in enumerate(data[part], 1)]
        grids[part] = np.concatenate(pairs)
    return grids


def _read_pair(pair: Any, task: MiniArc, where: str) -> Tokens:
    if not isinstance(pair, dict) or not {"input", "output"} <= pair.keys():
        raise UserError(f'{where} must be {{"input": grid, "output": grid}}')
    try:
        return np.stack([task.parse(json.dumps(pair[side])) for side in ("input", "output")])
    except UserError as error:
        raise UserError(f"{where}: {error}; correct the file or remove it") from None
