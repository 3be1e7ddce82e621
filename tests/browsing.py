"""Real Chromium for the tests: found or skipped with the command that gets it; required where CI says so."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

NPM = Path(__file__).resolve().parents[1] / "build" / "npm" / "node_modules"
REQUIRED = os.environ.get("EQR_BROWSER") == "required"
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


def lacking(what: str, command: str) -> None:
    """Skip, or fail where nothing may be skipped."""
    said = f"{what} is not here; get it with: {command}"
    if REQUIRED:
        pytest.fail(said)
    pytest.skip(said)


@cache
def executable() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def npm_file(name: str) -> Path:
    """A file of a package that `make npm` fetches."""
    if not (NPM / name).exists():
        lacking(name, "make npm")
    return NPM / name


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser of Playwright's, with a profile of its own."""
    if executable() is None:
        lacking("Chromium", "apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install -e '.[dev]'")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=executable(), args=list(FLAGS))
        yield browser
        browser.close()


@contextmanager
def page_at(browser: Any, url: str, *, view: dict[str, int] = DESKTOP, **options: Any) -> Iterator[Any]:
    """A page that has loaded; whatever it logs as an error fails the test."""
    context = browser.new_context(viewport=view, accept_downloads=True, **options)
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: said.type == "error" and wrong.append(said.text))
    page.set_default_timeout(60_000)  # a busy machine is slow, not wrong
    page.goto(url)
    page.wait_for_selector("html[data-ready]")
    yield page
    context.close()
    assert wrong == []
