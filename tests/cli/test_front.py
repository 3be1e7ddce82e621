"""The command line as a whole: help that fits a screen, and Ctrl-C that ends in one line."""

import signal
import sys
from types import ModuleType

import pytest
from typer.core import TyperGroup
from typer.testing import CliRunner

from eqr.cli import COMMANDS, app
from eqr.errors import UserError
from eqr.signals import Stopped


def test_help_fits_a_screen_and_lists_every_verb():
    said = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).output
    lines = said.splitlines()
    assert len(lines) <= len(COMMANDS) + 20
    assert max(map(len, lines)) <= 80
    for verb, (_, summary) in COMMANDS.items():
        assert any(verb in line and summary in line for line in lines)
    assert "<bool>" not in said


@pytest.fixture
def failing(monkeypatch):
    """Add a verb `fail` that raises what it is given."""

    def add(error: type[BaseException]) -> None:
        def fail() -> None:
            """Fail."""
            raise error

        module = ModuleType("failing")
        module.fail = fail
        monkeypatch.setitem(sys.modules, "failing", module)
        monkeypatch.setitem(COMMANDS, "fail", ("failing", "Fail."))

    return add


def test_a_mistyped_verb_is_told_the_nearest():
    with pytest.raises(UserError, match="no command 'trian'; did you mean 'train'"):
        CliRunner().invoke(app, ["trian", "sudoku-6x6"], catch_exceptions=False)


def test_ctrl_c_is_one_line_and_130(failing):
    failing(KeyboardInterrupt)
    done = CliRunner().invoke(app, ["fail"])
    assert done.exit_code == 130
    assert done.stderr == "interrupted\n"
    assert done.stdout == ""


def test_a_signal_while_the_words_are_read_is_told_as_what_it_is(monkeypatch):
    def struck(*_, **__):
        raise Stopped(signal.SIGTERM)

    monkeypatch.setattr(TyperGroup, "make_context", struck)
    done = CliRunner().invoke(app, ["tasks"])
    assert done.exit_code == 128 + signal.SIGTERM
    assert done.stderr == "stopped by SIGTERM\n"
