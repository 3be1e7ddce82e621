"""Connections: how many there may be, how long each may take, and which is closed when there are too many.

uvicorn's h11 protocol with three bounds it does not have: a time for a request's headers, one for its whole
answer, and a number of connections, in all and per address, that idle clients cannot use up. A connection
beyond the number closes the oldest one that has no whole request under way; where there is none, it may ask
for health and metrics only. h11 itself bounds the size of headers; uvicorn's other parser does not.
"""

import asyncio
from collections import defaultdict
from typing import ClassVar

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from eqr.serve.limits import Limits
from eqr.serve.problems import Problem

ALWAYS_ANSWERED = ("/healthz", "/readyz", "/metrics")
GRACE = 15.0
"""Seconds beyond the deadline of a request in which its client must have read the answer."""


class OpenConnections:
    """The open connections of one server by address, the oldest first."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._by_address: defaultdict[str, dict[Connection, None]] = defaultdict(dict)
        self._count = 0

    def enter(self, one: "Connection") -> bool:
        """Note a new connection; return False if there are too many and none of them is idle."""
        within = True
        if len(self._by_address[one.address]) >= self.limits.connections_per_address:
            within = self._close_idle(one.address)
        elif self._count >= self.limits.connections:
            crowded = sorted(self._by_address, key=lambda address: -len(self._by_address[address]))
            within = any(self._close_idle(address) for address in crowded)
        self._by_address[one.address][one] = None
        self._count += 1
        return within

    def leave(self, one: "Connection") -> None:
        """Forget a connection."""
        known = self._by_address.get(one.address, {})
        if one in known:
            del known[one]
            self._count -= 1
            if not known:
                del self._by_address[one.address]

    def _close_idle(self, address: str) -> bool:
        oldest = next((one for one in self._by_address[address] if not one.answering), None)
        if oldest is None:
            return False
        self.leave(oldest)
        oldest.transport.abort()
        return True


class Connection(H11Protocol):
    """One client's connection; `connection_type` makes the class for a server."""

    opened: ClassVar[OpenConnections]
    address = ""
    _timer: asyncio.TimerHandle | None = None

    @property
    def answering(self) -> bool:
        """Whether a whole request has come and its answer is not complete."""
        asked = self.cycle
        return asked is not None and not asked.more_body and not asked.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        if not self.opened.enter(self):
            self.app = self._too_many
        self._allow(self.opened.limits.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self._allow(None)
        self.opened.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; what has begun must become a request in time, however slowly its bytes come."""
        if self._timer is None:
            self._allow(self.opened.limits.header_seconds)
        asked = self.cycle
        super().data_received(data)
        self._watch(asked)

    def on_response_complete(self) -> None:
        """Wait for another request for as long as uvicorn keeps an idle connection."""
        self._allow(None)
        asked = self.cycle
        super().on_response_complete()
        self._watch(asked)

    def _watch(self, before: object) -> None:
        """Where a new request has come, allow it the time of its body, its deadline and its reading."""
        if self.cycle is not before and not self.cycle.response_complete:
            limits = self.opened.limits
            self._allow(limits.body_seconds + limits.seconds + GRACE)

    def _allow(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)

    async def _too_many(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] in ALWAYS_ANSWERED:
            await self.config.loaded_app(scope, receive, send)
            return
        problem = Problem(
            503,
            "too-many-connections",
            "too many connections are open; close some, or come back in 5 s",
            headers={"Retry-After": "5", "Connection": "close"},
        )
        await problem.send(scope, receive, send)


def connection_type(limits: Limits) -> type[Connection]:
    """Return the class of one server's connections, for `uvicorn.Config(http=...)`."""

    class Bounded(Connection):
        opened = OpenConnections(limits)

    return Bounded
