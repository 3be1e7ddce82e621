"""Which device a name means, the same for training, solving and measuring."""

import os

import torch

from eqr.errors import UserError


def local_device(name: str) -> torch.device:
    """Return the device a name means here: `auto` takes cuda, else cpu (mps by name); a rank its own card."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and "LOCAL_RANK" in os.environ:
        name = f"cuda:{os.environ['LOCAL_RANK']}"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"device = {name!r} is no device; use auto, cpu, cuda, cuda:1 or mps") from None
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise UserError(f"device = {name!r}: this PyTorch finds no CUDA device; use cpu or auto")
        torch.cuda.set_device(device)
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise UserError(f"device = {name!r}: this PyTorch finds no MPS device; use cpu or auto")
    return device
