"""Who may ask: keys, the names under which a server may be asked for, and admission before every route.

A server that others can reach asks for a key, unless it is opened to everybody on purpose. One on this
machine answers to its own names only: a page elsewhere must not reach it under a name of its own (DNS
rebinding). `Admission` is written against ASGI itself, so that a body is refused after its first byte too
many and never held whole.
"""

import asyncio
import hmac
import time
from collections.abc import Iterable
from ipaddress import ip_address

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from eqr.errors import UserError, brief
from eqr.serve.messages import Limits, Problem
from eqr.serve.metrics import Metrics

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
PROTECTED = ("/v1/", "/metrics")
SECURITY = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'self'; img-src 'self' data: blob:; frame-ancestors 'self'",
}


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


class Admission:
    """Wraps the application."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        limits: Limits,
        metrics: Metrics,
        key: str | None = None,
        hosts: Iterable[str] | None = None,
    ) -> None:
        """`hosts` are the names under which the server may be asked for, None for any."""
        self._app, self._limits, self._metrics, self._key = app, limits, metrics, key
        self._hosts = None if hosts is None else frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).update(SECURITY)
            await send(message)

        try:
            self._require_host(scope)
            self._require_key(scope)
            body = await self._body(receive) if scope["method"] == "POST" else b""
            if body is not None:  # else the client has gone
                await self._app(scope, _replayed(body, receive), counted)
        except Problem as problem:
            await problem.send(scope, receive, counted)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.requests.labels(route, str(status)).inc()
            if route.startswith("/v1/solve"):
                self._metrics.request_seconds.labels(route).observe(time.perf_counter() - began)

    def _require_host(self, scope: Scope) -> None:
        name = host_named(Headers(scope=scope).get("host", ""))
        if self._hosts is not None and name not in self._hosts:
            names = ", ".join(sorted(self._hosts))
            raise Problem(400, "unknown-host", f"this server answers to {names}, not {name!r}")

    def _require_key(self, scope: Scope) -> None:
        if self._key is None or not scope["path"].startswith(PROTECTED):
            return
        headers = Headers(scope=scope)
        given = headers.get("authorization", "").removeprefix("Bearer ") or headers.get("x-api-key", "")
        if not hmac.compare_digest(given.encode(), self._key.encode()):
            fix = "send the server's API key as `Authorization: Bearer KEY`"
            raise Problem(401, "wrong-key", fix, headers={"WWW-Authenticate": "Bearer"})

    async def _body(self, receive: Receive) -> bytes | None:
        """Read a whole body within its limits; None if the client went away."""
        parts, held = [], 0
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    parts.append(message.get("body", b""))
                    held += len(parts[-1])
                    if held > self._limits.body:
                        fix = f"a body has at most {self._limits.body} bytes; send fewer puzzles at a time"
                        raise Problem(413, "body-too-large", fix, headers={"Connection": "close"})
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            late = f"the body did not arrive within {self._limits.body_seconds:g} s"
            raise Problem(408, "body-too-slow", late, headers={"Connection": "close"}) from None


def _replayed(body: bytes, receive: Receive) -> Receive:
    given = False

    async def again() -> Message:
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return again
