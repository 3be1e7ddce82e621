"""Who may ask: the address to listen on, the key, and the names under which a server may be asked for.

A server that others can reach asks for a key, unless it is opened to everybody on purpose. One on this
machine answers to its own names only: a page elsewhere must not reach it under a name of its own (DNS
rebinding).
"""

import errno
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from ipaddress import ip_address

from eqr.errors import UserError, brief

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


def is_local(host: str) -> bool:
    """Return whether only this machine can reach an address; names other than localhost count as open."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def require_access(host: str, key: str | None, *, anyone: bool) -> None:
    """Refuse a key that protects nothing, and an address that others can reach without any."""
    if key is not None and not (key and key.isascii() and key.isprintable() and " " not in key):
        raise UserError(
            f"--key (EQR_API_KEY) = {brief(key)}: a key is printable ASCII without spaces, at least one "
            "character; was the variable set that it comes from?"
        )
    if key is None and not anyone and not is_local(host):
        raise UserError(
            f"--host {host}: others can reach this address, and no key is asked for; add --key KEY, or "
            "--open to let anyone use it"
        )


def names_of(host: str) -> tuple[str, ...] | None:
    """Return the names under which a server on `host` may be asked for; None is any."""
    own = f"[{host}]" if ":" in host and not host.startswith("[") else host.lower()
    return tuple(dict.fromkeys((*LOOPBACK, own))) if is_local(host) else None


def host_named(header: str) -> str:
    """Return the host of a `Host` header, without its port, as names are compared: case does not count."""
    name = header if header.endswith("]") else header.rpartition(":")[0] or header
    return name.lower().removesuffix(".")


@contextmanager
def listening(host: str, port: int) -> Iterator[list[socket.socket]]:
    """Take an address before anything is loaded; a `UserError` says why it cannot be had."""
    with ExitStack() as stack:
        yield [stack.enter_context(one) for one in _bound(host, port)]


def _bound(host: str, port: int) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    failed: list[OSError] = []
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        found, failed = [], [error]
    for family, kind, protocol, _, address in found:
        try:
            one = socket.socket(family, kind, protocol)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind((address[0], sockets[0].getsockname()[1] if sockets else port, *address[2:]))
            sockets.append(one)
        except OSError as error:  # localhost may have an address of a kind that this machine does not speak
            one.close()
            failed.append(error)
    taken = next((error for error in failed if error.errno == errno.EADDRINUSE), None)
    if taken or not sockets:
        for one in sockets:
            one.close()
        fix = "another server is there; choose another --port" if taken else "choose another --host or --port"
        raise UserError(f"cannot listen on {host}:{port}: {(taken or failed[0]).strerror}; {fix}")
    return sockets
