"""`eqr export`: write a model as graphs that run without eqr, in a browser for one."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eqr import __version__
from eqr.errors import UserError

if TYPE_CHECKING:
    from eqr.tasks import Task

app = typer.Typer()


@app.command()
def export(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Model folder, run folder or hub name.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write the graphs to.")],
    onnx: Annotated[bool, typer.Option("--onnx", help="ONNX graphs, checked by onnxruntime.")] = False,
    programs: Annotated[bool, typer.Option("--programs", help="torch.export programs (.pt2).")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the folder if it exists.")] = False,
) -> None:
    """Write a model's embed, start, segment and read as graphs with dynamic batch, and model.json."""
    if onnx == programs:
        raise UserError("say which kind of graphs to write: --onnx or --programs")
    from eqr.files import new_folder
    from eqr.model.export import MANIFEST, export_onnx, export_programs
    from eqr.progress import progress
    from eqr.solve import load
    from eqr.tasks import task_named

    reasoner = load(model, device="cpu")
    task = None if reasoner.config.task is None else task_named(reasoner.config.task)
    write: Callable[..., dict[str, Any]] = export_onnx if onnx else export_programs
    with (
        new_folder(out, replacing=MANIFEST if overwrite else None) as folder,
        progress("exporting", 4, unit="graphs") as shown,
    ):
        manifest = write(reasoner, folder, about(task), done=shown.advance)
    sizes = ", ".join(f"{name} {graph['bytes'] / 1e6:.1f} MB" for name, graph in manifest["graphs"].items())
    print(f"{out}: {sizes}; the same numbers as the model")


def about(task: "Task | None") -> dict[str, Any]:
    """What the manifest says beyond the model: who wrote it, and how puzzles are written and drawn."""
    said: dict[str, Any] = {"eqr": __version__}
    if task is not None:
        said["task"] = {
            "name": task.name,
            "summary": task.summary,
            "rows": task.shape[0],
            "columns": task.shape[1],
            "symbols": task.symbols,
        }
    return said
