"""Opening a model on a device, by the names that people give to both."""

import os
from pathlib import Path

import torch

from eqr.errors import UserError, brief
from eqr.model.reasoner import Reasoner


def local_device(name: str) -> torch.device:
    """Return the device a name means here: `auto` takes cuda, else cpu (mps by name); a rank its own card."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and "LOCAL_RANK" in os.environ:
        name = f"cuda:{os.environ['LOCAL_RANK']}"
    try:
        device = torch.device(name)
        if device.type == "cuda":
            if not torch.cuda.is_available():
                raise UserError(f"device = {name!r}: this PyTorch finds no CUDA device; use cpu or auto")
            torch.cuda.set_device(device)
        torch.zeros(1, device=device).item()  # some can be named but not computed on, or not here
    except (RuntimeError, AssertionError, ValueError, ImportError):
        raise UserError(
            f"device = {brief(name)} is no device that this PyTorch computes on; use auto, cpu, cuda, cuda:1 "
            "or mps"
        ) from None
    return device


def load(name: str | Path, *, device: str = "auto") -> Reasoner:
    """Open a model for inference; `auto` is a GPU where there is one, else the cpu."""
    place = local_device(device)
    reasoner = Reasoner.from_pretrained(name)
    try:
        return reasoner.to(place).requires_grad_(False)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device {device!r} cannot be used here: {error}") from None
