"""`eqr push`: upload a model to the Hugging Face Hub, with its card."""

from pathlib import Path
from typing import Annotated

import typer

from eqr.errors import UserError

app = typer.Typer()


@app.command()
def push(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Model folder, run folder or shipped model.")],
    repository: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="Its name on the Hub.")],
    private: Annotated[bool, typer.Option("--private", help="Create the repository as private.")] = False,
    dry_run: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the files to this folder and upload nothing.")
    ] = None,
) -> None:
    """Upload weights, config, measurements and model card; `hf auth login` first."""
    if repository.count("/") != 1 or not all(repository.split("/")):
        raise UserError(f"{repository!r} is no name on the Hub: give OWNER/NAME, such as someone/sudoku")
    from eqr.files import new_folder
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
