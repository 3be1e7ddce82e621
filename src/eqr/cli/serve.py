"""`eqr serve`: answer puzzles over HTTP, and show the page on which one watches."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eqr.cli.reproduce import On
from eqr.errors import UserError

if TYPE_CHECKING:
    from eqr.serve.limits import Limits

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
    on: On = None,
    replicas: Annotated[
        str | None, typer.Option(metavar="N..M", help="With --on ray: replicas, as many as requests need.")
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
    local = host in (*LOOPBACK, "::1")
    options: dict[str, Any] = {
        "slots": slots,
        "key": key,
        "origins": tuple(cors or ()),
        "hosts": LOOPBACK if local else None,
    }
    ready = partial(_announce, host, local, key is not None)
    if on is not None:
        _serve_on(on, names, limits, host, port, replicas or "1", options, partial(ready, names, port))
        return
    if replicas is not None:
        raise UserError("--replicas is for a cluster; add --on ray")
    with progress("loading", len(names), unit="models") as shown:
        served = load(names, loaded=shown.advance)
    application = make_app(served, limits, **options)
    called = [model.name for model in served]
    run(application, limits, host=host, port=port, ready=partial(ready, called))


def _announce(host: str, local: bool, protected: bool, served: Sequence[str], port: int) -> None:
    """Say where which models are served."""
    place = f"http://{'localhost' if local or host == '0.0.0.0' else host}:{port}"
    print(f"serving {', '.join(served)} on {place} (docs: {place}/docs)", flush=True)
    if not local and not protected:
        print("open to the network without a key; add --key", file=sys.stderr, flush=True)


def _serve_on(
    on: str,
    names: list[str],
    limits: "Limits",
    host: str,
    port: int,
    replicas: str,
    options: dict[str, Any],
    ready: Callable[[], None],
) -> None:
    """Serve on the cluster that `--on` names, until asked to stop."""
    from eqr.cluster.connect import connected
    from eqr.cluster.serving import deploy, parse_replicas, serve_until_stopped

    count = parse_replicas(replicas)
    if port == 0:
        raise UserError("--port 0: on a cluster every node listens on the same port; name one")

    def begin() -> None:
        deploy(names, limits, host=host, port=port, replicas=count, **options)
        ready()

    with connected(on):
        serve_until_stopped(begin)


def shipped_names() -> list[str]:
    """Names of the models that come with the package."""
    from eqr.model.lookup import shipped

    return list(shipped())
