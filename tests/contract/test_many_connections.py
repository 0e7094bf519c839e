"""One broker serves many connections, each with its own queue, listener and port, all tracked."""

import pytest

from tests.support.queues.listeners import Accepts, Connects, Echo, History
from tests.support.queues.worlds import PORT, World
from tests.support.threads import LONG, until

COUNTS = {"full-event": 2000 if LONG else 500, "mixed": 300 if LONG else 100}


@pytest.mark.parametrize("kind", ["full-event", "mixed"])
def test_many_connections_on_one_broker_keep_apart_and_all_end(kind):
    with World(kind) as world:
        keep_apart_and_all_end(world, COUNTS[kind], {"local"})


def keep_apart_and_all_end(world, count, ways):
    client, server = world.brokers()
    accepts = Accepts(Echo)
    connects = Connects(lambda _queue: History())
    server.bind(PORT, accepts)
    for _ in range(count):
        assert client.connect("server", PORT, connects) is True
    until(lambda: len(connects.answers) == len(accepts.queues) == count, timeout=30)
    assert connects.reasons == []
    assert len(client.queues) == len(server.queues) == count
    assert set(client.queues) == set(connects.queues)
    assert {queue.way for queue in client.queues} <= ways
    assert set(server.queues) == set(accepts.queues)
    for queues in (client.queues, server.queues):
        assert len({queue.local_port for queue in queues}) == count
    peers = {queue.local_port: queue for queue in server.queues}
    for queue in client.queues:
        assert peers[queue.remote_port].remote_port == queue.local_port

    histories = {}
    for queue in connects.queues:
        histories[queue] = History()
        queue.set_listener(histories[queue])
        for number in range(3):
            assert queue.send(b"%d of %d" % (number, queue.local_port)) is True
    until(lambda: all(len(h.messages) == 3 for h in histories.values()), timeout=30)
    for queue, history in histories.items():
        expected = [b"%d of %d" % (number, queue.local_port) for number in range(3)]
        assert history.messages == expected

    for number, queue in enumerate(connects.queues):
        (queue.close if number % 2 else queue.abort)()
    until(lambda: all(history.reasons for history in histories.values()), timeout=30)
    ends = [histories[queue].reason is None for queue in connects.queues]
    assert ends == [number % 2 == 1 for number in range(count)]
    until(lambda: client.queues == server.queues == [], timeout=30)


def test_many_brokers_connect_to_one(two_pumps):
    server = two_pumps.broker("server", two_pumps.server_pump)
    accepts = Accepts(Echo)
    server.bind(PORT, accepts)
    brokers = [two_pumps.broker(f"client {number}") for number in range(30)]
    answers = [Connects() for _ in brokers]
    for broker, connects in zip(brokers, answers, strict=True):
        broker.connect("server", PORT, connects)
    until(lambda: all(connects.answers for connects in answers))
    for broker, connects in zip(brokers, answers, strict=True):
        (queue,) = connects.queues
        assert broker.queues == [queue]
        queue.send(broker.name.encode())
        assert queue.receive_wait(timeout=10) == broker.name.encode()
    until(lambda: len(server.queues) == 30)


def test_local_ports_are_never_shared_while_queues_come_and_go(two_pumps):
    client, server = two_pumps.brokers()
    accepts = Accepts()
    server.bind(PORT, accepts)
    kept = []
    for _round in range(8):
        connects = Connects()
        for _ in range(8):
            client.connect("server", PORT, connects)
        until(lambda connects=connects: len(connects.queues) == 8)
        live = kept + connects.queues
        for broker in (client, server):
            until(lambda broker=broker, live=live: len(broker.queues) == len(live))
            assert len({queue.local_port for queue in broker.queues}) == len(live)
        for queue in live[::2]:
            queue.abort()
        kept = live[1::2]
        until(lambda kept=kept: client.queues == kept and len(server.queues) == len(kept))
    until(lambda: len(accepts.queues) == 64)
