"""Handshakes with one address take turns, and whoever waits for a turn may leave."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from hocket.addresses import Address
from hocket.remote import dialling
from hocket.remote.connection import NamesLoop
from hocket.remote.dialling import Dials, Tls, pinned_context


@pytest.fixture
def loop() -> Iterator[NamesLoop]:
    made = NamesLoop()
    yield made
    made.close()


@pytest.fixture
def silent() -> Iterator[Address]:
    """Takes connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield Address(*listener.getsockname())


def turns(loop: NamesLoop, count: int) -> None:
    for _ in range(count):
        loop.turn(0.01)


def test_so_many_are_on_their_way_and_the_next_begins_when_one_is_over(
    loop: NamesLoop, silent: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialling, "HANDSHAKES_MAX", 2)
    dials, outcomes = Dials(loop), []
    tls = Tls(pinned_context(), silent.host)
    made = [
        dials.dial(silent, tls, 0.1, lambda outcome, number=number: outcomes.append(number))
        for number in range(6)
    ]
    for each in made:
        each.start()
    made[3].cancel()  # it waits for its turn, and gives up
    assert len(dials._open) == 2
    while len(outcomes) < 5:
        assert len(dials._open) <= 2
        turns(loop, 1)
    assert outcomes == [0, 1, 2, 4, 5]
    assert [dials._open, dials._waiting, dials._busy] == [set(), {}, {}]


def test_one_that_is_cancelled_on_its_way_makes_room_and_a_close_leaves_none(
    loop: NamesLoop, silent: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialling, "HANDSHAKES_MAX", 1)
    dials, outcomes = Dials(loop), []
    tls = Tls(pinned_context(), silent.host)
    made = [dials.dial(silent, tls, 30, outcomes.append) for _ in range(3)]
    for each in made:
        each.start()
    made[0].cancel()
    made[0].cancel()
    turns(loop, 2)
    assert dials._open == {made[1]}
    dials.close()
    turns(loop, 2)
    assert outcomes == []
    assert [dials._open, dials._waiting] == [set(), {}]


def test_another_address_and_what_speaks_no_tls_need_no_turn(
    loop: NamesLoop, silent: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialling, "HANDSHAKES_MAX", 1)
    dials, outcomes = Dials(loop), []
    tls = Tls(pinned_context(), silent.host)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        other = Address(*listener.getsockname())
        for address, how in ((silent, tls), (other, tls), (silent, None)):
            dials.dial(address, how, 30, outcomes.append).start()
        assert len(dials._open) == 3
        while not outcomes:
            turns(loop, 1)
        (plain,) = outcomes
        plain.close()
        dials.close()
