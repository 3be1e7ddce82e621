"""The server as a deployment answers as the server does."""

import socket

import httpx
import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'eqr[cluster]'")

from eqr.cluster.serving import NAME, deploy, parse_replicas
from eqr.errors import UserError
from eqr.serve.limits import Limits
from eqr.serve.run import load
from serve_running import puzzles, running, small_reasoner


@pytest.mark.parametrize(("text", "count"), [("2", (2, 2)), ("1..8", (1, 8))])
def test_replicas_are_a_number_or_a_range(text, count):
    assert parse_replicas(text) == count


@pytest.mark.parametrize("text", ["", "0", "0..2", "3..2", "many", "1..", "-1"])
def test_mistyped_replicas_are_named(text):
    with pytest.raises(UserError, match="--replicas"):
        parse_replicas(text)


@pytest.fixture
def port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def said(address: str) -> dict:
    """What a server answers, without seconds: the cards, an answer, a refusal, the last event of a stream."""
    with httpx.Client(base_url=address, timeout=60, headers={"Authorization": "Bearer key"}) as client:
        asked = {"puzzles": [*puzzles(3), "12"], "depth": 4, "breadth": 2}
        whole = client.post("/v1/solve", json=asked).json()
        stream = client.post("/v1/solve/stream", json={"puzzle": puzzles(1)[0], "depth": 3}).text
        return {
            "answers": [
                {key: value for key, value in answer.items() if "second" not in key}
                for answer in whole["answers"]
            ],
            "models": [card["name"] for card in client.get("/v1/models").json()["models"]],
            "wrong": client.post("/v1/solve", json={"puzzle": "12"}).json(),
            "refused": client.get("/v1/models", headers={"Authorization": "Bearer no"}).status_code,
            "events": [line for line in stream.splitlines() if line.startswith("event:")],
            "ready": client.get("/readyz").text,
        }


@pytest.mark.slow
def test_a_deployment_answers_as_one_server_does(cluster, port, tmp_path):
    from ray import serve

    folder = tmp_path / "model"
    small_reasoner().save_pretrained(folder, measured=())
    with running(*load([str(folder)]), key="key") as (address, _):
        expected = said(address)
    try:
        deploy([str(folder)], Limits(), host="127.0.0.1", port=port, replicas=(1, 2), key="key")
        assert serve.status().applications[NAME].status == "RUNNING"
        assert said(f"http://127.0.0.1:{port}") == expected
    finally:
        serve.shutdown()
    assert expected["refused"] == 401
    assert expected["events"][-1] == "event: end"
