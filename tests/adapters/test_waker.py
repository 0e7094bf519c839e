"""Both ways to wake whoever waits in `select`: that of Linux, and the one that all systems have."""

from __future__ import annotations

import os
import select
import selectors
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from hocket.adapters.loop import Loop
from hocket.adapters.transport import send_at_once
from hocket.adapters.waker import EventFd, Pipe, Waker, new_waker


@pytest.fixture(params=[EventFd, Pipe])
def waker(request: pytest.FixtureRequest) -> Iterator[Waker]:
    made: Waker = request.param()
    yield made
    made.close()


def is_readable(waker: Waker) -> bool:
    return bool(select.select([waker.descriptor], [], [], 0)[0])


def test_it_is_readable_from_the_first_wake_up_until_it_is_cleared(waker: Waker):
    assert not is_readable(waker)
    for _ in range(3):
        waker.wake()
    assert is_readable(waker)
    waker.clear()
    assert not is_readable(waker)
    waker.wake()
    assert is_readable(waker)


def test_any_number_of_wake_ups_never_waits(waker: Waker):
    for _ in range(100_000):  # more than a pipe holds
        waker.wake()
    while is_readable(waker):
        waker.clear()


def test_nothing_of_it_is_inherited_by_other_programs(waker: Waker):
    assert not os.get_inheritable(waker.descriptor)
    assert not os.get_blocking(waker.descriptor)


def test_what_is_closed_is_woken_no_more(waker: Waker):
    """Its descriptor may be somebody else's by then."""
    waker.close()
    with socket.socket() as other:
        assert other.fileno() <= waker.descriptor  # the lowest one that is free
        waker.wake()
    waker.close()


def test_without_eventfd_it_is_a_pipe(monkeypatch: pytest.MonkeyPatch):
    made = [new_waker()]
    monkeypatch.delattr(os, "eventfd")
    made.append(new_waker())
    assert [type(each) for each in made] == [EventFd, Pipe]
    for each in made:
        each.close()


def test_a_loop_is_woken_by_a_pipe_as_well(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(os, "eventfd")
    loop = Loop()
    done: list[int] = []

    def count(number: int) -> Callable[[], None]:
        return lambda: done.append(number)

    thread = threading.Thread(target=loop.run)
    thread.start()
    for number in range(1000):
        loop.post(count(number))
    loop.stop()
    thread.join(20)
    assert not thread.is_alive()
    assert done == list(range(1000))
    loop.close()


class NotInherited(selectors.SelectSelector):
    """A kqueue in a forked child."""

    def close(self) -> None:
        super().close()
        raise OSError(9, "bad file descriptor")


def test_a_loop_is_closed_in_a_child_that_has_no_selector(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(selectors, "DefaultSelector", NotInherited)
    loop = Loop()
    loop.close()  # the leak check sees to the descriptors


def test_options_of_a_connection_that_is_gone_are_nobodys_trouble():
    sock = socket.socket()
    sock.close()
    send_at_once(sock)
