"""What holds of any server of eqr, on this machine or on a cluster: its tests inherit these."""

import threading

import httpx
import pytest

from eqr.client import Client
from eqr.serve.messages import Limits
from eqr.solve import SolveOptions, Solver
from serve_running import puzzles, small_reasoner


def post(url, path="/v1/solve", **body):
    return httpx.post(url + path, json={"model": "sudoku-4x4", **body}, timeout=30)


class ServerLaws:
    """A subclass's module has a fixture `url`, of a server with small models of Sudoku 4x4 and maze 7x7."""

    def test_answers_are_those_of_eqr_solve_whatever_else_runs(self, url):
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
            asked = SolveOptions(**settings[number % len(settings)])
            solver = Solver(reasoner, budget=asked.budget(reasoner.config), select=asked.selection())
            ours = solver.solve(puzzle).to_json(0)
            for name in ("answer", "valid", "reason", "start", "depth", "nfe", "status", "residual", "halt"):
                assert getattr(found[number], name) == ours[name], (number, name)

    def test_many_puzzles_keep_their_order_and_bad_ones_are_refused(self, url):
        good = puzzles(40)
        replies = Client(url).solve_many([*good[:20], "rubbish", *good[20:]], model="sudoku-4x4", depth=2)
        assert [reply.puzzle for reply in replies] == list(range(41))
        assert (replies[20].status, "has 16 cells, this text has 7" in replies[20].reason) == (
            "refused",
            True,
        )
        assert {reply.status for reply in replies} == {"refused", "out of segments"}
        alone = Client(url).solve(good[-1], model="sudoku-4x4", depth=2)
        assert replies[-1].answer == alone.answer

    def test_a_stream_tells_every_segment_then_the_answer(self, url):
        events = list(Client(url).watch(puzzles(1)[0], model="sudoku-4x4", depth=5, breadth=2, halt="never"))
        segments = [data for name, data in events if name == "segment"]
        assert sorted((s["start"], s["segment"]) for s in segments) == [
            (b, d) for b in (0, 1) for d in range(1, 6)
        ]
        name, answer = events[-1]
        last = next(s for s in segments if (s["start"], s["segment"]) == (answer["start"], 5))
        assert (name, answer["answer"], answer["nfe"]) == ("answer", last["grid"], 10)
        assert (last["done"], last["status"]) == (True, answer["status"])
        assert len(last["confidence"]) == 16
        assert all(0 <= share <= 100 for share in last["confidence"])

    def test_models_describe_themselves(self, url):
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
            ({"puzzle": "x", "depth": 1025}, 422, "invalid-field", "at most 1024"),
            ({"puzzle": "x", "depth": 512, "breadth": 64}, 422, "invalid-field", "at most 8192"),
            ({"puzzle": "x", "halt": "hed"}, 422, "invalid-field", "did you mean 'head'"),
            ({"puzzle": "x", "select": "best"}, 422, "invalid-field", "unknown rule"),
            ({"puzzle": "x", "halt": "never", "race": True}, 422, "invalid-field", "won by halting"),
            ({"puzzle": "x", "model": "chess"}, 404, "no-such-model", "sudoku-4x4"),
            ({"puzzle": 7}, 422, "invalid-field", "string"),
        ],
    )
    @pytest.mark.parametrize("path", ["/v1/solve", "/v1/solve/stream"])
    def test_a_mistake_is_a_problem_document_with_field_value_and_fix(
        self, url, path, body, status, kind, words
    ):
        response = post(url, path, **body)
        assert response.status_code == status
        assert response.headers["content-type"] == "application/problem+json"
        problem = response.json()
        assert problem["type"] == f"urn:eqr:problem:{kind}"
        assert problem["status"] == status
        assert words in problem["detail"]
        assert all(set(fault) == {"field", "value", "fix"} for fault in problem["errors"])
        assert problem["errors"]

    def test_what_is_not_json_or_not_there(self, url):
        wrong = httpx.post(
            url + "/v1/solve", content=b"{nonsense", headers={"Content-Type": "application/json"}
        )
        assert (wrong.status_code, wrong.json()["type"]) == (400, "urn:eqr:problem:not-json")
        assert httpx.get(url + "/v1/nowhere").json()["status"] == 404
        assert httpx.get(url + "/v1/solve").json()["status"] == 405

    def test_checking_says_which_cells(self, url):
        said = post(url, "/v1/check", puzzle="11..............").json()
        assert (said["valid"], said["cells"]) == (False, [0, 1])
        assert post(url, "/v1/check", puzzle="1...............").json() == {
            "valid": True,
            "reason": "",
            "cells": [],
        }
        assert "is no value" in post(url, "/v1/check", puzzle="x" * 16).json()["reason"]

    def test_noise_is_bounded(self, url):
        asked = {"puzzle": puzzles(1)[0], "depth": 4, "halt": "never"}
        assert post(url, **asked, noise=1e6).status_code == 200
        refused = post(url, **asked, noise=1e38)
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["field"] == "noise"

    def test_pages_elsewhere_cannot_ask_and_the_page_cannot_be_led_astray(self, url):
        preflight = httpx.options(
            url + "/v1/solve", headers={"Origin": "http://elsewhere", "Access-Control-Request-Method": "POST"}
        )
        assert "access-control-allow-origin" not in preflight.headers
        page = httpx.get(url + "/")
        assert page.headers["content-security-policy"].startswith("default-src 'self'")
        assert "<title>eqr" in page.text
        assert httpx.get(url + "/docs").status_code == 200
