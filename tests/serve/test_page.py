"""The page in real Chromium: type, paste, draw, solve, watch, scrub, share; by mouse, finger and keyboard."""

import io
import re
import runpy

import pytest

pytest.importorskip("fastapi", reason="pip install -e '.[serve]'")
pytest.importorskip("playwright", reason="pip install -e '.[dev]'")

from browsing import PHONE, chromium, npm_file, page_at
from docs_pages import ROOT
from eqr.model.reasoner import Reasoner
from eqr.recipes import recipe_named
from eqr.serve.app import Served
from eqr.serve.run import load
from eqr.solve import Budget, Solver
from eqr.solve.candidates import text_of
from eqr.tasks.registry import TASKS
from serve_running import of_families, running

EASY = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"
MINIMAL = "....9.51.6...7...2.94.32..77.......4..2.....1..8.273......6.....5.....2....9..45."
"""Takes a few segments."""
ENDED = "#verdict[data-state=solved], #verdict[data-state=failed]"


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def url():
    with running(*load(["sudoku-4x4", "sudoku-9x9", "maze"]), of_families()) as (address, _):
        yield address


def shown(page) -> str:
    """What the board says, a character a cell."""
    return page.evaluate(
        "[...document.querySelectorAll('.cell')].map((cell) => cell.dataset.symbol).join('')"
    )


def solve(page) -> None:
    page.get_by_role("button", name="Solve", exact=True).click()
    page.wait_for_selector(ENDED)


def quick(page) -> None:
    """Show segments as fast as they come."""
    page.locator("#pace").fill("0")


def test_type_a_9x9_watch_it_solved_scrub_and_change_breadth(browser, url):
    ours = Solver("sudoku-9x9").solve(MINIMAL)
    with page_at(browser, f"{url}/#task=sudoku-9x9") as page:
        page.get_by_role("button", name="Clear").click()
        page.locator(".cell").first.click()
        for place, symbol in enumerate(MINIMAL):
            if symbol != ".":
                page.keyboard.press(symbol)
            if place % 9 == 8:
                page.keyboard.press("ArrowDown")
                page.keyboard.press("Home")
            else:
                page.keyboard.press("ArrowRight")
        assert shown(page) == MINIMAL
        solve(page)
        answer = shown(page)
        assert answer == "".join(".123456789"[token - 1] for token in ours.grid)
        assert page.locator("#verdict .facts dd").first.inner_text() == str(ours.depth)
        assert page.locator("#verdict").get_attribute("data-state") == ("solved" if ours.valid else "failed")
        last = int(page.locator("#scrub").get_attribute("max"))
        assert last == ours.depth
        page.locator("#scrub").fill("1")
        first = shown(page)
        assert first != answer
        assert all(now == given for now, given in zip(first, MINIMAL, strict=True) if given != ".")
        assert page.locator("#segment").inner_text() == f"1 / {last}"
        assert len(page.locator(".cell").nth(2).get_attribute("style")) > 0  # doubt shows
        page.locator("#breadth").fill("2")
        quick(page)
        solve(page)
        assert page.locator("#starts button").count() == 4
        assert page.locator("#plot .trace").count() == 4
        page.locator("#starts button").nth(2).click()
        assert page.locator("#starts button").nth(2).get_attribute("aria-pressed") == "true"


def test_it_opens_on_a_9x9_enter_solves_and_the_status_follows_the_board(browser, url):
    with page_at(browser, url) as page:
        assert page.locator("#task").evaluate("select => select.selectedOptions[0].text") == "Sudoku 9 × 9"
        page.get_by_role("button", name="Clear").click()
        page.locator("html").evaluate(
            "(_, text) => dispatchEvent(Object.assign(new Event('paste'), "
            "{clipboardData: {getData: () => text}}))",
            MINIMAL,
        )
        quick(page)
        page.locator(".cell").first.click()
        page.keyboard.press("Enter")
        page.wait_for_selector(ENDED)
        ended = page.locator("#verdict .headline").inner_text()
        page.locator("#scrub").fill("1")
        last = page.locator("#scrub").get_attribute("max")
        assert page.locator("#verdict .headline").inner_text() == f"Segment 1 of {last}"
        assert page.locator("#verdict").get_attribute("data-state") == ""
        page.locator("#scrub").fill(last)
        assert page.locator("#verdict .headline").inner_text() == ended


def test_a_puzzle_of_several_answers_is_told_so(browser, url):
    with page_at(browser, f"{url}/#task=sudoku-4x4") as page:
        page.get_by_role("button", name="Clear").click()
        quick(page)
        solve(page)
        assert "the puzzle has several answers" in page.locator("#verdict .detail").inner_text()


def test_nothing_is_clipped_on_a_phone(browser, url):
    with page_at(browser, url, view=PHONE, has_touch=True) as page:
        for name in ("#task", "#select"):
            page.locator(name).evaluate("select => select.scrollIntoView()")
            box = page.locator(name).bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= PHONE["width"]
            longest = page.locator(name).evaluate(
                """select => {
                    const pen = document.createElement("canvas").getContext("2d");
                    pen.font = getComputedStyle(select).font;
                    return Math.max(...[...select.options].map(({ text }) => pen.measureText(text).width));
                }"""
            )
            assert longest + 40 <= box["width"]  # padding and the arrow


def test_wrong_cells_are_named_at_once_and_rubbish_is_refused_in_words(browser, url):
    with page_at(browser, f"{url}/#task=sudoku-4x4") as page:
        page.get_by_role("button", name="Clear").click()
        page.locator(".cell").nth(0).click()
        page.keyboard.press("3")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("3")
        assert page.locator("#trouble").inner_text() == "Row 1 has 3 twice; 1 more problem."
        assert page.locator(".cell.wrong").count() == 2
        assert "contradicts" in page.locator(".cell").nth(0).get_attribute("aria-label")
        assert page.get_by_role("button", name="Solve", exact=True).is_disabled()
        page.keyboard.press("Backspace")
        assert page.locator("#trouble").inner_text() == ""
        page.get_by_role("button", name="Paste").click()
        for text, words in (("12x4", "Line 1, character 3: “x”"), ("123", "16 cells, the text has 3")):
            page.locator("#paste-text").fill(text)
            page.get_by_role("button", name="Take it").click()
            assert words in page.locator("#paste-error").inner_text()
        page.locator("#paste-text").fill("1 . | . 4\n. . | . .\n----+----\n. . | . .\n2 . | . 3")
        page.get_by_role("button", name="Take it").click()
        assert shown(page) == "1..4........2..3"
        page.locator("html").evaluate(
            "(_, text) => dispatchEvent(Object.assign(new Event('paste'), "
            "{clipboardData: {getData: () => text}}))",
            "garbage!",
        )
        assert "Pasted text" in page.locator("#trouble").inner_text()


def test_keyboard_alone_suffices(browser, url):
    with page_at(browser, f"{url}/#task=sudoku-4x4") as page:
        quick(page)
        reached = []
        for _ in range(40):
            page.keyboard.press("Tab")
            name = page.evaluate("document.activeElement.id || document.activeElement.className")
            reached.append(name)
            if name == "solve":
                break
        assert {"task", "theme", "paste", "clear"} <= set(reached)
        assert any("cell" in name for name in reached)
        page.keyboard.press("Enter")
        page.wait_for_selector(ENDED)
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == "scrub"
        page.keyboard.press("Home")
        assert page.locator("#segment").inner_text().startswith("1 /")


def test_a_maze_is_drawn_by_finger_on_a_phone(browser, url):
    with page_at(browser, f"{url}/#task=maze", view=PHONE, has_touch=True) as page:
        quick(page)
        before = shown(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        page.get_by_role("button", name="Draw open").click()
        wall = before.index("#", 14)  # inside, beside an open cell or not: it is only repainted
        page.locator(".cell").nth(wall).tap()
        assert shown(page)[wall] == " "
        page.get_by_role("button", name="Draw goal").click()
        page.locator(".cell").nth(wall).tap()
        assert shown(page).count("G") == 1
        page.get_by_role("button", name="Draw wall").click()
        page.locator(".cell").nth(before.index("S")).tap()
        assert page.locator("#trouble").inner_text() == "The maze has no start S yet."
        page.get_by_role("button", name="Hard", exact=True).click()
        page.get_by_role("button", name="Solve", exact=True).tap()
        page.wait_for_selector(ENDED)
        puzzle, answer = before, shown(page)
        assert "o" in answer
        assert answer.count("S") == puzzle.count("S") == 1


def test_a_puzzle_of_a_family_is_solved_as_one_of_it(browser, url):
    with page_at(browser, f"{url}/#task=sudoku-4x4") as page:
        assert not page.get_by_label("Family").is_visible()
    answers = set()
    for identity in (0, 2):
        solver = Solver(of_families().reasoner, budget=Budget(depth=2), identity=identity)
        with page_at(browser, f"{url}/#task=mini-arc&depth=2&halt=never") as page:
            page.get_by_label("Family").fill(str(identity))
            page.keyboard.press("Tab")
            assert ("identity=2" in page.url) == (identity == 2)
            quick(page)
            puzzle = shown(page)
            solve(page)
            answers.add(shown(page))
            assert shown(page) == text_of(solver.task, solver.solve(puzzle).grid)
    assert len(answers) == 2


def test_a_link_shows_the_same_and_pictures_can_be_saved(browser, url):
    image = pytest.importorskip("PIL.Image", reason="pip install -e '.[plots]'")
    with page_at(browser, f"{url}/#task=sudoku-4x4&breadth=2&seed=7&halt=never&depth=4") as page:
        quick(page)
        page.get_by_role("button", name="Hardest").click()
        puzzle, link = shown(page), page.url
        assert re.search(r"seed=7", link)
        solve(page)
        answer = shown(page)
        with page.expect_download() as saved:
            page.get_by_role("button", name="GIF").click()
        moving = image.open(io.BytesIO(saved.value.path().read_bytes()))
        assert (moving.format, moving.n_frames) == ("GIF", 5)  # the puzzle, then four segments
        moving.seek(4)
        assert len(moving.convert("RGB").getcolors(1 << 16)) > 2
        with page.expect_download() as saved:
            page.get_by_role("button", name="SVG").click()
        drawn = saved.value.path().read_text()
        assert drawn.startswith("<svg")
        assert drawn.count("<animate ") == 5
    with page_at(browser, link) as page:
        assert shown(page) == puzzle
        assert page.locator("#seed").input_value() == "7"
        assert page.locator("#depth-says").inner_text() == "4 segments"
        quick(page)
        solve(page)
        assert shown(page) == answer


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("place", ["sudoku-4x4", "maze", "/docs"])
def test_axe_finds_nothing_serious(browser, url, scheme, place):
    axe = npm_file("axe-core/axe.min.js").read_text(encoding="utf-8")
    options = {"color_scheme": scheme, "reduced_motion": "reduce", "bypass_csp": True}
    context = browser.new_context(**options)
    page = context.new_page()
    page.set_default_timeout(60_000)
    if place == "/docs":
        page.goto(url + place)
        page.wait_for_selector(".routes h2")
    else:
        page.goto(f"{url}/#task={place}&breadth=2")
        page.wait_for_selector("html[data-ready]")
        quick(page)
        solve(page)
        page.locator("#scrub").fill("2")  # doubt, flashes and small multiples are on the page
    page.evaluate(axe)
    found = page.evaluate("axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice']})")
    context.close()
    serious = [
        (one["id"], one["nodes"][0]["html"][:120], one["nodes"][0]["failureSummary"])
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]
    assert serious == []


def test_stopping_cancels_and_a_lost_server_is_said(browser, url):
    with page_at(browser, f"{url}/#task=sudoku-9x9&halt=never&depth=512&breadth=8") as page:
        page.get_by_role("button", name="Solve", exact=True).click()
        page.wait_for_selector("#player:not([hidden])")
        page.get_by_role("button", name="Stop").click()
        assert page.locator("#verdict .headline").inner_text() == "Stopped"
        assert page.get_by_role("button", name="Solve", exact=True).is_enabled()


def test_declared_puzzles_are_drawn_by_their_rules_and_played(browser, monkeypatch):
    pytest.importorskip("cpmpy", reason="CPMpy is not installed: pip install 'eqr[puzzles]'")
    monkeypatch.setattr(TASKS, "_known", dict(TASKS._known))
    models = []
    for name in ("killer", "irregular", "colouring", "futoshiki"):
        task = runpy.run_path(str(ROOT / "examples" / "puzzles" / f"{name}.py"))["puzzle"]
        models.append(Served(name, Reasoner(recipe_named(name).model).requires_grad_(False), task))
    with running(*models) as (url, _):
        with page_at(browser, f"{url}/#task=irregular") as page:
            assert page.locator(".cell").count() == 36
            assert page.locator(".box-left").count() + page.locator(".box-top").count() > 20
            assert page.locator(".cage").count() == 0
        with page_at(browser, f"{url}/#task=killer&depth=2&halt=never") as page:
            assert page.locator(".cell").count() == 52
            assert page.locator(".cage").count() == 36
            sums = page.locator(".cage[data-told]").all_text_contents()
            assert len(sums) == 16
            assert max(int(number) for number in sums) > 9
            assert sorted(sums) == sorted(page.locator(".cell").nth(36 + at).inner_text() for at in range(16))
            quick(page)
            solve(page)
            assert all(text for text in page.locator(".cell .mark").all_text_contents())
            page.locator(".cell").first.click()
            for _ in range(6):
                page.keyboard.press("ArrowDown")  # over the gap between the grid and the sums
            assert page.locator(".cell.current").get_attribute("data-cell") == "36"
        with page_at(browser, f"{url}/#task=colouring") as page:
            assert page.locator(".cell").count() == 9
            page.locator(".cell").first.click()
            page.keyboard.press("b")
            assert page.locator(".cell").first.inner_text() == "B"
            assert page.locator(".graph text").first.text_content() == "B"
            there = page.locator(".graph line.there").count()
            page.locator(".graph line:not(.there)").first.press("Enter")
            assert page.locator(".graph line.there").count() == there + 1
        with page_at(browser, f"{url}/#task=futoshiki") as page:
            assert page.locator(".cell").count() == 25
            sign = page.locator(".sign.below").first
            page.get_by_role("button", name="Clear", exact=True).click()
            found = []
            for _ in range(4):
                sign.click()
                found.append(sign.text_content())
            assert found == ["", "\u2227", "\u2228", ""]
