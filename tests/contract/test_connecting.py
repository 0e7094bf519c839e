"""bind, unbind, connect, refused; names, kinds, ports."""

import asyncio
import threading

import pytest

from hocket.errors import (
    Closed,
    HocketError,
    NameInUse,
    PortInUse,
    PortNotBound,
    UnknownBroker,
    WrongKind,
    WrongType,
)
from hocket.local import Broker, BrokerManager
from tests.support.queues.listeners import Accepts, Connects, History
from tests.support.queues.worlds import KINDS, PORT
from tests.support.threads import until


def refusal(client, name, port=PORT):
    connects = Connects()
    assert client.connect(name, port, connects) is True
    until(lambda: connects.answers)
    (reason,) = connects.answers
    assert connects.reasons == [reason]
    return reason


def test_a_connect_to_a_bound_port_gives_each_side_its_end_on_its_own_pump(world):
    client, server = world.brokers()
    accepts, connects = Accepts(), Connects()
    assert server.bind(PORT, accepts) is True
    assert client.connect("server", PORT, connects) is True
    until(lambda: accepts.queues and connects.answers)
    world.settle()
    (mine,) = connects.answers
    (theirs,) = accepts.queues
    assert mine is not theirs
    assert client.queues == [mine]
    assert server.queues == [theirs]
    assert not mine.closed
    assert not theirs.closed
    (client_thread,) = connects.threads
    (server_thread,) = accepts.threads
    assert (client_thread is server_thread) == (world.client_pump is world.server_pump)
    assert world.on_pump(world.client_pump, threading.current_thread) is client_thread
    assert world.on_pump(world.server_pump, threading.current_thread) is server_thread


def test_connecting_to_an_unknown_name_is_refused_by_an_event(world):
    client, _ = world.brokers()
    assert type(refusal(client, "nobody")) is UnknownBroker
    assert client.queues == []


def test_connecting_to_an_unbound_port_is_refused_by_an_event(world):
    client, server = world.brokers()
    server.bind(PORT, Accepts())
    assert type(refusal(client, "server", PORT + 1)) is PortNotBound
    assert client.queues == []
    assert server.queues == []


def test_the_answer_never_comes_inside_the_call_to_connect(world):
    client, server = world.brokers()
    server.bind(PORT, Accepts())
    for name in ("server", "nobody"):
        connects = Connects()

        def connect(name=name, connects=connects):
            client.connect(name, PORT, connects)
            return list(connects.answers)

        assert world.on_pump(world.client_pump, connect) == []
        until(lambda connects=connects: len(connects.answers) == 1)


def test_queue_brokers_of_the_two_kinds_refuse_each_other(world):
    here = world.broker("here")
    here.bind(PORT, Accepts())
    other_kind = "full-event" if world.mixed else "mixed"
    with world.broker("there", world.server_pump, kind=other_kind) as there:
        there.bind(PORT, Accepts())
        assert type(refusal(here, "there")) is WrongKind
        assert type(refusal(there, "here")) is WrongKind
        assert here.queues == there.queues == []


def test_thread_brokers_and_queue_brokers_refuse_each_other(world):
    here = world.broker("here")
    here.bind(PORT, Accepts())
    with world.thread_broker("threads") as threads:
        assert type(refusal(here, "threads")) is WrongKind
        with pytest.raises(WrongKind):
            threads.connect("here", PORT, timeout=10)
        with pytest.raises(WrongKind):
            world.manager.connect("here", "threads", PORT, timeout=10)
        with pytest.raises(WrongKind):
            world.manager.accept("here", PORT, timeout=10)


def test_all_kinds_of_broker_share_the_names_of_one_manager(world):
    taken = world.broker("taken")
    for kind in KINDS:
        with pytest.raises(NameInUse):
            world.broker("taken", kind=kind)
    with pytest.raises(NameInUse):
        world.thread_broker("taken")
    with world.thread_broker("threads"), pytest.raises(NameInUse):
        world.broker("threads")
    assert world.find("taken") is taken


def test_brokers_of_different_managers_do_not_see_each_other(world):
    client, _ = world.brokers()
    kind = type(client)
    with kind("elsewhere", world.server_pump, type(world.manager)()) as elsewhere:
        elsewhere.bind(PORT, Accepts())
        assert type(refusal(client, "elsewhere")) is UnknownBroker
        assert type(refusal(elsewhere, "client")) is UnknownBroker


def test_a_broker_without_a_manager_is_in_the_registry_of_the_process(world):
    kind = type(world.broker("other"))
    with kind(f"process-wide-{world.kind}", world.client_pump) as broker:
        assert world.find(broker.name) is None
        assert type(world.manager).get_broker(broker.name) is broker
    assert type(world.manager).get_broker(broker.name) is None


def test_a_broker_tells_its_name_its_pump_and_its_manager(world):
    broker = world.broker("named")
    assert broker.name == "named"
    assert broker.pump is world.client_pump
    assert broker.manager is world.manager


def test_the_repr_of_brokers_and_queues_tells_who_and_how_they_are(world):
    client, server = world.brokers()
    mine, _ = world.connected(client, server)
    assert "client" in repr(client)
    assert "client" in repr(mine)
    assert str(mine.local_port) in repr(mine)
    before = repr(client), repr(mine)
    mine.close()
    until(lambda: not client.queues)
    client.close()
    assert repr(client) != before[0]
    assert repr(mine) != before[1]


def test_binding_a_bound_port_returns_false_and_changes_nothing(world):
    client, server = world.brokers()
    first, second, connects = Accepts(), Accepts(), Connects()
    assert server.bind(PORT, first) is True
    assert server.bind(PORT, second) is False
    client.connect("server", PORT, connects)
    until(lambda: connects.answers and first.queues)
    assert second.queues == []


def test_ports_are_per_broker(world):
    client, server = world.brokers()
    at_client, at_server = Accepts(), Accepts()
    assert server.bind(PORT, at_server) is True
    assert client.bind(PORT, at_client) is True
    client.connect("server", PORT, Connects())
    until(lambda: at_server.queues)
    assert at_client.queues == []


def test_unbind_refuses_later_connects_and_leaves_live_queues_alone(world):
    client, server = world.brokers()
    accepts, connects = Accepts(), Connects()
    server.bind(PORT, accepts)
    client.connect("server", PORT, connects)
    until(lambda: connects.answers and accepts.queues)
    assert server.unbind(PORT) is True
    assert server.unbind(PORT) is False
    assert server.unbind(PORT + 1) is False
    assert type(refusal(client, "server")) is PortNotBound

    (mine,), (theirs,) = connects.queues, accepts.queues
    assert mine.send(b"still here") is True
    assert theirs.receive_wait(timeout=10) == b"still here"
    assert theirs.send(b"and back") is True
    assert mine.receive_wait(timeout=10) == b"and back"
    assert server.queues == [theirs]


def test_an_unbound_port_can_be_bound_again_by_another_listener(world):
    client, server = world.brokers()
    first, second, connects = Accepts(), Accepts(), Connects()
    server.bind(PORT, first)
    server.unbind(PORT)
    assert server.bind(PORT, second) is True
    client.connect("server", PORT, connects)
    until(lambda: connects.answers and second.queues)
    assert first.queues == []


def test_port_zero_is_a_port(world):
    client, server = world.brokers()
    mine, theirs = world.connected(client, server, port=0)
    mine.send(b"x")
    assert theirs.receive_wait(timeout=10) == b"x"


def test_a_broker_may_connect_to_itself(world):
    broker = world.broker("alone")
    mine, theirs = world.connected(broker, broker)
    assert mine is not theirs
    assert mine.local_port != theirs.local_port
    assert sorted(q.local_port for q in broker.queues) == sorted(
        [mine.local_port, theirs.local_port]
    )
    mine.send(b"there")
    theirs.send(b"back")
    assert theirs.receive_wait(timeout=10) == b"there"
    assert mine.receive_wait(timeout=10) == b"back"


def test_a_queue_may_be_used_from_inside_accepted_and_connected(world):
    client, server = world.brokers()
    at_server, at_client = History(), History()

    def greet(queue, history, greeting):
        assert queue.send(greeting) is True
        return history

    accepts = Accepts(lambda queue: greet(queue, at_server, b"welcome"))
    connects = Connects(lambda queue: greet(queue, at_client, b"hello"))
    server.bind(PORT, accepts)
    client.connect("server", PORT, connects)
    until(lambda: at_server.messages and at_client.messages)
    assert at_server.messages == [b"hello"]
    assert at_client.messages == [b"welcome"]


def test_local_ports_are_unique_never_a_bound_one_and_known_to_the_peer(world):
    client, server = world.brokers()
    accepts, connects = Accepts(), Connects()
    server.bind(PORT, accepts)
    for port in range(65530, 65560):  # where local ports would start, if nobody had bound them
        assert server.bind(port, Accepts()) is True
        assert client.bind(port, Accepts()) is True
    for _ in range(40):
        client.connect("server", PORT, connects)
    until(lambda: len(connects.answers) == 40 and len(accepts.queues) == 40, timeout=20)

    client_ports = [queue.local_port for queue in connects.queues]
    server_ports = [queue.local_port for queue in accepts.queues]
    bound = {PORT, *range(65530, 65560)}
    for ports in (client_ports, server_ports):
        assert len(set(ports)) == 40
        assert min(ports) > 65535
        assert not bound & set(ports)
    ends = {(queue.local_port, queue.remote_port) for queue in connects.queues}
    assert ends == {(queue.remote_port, queue.local_port) for queue in accepts.queues}


def test_a_number_in_use_as_a_local_port_cannot_be_bound(world):
    client, server = world.brokers()
    mine, theirs = world.connected(client, server)
    assert client.bind(mine.local_port, Accepts()) is False
    assert server.bind(theirs.local_port, Accepts()) is False


def test_a_local_port_is_not_a_bound_port(world):
    client, server = world.brokers()
    _, theirs = world.connected(client, server)
    assert type(refusal(client, "server", theirs.local_port)) is PortNotBound


def test_the_list_of_queues_is_a_snapshot(world):
    client, server = world.brokers()
    mine, _ = world.connected(client, server)
    snapshot = client.queues
    snapshot.clear()
    assert client.queues == [mine]
    assert client.queues is not client.queues


def test_a_queue_that_has_ended_is_no_longer_tracked(world):
    client, server = world.brokers()
    first, _ = world.connected(client, server)
    second, theirs = world.connected(client, server)
    first.abort()
    until(lambda: client.queues == [second] and server.queues == [theirs])
    second.close()
    until(lambda: client.queues == server.queues == [])


def test_a_closed_broker_frees_its_name_and_takes_no_calls(world):
    client, server = world.brokers()
    server.bind(PORT, Accepts())
    server.close()
    server.close()
    assert world.find("server") is None
    assert type(refusal(client, "server")) is UnknownBroker
    with pytest.raises(Closed):
        server.bind(PORT, Accepts())
    with pytest.raises(Closed):
        server.connect("client", PORT, Connects())
    again = world.broker("server", world.server_pump)
    accepts, connects = Accepts(), Connects()
    assert again.bind(PORT, accepts) is True
    client.connect("server", PORT, connects)
    until(lambda: connects.queues and accepts.queues)
    server.close()  # closing the old one once more does not touch the new one of its name
    assert world.find("server") is again


def test_a_broker_is_closed_by_its_with_block(world):
    with world.broker("scoped") as broker:
        assert world.find("scoped") is broker
    assert world.find("scoped") is None
    with pytest.raises(Closed):
        broker.bind(PORT, Accepts())


def test_every_connect_gets_one_answer_even_if_the_other_broker_is_closing(world):
    client, server = world.brokers()
    server.bind(PORT, Accepts())
    answers = [Connects() for _ in range(30)]
    for number, connects in enumerate(answers):
        client.connect("server", PORT, connects)
        if number == 15:
            server.close()
    until(lambda: all(connects.answers for connects in answers))
    world.settle()
    assert [len(connects.answers) for connects in answers] == [1] * 30
    for connects in answers:
        assert all(isinstance(reason, HocketError) for reason in connects.reasons)
    assert [len(connects.reasons) for connects in answers[16:]] == [1] * 14
    until(lambda: client.queues == server.queues == [])


def test_a_connect_from_a_broker_that_closes_leaves_nothing_behind(world):
    client, server = world.brokers()
    histories = []

    def heard(_queue):
        histories.append(History())
        return histories[-1]

    accepts = Accepts(heard)
    server.bind(PORT, accepts)
    for _ in range(10):
        client.connect("server", PORT, Connects())
    client.close()
    until(lambda: server.queues == [] and all(history.reasons for history in histories))
    world.settle()
    assert client.queues == server.queues == []


class HearsConnected:
    """Has no `refused`."""

    def __init__(self):
        self.queues = []

    def connected(self, queue):
        self.queues.append(queue)


class HearsRefused:
    """Has no `connected`."""

    def __init__(self):
        self.reasons = []

    def refused(self, reason):
        self.reasons.append(reason)


def test_a_listener_with_one_of_the_two_answers_hears_that_one(world):
    client, server = world.brokers()
    accepts, connected, refused = Accepts(), HearsConnected(), HearsRefused()
    server.bind(PORT, accepts)
    for name in ("server", "nobody"):
        for listener in (connected, refused):
            client.connect(name, PORT, listener)
    until(lambda: len(accepts.queues) == 2 and connected.queues and refused.reasons)
    world.settle()
    assert (len(connected.queues), len(refused.reasons)) == (1, 1)
    assert refusal(client, "still nobody")


def test_a_listener_that_would_hear_nothing_is_refused_and_changes_nothing(world):
    client, server = world.brokers()
    with pytest.raises(WrongType, match="accepted"):
        server.bind(PORT, HearsConnected())
    assert server.unbind(PORT) is False
    with pytest.raises(WrongType, match="connected or refused"):
        client.connect("server", PORT, Accepts())
    mine, _theirs = world.connected(client, server)
    with pytest.raises(WrongType, match="received or sent or writable or closed"):
        mine.set_listener(Connects())
    assert client.asked == {}
    assert mine.receive() is None


def test_the_other_broker_may_be_given_itself(world):
    client, server = world.brokers()
    accepts, connects = Accepts(), Connects()
    server.bind(PORT, accepts)
    assert client.connect(server, PORT, connects) is True
    until(lambda: accepts.queues and connects.queues)
    connects.queues[0].send(b"x")
    assert accepts.queues[0].receive_wait(timeout=10) == b"x"

    async def connected():
        return await client.connect_async(server, PORT, timeout=10)

    queue = asyncio.run(connected())
    until(lambda: len(accepts.queues) == 2)
    queue.send(b"y")
    assert accepts.queues[1].receive_wait(timeout=10) == b"y"


def test_a_broker_in_hand_needs_no_name_and_may_be_of_another_manager(world):
    client = world.broker("client")
    elsewhere = world.broker("elsewhere", manager=BrokerManager())
    accepts, by_name, in_hand = Accepts(), Connects(), Connects()
    elsewhere.bind(PORT, accepts)
    client.connect("elsewhere", PORT, by_name)
    client.connect(elsewhere, PORT, in_hand)
    until(lambda: by_name.reasons and in_hand.queues and accepts.queues)
    assert isinstance(by_name.reasons[0], UnknownBroker)
    in_hand.queues[0].send(b"x")
    assert accepts.queues[0].receive_wait(timeout=10) == b"x"


def test_a_closed_broker_in_hand_is_unknown_though_another_has_its_name(world):
    client, server = world.brokers()
    server.close()
    heir = world.broker("server")
    heir.bind(PORT, Accepts())
    connects = Connects()
    client.connect(server, PORT, connects)
    until(lambda: connects.reasons)
    assert isinstance(connects.reasons[0], UnknownBroker)
    assert heir.queues == []


def test_a_thread_broker_in_hand_is_of_the_wrong_kind_and_another_object_of_the_wrong_type(world):
    client = world.broker("client")
    with world.thread_broker("threads") as threads:
        connects = Connects()
        client.connect(threads, PORT, connects)
        until(lambda: connects.reasons)
        assert isinstance(connects.reasons[0], WrongKind)
    with pytest.raises(WrongType, match="EventPump"):
        client.connect(world.client_pump, PORT, Connects())


def test_a_manager_binds_and_connects_for_its_event_brokers(world):
    client, server = world.brokers()
    accepts, connects = Accepts(), Connects()
    assert server.manager.accept("server", PORT, listener=accepts) is True
    assert server.manager.accept("server", PORT, listener=accepts) is False  # as `bind` says it
    for _ in range(2):
        assert client.manager.connect("client", "server", PORT, listener=connects) is True
    until(lambda: len(accepts.queues) == len(connects.queues) == 2)
    by_port = {queue.local_port: queue for queue in accepts.queues}
    for mine in connects.queues:
        mine.send(b"x")
        assert by_port[mine.remote_port].receive_wait(timeout=10) == b"x"


def test_a_manager_takes_its_event_brokers_in_hand(world):
    client, server = world.brokers()
    accepts, connects = Accepts(), Connects()
    assert server.manager.accept(server, PORT, listener=accepts) is True
    assert client.manager.connect(client, server, PORT, listener=connects) is True
    until(lambda: accepts.queues and connects.queues)
    connects.queues[0].send(b"x")
    assert accepts.queues[0].receive_wait(timeout=10) == b"x"


def test_a_manager_says_which_arguments_an_event_broker_takes(world):
    world.brokers()
    manager = world.manager
    for arguments in ({}, {"timeout": 1}, {"timeout": 1, "listener": Accepts()}):
        with pytest.raises(WrongKind, match="event broker"):
            manager.accept("client", PORT, **arguments)
        with pytest.raises(WrongKind, match="event broker"):
            manager.connect("client", "server", PORT, **arguments)
    with world.thread_broker("threads") as threads:
        with pytest.raises(WrongKind, match="thread broker"):
            manager.accept("threads", PORT, listener=Accepts())
        with pytest.raises(WrongKind, match="thread broker"):
            manager.connect("threads", "threads", PORT, listener=Connects())
        assert threads.rendezvous == []


def test_where_ports_are_unique_a_second_broker_that_binds_gets_port_in_use(world):
    manager = BrokerManager(unique_ports=True)
    first, second = (world.broker(name, manager=manager) for name in ("first", "second"))
    assert first.bind(PORT, Accepts()) is True
    assert first.bind(PORT, Accepts()) is False
    with pytest.raises(PortInUse, match="first"):
        second.bind(PORT, Accepts())
    assert second.unbind(PORT) is False
    assert second.bind(PORT + 1, Accepts()) is True
    assert first.unbind(PORT) is True
    assert second.bind(PORT, Accepts()) is True  # it was given up
    with Broker("threads", manager) as threads, pytest.raises(PortInUse, match="second"):
        threads.accept(PORT, timeout=0)
    second.close()
    assert first.bind(PORT, Accepts()) is True  # its broker is gone


def test_a_listener_that_raises_in_accepted_or_connected_or_refused_harms_only_itself(world):
    client, server = world.brokers()

    class Raises:
        def accepted(self, queue):
            raise KeyError("accepted")

        def connected(self, queue):
            raise KeyError("connected")

        def refused(self, reason):
            raise KeyError("refused")

    server.bind(PORT, Raises())
    client.connect("server", PORT, Raises())
    client.connect("nobody", PORT, Raises())
    errors = world.take_errors(3)
    assert sorted(error.args for error in errors) == [("accepted",), ("connected",), ("refused",)]

    (mine,), (theirs,) = client.queues, server.queues  # the queue itself is alive
    mine.send(b"x")
    assert theirs.receive_wait(timeout=10) == b"x"
    other, other_theirs = world.connected(client, server, PORT + 1)
    other.send(b"y")
    assert other_theirs.receive_wait(timeout=10) == b"y"
