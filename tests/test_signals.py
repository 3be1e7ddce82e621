"""Signals wait for compiled code, are never lost, strike cleanly even in an import, and reach no worker."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from eqr import cli
from eqr.signals import Stopped, deferred_interrupts, farewell, noted, stoppable

ENDING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def test_an_interrupt_waits_until_the_block_ends():
    done = []

    def work() -> None:
        with deferred_interrupts():
            signal.raise_signal(signal.SIGINT)
            done.append("to the end")

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["to the end"]
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("number", ENDING)
def test_each_signal_unwinds_and_handlers_come_back(number):
    before = [signal.getsignal(one) for one in ENDING]
    tidied = []

    def work() -> None:
        try:
            with stoppable():
                signal.raise_signal(number)
        finally:
            tidied.append(True)

    with pytest.raises(Stopped) as stopped:
        work()
    assert stopped.value.signal is number
    assert tidied
    assert [signal.getsignal(one) for one in ENDING] == before


def test_what_the_parent_had_us_ignore_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with stoppable(), noted() as requests:
            signal.raise_signal(signal.SIGHUP)
        assert not requests
    finally:
        signal.signal(signal.SIGHUP, before)


def test_only_a_second_ctrl_c_is_impatience():
    with noted() as requests:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGTERM)
    assert requests.received is signal.SIGTERM
    with noted():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(
    ("number", "line"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "stopped by SIGTERM")]
)
def test_a_signal_in_the_midst_of_an_import_is_one_line(tmp_path, number, line):
    (tmp_path / "slow.py").write_text("print('here', flush=True)\nimport time\ntime.sleep(60)")
    code = "from eqr.signals import stoppable\nwith stoppable():\n    import slow"
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert said == line + "\n"
    assert process.returncode == 128 + number


CALLED_BACK = """
import ctypes, signal
from eqr.signals import stoppable

within = {"__name__": "llvmlite.binding.executionengine", "signal": signal}
exec("def load(): signal.raise_signal(signal.SIGTERM)", within)
with stoppable():
    ctypes.CFUNCTYPE(None)(within["load"])()
print("went on")
"""


def test_a_signal_in_a_callback_of_the_compiler_is_one_line():
    done = subprocess.run([sys.executable, "-c", CALLED_BACK], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (143, "", "stopped by SIGTERM\n")


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_before_the_verb_is_read_is_one_line_too(monkeypatch, capsys, number):
    monkeypatch.setattr(cli.typer.main, "get_command", lambda app: signal.raise_signal(number))
    with stoppable(), pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 128 + number
    assert capsys.readouterr().err == farewell(Stopped(number))[0] + "\n"


SPINNING = """
from eqr.data import GeneratedStream
from toy_task import Toy
import threading

class Spinning(Toy):
    def generate(self, rng, options=None):
        while True:  # a puzzle that takes for ever
            pass

if __name__ == "__main__":
    stream = GeneratedStream(Spinning(), seed=0, workers=2)
    threading.Thread(target=stream.take, args=(1,), daemon=True).start()
    while stream._blocks is None:
        pass
    print(*(process.pid for process, _ in stream._blocks._workers), flush=True)
    threading.Event().wait()
"""


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.skipif(os.name != "posix", reason="kills by process id")
def test_workers_hear_no_signal_and_end_with_a_killed_parent(tmp_path):
    (tmp_path / "spinning.py").write_text(SPINNING)
    paths = os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")])  # noqa: PTH120
    parent = subprocess.Popen(
        [sys.executable, "spinning.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert parent.stdout is not None
    workers = [int(word) for word in parent.stdout.readline().split()]
    assert len(workers) == 2
    for number in ENDING:
        os.kill(workers[0], number)  # also while it is still starting
    time.sleep(1.0)
    for number in ENDING:
        os.kill(workers[0], number)
    time.sleep(0.1)
    assert all(map(alive, workers))
    parent.kill()
    parent.wait()
    ends = time.monotonic() + 10
    while any(map(alive, workers)) and time.monotonic() < ends:
        time.sleep(0.02)
    assert not any(map(alive, workers))


def test_a_second_interrupt_strikes_at_once():
    done = []

    def work() -> None:
        with deferred_interrupts():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            done.append("never reached")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == []


def test_other_threads_are_left_alone():
    seen = []

    def work() -> None:
        with deferred_interrupts():
            seen.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True]
