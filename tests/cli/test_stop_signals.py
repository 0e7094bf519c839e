"""Signals as a fact to look at."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from hocket.cli.exits import Interrupted
from hocket.cli.stop_signals import LOOK_SECONDS, SIGNALS, StopSignals
from hocket.deadline import in_seconds
from hocket.errors import Timeout
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


def test_a_signal_never_ends_a_receive_in_its_middle():
    def receive(_seconds: float) -> str:
        os.kill(os.getpid(), signal.SIGTERM)
        until(lambda: stop.requested)
        return "received"

    with StopSignals() as stop:
        assert stop.wait_for(receive, None) == "received"
        with pytest.raises(Interrupted):  # it came before, and is not forgotten
            stop.wait_for(receive, None)


def test_a_signal_is_seen_between_two_receives():
    asked: list[float] = []

    def receive(seconds: float) -> str:
        asked.append(seconds)
        if len(asked) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        raise Timeout("nothing came")

    with StopSignals() as stop, pytest.raises(Interrupted):
        stop.wait_for(receive, None)
    assert asked == [LOOK_SECONDS] * 3


def test_a_wait_ends_in_its_time_and_says_how_long_it_was():
    asked: list[float] = []

    def receive(seconds: float) -> str:
        asked.append(seconds)
        time.sleep(seconds)
        raise Timeout(f"nothing came within {in_seconds(seconds)}")

    with StopSignals() as stop, pytest.raises(Timeout, match=r"^nothing came within 0\.25 s$"):
        stop.wait_for(receive, 0.25)
    assert asked[0] == LOOK_SECONDS
    assert 0.2 < sum(asked) <= 0.25


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
