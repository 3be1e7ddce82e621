"""A progress bar is one line in a narrow terminal, and counts what was done before it began."""

import io
import time

import pytest
from rich.console import Console

from eqr import progress as module
from eqr.progress import Progress

NOTE = "loss 0.123  exact 45.2%  depth 13.1  validation 98.1%  1234 of 3600 s"


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_a_bar_fits_a_terminal(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    progress = Progress("training", 100_000, unit="steps")
    bar, task = progress._bar()
    progress.done = 12_345
    bar.update(task, completed=12_345, said=progress._line(NOTE))
    shown = io.StringIO()
    Console(file=shown, width=width).print(bar.get_renderable())
    assert len(shown.getvalue().splitlines()) == 1
    assert "loss 0" in shown.getvalue() or width < 80


def test_the_rate_leaves_out_what_was_done_before(monkeypatch):
    shown = Progress("training", 4000, unit="steps", done=3000)
    now = shown._started + 10.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    shown.done += 100
    assert shown._line() == "3,100 of 4,000 steps, 10.0/s, 90 s left"


def test_preparing_spins_in_a_terminal_alone_and_is_no_computing(monkeypatch, capsys):
    before, began = module.computing(), time.perf_counter()
    with module.preparing("compiling"):
        time.sleep(0.05)
    assert module.computing() - before <= time.perf_counter() - began - 0.05
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(module, "SOON", 0.0)
    monkeypatch.setattr(module.sys.stderr, "isatty", lambda: True)
    with module.preparing("compiling"):
        time.sleep(0.3)
    assert "compiling (0 s)" in capsys.readouterr().err
