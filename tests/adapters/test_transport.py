"""What is to be sent leaves in order and whole, however little the other end takes at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import pytest

from hocket.adapters.transport import write


class Narrow:
    """Takes so many bytes with each call, and then nothing until `room` is made."""

    def __init__(self, room: list[int], *, short_is_all: bool) -> None:
        self.room = room
        self.short_is_all = short_is_all
        self.taken = b""
        self.calls = 0

    def send(self, views: Sequence[memoryview]) -> int:
        self.calls += 1
        offered = b"".join(views)
        count = min(len(offered), self.room.pop(0) if self.room else 0)
        self.taken += offered[:count]
        return count


def unsent(*parts: bytes) -> deque[memoryview]:
    return deque(map(memoryview, parts))


@pytest.mark.parametrize("short_is_all", [True, False])
@pytest.mark.parametrize("step", [1, 2, 3, 4, 5, 7, 12])
def test_whatever_is_taken_is_taken_off(step: int, short_is_all: bool):
    queue = unsent(b"abc", b"d", b"efgh", b"ijkl")
    way = Narrow([], short_is_all=short_is_all)
    total = 0
    while queue:
        way.room.append(step)
        total += write(way, queue)  # type: ignore[arg-type]
    assert (way.taken, total) == (b"abcdefghijkl", 12)


def test_a_socket_that_took_less_than_it_was_given_is_not_asked_again():
    plain, tls = Narrow([4, 4], short_is_all=True), Narrow([4, 4], short_is_all=False)
    assert write(plain, unsent(b"abc", b"defghijk")) == 4  # type: ignore[arg-type]
    assert write(tls, unsent(b"abc", b"defghijk")) == 8  # type: ignore[arg-type]
    assert (plain.calls, tls.calls) == (1, 3)
