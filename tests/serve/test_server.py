"""The server answers what `eqr solve` answers, keeps its limits, and lets no client wait for another."""

import asyncio
import json
import socket
import threading
import time
from urllib.parse import urlsplit

import pytest

pytest.importorskip("fastapi", reason="pip install -e '.[serve]'")
httpx = pytest.importorskip("httpx", reason="pip install -e '.[dev]'")

from eqr.client import Client, ServerProblem  # noqa: E402
from eqr.errors import UserError  # noqa: E402
from eqr.serve.messages import Limits  # noqa: E402
from eqr.serve.page import _title  # noqa: E402
from eqr.tasks import task_named  # noqa: E402
from serve_laws import ServerLaws, post  # noqa: E402
from serve_running import puzzles, running, served  # noqa: E402

LONG = {"depth": 512, "breadth": 16, "halt": "never"}
"""Work that takes a small model seconds."""


@pytest.fixture(scope="module")
def server():
    with running(served(), served("maze-7x7"), slots=16) as (url, services):
        yield url, services


@pytest.fixture
def url(server):
    return server[0]


def until(condition, seconds=10.0):
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it never happened"
        time.sleep(0.01)


class TestServer(ServerLaws):
    """On this machine."""


def test_a_state_that_blew_up_is_still_json():
    broken = served()
    broken.reasoner.embedding.data.fill_(float("inf"))
    with running(broken) as (url, _):
        reply = post(url, puzzle=puzzles(1)[0], depth=2, halt="never")
        assert reply.status_code == 200
        assert reply.json()["answers"][0]["residual"] is None


def test_without_a_model_the_puzzle_finds_it_and_depth_fits_the_budget():
    with running(served(), served("sudoku-6x6"), limits=Limits(segments=64)) as (url, _):
        for cells, name in ((16, "sudoku-4x4"), (36, "sudoku-6x6")):
            reply = httpx.post(f"{url}/v1/solve", json={"puzzle": "." * cells, "breadth": 16}, timeout=60)
            assert (reply.status_code, reply.json()["model"]) == (200, name)
            (answer,) = reply.json()["answers"]
            assert answer["depth"] <= 4
            assert "several answers" in answer["note"]
            checked = httpx.post(f"{url}/v1/check", json={"puzzle": "." * cells}, timeout=60)
            assert checked.json()["valid"] is True
        reply = httpx.post(f"{url}/v1/solve", json={"puzzle": "12"}, timeout=60)
        assert reply.status_code == 404
        assert (
            "the puzzle reads like none of theirs; served: sudoku-4x4, sudoku-6x6" in reply.json()["detail"]
        )
        assert "either `puzzle`" in httpx.post(f"{url}/v1/solve", json={}, timeout=60).json()["detail"]


@pytest.mark.parametrize(
    ("name", "task", "said"),
    [
        ("sudoku-9x9", "sudoku-9x9", "Sudoku 9 × 9"),
        ("sudoku-9x9-hard", "sudoku-9x9", "Sudoku 9 × 9, hard"),
        ("sudoku-extreme", "sudoku-9x9", "Sudoku 9 × 9, extreme"),
        ("all-different", "sudoku-9x9", "Sudoku 9 × 9 (all-different)"),
        ("maze", "maze-11x11", "Maze 11 × 11"),
    ],
)
def test_models_have_names_that_a_person_reads(name, task, said):
    assert _title(name, task_named(task)) == said


def test_metrics_count_and_health_answers(server):
    url, services = server
    post(url, puzzle=puzzles(1)[0], depth=3, halt="never")
    text = httpx.get(url + "/metrics").text
    for name in (
        'eqr_slots{model="sudoku-4x4"} 16.0',
        'eqr_queue_length{model="sudoku-4x4"} 0.0',
        'eqr_slots_busy{model="maze-7x7"} 0.0',
        'eqr_puzzle_nfe_bucket{le="4.0",model="sudoku-4x4"}',
        'eqr_request_seconds_count{route="/v1/solve"}',
    ):
        assert name in text, name
    assert (httpx.get(url + "/healthz").text, httpx.get(url + "/readyz").text) == ("alive\n", "ready\n")
    assert services.ready


def test_keys_hosts_and_origins():
    options = {"key": "secret", "hosts": ("127.0.0.1",), "origins": ["http://friend"]}
    with running(**options) as (url, _):
        assert httpx.get(url + "/v1/models").json()["type"] == "urn:eqr:problem:wrong-key"
        assert httpx.get(url + "/metrics").status_code == 401
        assert httpx.get(url + "/healthz").status_code == 200
        assert Client(url, key="secret").solve(puzzles(1)[0], depth=1).depth == 1
        with pytest.raises(ServerProblem, match="API key"):
            Client(url, key="guess").models()
        stranger = httpx.get(url + "/healthz", headers={"Host": "evil.example"})
        assert stranger.json()["type"] == "urn:eqr:problem:unknown-host"
        friend = httpx.get(url + "/v1/models", headers={"Origin": "http://friend", "X-API-Key": "secret"})
        assert friend.headers["access-control-allow-origin"] == "http://friend"


def test_a_full_queue_says_when_to_come_back():
    with running(limits=Limits(waiting=3), slots=4) as (url, services):
        service = services.by_model["sudoku-4x4"]
        with httpx.stream("POST", url + "/v1/solve/stream", json={"puzzles": puzzles(3), **LONG}):
            until(lambda: service.session.open == 3)
            response = post(url, puzzle=puzzles(1)[0])
            assert response.status_code == 429
            assert 1 <= int(response.headers["retry-after"]) <= 60
            with pytest.raises(ServerProblem, match="of at most 3 this leaves 0"):
                Client(url, patience=0.0).solve(puzzles(1)[0])
        until(lambda: service.session.open == 0)  # the stream was closed: its rows are gone
        assert Client(url).solve(puzzles(1)[0], depth=1).depth == 1


def ask_as(client, url, **body):
    """Ask as a proxy on this machine does for a client of its own."""
    headers = {"X-Forwarded-For": client}
    return httpx.post(url + "/v1/solve", json=body, headers=headers, timeout=30)


def test_a_small_request_is_answered_while_a_greedy_client_waits_for_hours_of_work():
    work = {**LONG, "select": "residual"}  # with `verified` eight starts would enter together
    with running(limits=Limits(waiting=64, seconds=600.0), slots=16) as (url, services):
        session = services.by_model["sudoku-4x4"].session
        with httpx.stream("POST", url + "/v1/solve/stream", json={"puzzles": puzzles(20), **work}):
            until(lambda: session.engine.live == 14)  # two slots are kept for others
            greedy = ask_as("127.0.0.1", url, puzzles=puzzles(30), **work)
            assert (greedy.status_code, greedy.headers["retry-after"].isdigit()) == (429, True)
            for client in ("10.0.0.1", "10.0.0.2"):
                small = ask_as(client, url, puzzles=puzzles(24), depth=2, halt="never")
                assert small.status_code == 200
            assert session.open == 20, "the greedy one is still at it"
        until(lambda: session.open == 0)
        assert not services.by_model["sudoku-4x4"]._open


def test_a_deadline_cancels_the_rows(server):
    url, services = server
    service = services.by_model["sudoku-4x4"]
    response = post(url, puzzles=puzzles(8), seconds=0.2, **LONG)
    assert (response.status_code, response.json()["type"]) == (504, "urn:eqr:problem:deadline")
    until(lambda: service.session.open == 0 and service.session.engine.live == 0)
    with pytest.raises(ServerProblem, match="cancelled"):
        list(Client(url).watch(puzzles(1)[0], model="sudoku-4x4", seconds=0.1, **LONG))
    until(lambda: service.session.open == 0)


@pytest.mark.parametrize("path", ["/v1/solve", "/v1/solve/stream"])
def test_a_client_that_vanishes_frees_its_slots(server, path):
    url, services = server
    service = services.by_model["sudoku-4x4"]
    body = json.dumps({"model": "sudoku-4x4", "puzzles": puzzles(4), **LONG}).encode()
    place = urlsplit(url)
    with socket.create_connection((place.hostname, place.port)) as client:
        lines = (f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json")
        client.sendall("\r\n".join((*lines, f"Content-Length: {len(body)}", "", "")).encode() + body)
        until(lambda: service.session.engine.live > 0)
    until(lambda: service.session.open == 0 and service.session.engine.live == 0)


def test_a_reader_that_sleeps_delays_nobody_and_still_gets_its_answer():
    with running(limits=Limits(frames=8), slots=16) as (url, services):
        asked = {"puzzle": puzzles(1)[0], "depth": 512, "breadth": 4, "halt": "never"}
        with httpx.stream("POST", url + "/v1/solve/stream", json=asked, timeout=30) as response:
            until(lambda: services.by_model["sudoku-4x4"].session.open == 0, 30)  # though nobody reads
            assert Client(url).solve(puzzles(1)[0], depth=2, halt="never").depth == 2
            text = "".join(response.iter_text())
        assert text.count("event: answer") == 1
        assert text.endswith("event: end\ndata: {}\n\n")


def test_large_and_slow_bodies_are_refused():
    with running(limits=Limits(body=2000, body_seconds=0.3)) as (url, _):
        large = httpx.post(url + "/v1/solve", content=b" " * 2001)
        assert (large.status_code, large.json()["type"]) == (413, "urn:eqr:problem:body-too-large")

        def endless():
            yield from (b"x" * 500 for _ in range(10_000))

        try:
            chunked = httpx.post(url + "/v1/solve", content=endless())
        except (httpx.WriteError, httpx.RemoteProtocolError):
            pass  # it was cut off while still sending
        else:
            assert chunked.status_code == 413
        place = urlsplit(url)
        with socket.create_connection((place.hostname, place.port)) as client:
            client.sendall(b"POST /v1/solve HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
            assert b"408" in client.recv(4096)
        assert Client(url).solve(puzzles(1)[0], depth=1).depth == 1


def test_a_dead_thread_is_told_to_those_who_wait(monkeypatch):
    with running() as (url, services):
        service = services.by_model["sudoku-4x4"]
        monkeypatch.setattr(threading, "excepthook", lambda _: None)  # its traceback is no news here
        monkeypatch.setattr(service.session.engine, "turn", lambda: 1 / 0)
        response = post(url, puzzle=puzzles(1)[0])
        assert (response.status_code, response.json()["type"]) == (500, "urn:eqr:problem:engine-failed")
        assert httpx.get(url + "/readyz").status_code == 503
        assert post(url, puzzle=puzzles(1)[0]).status_code == 503


def test_no_server_is_a_plain_error():
    with pytest.raises(UserError, match="eqr serve"):
        Client("http://127.0.0.1:9").models()


def test_concurrent_requests_share_the_slots(server):
    """Many single requests run side by side, not one after the other."""
    url, services = server
    engine = services.by_model["sudoku-4x4"].session.engine
    seen = []

    async def ask():
        async with httpx.AsyncClient(timeout=30) as client:
            body = {"model": "sudoku-4x4", "depth": 64, "halt": "never"}
            asked = [client.post(url + "/v1/solve", json={**body, "puzzle": one}) for one in puzzles(12)]
            answers = asyncio.gather(*asked)
            while not answers.done():
                seen.append(engine.live)
                await asyncio.sleep(0.002)
            return await answers

    assert {response.status_code for response in asyncio.run(ask())} == {200}
    assert max(seen) > 4
