"""A pipe of the node, between two sockets: how it ends."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from time import monotonic

import pytest

from hocket.adapters.loop import Loop
from hocket.adapters.transport import PlainTransport
from hocket.node.door import pipe
from hocket.node.door.pipe import Half, Pipe


class World:
    """The loop of a node, a pipe in it, and the two processes at its ends."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.one, inner = socket.socketpair()
        self.other, outer = socket.socketpair()
        self.inside = (inner, outer)
        for each in self.inside:
            each.setblocking(False)
        self.gone: list[Pipe] = []
        one, other = (Half(PlainTransport(each), deque()) for each in self.inside)
        self.pipe = Pipe(self.loop, one, other, self.gone.append)
        self.pipe.start()

    def turns(self, seconds: float) -> None:
        """Make turns until the pipe is gone, or for so long."""
        deadline = monotonic() + seconds
        while not self.gone and monotonic() < deadline:
            self.loop.turn(0.01)


@pytest.fixture
def world() -> Iterator[World]:
    found = World()
    yield found
    found.pipe.close()
    for each in (found.one, found.other):
        each.close()
    found.loop.close()


def test_an_end_that_never_closes_keeps_its_pipe_for_a_while_only(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was stopped, say: both sockets were the node's as long as it lived."""
    monkeypatch.setattr(pipe, "LINGER_US", 200_000)
    world.one.sendall(b"the last words")
    world.one.close()
    world.turns(0.05)
    assert not world.gone, "what the other end may still send is waited for"
    assert world.other.recv(100) == b"the last words"
    assert world.other.recv(100) == b"", "it is told that nothing follows"
    world.turns(10)
    assert world.gone == [world.pipe]
    assert [each.fileno() for each in world.inside] == [-1, -1]


def test_a_pipe_ends_when_both_have_closed(world: World) -> None:
    world.one.close()
    world.other.close()
    world.turns(10)
    assert world.gone == [world.pipe]


def test_an_end_that_is_slow_to_take_is_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time runs when it was told all, and not before."""
    monkeypatch.setattr(pipe, "LINGER_US", 1)
    sent = b"x" * (1 << 20)
    world.one.setblocking(False)
    at = 0
    for _ in range(1000):
        try:
            at += world.one.send(sent[at:])
        except BlockingIOError:
            break
        world.loop.turn(0)
    world.one.close()
    world.turns(0.1)
    assert not world.gone
    taken = 0
    world.other.setblocking(False)
    while taken < at:
        world.loop.turn(0.01)
        with suppress(BlockingIOError):
            taken += len(world.other.recv(1 << 20))
    world.turns(10)
    assert world.gone == [world.pipe]
