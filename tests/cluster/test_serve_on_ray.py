"""The server as a deployment keeps the laws of the server."""

import socket
import time

import httpx
import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'eqr[cluster]'")

from eqr.cluster.serving import NAME, deploy, parse_replicas
from eqr.errors import UserError
from eqr.serve.messages import Limits
from serve_laws import ServerLaws
from serve_running import puzzles, small_reasoner

ENDLESS = {"model": "sudoku-4x4", "puzzles": puzzles(8), "depth": 512, "breadth": 16, "halt": "never"}


@pytest.mark.parametrize(("text", "count"), [("2", (2, 2)), ("1..8", (1, 8))])
def test_replicas_are_a_number_or_a_range(text, count):
    assert parse_replicas(text) == count


@pytest.mark.parametrize("text", ["", "0", "0..2", "3..2", "many", "1..", "-1"])
def test_mistyped_replicas_are_named(text):
    with pytest.raises(UserError, match="--replicas"):
        parse_replicas(text)


@pytest.fixture(scope="module")
def url(cluster, tmp_path_factory):
    from ray import serve

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = int(found.getsockname()[1])
    folder = tmp_path_factory.mktemp("models")
    for task in ("sudoku-4x4", "maze-7x7"):
        small_reasoner(task).save_pretrained(folder / task, measured=())
    names = [str(folder / task) for task in ("sudoku-4x4", "maze-7x7")]
    try:
        deploy(names, Limits(), host="127.0.0.1", port=port, replicas=(1, 2), slots=16)
        assert serve.status().applications[NAME].status == "RUNNING"
        yield f"http://127.0.0.1:{port}"
    finally:
        serve.shutdown()


class TestDeployment(ServerLaws):
    """On a cluster."""


def test_a_client_that_vanishes_frees_the_slots_of_its_replica(url):
    with httpx.stream("POST", f"{url}/v1/solve/stream", json=ENDLESS, timeout=30) as response:
        next(response.iter_text())
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{url}/v1/solve", json=ENDLESS, timeout=0.5)
    idle = {f'eqr_{what}{{model="sudoku-4x4"}} 0.0' for what in ("slots_busy", "queue_length")}
    deadline = time.monotonic() + 20
    while not idle <= set(httpx.get(f"{url}/metrics", timeout=30).text.splitlines()):
        assert time.monotonic() < deadline, "the rows of a client that has gone are still there"
        time.sleep(0.1)
