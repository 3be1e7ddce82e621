"""`eqr site`: write the page as a static site that runs models in the browser."""

from pathlib import Path
from typing import Annotated

import typer

from eqr.errors import UserError, with_extra

app = typer.Typer()


@app.command()
def site(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL", help="Model folders, run folders or names; none: the shipped models."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write the site to.")] = Path("site"),
    runtime: Annotated[
        Path, typer.Option(metavar="DIR", help="The `dist` folder of onnxruntime-web, from npm.")
    ] = Path("build/npm/node_modules/onnxruntime-web/dist"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the folder if it exists.")] = False,
) -> None:
    """Write a folder that any host of files can serve: page, exported models and runtime."""
    try:
        from eqr.serve.run import load
        from eqr.serve.site import build_site
    except ImportError as error:
        raise UserError(f"the site needs {error.name}: {with_extra('serve,export')}") from None
    from eqr.cli.serve import shipped_names
    from eqr.files import new_folder
    from eqr.progress import progress

    served = load(models or shipped_names())
    with (
        new_folder(out, replacing="models.json" if overwrite else None) as folder,
        progress("exporting", 4 * len(served), unit="graphs") as shown,
    ):
        build_site(folder, served, runtime, done=shown.advance)
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    names = ", ".join(model.name for model in served)
    print(f"{out}: {names}, {size / 1e6:.1f} MB; try it with: python -m http.server -d {out}")
