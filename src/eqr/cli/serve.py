"""`eqr serve`: answer puzzles over HTTP, and show the page on which one watches."""

import sys
from typing import Annotated

import typer

from eqr.errors import UserError

app = typer.Typer()


@app.command()
def serve(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL", help="Model folders, run folders or hub names; none: the shipped models."
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 opens it to the network.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 8000,
    slots: Annotated[int, typer.Option(min=1, help="Rows of each model that run at once.")] = 64,
    waiting: Annotated[
        int, typer.Option(min=1, help="Puzzles under way per model before clients are put off.")
    ] = 1024,
    seconds: Annotated[float, typer.Option(min=0.1, help="Deadline of a request.")] = 60.0,
    key: Annotated[
        str | None, typer.Option(envvar="EQR_API_KEY", show_envvar=True, help="Ask clients for this API key.")
    ] = None,
    cors: Annotated[
        list[str] | None, typer.Option(metavar="ORIGIN", help="Let pages from this origin ask, too.")
    ] = None,
) -> None:
    """Serve models until Ctrl-C or SIGTERM, which finish what was accepted; nothing is kept on disk."""
    try:
        from eqr.serve.app import make_app
        from eqr.serve.gate import LOOPBACK
        from eqr.serve.limits import Limits
        from eqr.serve.run import load, run
    except ImportError as error:
        raise UserError(f"serving needs {error.name}: pip install 'eqr[serve]'") from None
    from eqr.progress import progress

    names = models or shipped_names()
    limits = Limits(waiting=waiting, seconds=seconds)
    with progress("loading", len(names), unit="models") as shown:
        served = load(names, loaded=shown.advance)
    local = host in (*LOOPBACK, "::1")
    application = make_app(
        served, limits, slots=slots, key=key, origins=cors or (), hosts=LOOPBACK if local else None
    )

    def ready(at: int) -> None:
        place = f"http://{'localhost' if local or host == '0.0.0.0' else host}:{at}"
        print(
            f"serving {', '.join(model.name for model in served)} on {place} (docs: {place}/docs)", flush=True
        )
        if not local and key is None:
            print("open to the network without a key; add --key", file=sys.stderr, flush=True)

    run(application, limits, host=host, port=port, ready=ready)


def shipped_names() -> list[str]:
    """Names of the models that come with the package."""
    from eqr.model.lookup import shipped

    return list(shipped())
