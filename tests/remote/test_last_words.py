"""A connection that is to end, and whose other side does nothing for it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from time import monotonic

import pytest

from hocket.adapters.transport import PlainTransport
from hocket.remote import connection
from hocket.remote.connection import Connection, NamesLoop, ThreadWaker


class LastWords:
    """A carrier that has one thing to say."""

    def __init__(self, words: bytes) -> None:
        self._words = [words]
        self.why = ""

    def waits(self) -> bool:
        return bool(self._words)

    def gather(self) -> list[bytes | bytearray | memoryview]:
        return [self._words.pop()]

    def feed(self, data: bytes | memoryview) -> None:
        raise AssertionError("nothing comes here")

    def target(self) -> None:
        return None

    def filled(self, count: int) -> None:
        raise AssertionError("nothing comes here")

    def owed(self) -> None:
        pass

    def wake_readers(self) -> None:
        pass

    def lost(self, why: str) -> None:
        self.why = why


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    here.setblocking(False)
    yield here, there
    here.close()
    there.close()


def test_a_wake_up_that_comes_late_ends_one_sleep_and_not_all_that_follow(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    waker = ThreadWaker()
    poll = waker.new_poll(ends[0].fileno())
    waker._waker.wake()  # by who had seen the sleeper before asleep, who woke meanwhile
    assert not waker.sleep(poll, ends[0].fileno(), 30)
    began = monotonic()
    assert not waker.sleep(poll, ends[0].fileno(), 0.05)
    assert monotonic() - began >= 0.04
    waker.close()


@pytest.mark.parametrize("size", [10, 16 << 20])
def test_a_side_that_neither_reads_nor_ends_holds_no_socket_for_ever(
    ends: tuple[socket.socket, socket.socket], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few bytes leave, and the end of the other side is waited for; many do not even leave."""
    monkeypatch.setattr(connection, "LINGER_US", 50_000)
    monkeypatch.setattr(connection, "LAST_WORDS_US", 50_000)
    loop = NamesLoop()
    ending = Connection(loop, PlainTransport(ends[0]), LastWords(b"x" * size))
    closed: list[Connection] = []
    ending.on_closed = closed.append
    try:
        ending.start()
        ending.close_when_sent()
        assert not closed
        deadline = monotonic() + 10
        while not closed and monotonic() < deadline:
            loop.turn(0.01)
        assert closed == [ending]
        assert ends[0].fileno() == -1
    finally:
        ending.close()
        loop.close()
