"""`eqr convert`: turn a published checkpoint of EqR, TRM, HRM or URM into a model folder of ours."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command()
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
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the folder if it exists.")] = False,
) -> None:
    """Convert a checkpoint of an original implementation, so that its weights run here."""
    from eqr.files import new_folder
    from eqr.model import convert as checkpoints
    from eqr.model.saving import WEIGHTS
    from eqr.tasks.registry import task_named

    grid = None
    if task is not None:
        known = task_named(task)
        grid = checkpoints.Grid(*known.shape, known.name)
    model = checkpoints.convert(checkpoint, config, grid)
    with new_folder(out, replacing=WEIGHTS if overwrite else None) as folder:
        model.save_pretrained(folder)
    size = f"{model.config.rows}x{model.config.columns}"
    print(f"{out}: {model.parameter_count():,} parameters, {model.config.recurrence.kind}, grid {size}")
