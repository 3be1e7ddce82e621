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
from eqr.serve.limits import Limits  # noqa: E402
from eqr.solve import Asked, Solver  # noqa: E402
from eqr.solve.plain import plain_answer  # noqa: E402
from serve_running import puzzles, running, served, small_reasoner  # noqa: E402

LONG = {"depth": 512, "breadth": 16, "halt": "never"}
"""Work that takes a small model seconds."""


@pytest.fixture(scope="module")
def server():
    with running(served(), served("maze-7x7"), slots=16) as (url, office):
        yield url, office


@pytest.fixture
def url(server):
    return server[0]


def post(url, path="/v1/solve", **body):
    return httpx.post(url + path, json={"model": "sudoku-4x4", **body}, timeout=30)


def until(condition, seconds=10.0):
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it never happened"
        time.sleep(0.01)


def test_answers_are_those_of_eqr_solve_whatever_else_runs(url):
    given = puzzles(24)
    settings = [
        {"depth": 8, "halt": "never"},
        {"depth": 16, "breadth": 3, "seed": 5, "select": "residual"},
        {"depth": 6, "breadth": 8, "race": True, "halt": "residual:0.5"},
        {"depth": 8, "noise": 0.2, "damping": 0.3, "halt": "stable:1"},
    ]
    found = {}

    def ask(number):
        asked = settings[number % len(settings)]
        found[number] = Client(url).solve(given[number], model="sudoku-4x4", **asked)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(given))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reasoner = small_reasoner()
    for number, puzzle in enumerate(given):
        asked = Asked(**settings[number % len(settings)])
        solver = Solver(reasoner, budget=asked.budget(reasoner.config), select=asked.selection())
        ours = plain_answer(solver.task, 0, solver.solve(puzzle))
        for name in ("answer", "valid", "reason", "start", "depth", "nfe", "halted"):
            assert getattr(found[number], name) == ours[name], (number, name)
        assert found[number].residual == pytest.approx(ours["residual"], rel=1e-3)


def test_many_puzzles_keep_their_order_and_bad_ones_are_refused(url):
    good = puzzles(40)
    replies = Client(url).solve_many([*good[:20], "rubbish", *good[20:]], model="sudoku-4x4", depth=2)
    assert [reply.puzzle for reply in replies] == list(range(41))
    assert "not a digit" in replies[20].refused
    alone = Client(url).solve(good[-1], model="sudoku-4x4", depth=2)
    assert replies[-1].answer == alone.answer


def test_a_stream_tells_every_segment_then_the_answer(url):
    events = list(Client(url).watch(puzzles(1)[0], model="sudoku-4x4", depth=5, breadth=2, halt="never"))
    segments = [data for name, data in events if name == "segment"]
    assert sorted((s["start"], s["segment"]) for s in segments) == [
        (b, d) for b in (0, 1) for d in range(1, 6)
    ]
    name, answer = events[-1]
    last = next(s for s in segments if (s["start"], s["segment"]) == (answer["start"], 5))
    assert (name, answer["answer"], answer["nfe"]) == ("answer", last["grid"], 10)
    assert last["done"]
    assert len(last["confidence"]) == 16
    assert all(0 <= share <= 100 for share in last["confidence"])


def test_models_describe_themselves(url):
    sudoku, maze = Client(url).models()
    assert (sudoku["name"], sudoku["task"]["kind"], sudoku["task"]["boxes"]) == (
        "sudoku-4x4",
        "sudoku",
        [2, 2],
    )
    assert (maze["task"]["kind"], maze["task"]["fixed"]) == ("maze", "#SG")
    for card in (sudoku, maze):
        cells = card["task"]["rows"] * card["task"]["columns"]
        assert [len(example["puzzle"]) for example in card["examples"]] == [cells] * 4
        assert card["limits"]["segments"] == Limits().segments


@pytest.mark.parametrize(
    ("body", "status", "kind", "words"),
    [
        ({"puzzle": "12"}, 422, "invalid-puzzle", "16 cells"),
        ({"puzzle": "11.............."}, 422, "invalid-puzzle", "row 1 has 1 twice"),
        ({}, 422, "invalid-field", "either `puzzle` or `puzzles`"),
        ({"puzzle": "", "puzzles": []}, 422, "invalid-field", "both"),
        ({"puzzles": []}, 422, "invalid-field", "1 to 256"),
        ({"puzzles": ["x"] * 257}, 422, "invalid-field", "1 to 256"),
        ({"puzzle": "x", "depht": 3}, 422, "invalid-field", "did you mean 'depth'"),
        ({"puzzle": "x", "depth": 0}, 422, "invalid-field", "greater than 0"),
        ({"puzzle": "x", "depth": 513}, 422, "invalid-field", "at most 512"),
        ({"puzzle": "x", "depth": 512, "breadth": 64}, 422, "invalid-field", "at most 8192"),
        ({"puzzle": "x", "halt": "hed"}, 422, "invalid-field", "did you mean 'head'"),
        ({"puzzle": "x", "select": "best"}, 422, "invalid-field", "unknown rule"),
        ({"puzzle": "x", "halt": "never", "race": True}, 422, "invalid-field", "won by halting"),
        ({"puzzle": "x", "model": "chess"}, 404, "no-such-model", "sudoku-4x4"),
        ({"puzzle": 7}, 422, "invalid-field", "string"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/solve", "/v1/solve/stream"])
def test_a_mistake_is_a_problem_document_with_field_value_and_fix(url, path, body, status, kind, words):
    response = post(url, path, **body)
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["type"] == f"urn:eqr:problem:{kind}"
    assert problem["status"] == status
    assert words in problem["detail"]
    assert all(set(fault) == {"field", "value", "fix"} for fault in problem["errors"])
    assert problem["errors"]


def test_what_is_not_json_or_not_there(url):
    wrong = httpx.post(url + "/v1/solve", content=b"{nonsense", headers={"Content-Type": "application/json"})
    assert (wrong.status_code, wrong.json()["type"]) == (400, "urn:eqr:problem:not-json")
    assert httpx.get(url + "/v1/nowhere").json()["status"] == 404
    assert httpx.get(url + "/v1/solve").json()["status"] == 405


def test_checking_says_which_cells(url):
    said = post(url, "/v1/check", puzzle="11..............").json()
    assert (said["valid"], said["cells"]) == (False, [0, 1])
    assert post(url, "/v1/check", puzzle="1...............").json() == {
        "valid": True,
        "reason": "",
        "cells": [],
    }
    assert "is not a digit" in post(url, "/v1/check", puzzle="x" * 16).json()["reason"]


def test_a_state_that_blew_up_is_still_json(url):
    reply = post(url, puzzle=puzzles(1)[0], noise=1e38, depth=4, halt="never")
    assert reply.status_code == 200
    assert reply.json()["answers"][0]["residual"] is None


def test_metrics_count_and_health_answers(server):
    url, office = server
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
    assert office.ready


def test_pages_elsewhere_cannot_ask_and_the_page_cannot_be_led_astray(url):
    preflight = httpx.options(
        url + "/v1/solve", headers={"Origin": "http://elsewhere", "Access-Control-Request-Method": "POST"}
    )
    assert "access-control-allow-origin" not in preflight.headers
    page = httpx.get(url + "/")
    assert page.headers["content-security-policy"].startswith("default-src 'self'")
    assert "<title>eqr" in page.text
    assert httpx.get(url + "/docs").status_code == 200


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
    with running(limits=Limits(waiting=3), slots=4) as (url, office):
        desk = office.desks["sudoku-4x4"]
        with httpx.stream("POST", url + "/v1/solve/stream", json={"puzzles": puzzles(3), **LONG}):
            until(lambda: desk.session.open == 3)
            response = post(url, puzzle=puzzles(1)[0])
            assert response.status_code == 429
            assert 1 <= int(response.headers["retry-after"]) <= 60
            with pytest.raises(ServerProblem, match="at most 3 may be"):
                Client(url, patience=0.0).solve(puzzles(1)[0])
        until(lambda: desk.session.open == 0)  # the stream was closed: its rows are gone
        assert Client(url).solve(puzzles(1)[0], depth=1).depth == 1


def test_a_deadline_cancels_the_rows(server):
    url, office = server
    desk = office.desks["sudoku-4x4"]
    response = post(url, puzzles=puzzles(8), seconds=0.2, **LONG)
    assert (response.status_code, response.json()["type"]) == (504, "urn:eqr:problem:deadline")
    until(lambda: desk.session.open == 0 and desk.session.engine.live == 0)
    with pytest.raises(ServerProblem, match="cancelled"):
        list(Client(url).watch(puzzles(1)[0], model="sudoku-4x4", seconds=0.1, **LONG))
    until(lambda: desk.session.open == 0)


@pytest.mark.parametrize("path", ["/v1/solve", "/v1/solve/stream"])
def test_a_client_that_vanishes_frees_its_slots(server, path):
    url, office = server
    desk = office.desks["sudoku-4x4"]
    body = json.dumps({"model": "sudoku-4x4", "puzzles": puzzles(4), **LONG}).encode()
    place = urlsplit(url)
    with socket.create_connection((place.hostname, place.port)) as client:
        lines = (f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json")
        client.sendall("\r\n".join((*lines, f"Content-Length: {len(body)}", "", "")).encode() + body)
        until(lambda: desk.session.engine.live > 0)
    until(lambda: desk.session.open == 0 and desk.session.engine.live == 0)


def test_a_reader_that_sleeps_delays_nobody_and_still_gets_its_answer():
    with running(limits=Limits(frames=8), slots=16) as (url, office):
        asked = {"puzzle": puzzles(1)[0], "depth": 512, "breadth": 4, "halt": "never"}
        with httpx.stream("POST", url + "/v1/solve/stream", json=asked, timeout=30) as response:
            until(lambda: office.desks["sudoku-4x4"].session.open == 0, 30)  # it ran although nobody reads
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
    with running() as (url, office):
        desk = office.desks["sudoku-4x4"]
        monkeypatch.setattr(threading, "excepthook", lambda _: None)  # its traceback is no news here
        monkeypatch.setattr(desk.session.engine, "turn", lambda: 1 / 0)
        response = post(url, puzzle=puzzles(1)[0])
        assert (response.status_code, response.json()["type"]) == (500, "urn:eqr:problem:engine-failed")
        assert httpx.get(url + "/readyz").status_code == 503
        assert post(url, puzzle=puzzles(1)[0]).status_code == 503


def test_no_server_is_a_plain_error():
    with pytest.raises(UserError, match="eqr serve"):
        Client("http://127.0.0.1:9").models()


def test_concurrent_requests_share_the_slots(server):
    """Many single requests run side by side, not one after the other."""
    url, office = server
    engine = office.desks["sudoku-4x4"].session.engine
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
