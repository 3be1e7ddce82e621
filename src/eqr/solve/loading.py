"""Opening the model that a person named: a model folder, a run folder (its best model) or a hub name."""

import os
from pathlib import Path

import torch

from eqr.errors import UserError
from eqr.model.reasoner import Reasoner
from eqr.model.saving import CONFIG
from eqr.runs import RunFolder
from eqr.tasks.base import Task


def model_folder(name: str | Path) -> Path | None:
    """Return the local folder with the model's `config.json`, None if the name is not a local path."""
    path = Path(name)
    best = RunFolder(path).best
    for folder in (path, best):
        if (folder / CONFIG).is_file():
            return folder
    if path.exists():
        raise UserError(f"{path} holds no model: neither {CONFIG} nor {best.name}/{CONFIG} is in it")
    return None


def require_fit(reasoner: Reasoner, task: Task) -> None:
    """Say so if the model does not read grids of this task."""
    config = reasoner.config
    if (config.rows, config.columns, config.vocabulary) != (*task.shape, task.vocabulary):
        raise UserError(
            f"this model reads {config.rows}x{config.columns} grids of {config.vocabulary} tokens; "
            f"{task.name} has {task.shape[0]}x{task.shape[1]} of {task.vocabulary}"
        )


def load_reasoner(name: str | Path, *, device: str = "auto") -> Reasoner:
    """Open a model for inference; `auto` is a GPU where there is one, else the cpu."""
    if device == "auto":
        # torchrun gives each process a card of its own
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"
    reasoner = Reasoner.from_pretrained(model_folder(name) or str(name))
    try:
        return reasoner.to(torch.device(device)).requires_grad_(False)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device {device!r} cannot be used here: {error}") from None
