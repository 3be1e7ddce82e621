"""Verbs about models: `models` that ship with eqr, `convert`, `export` and `push`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eqr import __version__
from eqr.cli.options import Json, Model, Overwrite
from eqr.errors import UserError, nearest
from eqr.files import new_folder, read_json

if TYPE_CHECKING:
    from eqr.result import Result
    from eqr.tasks import Task


def models(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Show the card of this model.")] = None,
    as_json: Json = False,
) -> None:
    """List the shipped models; `eqr solve NAME PUZZLE` uses one, `eqr solve PUZZLE` picks one itself."""
    from eqr.model.lookup import shipped

    known = shipped()
    if name is not None and name not in known:
        raise UserError(f"no shipped model {name!r}{nearest(name, known)}")
    found = [_described(*model) for model in known.items() if name in (None, model[0])]
    if as_json:
        print(json.dumps(found, indent=2))
    elif name is not None:
        card = (known[name] / "README.md").read_text(encoding="utf-8")
        print(card.partition("\n---\n")[2].strip())
    else:
        for model in found:
            size = f"{model['kilobytes']:>4} kB"
            print(f"{model['name']:<16} {model['task']:<11} {size}  {_line(known[model['name']])}")


def _described(name: str, folder: Path) -> dict[str, Any]:
    from eqr.model.saving import WEIGHTS

    return {
        "name": name,
        "task": read_json(folder / "config.json")["task"],
        "folder": str(folder),
        "kilobytes": (folder / WEIGHTS).stat().st_size // 1000,
        "measured": [row.to_json() for row in _measured(folder)],
    }


def _measured(folder: Path) -> "tuple[Result, ...]":
    from eqr.model.saving import MEASURED, read_measured

    return read_measured(read_json(folder / MEASURED), where=str(folder / MEASURED))


def _line(folder: Path) -> str:
    """Return what halting reaches on the puzzles that are hardest for the model."""
    from eqr.model.saving import with_cost

    known = with_cost(_measured(folder))
    halting = [pair for pair in known if pair[0].rule.startswith("halting")]
    number, nfe = min(halting or known, key=lambda pair: pair[0].value)
    return f"{number.value:.1%} of {number.n:,} {number.item}, one start, {nfe:.1f} segments on average"


def convert(
    checkpoint: Annotated[
        Path, typer.Argument(metavar="CHECKPOINT", help="The original's file: .pth, or safetensors.")
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write the model to.")],
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="CONFIG", help="Its config, JSON or YAML; not needed if the checkpoint has one."
        ),
    ] = None,
    task: Annotated[
        str | None, typer.Option(metavar="NAME", help="Kind of puzzle it solves, see `eqr tasks`.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Convert a checkpoint of an original implementation, so that its weights run here."""
    from eqr.model import convert as checkpoints
    from eqr.model.saving import WEIGHTS
    from eqr.tasks import task_named

    grid = None
    if task is not None:
        known = task_named(task)
        grid = checkpoints.Grid(*known.shape, known.name)
    model = checkpoints.convert(checkpoint, config, grid)
    with new_folder(out, replacing=WEIGHTS if overwrite else None) as folder:
        model.save_pretrained(folder)
    size = f"{model.config.rows}x{model.config.columns}"
    print(f"{out}: {model.parameter_count():,} parameters, {model.config.recurrence.kind}, grid {size}")


def export(
    model: Model,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write the graphs to.")],
    onnx: Annotated[bool, typer.Option("--onnx", help="ONNX graphs, checked by onnxruntime.")] = False,
    programs: Annotated[bool, typer.Option("--programs", help="torch.export programs (.pt2).")] = False,
    overwrite: Overwrite = False,
) -> None:
    """Write a model's embed, start, segment and read as graphs with dynamic batch, and model.json."""
    if onnx == programs:
        raise UserError("say which kind of graphs to write: --onnx or --programs")
    from eqr.model.export import MANIFEST, export_onnx, export_programs
    from eqr.progress import progress
    from eqr.solve import load
    from eqr.tasks import task_named

    reasoner = load(model, device="cpu")
    task = None if reasoner.config.task is None else task_named(reasoner.config.task)
    write = export_onnx if onnx else export_programs
    with (
        new_folder(out, replacing=MANIFEST if overwrite else None) as folder,
        progress("exporting", 4, unit="graphs") as shown,
    ):
        manifest = write(reasoner, folder, _about(task), done=shown.advance)
    sizes = ", ".join(f"{name} {graph['bytes'] / 1e6:.1f} MB" for name, graph in manifest["graphs"].items())
    print(f"{out}: {sizes}; the same numbers as the model")


def _about(task: "Task | None") -> dict[str, Any]:
    """What the manifest says beyond the model: who wrote it, and how puzzles are written and drawn."""
    said: dict[str, Any] = {"eqr": __version__}
    if task is not None:
        rows, columns = task.shape
        said["task"] = {"name": task.name, "summary": task.summary, "rows": rows, "columns": columns}
        said["task"]["symbols"] = task.symbols
    return said


def push(
    model: Model,
    repository: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="Its name on the Hub.")],
    private: Annotated[bool, typer.Option("--private", help="Create the repository as private.")] = False,
    dry_run: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the files to this folder and upload nothing.")
    ] = None,
) -> None:
    """Upload weights, config, measurements and model card; `hf auth login` first."""
    if repository.count("/") != 1 or not all(repository.split("/")):
        raise UserError(f"{repository!r} is no name on the Hub: give OWNER/NAME, such as someone/sudoku")
    from eqr.model.reasoner import Reasoner

    reasoner = Reasoner.from_pretrained(model)
    if dry_run is not None:
        with new_folder(dry_run) as folder:
            reasoner.save_pretrained(folder)
        print(f"{dry_run}: the files that `eqr push {model} {repository}` uploads")
        return
    from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError

    try:
        address = reasoner.push_to_hub(repository, private=private or None)
    except (HfHubHTTPError, LocalTokenNotFoundError, OSError) as error:
        raise UserError(f"cannot upload to {repository}: {error}; `hf auth login` logs in") from None
    print(f"uploaded to {address}")
