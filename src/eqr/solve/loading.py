"""Opening the model that a person named (see `eqr.model.lookup`) on the device and for the task asked for."""

import os
from pathlib import Path

import torch

from eqr.errors import UserError
from eqr.model.reasoner import Reasoner


def load_reasoner(name: str | Path, *, device: str = "auto") -> Reasoner:
    """Open a model for inference; `auto` is a GPU where there is one, else the cpu."""
    if device == "auto":
        # torchrun gives each process a card of its own
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"
    reasoner = Reasoner.from_pretrained(name)
    try:
        return reasoner.to(torch.device(device)).requires_grad_(False)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device {device!r} cannot be used here: {error}") from None
