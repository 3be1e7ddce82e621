"""Connections that say nothing, too much, or too slowly, or are too many, keep nobody else from an answer."""

import random
import socket
import time
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import pytest

pytest.importorskip("fastapi", reason="pip install -e '.[serve]'")
httpx = pytest.importorskip("httpx", reason="pip install -e '.[dev]'")

from eqr.client import Client  # noqa: E402
from eqr.serve.messages import Limits  # noqa: E402
from serve_running import puzzles, running  # noqa: E402

HEAD = b"POST /v1/solve HTTP/1.1\r\nHost: x\r\n"
BODY = b'{"puzzle": "................", "depth": 512, "breadth": 16, "halt": "never"}'
WORKING = HEAD + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY
INCOMPLETE = {
    "nothing": b"",
    "half a line": b"POST /v1/solve HT",
    "half a head": HEAD,
    "half a body": HEAD + b"Content-Length: 50\r\n\r\n{",
    "half a chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{",
}
SMALL = Limits(connections=30, connections_per_address=20, header_seconds=0.5)


@contextmanager
def opened(url, first_bytes):
    """Hold a connection for each of `first_bytes`, which is all that it says."""
    place = urlsplit(url)
    with ExitStack() as stack:
        held = []
        for said in first_bytes:
            held.append(stack.enter_context(socket.create_connection((place.hostname, place.port))))
            held[-1].sendall(said)
        yield held


def feed(connection, pieces, pause=0.0):
    """Send piece after piece."""
    for piece in pieces:
        connection.sendall(piece)
        time.sleep(pause)


def closed(connection, seconds=10.0):
    """Whether the server closes a connection in time."""
    connection.settimeout(seconds)
    try:
        while connection.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


@pytest.mark.parametrize("said", INCOMPLETE.values(), ids=list(INCOMPLETE))
def test_far_more_incomplete_requests_than_connections_keep_nobody_out(said):
    limits = SMALL.replace(header_seconds=60.0, body_seconds=60.0)
    with running(limits=limits) as (url, _), opened(url, [said] * 100):
        for path in ("/healthz", "/metrics", "/v1/models"):
            assert httpx.get(url + path, timeout=10).status_code == 200
        assert Client(url, seconds=10).solve(puzzles(1)[0], depth=2, halt="never").depth == 2


def test_headers_must_arrive_in_time_however_slowly_their_bytes_come():
    with running(limits=SMALL) as (url, _), opened(url, [b"", HEAD]) as (silent, slow):
        began = time.monotonic()
        with pytest.raises(ConnectionError):
            feed(slow, [b"X-A: b\r\n"] * 200, pause=0.05)
        assert time.monotonic() - began < 5
        assert closed(silent)


def test_a_kept_connection_may_be_idle_but_not_begin_a_request_without_end():
    healthy = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    with running(limits=SMALL) as (url, _), opened(url, [healthy]) as (kept,):
        answer = kept.makefile("rb")
        assert b"alive\n" in iter(answer.readline, b"")
        time.sleep(3 * SMALL.header_seconds)
        kept.sendall(healthy)
        assert b"alive\n" in iter(answer.readline, b"")
        kept.sendall(b"GET /heal")
        assert closed(kept, 4.0), "uvicorn's own time for idle connections would be 5 s"


def test_work_under_way_is_not_closed_for_newcomers_who_still_get_health():
    most = SMALL.connections_per_address
    with running(limits=SMALL, slots=4) as (url, services), opened(url, [WORKING] * most):
        session = services.by_model["sudoku-4x4"].session
        ends = time.monotonic() + 10
        while session.open < most:
            assert time.monotonic() < ends
            time.sleep(0.01)
        full = httpx.get(url + "/v1/models")
        assert (full.status_code, full.json()["type"]) == (503, "urn:eqr:problem:too-many-connections")
        assert full.headers["retry-after"] == "5"
        assert httpx.get(url + "/healthz").text == "alive\n"
        assert "eqr_puzzles_open" in httpx.get(url + "/metrics").text
        assert session.open == most


@pytest.mark.parametrize("line", [b"X-%d: " + b"a" * 1000 + b"\r\n", b"X%d" + b"a" * 60_000])
def test_headers_are_bounded_whatever_parser_is_installed(line):
    with running() as (url, _), opened(url, [HEAD]) as (endless,):
        lines = (line.replace(b"%d", b"%d" % number) for number in range((4 << 20) // len(line)))
        with pytest.raises(ConnectionError):
            feed(endless, lines)
        assert httpx.get(url + "/healthz").status_code == 200


def test_random_bytes_never_take_the_server_down():
    chance = random.Random(0)
    good = WORKING.replace(b'"depth": 512, "breadth": 16', b'"depth": 1')

    def spoilt():
        data = bytearray(good)
        for _ in range(chance.randint(1, 8)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        return bytes(data[: chance.randint(0, len(data))])

    with running(limits=SMALL) as (url, services), opened(url, [spoilt() for _ in range(300)]):
        assert httpx.get(url + "/healthz", timeout=10).status_code == 200
        assert services.ready
