"""Whatever a body holds, its answer is short, other clients have their turn, and good puzzles are solved."""

import asyncio
import json
import random
import threading
import time

import pytest

pytest.importorskip("fastapi", reason="pip install -e '.[serve]'")
httpx = pytest.importorskip("httpx", reason="pip install -e '.[dev]'")

from eqr.serve.messages import Limits, SolveRequest  # noqa: E402
from serve_running import puzzles, running, served  # noqa: E402

HOLD = 0.05
"""Seconds of work that one request may do at once on the event loop."""
ROOM = Limits().body
PATHS = ("/v1/solve", "/v1/solve/stream", "/v1/check")
QUICK = {"model": "sudoku-4x4", "depth": 2, "halt": "never"}


def filled(before, piece, after, size=ROOM):
    """A body of about `size` bytes: `piece` again and again, each with its number for `%d`."""
    pieces = []
    while sum(map(len, pieces[-1:])) + len(pieces) * (len(piece) + 1) < size - 200:
        pieces.append(piece.replace("%d", str(len(pieces))))
    return (before + ",".join(pieces) + after).encode()[:size]


LARGE = {
    "numbers for puzzles": filled('{"model":"sudoku-4x4","puzzles":[', "0", "]}"),
    "lists for puzzles": filled('{"puzzles":[', "[]", "]}"),
    "objects for puzzles": filled('{"puzzles":[', '{"a":{}}', "]}"),
    "empty puzzles": filled('{"puzzles":[', '""', "]}"),
    "unknown fields": filled("{", '"k%d":0', "}", ROOM // 2),
    "one unknown field of a long name": ('{"' + "k" * (ROOM - 100) + '": 1}').encode(),
    "a long puzzle": ('{"puzzle":"' + "1" * (ROOM - 100) + '"}').encode(),
    "the longest puzzles": json.dumps({**QUICK, "puzzles": ["1 2\n" * 2400] * 20}).encode(),
    "a long list for a number": filled('{"puzzle":"1","depth":[', "[0]", "]}"),
    "a long name of a model": ('{"puzzle":"1","model":"' + "m" * (ROOM - 100) + '"}').encode(),
    "a long number": ('{"puzzle":"1","seed":' + "9" * (ROOM - 100) + "}").encode(),
    "brackets": b"[" * ROOM,
    "nested objects": (b'{"a":' * (ROOM // 5 - 2)),
    "a list, no object": filled("[", '"a"', "]"),
}
ODD = (
    "\ud800",
    "1\udfff" * 8,
    "\x00",
    "\ufeff1...",
    "²" * 16,
    "١" * 16,
    "𝟙" * 16,
    "\u2028",
    "",
    " " * 16,
    "\t\r\n",
)
"""Text that is no puzzle: halves of characters, other digits, marks and nothing."""


@pytest.fixture(scope="module")
def server():
    with running(served(), served("maze-7x7"), slots=16) as found:
        yield found


@pytest.fixture
def held(monkeypatch):
    """Seconds of processor time that each callback of an event loop took, in threads other than this."""
    found, run, here = [], asyncio.events.Handle._run, threading.get_ident()

    def timed(handle):
        began = time.thread_time()
        run(handle)
        if threading.get_ident() != here:
            found.append(time.thread_time() - began)

    monkeypatch.setattr(asyncio.events.Handle, "_run", timed)
    return found


@pytest.fixture(scope="module")
def post(server):
    with httpx.Client(base_url=server[0], timeout=60, headers={"Content-Type": "application/json"}) as client:
        yield lambda path, body: client.post(
            path, content=body if isinstance(body, bytes) else json.dumps(body).encode()
        )


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("body", LARGE.values(), ids=list(LARGE))
def test_a_large_body_is_refused_shortly_and_holds_nobody_up(post, held, body, path):
    response = post(path, body)
    assert response.status_code in (400, 404, 422) or '"refused"' in response.text
    assert len(response.content) < 4_000
    assert max(held) < HOLD


def test_many_faults_are_counted_and_ten_are_listed(post):
    problem = post("/v1/solve", {f"depht{number}": number for number in range(500)}).json()
    first = {"field": "depht0", "value": "0", "fix": "there is no such field; did you mean 'depth'?"}
    assert (problem["errors"][0], len(problem["errors"])) == (first, 10)
    assert "(and 499 more)" in problem["detail"]


def test_the_largest_answers_hold_nobody_up(post, held):
    maze = puzzles(1, task_name="maze-7x7")
    asked = {"model": "maze-7x7", "halt": "never"}
    answered = post("/v1/solve", {**asked, "puzzles": maze * 256, "depth": 1})
    assert len(answered.json()["answers"]) == 256
    watched = post("/v1/solve/stream", {**asked, "puzzles": maze * 8, "depth": 64, "breadth": 8})
    assert watched.text.endswith("event: end\ndata: {}\n\n")
    assert max(held) < HOLD


def test_bad_puzzles_are_refused_in_words_and_cost_the_others_nothing(post):
    good = puzzles(2)
    alone = [post("/v1/solve", {**QUICK, "puzzle": puzzle}).json()["answers"][0]["answer"] for puzzle in good]
    wrong = [*ODD, *([odd] for odd in ODD), *({odd: odd} for odd in ODD), None, 7, "x" * 20_000]
    body = {**QUICK, "puzzles": [good[0], *wrong, good[1]]}
    first, *refused, last = post("/v1/solve", body).json()["answers"]
    assert [first["answer"], last["answer"]] == alone
    assert len(refused) == len(wrong)
    assert all(answer["status"] == "refused" and answer["reason"] for answer in refused)
    events = post("/v1/solve/stream", body).text
    assert events.count('"refused"') == len(wrong)
    assert events.endswith("event: end\ndata: {}\n\n")


@pytest.mark.parametrize("path", PATHS)
def test_odd_text_anywhere_is_the_clients_mistake(post, path):
    for odd in ODD:
        for field in ("puzzle", "model", "halt", "select", odd):
            response = post(path, {"model": "sudoku-4x4", "puzzle": puzzles(1)[0], field: odd})
            assert response.status_code in (200, 404, 422), (field, odd)


def test_requests_made_of_anything_are_never_the_servers_error(post, server):
    """Every field with every kind of value: the fuzzer of this list."""
    chance = random.Random(0)
    names = [*SolveRequest.model_fields, "\ud800", ""]
    rules = [
        "head",
        "random:0",
        "head+stable:1/never",
        "residual:1e309",
        "random:nan",
        "verified",
        "majority",
    ]
    numbers = [None, True, 0, -1, 1, 2, 1 << 70, 0.5, -1e308, 1e-320]
    simple = [*numbers, *ODD, *rules, "sudoku-4x4", *puzzles(2)]

    def value(depth=0):
        kind = chance.random()
        if depth < 3 and kind < 0.1:
            return [value(depth + 1) for _ in range(chance.randrange(4))]
        if depth < 3 and kind < 0.15:
            return {chance.choice(names): value(depth + 1)}
        return chance.choice(simple)

    for _ in range(400):
        body = {"model": "sudoku-4x4", "puzzle": puzzles(1)[0], "depth": 1, "seconds": 5}
        for name in chance.sample(names, chance.randrange(1, 5)):
            body[name] = value()
        if chance.random() < 0.2:
            body.pop("puzzle")
        response = post(chance.choice(PATHS[::2]), body)
        assert response.status_code in (200, 404, 422, 504), (body, response.text)
    services = server[1]
    assert services.ready
    assert not services.by_model["sudoku-4x4"]._open
