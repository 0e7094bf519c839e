"""Lines to stdout, and the account of those that got out."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading

import pytest

from hocket.cli.exits import Interrupted
from hocket.cli.line_writer import LineWriter
from hocket.cli.stop_signals import StopSignals
from tests.support.threads import Running, wait_parked

LINES = [b"one\n", b"two\n", b"three\n"]


class Narrow(io.RawIOBase):
    """Takes `room` bytes, a few at a time, and then fails as told."""

    def __init__(self, room: int, at_once: int, error: BaseException) -> None:
        self.taken = bytearray()
        self._room = room
        self._at_once = at_once
        self._error = error

    def write(self, data: memoryview) -> int:  # type: ignore[override]
        count = min(self._at_once, self._room - len(self.taken), len(data))
        if count == 0:
            raise self._error
        self.taken += data[:count]
        return count


class Stdout:
    def __init__(self, raw: io.RawIOBase) -> None:
        self.buffer = raw


@pytest.mark.parametrize("at_once", [1, 3, 100])
@pytest.mark.parametrize(("room", "whole"), [(0, 0), (3, 0), (4, 1), (7, 1), (8, 2), (13, 2)])
@pytest.mark.parametrize(
    "error", [BrokenPipeError(), OSError(errno.ENOSPC, "full"), KeyboardInterrupt()]
)
def test_only_whole_lines_count_as_written(monkeypatch, room, whole, at_once, error):
    stdout = Narrow(room, at_once, error)
    monkeypatch.setattr(sys, "stdout", Stdout(stdout))
    writer = LineWriter(StopSignals())
    with pytest.raises(type(error)):
        writer.write(LINES)
    assert writer.written == whole
    assert stdout.taken == b"".join(LINES)[:room]


def test_everything_is_written_in_small_steps(monkeypatch):
    stdout = Narrow(1000, 2, BrokenPipeError())
    monkeypatch.setattr(sys, "stdout", Stdout(stdout))
    writer = LineWriter(StopSignals())
    writer.write(LINES)
    assert writer.written == 3
    assert stdout.taken == b"one\ntwo\nthree\n"
    writer.write([])
    assert writer.written == 0


def test_a_pipe_that_does_not_block_is_waited_for(monkeypatch):
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    lines = [b"x" * 99 + b"\n"] * 10_000  # far more than a pipe holds
    with os.fdopen(reader, "rb") as source, os.fdopen(writer, "wb") as stdout:
        monkeypatch.setattr(sys, "stdout", Stdout(stdout))
        with Running(source.read, 1_000_000) as reading, StopSignals() as stop:
            LineWriter(stop).write(lines)
            assert reading.result() == b"".join(lines)


def test_a_signal_ends_the_wait_for_a_reader_who_does_not_read(monkeypatch):
    reader, writer = os.pipe()
    main = threading.current_thread()

    def interrupt() -> None:
        wait_parked(main)
        os.kill(os.getpid(), signal.SIGTERM)

    with os.fdopen(reader, "rb") as source, os.fdopen(writer, "wb") as stdout:
        monkeypatch.setattr(sys, "stdout", Stdout(stdout))
        with Running(interrupt), StopSignals() as stop:
            lines = LineWriter(stop)
            with pytest.raises(Interrupted):
                lines.write([b"x" * 98 + b"\n"] * 10_000)
        stdout.close()
        assert lines.written == len(source.read()) // 99
        assert lines.written > 0
