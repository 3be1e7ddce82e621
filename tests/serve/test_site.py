"""The page without a server: Chromium runs the exported graphs and says what Python says."""

import functools
import http.server
import threading

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="pip install -e '.[serve]'")
pytest.importorskip("playwright", reason="pip install -e '.[dev]'")
pytest.importorskip("onnxscript", reason="pip install -e '.[export]'")

from browsing import chromium, npm_file, page_at
from eqr.errors import UserError
from eqr.model.definitions import row_key
from eqr.serve.page import build_site, examples
from eqr.serve.run import load
from eqr.solve import SolveOptions, Solver
from eqr.solve.candidates import text_of
from eqr.tasks import task_named

SETTINGS = (
    {},
    {"breadth": 4, "seed": 3, "select": "residual", "depth": 16},
    {"breadth": 8, "race": True, "depth": 8},
    {"breadth": 16, "seed": 1},  # the first verified answer ends the search
    {"halt": "never", "depth": 8, "breadth": 2, "select": "majority", "noise": 0.1},
)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site of the smallest shipped model, behind a server of files."""
    runtime = npm_file("onnxruntime-web/dist")
    folder = tmp_path_factory.mktemp("site")
    build_site(folder, load(["sudoku-4x4"]), runtime)
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_static_page_gives_pythons_answers(site):
    task = task_named("sudoku-4x4")
    solver = Solver("sudoku-4x4")
    puzzles = [example["puzzle"] for example in examples(task)]
    with chromium() as browser, page_at(browser, site) as page:
        asked_for = []
        page.on("request", lambda request: asked_for.append(request.url))
        for number, settings in enumerate(SETTINGS):
            asked = SolveOptions(**settings)
            ours = Solver(
                solver.reasoner, budget=asked.budget(solver.reasoner.config), select=asked.selection()
            ).solve(puzzles[number % len(puzzles)])
            packed = "".join(str(".1234".index(symbol)) for symbol in puzzles[number % len(puzzles)])
            words = "&".join(f"{name}={str(value).lower()}" for name, value in settings.items())
            page.goto(f"{site}/#task=sudoku-4x4&puzzle={packed}&{words}")
            page.locator("#pace").fill("0")
            page.get_by_role("button", name="Solve", exact=True).click()
            page.wait_for_selector("#verdict[data-state=solved], #verdict[data-state=failed]")
            shown = page.evaluate(
                "[...document.querySelectorAll('.cell')].map((cell) => cell.dataset.symbol).join('')"
            )
            assert shown == text_of(task, ours.grid), settings
            facts = page.locator("#verdict .facts dd").all_inner_texts()
            assert facts[:2] == [str(ours.depth), str(ours.nfe)], settings
            assert float(facts[2]) == pytest.approx(ours.residual, rel=0.06)
            page.get_by_role("button", name="Clear").click()  # the next verdict is a new one
        assert all(url.startswith((site, "blob:")) for url in asked_for)


def test_keys_in_the_browser_are_pythons(site):
    with chromium() as browser, page_at(browser, site) as page:
        for seed, length, *others in ((0, 16, 0, 0), (12345, 900, 7, 0), (999_999_999, 81, 63, 41)):
            found = page.evaluate(
                """async ([seed, length, ...others]) => {
                    const { rowKey } = await import("./js/keys.js");
                    const tokens = Uint8Array.from({ length }, (_, place) => place % 11);
                    return rowKey(seed, tokens, ...others).toString();
                }""",
                [seed, length, *others],
            )
            tokens = (np.arange(length) % 11).astype(np.uint8)
            assert int(found) == row_key(seed, tokens, *others)


def test_a_runtime_that_is_not_there_is_said(tmp_path):
    with pytest.raises(UserError, match="make site"):
        build_site(tmp_path, [], tmp_path)
