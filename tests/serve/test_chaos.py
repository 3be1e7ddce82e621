"""Clients that misbehave and a server that is told to stop: nothing accepted is lost, nothing leaks."""

import json
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

pytest.importorskip("fastapi", reason="pip install -e '.[serve]'")
httpx = pytest.importorskip("httpx", reason="pip install -e '.[dev]'")
schemathesis = pytest.importorskip("schemathesis", reason="pip install -e '.[dev]'")

from hypothesis import HealthCheck, Phase, given, settings  # noqa: E402
from schemathesis import GenerationMode, checks  # noqa: E402

from eqr.client import Client  # noqa: E402
from serve_running import puzzles, running  # noqa: E402


@pytest.fixture(scope="module")
def server():
    with running(slots=16) as (url, services):
        yield url, services


@pytest.fixture(scope="module")
def api(server):
    return schemathesis.openapi.from_url(f"{server[0]}/openapi.json")


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_whatever_the_description_allows_or_forbids_is_answered_as_described(api, mode):
    tried = set()
    for operation in api.get_all_operations():
        operation = operation.ok()
        if mode is GenerationMode.NEGATIVE and operation.method == "get":
            continue  # nothing to get wrong

        @settings(
            max_examples=20,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def answered_as_described(case):
            tried.add((case.method, case.operation.path))
            case.call_and_validate(
                checks=[
                    checks.not_a_server_error,
                    checks.status_code_conformance,
                    checks.content_type_conformance,
                    checks.response_schema_conformance,
                ],
                timeout=60,
            )

        answered_as_described()
    posts = {path for method, path in tried if method == "POST"}
    assert len(posts) >= 3, "solving, solving many and checking, at least"
    assert mode is GenerationMode.NEGATIVE or len(tried) > len(posts)


def test_malformed_bodies_are_the_clients_fault(server):
    url, services = server
    chance = random.Random(0)
    good = json.dumps({"puzzle": puzzles(1)[0], "depth": 2, "halt": "never"}).encode()
    with httpx.Client(base_url=url, timeout=30, headers={"Content-Type": "application/json"}) as client:
        for _ in range(300):
            data = bytearray(good)
            for _ in range(chance.randint(1, 6)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            response = client.post("/v1/solve", content=bytes(data[: chance.randint(0, len(data))]))
            assert response.status_code in (200, 400, 404, 422), bytes(data)
            if response.status_code != 200:
                assert response.headers["content-type"] == "application/problem+json"
    assert services.by_model["sudoku-4x4"].session.open == 0


def test_clients_that_vanish_anywhere_leave_nothing_behind(server):
    url, services = server
    place = urlsplit(url)
    chance = random.Random(1)
    body = json.dumps({"puzzles": puzzles(4), "depth": 256, "breadth": 8, "halt": "never"}).encode()
    paths = ("/v1/solve", "/v1/solve/stream")
    for number in range(40):
        lines = (f"POST {paths[number % 2]} HTTP/1.1", "Host: x", "Content-Type: application/json")
        whole = "\r\n".join((*lines, f"Content-Length: {len(body)}", "", "")).encode() + body
        with socket.create_connection((place.hostname, place.port)) as client:
            client.sendall(whole[: chance.choice((chance.randrange(len(whole)), len(whole)))])
            if number % 3 == 0:
                time.sleep(0.02)
    service = services.by_model["sudoku-4x4"]
    ends = time.monotonic() + 20
    while service.session.open or service.session.engine.live:
        assert time.monotonic() < ends, "rows of clients that left are still there"
        time.sleep(0.02)
    assert not service._pending
    assert Client(url).solve(puzzles(1)[0], depth=1).depth == 1


def test_a_silent_client_delays_nobody(server):
    url, _ = server
    place = urlsplit(url)
    silent = [socket.create_connection((place.hostname, place.port)) for _ in range(50)]
    try:
        for client in silent[:25]:
            client.sendall(b"POST /v1/solve HTTP/1.1\r\nHost: x\r\nContent-Le")
        for client in silent[25:]:
            client.sendall(b"POST /v1/solve HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{")
        assert Client(url, seconds=20).solve(puzzles(1)[0], depth=2, halt="never").depth == 2
    finally:
        for client in silent:
            client.close()


@pytest.mark.skipif(sys.platform == "win32", reason="there SIGTERM kills at once")
def test_told_to_stop_under_load_it_finishes_what_it_accepted():
    options = ["--port", "0", "--slots", "1", "--seconds", "600"]  # one after the other, however slow
    command = [sys.executable, "-m", "eqr", "serve", "sudoku-4x4", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            url = re.search(r"http://\S+", line).group().replace("localhost", "127.0.0.1")
            asked_for, replies = puzzles(8), {}

            def ask(number):
                asked = {"depth": 256, "halt": "never", "seed": number}
                replies[number] = Client(url, seconds=600).solve(asked_for[number], **asked)

            threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
            for thread in threads:
                thread.start()
            ends = time.monotonic() + 60
            while (
                'eqr_puzzles_open{model="sudoku-4x4"} 8.0' not in httpx.get(url + "/metrics", timeout=60).text
            ):
                assert time.monotonic() < ends
                assert not replies, "the work was too short to be interrupted"
            process.send_signal(signal.SIGTERM)
            for thread in threads:
                thread.join(300)
            assert sorted(replies) == list(range(8))
            assert {reply.depth for reply in replies.values()} == {256}
            with pytest.raises(httpx.TransportError):
                httpx.get(url + "/healthz")
            assert process.wait(60) == 0
        finally:
            with suppress(ProcessLookupError):
                process.kill()
