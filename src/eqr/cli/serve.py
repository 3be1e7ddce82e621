"""`eqr serve`: answer puzzles over HTTP, and show the page on which one watches."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eqr.cli.reproduce import On
from eqr.errors import UserError, with_extra

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
        str, typer.Option(help="Address to listen on; 0.0.0.0 is the network, and needs --key or --open.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 8000,
    slots: Annotated[int, typer.Option(min=1, help="Rows of each model that run at once.")] = 64,
    waiting: Annotated[
        int, typer.Option(min=1, help="Open puzzles per model; beyond that requests get 429.")
    ] = 1024,
    seconds: Annotated[float, typer.Option(min=0.1, help="Deadline of a request.")] = 60.0,
    key: Annotated[
        str | None, typer.Option(envvar="EQR_API_KEY", show_envvar=True, help="Ask clients for this API key.")
    ] = None,
    anyone: Annotated[
        bool, typer.Option("--open", help="Let anyone who reaches --host use the server without a key.")
    ] = False,
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
        from eqr.serve.access import is_local, listening, names_of, require_access
        from eqr.serve.app import make_app
        from eqr.serve.limits import Limits
        from eqr.serve.run import load, run
    except ImportError as error:
        raise UserError(f"serving needs {error.name}: {with_extra('serve')}") from None
    from eqr.progress import progress

    names = models or shipped_names()
    limits = Limits(waiting=waiting, seconds=seconds)
    require_access(host, key, anyone=anyone)
    options: dict[str, Any] = {
        "slots": slots,
        "key": key,
        "origins": tuple(cors or ()),
        "hosts": names_of(host),
    }
    ready = partial(_announce, host, is_local(host))
    if on is not None:
        with listening(host, port):  # an address that cannot be had is said before a cluster is begun
            pass
        _serve_on(on, names, limits, host, port, replicas or "1", options, partial(ready, names, port))
        return
    if replicas is not None:
        raise UserError("--replicas is for a cluster; add --on ray")
    with listening(host, port) as sockets:
        with progress("loading", len(names), unit="models") as shown:
            served = load(names, loaded=shown.advance)
        application = make_app(served, limits, **options)
        called = [model.name for model in served]
        run(application, limits, sockets, ready=partial(ready, called))


def _announce(host: str, local: bool, served: Sequence[str], port: int) -> None:
    """Say where which models are served."""
    place = f"http://{'localhost' if local or host == '0.0.0.0' else host}:{port}"
    print(f"serving {', '.join(served)} on {place} (docs: {place}/docs)", flush=True)


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
