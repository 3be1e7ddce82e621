"""Opening the model that a person named (see `eqr.model.lookup`) on the device and for the task asked for."""

from pathlib import Path

from eqr.errors import UserError
from eqr.model.devices import local_device
from eqr.model.reasoner import Reasoner


def load_reasoner(name: str | Path, *, device: str = "auto") -> Reasoner:
    """Open a model for inference; `auto` is a GPU where there is one, else the cpu."""
    place = local_device(device)
    reasoner = Reasoner.from_pretrained(name)
    try:
        return reasoner.to(place).requires_grad_(False)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device {device!r} cannot be used here: {error}") from None
