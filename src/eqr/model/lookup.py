"""Which model a name means: a model folder, a run folder (its best model), a shipped model or a hub id.

Shipped models lie in the package (`eqr/weights`), a folder each with config, weights, measured numbers and
card. One lookup serves the command line, `Solver`, `Reasoner.from_pretrained` and the server.
"""

import os
from pathlib import Path

from eqr.errors import UserError, nearest

CONFIG = "config.json"
BEST = "best"
SHIPPED = Path(__file__).resolve().parent.parent / "weights"


def shipped() -> dict[str, Path]:
    """Return the shipped models by name."""
    return {path.parent.name: path.parent for path in sorted(SHIPPED.glob(f"*/{CONFIG}"))}


def local_model(name: str | Path) -> Path | None:
    """Return the folder of the model that a name means, None if only the hub could know it.

    What lies at hand comes first: a folder called like a shipped model is the folder.
    """
    path = Path(name)
    for folder in (path, path / BEST):
        if os.path.isfile(folder / CONFIG):  # noqa: PTH113 - a whole puzzle is too long for pathlib's
            return folder
    if os.path.exists(path):  # noqa: PTH110
        raise UserError(f"{path} holds no model: neither {CONFIG} nor {BEST}/{CONFIG} is in it")
    known = shipped()
    if str(name) in known:
        return known[str(name)]
    if not is_hub_id(str(name)):
        raise UserError(
            f"no model {str(name)!r}: neither a folder here, nor a shipped model, nor a hub id such "
            f"as owner/name{nearest(str(name), known)}"
        )
    return None


def is_hub_id(name: str) -> bool:
    """Say whether a name could be one of the Hugging Face Hub's, and not a path that is not there."""
    return name.count("/") == 1 and name[0] not in "./~" and not Path(name).parent.is_dir()
