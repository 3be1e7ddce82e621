"""Exit codes say what happened: 1 only that a check said no, whatever becomes of the output."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REFUSING, BREAKING = (
    "import sys; from eqr import cli\n"
    "def fail():\n"
    "    print('said')\n"
    f"    {then}\n"
    "cli.typer.main.get_command = lambda app: fail\n"
    "sys.argv[1:] = []\n"
    "from eqr.__main__ import main; main()\n"
    for then in ("sys.exit(1)", "1 / 0")
)
pytestmark = pytest.mark.skipif(os.name != "posix", reason="streams of POSIX")


def run(code, redirected=""):
    """Run Python with some of its streams redirected, as a shell does it."""
    command = f'exec "$0" -c "$1" {redirected}'
    return subprocess.run(["sh", "-c", command, sys.executable, code], capture_output=True, text=True)


def test_a_check_that_says_no_is_1_and_a_bug_is_3():
    assert run(REFUSING).returncode == 1
    broken = run(BREAKING)
    assert (broken.returncode, broken.stdout) == (3, "said\n")
    assert "ZeroDivisionError" in broken.stderr
    assert "report it" in broken.stderr


def test_an_output_that_takes_no_more_is_one_line_and_2():
    full = run(REFUSING, "> /dev/full")
    assert (full.returncode, full.stderr) == (2, "error: cannot write the output: No space left on device\n")
    assert run(REFUSING, "> /dev/full 2> /dev/full").returncode == 2


@pytest.mark.parametrize("closed", [">&-", "<&-", "2>&-", "<&- >&- 2>&-"])
def test_what_is_closed_is_as_good_as_nowhere(closed, tmp_path):
    opened = f"import os; os.write(os.open({str(tmp_path / 'file')!r}, os.O_CREAT | os.O_WRONLY), b'own')"
    done = run(REFUSING.replace("print('said')", f"print('said'); {opened}"), closed)
    assert (done.returncode, done.stderr) == (1, "")
    assert Path(tmp_path / "file").read_text() == "own", "what is printed went into another file"


def test_half_a_character_is_printed_as_its_escape():
    done = run(REFUSING.replace("'said'", r"'\\ud800 \\udc80'").replace("\\\\", "\\"))
    assert (done.returncode, done.stdout) == (1, "\\ud800 \\udc80\n")
