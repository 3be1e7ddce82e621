"""Ctrl-C waits for compiled code to end, is never lost, and a second one does not wait."""

import signal
import threading

import pytest

from eqr.data.interrupts import deferred_interrupts


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
