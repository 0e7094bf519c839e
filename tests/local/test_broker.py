"""Broker: accept and connect meet in a symmetric rendezvous, first come, first served."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from hocket.errors import (
    BadName,
    Closed,
    NameInUse,
    OutOfRange,
    PortInUse,
    Timeout,
    UnknownBroker,
    WrongType,
)
from hocket.local import Broker, BrokerManager, Channel, Rendezvous
from tests.support.threads import Running, until


@pytest.fixture
def manager() -> BrokerManager:
    return BrokerManager()


@pytest.fixture
def server(manager: BrokerManager) -> Iterator[Broker]:
    with Broker("server", manager) as broker:
        yield broker


@pytest.fixture
def client(manager: BrokerManager) -> Iterator[Broker]:
    with Broker("client", manager) as broker:
        yield broker


def waiting(broker: Broker) -> list[tuple[int, str, str]]:
    return [(r.port, r.side, r.broker.name) for r in broker.rendezvous]


def assert_joined(a: Channel, b: Channel) -> None:
    a.write_all(b"from a")
    b.write_all(b"from b")
    assert (a.read_exactly(6, timeout=5), b.read_exactly(6, timeout=5)) == (b"from b", b"from a")


# --- the rendezvous ------------------------------------------------------------------------------


def test_an_accept_waits_for_its_connect(server: Broker, client: Broker):
    with Running(server.accept, 80) as accept:
        until(lambda: server.rendezvous)
        accept.parked()
        near = client.connect("server", 80)
        assert_joined(near, accept.result())


def test_a_connect_waits_for_its_accept(server: Broker, client: Broker):
    with Running(client.connect, "server", 80) as connect:
        until(lambda: server.rendezvous)
        connect.parked()
        near = server.accept(80)
        assert_joined(near, connect.result())


def test_whoever_comes_first_waits_in_the_list_of_the_broker_that_is_to_accept(
    server: Broker, client: Broker
):
    with (
        Running(server.accept, 1) as accept,
        Running(client.connect, "server", 2) as connect,
    ):
        until(lambda: len(server.rendezvous) == 2)
        assert sorted(waiting(server)) == [(1, "accept", "server"), (2, "connect", "client")]
        assert all(isinstance(entry, Rendezvous) for entry in server.rendezvous)
        assert {entry.broker for entry in server.rendezvous} == {server, client}
        assert client.rendezvous == []
        client.connect("server", 1)
        accept.result()
        assert waiting(server) == [(2, "connect", "client")]
        server.accept(2)
        connect.result()
        assert server.rendezvous == []


def test_the_list_is_a_snapshot_oldest_first(server: Broker, client: Broker):
    ports = [7, 3, 9, 1]
    with ExitStack() as stack:
        for count, port in enumerate(ports, 1):
            call = (server.accept, port) if port % 3 else (client.connect, "server", port)
            stack.enter_context(Running(*call))
            until(lambda count=count: len(server.rendezvous) == count)
        before = server.rendezvous
        expected = [(7, "accept"), (3, "connect"), (9, "connect"), (1, "accept")]
        assert [(r.port, r.side) for r in before] == expected
        server.accept(9)
        assert [r.port for r in before] == [7, 3, 9, 1]
        assert [r.port for r in server.rendezvous] == [7, 3, 1]
        before.clear()
        assert [r.port for r in server.rendezvous] == [7, 3, 1]
        client.connect("server", 7)
        server.accept(3)
        client.connect("server", 1)
        assert server.rendezvous == []


def test_many_connects_to_one_port_are_served_first_come_first_served(
    manager: BrokerManager, server: Broker
):
    names = ["c3", "c1", "c5", "c2", "c4"]
    with ExitStack() as stack:
        connects = {}
        for count, name in enumerate(names, 1):
            broker = stack.enter_context(Broker(name, manager))
            connects[name] = stack.enter_context(Running(broker.connect, "server", 80))
            until(lambda count=count: len(server.rendezvous) == count)
        assert waiting(server) == [(80, "connect", name) for name in names]
        for position, name in enumerate(names):
            near = server.accept(80)
            assert_joined(near, connects[name].result())
            assert waiting(server) == [(80, "connect", n) for n in names[position + 1 :]]


def test_connects_to_other_ports_are_not_served(server: Broker, client: Broker):
    with Running(client.connect, "server", 1) as one, Running(client.connect, "server", 2) as two:
        until(lambda: len(server.rendezvous) == 2)
        assert_joined(server.accept(2), two.result())
        assert not one.done
        assert_joined(server.accept(1), one.result())


def test_two_brokers_may_accept_on_the_same_number(
    manager: BrokerManager, server: Broker, client: Broker
):
    with (
        Broker("other", manager) as other,
        Running(server.accept, 80) as at_server,
        Running(other.accept, 80) as at_other,
    ):
        until(lambda: server.rendezvous and other.rendezvous)
        assert_joined(client.connect("other", 80), at_other.result())
        assert not at_server.done
        assert_joined(client.connect("server", 80), at_server.result())


def test_two_brokers_may_connect_to_each_other_on_one_number(server: Broker, client: Broker):
    with (
        Running(server.connect, "client", 80) as from_server,
        Running(client.connect, "server", 80) as from_client,
    ):
        until(lambda: server.rendezvous and client.rendezvous)
        assert waiting(server) == [(80, "connect", "client")]
        assert waiting(client) == [(80, "connect", "server")]
        assert_joined(server.accept(80), from_client.result())
        assert_joined(client.accept(80), from_server.result())


def test_a_broker_may_connect_to_itself(server: Broker):
    with Running(server.accept, 5) as accept:
        until(lambda: server.rendezvous)
        assert_joined(server.connect("server", 5), accept.result())
    with Running(server.connect, "server", 5) as connect:
        until(lambda: server.rendezvous)
        assert waiting(server) == [(5, "connect", "server")]
        assert_joined(server.accept(5), connect.result())
    assert server.rendezvous == []


def test_a_port_may_be_zero_or_very_large(server: Broker, client: Broker):
    for port in (0, 65_536, 1 << 70):
        with Running(server.accept, port) as accept:
            assert_joined(client.connect("server", port), accept.result())


def test_each_match_makes_a_channel_of_its_own(server: Broker, client: Broker):
    ends = []
    for number in range(5):
        with Running(server.accept, 80) as accept:
            ends.append((client.connect("server", 80), accept.result(), b"%d" % number))
    for near, _, message in ends:
        near.write_all(message)
    assert [far.read_exactly(1, timeout=5) for _, far, _ in ends] == [b"0", b"1", b"2", b"3", b"4"]


# --- one accept per port -------------------------------------------------------------------------


def test_a_second_accept_on_the_port_is_refused_and_the_first_unharmed(
    server: Broker, client: Broker
):
    with Running(server.accept, 80) as first:
        until(lambda: server.rendezvous)
        for _ in range(3):
            with pytest.raises(PortInUse):
                server.accept(80, timeout=5)
        assert waiting(server) == [(80, "accept", "server")]
        assert_joined(client.connect("server", 80), first.result())


def test_the_port_is_free_again_once_its_accept_was_matched_or_gave_up(
    server: Broker, client: Broker
):
    for _ in range(3):
        with Running(server.accept, 80) as accept:
            until(lambda: server.rendezvous)
            assert_joined(client.connect("server", 80), accept.result())
        with pytest.raises(Timeout):
            server.accept(80, timeout=0)


# --- no such broker, and timeouts ----------------------------------------------------------------


def test_connecting_to_an_unknown_name_fails_at_once(client: Broker):
    with pytest.raises(UnknownBroker):
        client.connect("nobody", 80)


def test_connecting_to_an_unknown_name_without_time_to_wait_fails_all_the_same(client: Broker):
    with pytest.raises(UnknownBroker):
        client.connect("nobody", 80, timeout=0)


@pytest.mark.parametrize("timeout", [0, 0.001, 0.02])
def test_a_timeout_leaves_nothing_behind(server: Broker, client: Broker, timeout: float):
    for _ in range(3):
        with pytest.raises(Timeout):
            server.accept(80, timeout=timeout)
        assert server.rendezvous == []
        with pytest.raises(Timeout):
            client.connect("server", 80, timeout=timeout)
        assert server.rendezvous == []
    with Running(server.accept, 80) as accept:
        assert_joined(client.connect("server", 80), accept.result())


def test_a_connect_that_gave_up_is_skipped_in_the_queue(server: Broker, client: Broker):
    with ExitStack() as stack:
        connects = []
        for count, timeout in enumerate([None, 0.3, None], 1):
            call = Running(client.connect, "server", 80, timeout=timeout)
            connects.append(stack.enter_context(call))
            until(lambda count=count: len(server.rendezvous) == count)
        connects[1].failure(Timeout)
        until(lambda: waiting(server) == [(80, "connect", "client")] * 2)
        assert_joined(server.accept(80), connects[0].result())
        assert_joined(server.accept(80), connects[2].result())


@pytest.mark.parametrize("timeout", [10, 1e12, float("inf")])
def test_a_long_timeout_waits(server: Broker, client: Broker, timeout: float):
    with Running(server.accept, 80, timeout) as accept:
        accept.parked()
        assert_joined(client.connect("server", 80, timeout), accept.result())
    with Running(client.connect, "server", 80, timeout=timeout) as connect:
        connect.parked()
        assert_joined(server.accept(80, timeout=timeout), connect.result())


def test_timeout_zero_still_meets_who_is_there(server: Broker, client: Broker):
    with Running(server.accept, 80) as accept:
        until(lambda: server.rendezvous)
        assert_joined(client.connect("server", 80, timeout=0), accept.result())
    with Running(client.connect, "server", 80) as connect:
        until(lambda: server.rendezvous)
        assert_joined(server.accept(80, timeout=0), connect.result())


# --- buffers -------------------------------------------------------------------------------------


def room(writer: Channel) -> int:
    """How many bytes fit towards the other end."""
    with pytest.raises(Timeout) as cut:
        writer.write_all(bytes(2 << 20), timeout=0)
    return cut.value.written


@pytest.mark.parametrize("first", ["accept", "connect"])
def test_each_ends_inbound_buffer_has_the_size_its_own_broker_was_given(
    manager: BrokerManager, first: str
):
    with (
        Broker("small", manager, buffer_bytes=3) as small,
        Broker("large", manager, buffer_bytes=5000) as large,
    ):
        calls = {"accept": (small.accept, 1), "connect": (large.connect, "small", 1)}
        second = "connect" if first == "accept" else "accept"
        with Running(*calls[first]) as one:
            until(lambda: small.rendezvous)
            with Running(*calls[second]) as two:
                ends = {first: one.result(), second: two.result()}
    assert room(ends["connect"]) == 3
    assert room(ends["accept"]) == 5000


def test_the_default_buffer_is_one_mebibyte(server: Broker, client: Broker):
    with Running(server.accept, 1) as accept:
        near = client.connect("server", 1)
    assert (room(near), room(accept.result())) == (1 << 20, 1 << 20)


# --- bad input: an error of its own type, and nothing changed ------------------------------------


BAD_PORTS = [(-1, OutOfRange), ("80", WrongType), (80.0, WrongType), (None, WrongType)]


@pytest.mark.parametrize(("port", "error"), [*BAD_PORTS, (True, WrongType)])
def test_a_port_is_an_int_that_is_not_negative(
    server: Broker, client: Broker, port: Any, error: type[Exception]
):
    with pytest.raises(error):
        server.accept(port, timeout=1)
    with pytest.raises(error):
        client.connect("server", port, timeout=1)
    assert server.rendezvous == []


@pytest.mark.parametrize(
    ("timeout", "error"),
    [(-1, OutOfRange), (float("nan"), OutOfRange), ("1", WrongType), ([1], WrongType)],
)
def test_a_timeout_is_a_number_that_is_not_negative(
    server: Broker, client: Broker, timeout: Any, error: type[Exception]
):
    with pytest.raises(error):
        server.accept(80, timeout=timeout)
    with pytest.raises(error):
        client.connect("server", 80, timeout=timeout)
    assert server.rendezvous == []


@pytest.mark.parametrize(("name", "error"), [(None, WrongType), (b"x", WrongType), (3, WrongType)])
def test_a_name_is_a_str(manager: BrokerManager, client: Broker, name: Any, error: type[Exception]):
    with pytest.raises(error):
        Broker(name, manager)
    with pytest.raises(error):
        client.connect(name, 80)
    assert manager.brokers() == [client]


def test_a_name_is_not_empty(manager: BrokerManager, client: Broker):
    with pytest.raises(BadName):
        Broker("", manager)
    with pytest.raises((BadName, UnknownBroker)):
        client.connect("", 80)
    assert manager.brokers() == [client]


@pytest.mark.parametrize(
    ("size", "error"), [(0, OutOfRange), (-1, OutOfRange), ("1", WrongType), (True, WrongType)]
)
def test_a_bad_buffer_size_registers_nothing(
    manager: BrokerManager, size: Any, error: type[Exception]
):
    with pytest.raises(error):
        Broker("b", manager, buffer_bytes=size)
    assert manager.brokers() == []


def test_a_manager_of_the_wrong_type_is_refused():
    with pytest.raises(WrongType):
        Broker("b", "manager")  # type: ignore[arg-type]


def test_a_taken_name_is_refused_and_its_owner_unharmed(
    manager: BrokerManager, server: Broker, client: Broker
):
    with pytest.raises(NameInUse):
        Broker("server", manager)
    assert manager.brokers() == [server, client]
    with Running(server.accept, 80) as accept:
        assert_joined(client.connect("server", 80), accept.result())


def test_accept_and_connect_on_a_closed_broker_are_refused(manager: BrokerManager, server: Broker):
    broker = Broker("b", manager)
    broker.close()
    with pytest.raises(Closed):
        broker.accept(80, timeout=1)
    for name in ("server", "b", "nobody"):
        with pytest.raises(Closed):
            broker.connect(name, 80, timeout=1)
    assert server.rendezvous == []
