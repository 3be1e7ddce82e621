"""Saving and loading a reasoner the way the field expects: a folder, or a repository on the Hugging Face Hub.

`config.json` says what the model is, `model.safetensors` holds the weights, `measured.json` the numbers known
about it and `README.md`, the model card, shows them with their depth, breadth and NFE. Nothing is ever
unpickled; whatever does not fit is refused with the reason, before memory is taken for it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from huggingface_hub import PyTorchModelHubMixin
from huggingface_hub.errors import EntryNotFoundError, HFValidationError, LocalEntryNotFoundError
from torch import nn

from eqr.data.hub import download
from eqr.errors import UserError
from eqr.files import make_folder, new_file, read_json, read_object, write_json
from eqr.model.card import Measured, TrainingFacts, model_card
from eqr.model.config import ReasonerConfig
from eqr.model.lookup import CONFIG, local_model
from eqr.model.weights import fitted, load_weights, read_weights, stored_shapes, write_weights

WEIGHTS, MEASURED, TRAINING, CARD = "model.safetensors", "measured.json", "training.json", "README.md"


class Saved(nn.Module, PyTorchModelHubMixin, library_name="eqr"):
    """What makes a `Reasoner` savable; `push_to_hub` is the mixin's own, on top of `save_pretrained`."""

    config: ReasonerConfig
    measured: tuple[Measured, ...] = ()
    """What is known about these weights; travels with them."""
    origin: TrainingFacts | None = None
    """Where they come from, if that is known."""

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
        if self.origin is not None:
            write_json(folder / TRAINING, self.origin.to_json())
        parameters = sum(parameter.numel() for parameter in self.parameters())
        with new_file(folder / CARD) as temporary:
            card = model_card(self.config, parameters, self.measured, self.origin)
            temporary.write_text(card, encoding="utf-8")

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
            files = {name: folder / name for name in (CONFIG, WEIGHTS, MEASURED, TRAINING)}
        else:
            options = {
                "revision": revision,
                "cache_dir": cache_dir,
                "force_download": force_download,
                "local_files_only": local_files_only,
                "token": token,
            }
            files = {name: _download(place, name, options) for name in (CONFIG, WEIGHTS, MEASURED, TRAINING)}
        return cls._from_files(files)

    @classmethod
    def _from_files(cls, files: Mapping[str, Path]) -> Self:
        config = ReasonerConfig.from_json(read_object(files[CONFIG]), where=str(files[CONFIG]))
        weights = files[WEIGHTS]
        model = fitted(lambda: cls(config), stored_shapes(weights), where=str(weights))
        load_weights(model, read_weights(weights), where=str(weights))
        if files[MEASURED].is_file():
            rows = read_json(files[MEASURED])
            if not isinstance(rows, list):
                raise UserError(f"{files[MEASURED]} must hold a list of numbers; delete it to do without")
            model.measured = tuple(Measured.from_json(row, where=str(files[MEASURED])) for row in rows)
        if files[TRAINING].is_file():
            where = str(files[TRAINING])
            model.origin = TrainingFacts.from_json(read_object(files[TRAINING]), where=where)
        return model


def _download(repository: str, name: str, options: dict[str, Any]) -> Path:
    try:
        return download(repository, name, **options)
    except EntryNotFoundError as error:
        if name in (MEASURED, TRAINING):
            return Path(name + ".absent")
        if isinstance(error, LocalEntryNotFoundError):
            raise UserError(
                f"cannot fetch {repository}: the Hugging Face hub does not answer and {name} is not in its "
                "cache; check the connection, or give the path of a model folder"
            ) from None
        raise UserError(f"{repository} on the Hub has no {name}, or it cannot be reached: {error}") from None
    except (OSError, HFValidationError) as error:
        raise UserError(
            f"{repository} is neither a folder here nor a model the Hub gives us: {error}"
        ) from None
