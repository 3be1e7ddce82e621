"""The precision of a run, entered around whatever computes with its model: steps and evaluations alike."""

import torch

from eqr.train.recipe import Precision


def computing(precision: Precision, device: torch.device) -> torch.autocast:
    """Return the context in which a model computes with a precision."""
    return torch.autocast(
        device.type,
        dtype=torch.bfloat16,
        enabled=precision is Precision.BFLOAT16,
        # older PyTorch would use a weight cast without a graph, before a gradient window, inside it too
        cache_enabled=False,
    )
