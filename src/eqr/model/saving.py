"""Saving and loading a reasoner the way the field expects: a folder, or a repository on the Hugging Face Hub.

`config.json` says what the model is, `model.safetensors` holds the weights, `measured.json` the numbers known
about it and `README.md`, the model card, shows them with their depth, breadth and NFE. Nothing is ever
unpickled; whatever does not fit is refused with the reason, before memory is taken for it.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from torch import Tensor, nn

from eqr.errors import UserError
from eqr.files import make_folder, new_file, read_json, read_object, write_json
from eqr.model.card import TrainingFacts, model_card, read_measured
from eqr.model.config import ReasonerConfig
from eqr.model.lookup import CONFIG, local_model
from eqr.model.weights import (
    digest_of,
    fitted,
    load_weights,
    read_weights,
    stored_digest,
    stored_shapes,
    write_weights,
)
from eqr.result import Result

WEIGHTS, MEASURED, TRAINING, CARD = "model.safetensors", "measured.json", "training.json", "README.md"


class Saved(nn.Module):
    """What makes a `Reasoner` savable."""

    config: ReasonerConfig
    measured: tuple[Result, ...] = ()
    """What is known about these weights; travels with them."""
    origin: TrainingFacts | None = None
    """Where they come from, if that is known."""

    def save_pretrained(
        self, save_directory: str | Path, *, measured: Sequence[Result] | None = None
    ) -> None:
        """Write the folder, each file at once or not at all; `measured` replaces the numbers known so far."""
        folder = Path(save_directory)
        make_folder(folder)
        if measured is not None:
            self.measured = tuple(measured)
        config = self.config.to_json()
        write_weights(folder / WEIGHTS, self.state_dict(), belonging=_text(config))
        write_json(folder / CONFIG, config)
        write_json(folder / MEASURED, [number.to_json() for number in self.measured])
        if self.origin is not None:
            write_json(folder / TRAINING, self.origin.to_json())
        parameters = sum(parameter.numel() for parameter in self.parameters())
        with new_file(folder / CARD) as temporary:
            card = model_card(self.config, parameters, self.measured, self.origin)
            temporary.write_text(card, encoding="utf-8")

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool | None = None,
        token: str | None = None,
        commit_message: str = "Upload a model of eqr",
    ) -> str:
        """Upload what `save_pretrained` writes to the Hub's `owner/name`; returns the address."""
        from huggingface_hub import HfApi

        hub = HfApi(token=token)
        repository = hub.create_repo(repo_id, private=private, exist_ok=True).repo_id
        with TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            return str(
                hub.upload_folder(repo_id=repository, folder_path=folder, commit_message=commit_message)
            )

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
        verify: bool = True,
        **unknown: Any,
    ) -> Self:
        """Load a folder, a run, a shipped model or the Hub's `owner/name`; weights are on cpu, in float32.

        `verify` compares weights and config with the digest that was saved with them.
        """
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
        return cls._from_files(files, verify=verify)

    @classmethod
    def _from_files(cls, files: Mapping[str, Path], *, verify: bool) -> Self:
        said, weights = read_object(files[CONFIG]), files[WEIGHTS]
        config = ReasonerConfig.from_json(said, where=str(files[CONFIG]))
        model = fitted(lambda: cls(config), stored_shapes(weights), where=str(weights))
        tensors = read_weights(weights)
        if verify:
            _require_as_saved(weights, tensors, said)
        load_weights(model, tensors, where=str(weights))
        if files[MEASURED].is_file():
            model.measured = read_measured(read_json(files[MEASURED]), where=str(files[MEASURED]))
        if files[TRAINING].is_file():
            where = str(files[TRAINING])
            model.origin = TrainingFacts.from_json(read_object(files[TRAINING]), where=where)
        return model


def _text(config: Mapping[str, Any]) -> str:
    """Return a config as it enters the digest of its weights, whatever later versions make of it."""
    return json.dumps(config, sort_keys=True)


def _require_as_saved(path: Path, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> None:
    """Say so if weights or config are not what was saved together."""
    saved = stored_digest(path)
    if saved is None:
        _tell_undigested(path)
    elif saved != digest_of(tensors, _text(config)):
        place = path.parent
        raise UserError(
            f"{path} or the {CONFIG} beside it has changed since they were saved: their digest is not "
            f"{saved[:16]}. Copy or download both again; if you have changed {CONFIG} on purpose, save the "
            f"model anew: Reasoner.from_pretrained({str(place)!r}, verify=False)"
            f".save_pretrained({str(place)!r})"
        )


@cache
def _tell_undigested(path: Path) -> None:
    """Say once in a process that nobody can tell whether a model is what it was."""
    print(
        f"{path} has no digest of its weights, so damage to them would not be noticed; saved anew "
        "(Reasoner.from_pretrained, save_pretrained) it has one",
        file=sys.stderr,
    )


def _download(repository: str, name: str, options: dict[str, Any]) -> Path:
    from huggingface_hub.errors import EntryNotFoundError, HFValidationError, LocalEntryNotFoundError

    from eqr.data.hub import download

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
