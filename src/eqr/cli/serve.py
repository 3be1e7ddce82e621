"""`eqr serve`: answer puzzles over HTTP, with a page to watch; `eqr site`: that page without a server."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from eqr.cli.options import On, Overwrite
from eqr.errors import UserError, with_extra
from eqr.files import new_folder
from eqr.progress import progress

Models = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="MODEL", help="Model folders, run folders or hub names; none: the shipped models."
    ),
]


def serve(
    models: Models = None,
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
        from eqr.serve.access import is_local, names_of, require_access
        from eqr.serve.app import make_app
        from eqr.serve.messages import Limits
        from eqr.serve.run import listening, load, run
    except ImportError as error:
        raise UserError(f"serving needs {error.name}: {with_extra('serve')}") from None

    if on is None and replicas is not None:
        raise UserError("--replicas is for a cluster; add --on ray")
    names = models or _shipped_names()
    limits = Limits(waiting=waiting, seconds=seconds)
    require_access(host, key, anyone=anyone)
    asked: dict[str, Any] = {
        "slots": slots,
        "key": key,
        "origins": tuple(cors or ()),
        "hosts": names_of(host),
    }
    address = "localhost" if is_local(host) or host == "0.0.0.0" else host
    with listening(host, port) as sockets:  # an address that cannot be had is said before anything else
        if on is None:
            with progress("loading", len(names), unit="models") as shown:
                served = load(names, loaded=shown.advance)
            ready = partial(_announce, address, [model.name for model in served])
            run(make_app(served, limits, **asked), limits, sockets, ready=ready)
            return
    from eqr.cluster.connect import connected
    from eqr.cluster.serving import deploy, parse_replicas, serve_until_stopped

    count = parse_replicas(replicas or "1")
    if port == 0:
        raise UserError("--port 0: on a cluster every node listens on the same port; name one")

    def begin() -> None:
        deploy(names, limits, host=host, port=port, replicas=count, **asked)
        _announce(address, names, port)

    with connected(on):
        serve_until_stopped(begin)


def _announce(address: str, served: Sequence[str], port: int) -> None:
    """Say where which models are served."""
    place = f"http://{address}:{port}"
    print(f"serving {', '.join(served)} on {place} (docs: {place}/docs)", flush=True)


def _shipped_names() -> list[str]:
    from eqr.model.lookup import shipped

    return list(shipped())


def site(
    models: Models = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write the site to.")] = Path("site"),
    runtime: Annotated[
        Path, typer.Option(metavar="DIR", help="The `dist` folder of onnxruntime-web, from npm.")
    ] = Path("build/npm/node_modules/onnxruntime-web/dist"),
    overwrite: Overwrite = False,
) -> None:
    """Write a folder that any host of files can serve: page, exported models and runtime."""
    try:
        from eqr.serve.page import build_site
        from eqr.serve.run import load
    except ImportError as error:
        raise UserError(f"the site needs {error.name}: {with_extra('serve,export')}") from None

    served = load(models or _shipped_names())
    with (
        new_folder(out, replacing="models.json" if overwrite else None) as folder,
        progress("exporting", 4 * len(served), unit="graphs") as shown,
    ):
        build_site(folder, served, runtime, done=shown.advance)
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    names = ", ".join(model.name for model in served)
    print(f"{out}: {names}, {size / 1e6:.1f} MB; try it with: python -m http.server -d {out}")
