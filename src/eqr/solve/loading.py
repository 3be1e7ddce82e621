"""Opening the model that a person named: a model folder, a run folder (its best model) or a hub name."""

from pathlib import Path

from eqr.errors import UserError
from eqr.model.reasoner import Reasoner

CONFIG = "config.json"
BEST = "best"


def model_folder(name: str | Path) -> Path | None:
    """Return the local folder with the model's `config.json`, None if the name is not a local path."""
    path = Path(name)
    for folder in (path, path / BEST):
        if (folder / CONFIG).is_file():
            return folder
    if path.exists():
        raise UserError(f"{path} holds no model: neither {CONFIG} nor {BEST}/{CONFIG} is in it")
    return None


def load_reasoner(name: str | Path) -> Reasoner:
    """Open a model for inference."""
    reasoner: Reasoner = Reasoner.from_pretrained(model_folder(name) or str(name))
    return reasoner.eval().requires_grad_(False)
