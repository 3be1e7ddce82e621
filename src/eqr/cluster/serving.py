"""The server's application as a Ray Serve deployment: the same routes, on as many replicas as clients need.

Each replica opens the models itself and answers whole requests, with a queue of its own for each model. Ray
adds replicas when requests queue up and takes them away when they do not.
"""

import logging
import re
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from eqr.errors import UserError

if TYPE_CHECKING:
    from fastapi import FastAPI

    from eqr.serve.messages import Limits

NAME = "eqr"
QUEUE = 8
"""Requests under way at a replica, on average, beyond which another is begun."""
_REPLICAS = re.compile(r"(\d+)(?:\.\.(\d+))?")


def parse_replicas(text: str) -> tuple[int, int]:
    """Read `3` or `1..8`: the fewest replicas and the most."""
    found = _REPLICAS.fullmatch(text)
    fewest = int(found[1]) if found else 0
    most = int(found[2] or fewest) if found else 0
    if not 1 <= fewest <= most:
        raise UserError(f"--replicas {text!r}: a number such as 2, or fewest..most such as 1..8")
    return fewest, most


def deploy(
    names: Sequence[str],
    limits: "Limits",
    *,
    host: str,
    port: int,
    replicas: tuple[int, int],
    **options: Any,
) -> None:
    """Begin to serve models by name, and return once they answer; `options` are those of `make_app`."""
    from ray import serve

    def build() -> "FastAPI":
        from eqr.serve.app import make_app
        from eqr.serve.run import load

        _listen_where_the_node_does()
        return make_app(load(names), limits, **options)

    fewest, most = replicas
    deployment = serve.deployment(
        serve.ingress(build)(),
        name=NAME,
        max_ongoing_requests=limits.connections,
        autoscaling_config={
            "min_replicas": fewest,
            "max_replicas": most,
            "target_ongoing_requests": QUEUE,
        },
        graceful_shutdown_timeout_s=limits.seconds,
    )
    logging.getLogger("ray.serve").setLevel(logging.WARNING)  # the command says itself what it does
    serve.start(http_options={"host": host, "port": port})
    try:
        serve.run(deployment.bind(), name=NAME, route_prefix="/")
    except RuntimeError as error:
        raise UserError(f"the deployment did not start: {str(error).strip().splitlines()[-1]}") from None


def _listen_where_the_node_does() -> None:
    """Let a replica whose node listens to its own machine only do so too.

    Ray opens a port of each replica, which takes pickled requests, on every address, whatever the node does.
    """
    from ray._private.services import get_node_ip_address
    from ray.serve._private import replica

    if get_node_ip_address() == "127.0.0.1":
        add_port = replica.add_port_to_grpc_server
        replica.add_port_to_grpc_server = lambda server, _: add_port(server, "127.0.0.1:0")


def serve_until_stopped(begin: Callable[[], None]) -> None:
    """Serve until Ctrl-C or SIGTERM; then let replicas finish what they have and take them down."""
    from ray import serve

    from eqr.signals import Stopped, stoppable

    try:
        with stoppable():
            begin()
            while True:
                time.sleep(1.0)
    except Stopped:
        pass
    finally:
        serve.delete(NAME)
        serve.shutdown()
