"""BrokerManager: one namespace for every kind of broker; the process-wide one, and your own."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from hocket.errors import (
    Closed,
    NameInUse,
    OutOfRange,
    PortInUse,
    Timeout,
    UnknownBroker,
    WrongKind,
    WrongType,
)
from hocket.local import Broker, BrokerManager
from tests.local.test_broker import assert_joined, waiting
from tests.support.threads import Running, until


def test_a_manager_finds_its_brokers_by_name():
    manager = BrokerManager()
    with Broker("a", manager) as a, Broker("b", manager) as b:
        assert (manager.find("a"), manager.find("b"), manager.find("c")) == (a, b, None)
        assert (a.manager, b.manager) == (manager, manager)
    assert (manager.find("a"), manager.find("b")) == (None, None)


def test_brokers_are_listed_in_the_order_of_registration():
    manager = BrokerManager()
    assert manager.brokers() == []
    brokers = [Broker(name, manager) for name in ("z", "a", "m")]
    assert manager.brokers() == brokers
    brokers[0].close()
    again = Broker("z", manager)
    assert manager.brokers() == [brokers[1], brokers[2], again]
    listed = manager.brokers()
    listed.clear()  # a list of one's own
    assert manager.brokers() == [brokers[1], brokers[2], again]
    for broker in manager.brokers():
        broker.close()
    assert manager.brokers() == []


def test_without_a_manager_a_broker_registers_in_the_process_wide_one():
    assert BrokerManager.get_broker("process-wide") is None
    with Broker("process-wide") as broker:
        assert BrokerManager.get_broker("process-wide") is broker
        assert broker.manager is BrokerManager.default()
        assert broker.manager.find("process-wide") is broker
        assert broker in broker.manager.brokers()
        with pytest.raises(NameInUse):
            Broker("process-wide")
        with Broker("another") as other:
            assert other.manager is broker.manager
            with Running(broker.accept, 1) as accept:
                assert_joined(other.connect("process-wide", 1), accept.result())
    assert BrokerManager.get_broker("process-wide") is None


def test_get_broker_of_a_manager_is_its_own_and_of_the_class_the_process_wide_one():
    manager = BrokerManager()
    with Broker("own", manager) as own, Broker("shared") as shared:
        assert (BrokerManager.get_broker("own"), BrokerManager.get_broker("shared")) == (
            None,
            shared,
        )
        assert (manager.get_broker("own"), manager.get_broker("shared")) == (own, None)
        assert BrokerManager.default().get_broker("shared") is shared
        for find in (manager.get_broker, BrokerManager.get_broker):
            with pytest.raises(WrongType):
                find(3)  # type: ignore[arg-type]


def test_the_same_name_may_live_in_two_managers():
    one, two = BrokerManager(), BrokerManager()
    with Broker("name", one) as in_one, Broker("name", two) as in_two, Broker("c", two) as client:
        assert (one.find("name"), two.find("name")) == (in_one, in_two)
        with Running(in_two.accept, 1) as accept:
            assert_joined(client.connect("name", 1), accept.result())
        with pytest.raises(UnknownBroker):
            in_one.connect("c", 1)


def test_a_manager_accepts_and_connects_for_its_brokers():
    manager = BrokerManager()
    with Broker("server", manager) as server, Broker("client", manager):
        with Running(manager.accept, "server", 80) as accept:
            until(lambda: server.rendezvous)
            assert waiting(server) == [(80, "accept", "server")]
            assert_joined(manager.connect("client", "server", 80), accept.result())
        with Running(manager.connect, "client", "server", 80) as connect:
            until(lambda: server.rendezvous)
            assert waiting(server) == [(80, "connect", "client")]
            assert_joined(manager.accept("server", 80), connect.result())
        assert server.rendezvous == []


def test_a_broker_may_be_given_itself_instead_of_its_name():
    manager = BrokerManager()
    with Broker("server", manager) as server, Broker("client", manager) as client:
        with Running(server.accept, 80) as accept:
            assert_joined(client.connect(server, 80), accept.result())
        with Running(manager.connect, client, server, 80) as connect:
            assert_joined(manager.accept(server, 80), connect.result())
        with Running(server.accept, 80) as accept:
            assert_joined(asyncio.run(client.connect_async(server, 80)), accept.result())


def test_a_broker_in_hand_needs_no_name_and_may_be_of_another_manager():
    with Broker("client", BrokerManager()) as client, Broker("server", BrokerManager()) as server:
        with Running(client.connect, server, 80) as connect:
            until(lambda: server.rendezvous)
            assert waiting(server) == [(80, "connect", "client")]
            assert_joined(server.accept(80), connect.result())
        with Running(client.connect, server, 80) as connect:
            until(lambda: server.rendezvous)
            client.close()
            connect.failure(Closed)
        assert server.rendezvous == []


def test_a_closed_broker_in_hand_is_unknown_though_another_has_its_name():
    manager = BrokerManager()
    with Broker("client", manager) as client:
        Broker("server", manager).close()
        closed = Broker("server", manager)
        closed.close()
        with Broker("server", manager) as heir:
            with pytest.raises(UnknownBroker, match="closed"):
                client.connect(closed, 80)
            assert heir.rendezvous == []


@pytest.mark.parametrize("wrong", [5, None, b"server", object()], ids=lambda w: type(w).__name__)
def test_what_is_neither_a_name_nor_a_broker_is_of_the_wrong_type(wrong: Any):
    with Broker("client", BrokerManager()) as client, pytest.raises(WrongType):
        client.connect(wrong, 80)


def test_by_default_ports_are_each_brokers_own():
    manager = BrokerManager()
    assert manager.unique_ports is False
    with (
        Broker("a", manager) as a,
        Broker("b", manager) as b,
        Running(a.accept, 80) as at_a,
        Running(b.accept, 80) as at_b,
    ):
        assert_joined(b.connect("a", 80), at_a.result())
        assert_joined(a.connect("b", 80), at_b.result())


def test_where_ports_are_unique_a_second_broker_that_accepts_gets_port_in_use():
    manager = BrokerManager(unique_ports=True)
    assert manager.unique_ports is True
    with Broker("a", manager) as a, Broker("b", manager) as b:
        with Running(a.accept, 80) as accept:
            until(lambda: a.rendezvous)
            with pytest.raises(PortInUse, match="'a'"):
                b.accept(80)
            assert_joined(b.connect("a", 80), accept.result())
        with pytest.raises(PortInUse, match="unique"):
            b.accept(80)  # it is still a's, which may accept the next one at any time
        with Running(a.accept, 80) as accept:
            assert_joined(b.connect("a", 80), accept.result())
        with pytest.raises(Timeout):
            b.accept(81, timeout=0)
        a.close()
        with pytest.raises(Timeout):
            b.accept(80, timeout=0)  # nobody else's any more


def test_a_managers_accept_and_connect_time_out():
    manager = BrokerManager()
    with Broker("server", manager) as server, Broker("client", manager):
        for timeout in (0, 0.005):
            with pytest.raises(Timeout):
                manager.accept("server", 80, timeout=timeout)
            with pytest.raises(Timeout):
                manager.connect("client", "server", 80, timeout=timeout)
        assert server.rendezvous == []


def test_a_manager_refuses_names_it_does_not_know():
    manager = BrokerManager()
    with Broker("known", manager) as known, Broker("elsewhere"):
        for unknown in ("nobody", "elsewhere"):
            with pytest.raises(UnknownBroker):
                manager.accept(unknown, 80, timeout=1)
            with pytest.raises(UnknownBroker):
                manager.connect("known", unknown, 80, timeout=1)
            with pytest.raises(UnknownBroker):
                manager.connect(unknown, "known", 80, timeout=1)
        assert known.rendezvous == []


BAD_ARGUMENTS: list[tuple[str, tuple[Any, ...], type[Exception]]] = [
    ("find", (3,), WrongType),
    ("accept", (3, 80), WrongType),
    ("accept", ("a", "80"), WrongType),
    ("accept", ("a", -1), OutOfRange),
    ("accept", ("a", 80, -1), OutOfRange),
    ("accept", ("a", 80, "1"), WrongType),
    ("connect", (3, "a", 80), WrongType),
    ("connect", ("a", 3, 80), WrongType),
    ("connect", ("a", "a", True), WrongType),
    ("connect", ("a", "a", -1), OutOfRange),
    ("connect", ("a", "a", 80, float("nan")), OutOfRange),
]


@pytest.mark.parametrize(("method", "arguments", "error"), BAD_ARGUMENTS)
def test_bad_input_is_refused(method: str, arguments: tuple[Any, ...], error: type[Exception]):
    manager = BrokerManager()
    with Broker("a", manager) as a:
        with pytest.raises(error):
            getattr(manager, method)(*arguments)
        assert a.rendezvous == []


def test_of_many_threads_that_want_one_name_exactly_one_gets_it():
    manager = BrokerManager()
    for _ in range(20):
        start = threading.Barrier(8)
        won: list[Broker] = []
        refused: list[NameInUse] = []

        def register(
            start: threading.Barrier = start,
            won: list[Broker] = won,
            refused: list[NameInUse] = refused,
        ) -> None:
            start.wait(10)
            try:
                won.append(Broker("name", manager))
            except NameInUse as error:
                refused.append(error)

        threads = [Running(register) for _ in range(8)]
        for thread in threads:
            thread.thread.start()
        for thread in threads:
            thread.result()
        assert (len(won), len(refused)) == (1, 7)
        assert manager.brokers() == won
        won[0].close()


# --- the other kinds -----------------------------------------------------------------------------


@pytest.fixture(params=["QueueBroker", "MixedQueueBroker"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_all_kinds_share_one_namespace(kind: str):
    from hocket import local

    manager = BrokerManager()
    event_broker = getattr(local, kind)
    with local.EventPump() as pump, Broker("threads", manager) as threads:
        events = event_broker("events", pump, manager)
        assert manager.brokers() == [threads, events]
        assert manager.find("events") is events
        with pytest.raises(NameInUse):
            Broker("events", manager)
        with pytest.raises(NameInUse):
            event_broker("threads", pump, manager)
        assert manager.brokers() == [threads, events]
        events.close()
        assert manager.brokers() == [threads]
        Broker("events", manager).close()


def test_connecting_to_another_kind_is_refused(kind: str):
    from hocket import local

    manager = BrokerManager()
    with local.EventPump() as pump, Broker("threads", manager) as threads:
        events = getattr(local, kind)("events", pump, manager)
        with pytest.raises(WrongKind):
            threads.connect("events", 80)
        with pytest.raises(WrongKind):
            manager.connect("threads", "events", 80)
        with pytest.raises(WrongKind):
            manager.connect("events", "threads", 80)
        with pytest.raises(WrongKind):
            manager.accept("events", 80)
        assert threads.rendezvous == []
        events.close()


def test_an_event_broker_also_registers_in_the_process_wide_manager(kind: str):
    from hocket import local

    with local.EventPump() as pump:
        events = getattr(local, kind)("process-wide", pump)
        assert BrokerManager.get_broker("process-wide") is events
        with pytest.raises(NameInUse):
            Broker("process-wide")
        events.close()
    assert BrokerManager.get_broker("process-wide") is None
