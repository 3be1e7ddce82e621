"""Saving and loading a reasoner the way the field expects: a folder, or a repository on the Hugging Face Hub.

`config.json` says what the model is, `model.safetensors` holds the weights, `measured.json` the numbers known
about it and `README.md`, the model card, shows them with their depth, breadth and NFE. Nothing is ever
unpickled; whatever does not fit is refused with the reason.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from huggingface_hub import PyTorchModelHubMixin, hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, HFValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from eqr.errors import UserError
from eqr.files import make_folder, new_file, read_json, write_json
from eqr.model.card import Measured, model_card
from eqr.model.config import ReasonerConfig
from eqr.model.lookup import CONFIG, local_model

WEIGHTS, MEASURED, CARD = "model.safetensors", "measured.json", "README.md"
PICKLES = (".bin", ".ckpt", ".pkl", ".pt", ".pth")


class Saved(nn.Module, PyTorchModelHubMixin, library_name="eqr"):
    """What makes a `Reasoner` savable; `push_to_hub` is the mixin's own, on top of `save_pretrained`."""

    config: ReasonerConfig
    measured: tuple[Measured, ...] = ()
    """What is known about these weights; travels with them."""

    def save_pretrained(
        self, save_directory: str | Path, *, measured: Sequence[Measured] | None = None, **hub: Any
    ) -> None:
        """Write the folder, each file at once or not at all; `measured` replaces the numbers known so far.

        `hub` is what `push_to_hub` passes along for models whose config the mixin keeps; ours keep their own.
        """
        folder = Path(save_directory)
        make_folder(folder)
        if measured is not None:
            self.measured = tuple(measured)
        write_weights(folder / WEIGHTS, self.state_dict())
        write_json(folder / CONFIG, self.config.to_json())
        write_json(folder / MEASURED, [number.to_json() for number in self.measured])
        parameters = sum(parameter.numel() for parameter in self.parameters())
        with new_file(folder / CARD) as temporary:
            temporary.write_text(model_card(self.config, parameters, self.measured), encoding="utf-8")

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | Path,
        *,
        revision: str | None = None,
        cache_dir: str | Path | None = None,
        force_download: bool = False,
        local_files_only: bool = False,
        token: str | bool | None = None,
        **unknown: Any,
    ) -> Self:
        """Load a folder, a run, a shipped model or the Hub's `owner/name`; weights are on cpu, in float32."""
        if unknown:
            raise UserError(
                f"from_pretrained has no option {next(iter(unknown))!r}; the config is the model's own"
            )
        place = str(pretrained_model_name_or_path)
        folder = local_model(place)
        if folder is not None:
            files = {name: folder / name for name in (CONFIG, WEIGHTS, MEASURED)}
        else:
            options = {
                "revision": revision,
                "cache_dir": cache_dir,
                "force_download": force_download,
                "local_files_only": local_files_only,
                "token": token,
            }
            files = {name: _download(place, name, options) for name in (CONFIG, WEIGHTS, MEASURED)}
        return cls._from_files(files)

    @classmethod
    def _from_files(cls, files: Mapping[str, Path]) -> Self:
        config = ReasonerConfig.from_json(_table(files[CONFIG]), where=str(files[CONFIG]))
        weights = read_weights(files[WEIGHTS])
        model = cls(config)
        load_weights(model, weights, where=str(files[WEIGHTS]))
        if files[MEASURED].is_file():
            rows = read_json(files[MEASURED])
            model.measured = tuple(Measured.from_json(row, where=str(files[MEASURED])) for row in rows)
        return model


def write_weights(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Write tensors as safetensors, atomically."""
    with new_file(path) as temporary:
        plain = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
        temporary.write_bytes(save(plain, metadata={"format": "pt"}))


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file; a missing, truncated or pickled one is a `UserError` that says what to do."""
    if not path.is_file():
        others = [file.name for file in path.parent.glob("*") if file.suffix in PICKLES]
        hint = f"; {others[0]} is a pickle, which `eqr import` converts" if others else ""
        raise UserError(f"{path} is missing{hint}")
    if is_pickle(path):
        raise UserError(f"{path} is a pickle, not safetensors; `eqr import` converts official checkpoints")
    try:
        return load_file(path)
    except SafetensorError as error:
        raise UserError(f"{path} is damaged or truncated ({error}); copy or download it again") from None


def is_pickle(path: Path) -> bool:
    """Say whether a file is one of PyTorch's own (a zip archive or a bare pickle)."""
    with path.open("rb") as file:
        first = file.read(9)
    # safetensors begin with the length of their header, whose bytes may be anything, then the header itself
    return not first.endswith(b"{") and first.startswith((b"PK", b"\x80"))


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], *, where: str) -> None:
    """Copy weights into a model; names and shapes must be exactly the model's."""
    own = model.state_dict()
    missing, unknown = sorted(own.keys() - weights.keys()), sorted(weights.keys() - own.keys())
    if missing or unknown:
        words = [f"lacks {missing[0]!r}"] if missing else []
        words += [f"has {unknown[0]!r}, which this model has not"] if unknown else []
        count = len(missing) + len(unknown)
        raise UserError(f"{where} {' and '.join(words)} ({count} names differ); does it match the config?")
    for name, tensor in own.items():
        given = tuple(weights[name].shape)
        if given != tuple(tensor.shape):
            raise UserError(
                f"{where}: {name} has shape {given}, the config needs {tuple(tensor.shape)}; "
                "weights and config belong to different models"
            )
    model.load_state_dict(weights)


def _download(repository: str, name: str, options: dict[str, Any]) -> Path:
    try:
        return Path(hf_hub_download(repository, name, **options))
    except EntryNotFoundError as error:
        if name == MEASURED:
            return Path(name + ".absent")
        raise UserError(f"{repository} on the Hub has no {name}, or it cannot be reached: {error}") from None
    except (OSError, HFValidationError) as error:
        raise UserError(
            f"{repository} is neither a folder here nor a model the Hub gives us: {error}"
        ) from None


def _table(path: Path) -> dict[str, Any]:
    data = read_json(path)
    if not isinstance(data, dict):
        raise UserError(f"{path} must hold an object with the model's fields, not {json.dumps(data)[:40]}")
    return data
