"""Signals as a fact to look at."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from hocket.cli.exits import Interrupted
from hocket.cli.stop_signals import SIGNALS, StopSignals
from tests.support.threads import Running, until, wait_parked


@pytest.fixture
def pipe():
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    os.close(writer)


def test_waiting_ends_when_there_is_something_to_read(pipe):
    reader, writer = pipe
    with StopSignals() as stop:
        os.write(writer, b"x")
        assert stop.wait_readable(reader)
        assert stop.requested == 0


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_the_wait_and_nothing_is_read_any_more(pipe, number):
    reader, writer = pipe
    main = threading.current_thread()

    def interrupt() -> None:
        wait_parked(main)
        os.kill(os.getpid(), number)

    with StopSignals() as stop, Running(interrupt):
        assert not stop.wait_readable(reader)
        assert stop.requested == number
        os.write(writer, b"x")
        assert not stop.wait_readable(reader)


def test_where_it_is_interruptible_a_signal_raises():
    with StopSignals() as stop:
        with pytest.raises(Interrupted), stop.interruptible():
            os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Interrupted), stop.interruptible():
            raise AssertionError("it came before, and is not forgotten")


def test_the_second_signal_has_its_usual_effect():
    former = signal.getsignal(signal.SIGINT)
    with StopSignals() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        until(lambda: stop.requested)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is former


def test_afterwards_everything_is_as_before():
    former = [signal.getsignal(each) for each in SIGNALS]
    with StopSignals():
        assert [signal.getsignal(each) for each in SIGNALS] != former
    assert [signal.getsignal(each) for each in SIGNALS] == former
