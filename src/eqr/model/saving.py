"""Saving and loading a reasoner the way the field expects: a folder, or a repository on the Hugging Face Hub.

`config.json` says what the model is, `model.safetensors` holds the weights, `measured.json` the numbers known
about it and `README.md`, the model card, shows them with their depth, breadth and NFE, since accuracy means
nothing without its budget.

Files are written atomically and read without running code. Weights must fit the config in names and shapes,
compared on PyTorch's meta device, where a model has shapes but no memory, before a model is made; values must
be finite floating-point numbers. A digest in the file's header says what weights and config were.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self, TypeVar

import torch
from pydantic import NonNegativeFloat, PositiveInt
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor, nn

from eqr.errors import UserError, brief
from eqr.files import make_folder, new_file, read_json, read_object, regular_file, write_json
from eqr.model.config import ReasonerConfig
from eqr.model.lookup import CONFIG, local_model
from eqr.result import Result, pivot
from eqr.signals import deferred_interrupts
from eqr.value import Value

WEIGHTS, MEASURED, TRAINING, CARD = "model.safetensors", "measured.json", "training.json", "README.md"
PICKLES = (".bin", ".ckpt", ".pkl", ".pt", ".pth")
NUMBERS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""What weights may be stored as; shorter ones need scales beside them, which no file of ours has."""
DIGEST = "digest"
"""Of the weights and what they belong to, in the header of their file."""
HUB_OPTIONS = ("revision", "cache_dir", "force_download", "local_files_only", "token")
SINGLE = "single start"
"""The rule of a number that is of one start."""

Model = TypeVar("Model", bound=nn.Module)
Shape = tuple[int, ...]


class TrainingFacts(Value):
    """Where weights come from: the command that makes them again, and what it took."""

    command: str
    seed: int
    steps: PositiveInt
    seconds: NonNegativeFloat
    """Of training alone."""
    threads: PositiveInt


class Saved(nn.Module):
    """What makes a `Reasoner` savable."""

    config: ReasonerConfig
    measured: tuple[Result, ...] = ()
    """What is known about these weights; travels with them."""
    origin: TrainingFacts | None = None
    """Where they come from, if that is known."""

    def parameter_count(self) -> int:
        """Number of trained parameters, without buffers and the sparse identity table."""
        return sum(parameter.numel() for parameter in self.parameters())

    def save_pretrained(
        self, save_directory: str | Path, *, measured: Sequence[Result] | None = None
    ) -> None:
        """Write the folder, each file at once or not at all; `measured` replaces the numbers known so far."""
        folder = Path(save_directory)
        make_folder(folder)
        if measured is not None:
            self.measured = tuple(measured)
        config = self.config.to_json()
        _write_weights(folder / WEIGHTS, self.state_dict(), belonging=_text(config))
        write_json(folder / CONFIG, config)
        write_json(folder / MEASURED, [number.to_json() for number in self.measured])
        if self.origin is not None:
            write_json(folder / TRAINING, self.origin.to_json())
        with new_file(folder / CARD) as temporary:
            temporary.write_text(_card(self), encoding="utf-8")

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
        cls, pretrained_model_name_or_path: str | Path, *, verify: bool = True, **hub: Any
    ) -> Self:
        """Load a folder, a run, a shipped model or the Hub's `owner/name`; weights are on cpu, in float32.

        `verify` compares weights and config with the digest that was saved with them; `hub` are the download
        options revision, cache_dir, force_download, local_files_only and token.
        """
        unknown = sorted(hub.keys() - set(HUB_OPTIONS))
        if unknown:
            raise UserError(f"from_pretrained has no option {unknown[0]!r}; the config is the model's own")
        place = str(pretrained_model_name_or_path)
        folder = local_model(place)
        path, weights, measured, training = (
            _download(place, name, hub) if folder is None else folder / name
            for name in (CONFIG, WEIGHTS, MEASURED, TRAINING)
        )
        said = read_object(path)
        config = ReasonerConfig.from_json(said, where=str(path))
        tensors = read_weights(weights)
        model = fitted(lambda: cls(config), tensors, where=str(weights))
        if verify:
            _require_as_saved(weights, tensors, said)
        load_weights(model, tensors, where=str(weights))
        if measured.is_file():
            model.measured = read_measured(read_json(measured), where=str(measured))
        if training.is_file():
            model.origin = TrainingFacts.from_json(read_object(training), where=str(training))
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
        place = str(path.parent)
        raise UserError(
            f"{path} or the {CONFIG} beside it has changed since they were saved: their digest is not "
            f"{saved[:16]}. Copy or download both again; if you have changed {CONFIG} on purpose, save the "
            f"model anew: Reasoner.from_pretrained({place!r}, verify=False).save_pretrained({place!r})"
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


def _write_weights(path: Path, weights: Mapping[str, Tensor], *, belonging: str) -> None:
    """Write tensors as safetensors, with a digest of them and of the text that they belong to."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    content = save(plain)
    end = 8 + int.from_bytes(content[:8], "little")
    # metadata goes into the header here, in this order: the library's own writer shuffles it
    metadata = {"format": "pt", DIGEST: digest_of(plain, belonging)}
    fields = {"__metadata__": metadata, **json.loads(content[8:end])}
    header = json.dumps(fields, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    with new_file(path) as temporary:
        temporary.write_bytes(len(header).to_bytes(8, "little") + header + content[end:])


def digest_of(weights: Mapping[str, Tensor], belonging: str) -> str:
    """Return a content hash of tensors by name, bit for bit, and of a text that they belong to."""
    digest = hashlib.sha256(belonging.encode())
    for name, tensor in sorted(weights.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        if tensor.numel():
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file; a missing, truncated or pickled one is a `UserError` that says what to do."""
    if not path.exists():
        others = [file.name for file in path.parent.glob("*") if file.suffix in PICKLES]
        hint = f"; {others[0]} is a pickle, which `eqr convert` converts" if others else ""
        raise UserError(f"{path} is missing{hint}")
    if is_pickle(path):
        raise UserError(f"{path} is a pickle, not safetensors; `eqr convert` converts official checkpoints")
    with _undamaged(path):
        return load_file(path)


def stored_digest(path: Path) -> str | None:
    """Return the digest in a safetensors file; None for one that eqr did not write, or before it did that."""
    with _undamaged(path), safe_open(path, "pt") as file:
        return (file.metadata() or {}).get(DIGEST)


@contextmanager
def _undamaged(path: Path) -> Iterator[None]:
    try:
        with deferred_interrupts():  # in compiled code a signal would look like damage
            yield
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, RuntimeError, MemoryError) as error:
        raise UserError(f"{path} is damaged or truncated ({error}); copy or download it again") from None


def is_pickle(path: Path) -> bool:
    """Say whether a file is one of PyTorch's own (a zip archive or a bare pickle)."""
    with regular_file(path).open("rb") as file:
        first = file.read(9)
    # safetensors begin with the length of their header, whose bytes may be anything, then the header itself
    return not first.endswith(b"{") and first.startswith((b"PK", b"\x80"))


def shapes_of(weights: Mapping[str, Tensor]) -> dict[str, Shape]:
    """Return shapes by name."""
    return {name: tuple(tensor.shape) for name, tensor in weights.items()}


def fitted(make: Callable[[], Model], weights: Mapping[str, Tensor], *, where: str) -> Model:
    """Make a model, having seen that weights have exactly its names and shapes."""
    with torch.device("meta"):
        own = shapes_of(make().state_dict())
    require_shapes(own, shapes_of(weights), where=where)
    return make()


def require_shapes(own: Mapping[str, Shape], given: Mapping[str, Shape], *, where: str) -> None:
    """Say which name or shape differs, if one does."""
    missing, unknown = sorted(own.keys() - given.keys()), sorted(given.keys() - own.keys())
    if missing or unknown:
        words = [f"lacks {missing[0]!r}"] if missing else []
        words += [f"has {unknown[0]!r}, which this model has not"] if unknown else []
        count = len(missing) + len(unknown)
        raise UserError(f"{where} {' and '.join(words)} ({count} names differ); does it match the config?")
    for name, shape in own.items():
        if given[name] != shape:
            raise UserError(
                f"{where}: {name} has shape {given[name]}, the config needs {shape}; "
                "weights and config belong to different models"
            )


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], *, where: str) -> None:
    """Copy weights into a model; names and shapes must be exactly the model's, values finite."""
    require_shapes(shapes_of(model.state_dict()), shapes_of(weights), where=where)
    for name, tensor in weights.items():
        if tensor.dtype not in NUMBERS:
            raise UserError(
                f"{where}: {name} is {tensor.dtype}, weights are floating-point numbers of 16 to 64 bits"
            )
        if not bool(torch.isfinite(tensor.float()).all()):
            raise UserError(
                f"{where}: {name} holds NaN or infinity; the file is damaged or its training failed"
            )
    model.load_state_dict(weights)


def read_measured(rows: Any, *, where: str) -> tuple[Result, ...]:
    """Take back the numbers saved with a model, older ones too, which were records of another form."""
    if not isinstance(rows, list):
        raise UserError(f"{where} must hold a list of results; delete it to do without")
    found = []
    for row in rows:
        if not isinstance(row, dict) or "puzzles" not in row:
            found.append(Result.from_json(row, where=where))
            continue
        try:
            place = {"item": row["puzzles"], "rule": row["selection"], "n": row["count"]}
            place |= {"depth": row["depth"], "breadth": row["breadth"]}
            interval = {"low": row["low"], "high": row["high"]}
            found.append(Result(metric="exact", value=row["value"], **interval, **place))
            if row["mean_nfe"] is not None:
                found.append(Result(metric="nfe", value=row["mean_nfe"], **place))
        except KeyError as error:
            raise UserError(f"{where}: {brief(row)} lacks {error}") from None
    return tuple(found)


def with_cost(measured: Sequence[Result]) -> list[tuple[Result, float]]:
    """Return the numbers of a model, each with the segments that were run per puzzle."""
    found = []
    for place in pivot(measured, "item", "rule", "depth", "breadth").values():
        nfe = place.pop("nfe", None)
        for row in place.values():
            found.append((row, float((row.depth or 1) * (row.breadth or 1)) if nfe is None else nfe.value))
    return found


def _card(model: Saved) -> str:
    """Return the model card as Markdown, beginning with the metadata that the Hub reads."""
    config, origin = model.config, model.origin
    task = config.task or "its own puzzles"
    tag = f"- {config.task}\n" if config.task else ""
    training, numbers = "", "Nothing has been measured with these weights yet."
    if origin is not None:
        cores = f"{origin.threads} CPU core{'s' if origin.threads > 1 else ''}"
        took = f"{origin.steps:,} steps in {origin.seconds / 60:.0f} minutes on {cores}, seed {origin.seed}."
        training = f"## Training\n\n`{origin.command}`\n\n{took}\n\n"
    if model.measured:
        numbers = "\n".join([_NUMBERS, *(_line(row, nfe) for row, nfe in with_cost(model.measured))])
    return f"""---
library_name: eqr
tags:
- equilibrium-reasoner
{tag}---

# Equilibrium reasoner for {task}

A small weight-tied network that solves puzzles by iterating a latent state until it settles.

| | |
| --- | --- |
| task | {task}, {config.rows} x {config.columns} cells, {config.vocabulary} tokens |
| recurrence | {config.recurrence.kind}, {config.layers_per_segment} layers per segment |
| stack | {config.blocks} blocks, width {config.width}, {config.mixer.kind} mixer |
| start | {config.start.kind} |
| path | damping {config.path.damping:g}, noise {config.path.noise:g} |
| parameters | {model.parameter_count():,} |

{training}## Measured

{numbers}

## Use

With this repository's name on the Hub, or the path of this folder:

```console
eqr solve OWNER/NAME "PUZZLE"
```

```python
import eqr

print(eqr.Solver("OWNER/NAME").solve("PUZZLE"))
```
"""


_NUMBERS = """\
One NFE is one segment of one start; depth D is segments per start, breadth B is starts per puzzle.

| metric | value | puzzles | depth D | breadth B | NFE | selection |
| --- | --- | --- | --- | --- | --- | --- |"""


def _line(number: Result, nfe: float) -> str:
    interval = "" if number.low is None else f" ({number.low:.4g} to {number.high:.4g})"
    metric = "exact accuracy" if number.metric == "exact" else number.metric
    count = "" if number.n is None else f" ({number.n:,})"
    return (
        f"| {metric} | {number.value:.4g}{interval} | {number.item}{count} "
        f"| {number.depth} | {number.breadth} | {nfe:g} | {number.rule} |"
    )
