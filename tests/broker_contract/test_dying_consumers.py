"""Consumers of a shared index that are gone for good, and what the next one gets of theirs."""

from __future__ import annotations

import pytest

import hocket
from tests.support.brokers.proxy import Proxy
from tests.support.brokers.worlds import ServerWorld, new_name
from tests.support.threads import until

COUNT = 10


@pytest.fixture
def server():
    made = ServerWorld()
    yield made
    made.close()


@pytest.mark.parametrize("mode", ["shared", "key_shared"])
def test_only_what_was_handed_out_counts_and_each_goes_on_alone(server, mode):
    topic = new_name("dying")
    options = {"index": "w", "mode": mode}
    with (
        hocket.connect(server.url) as direct,
        Proxy(server.url) as proxy,
        hocket.connect(proxy.url) as lost,
    ):
        direct.create_topic(topic)
        with direct.producer(topic) as producer:
            for number in range(COUNT):
                producer.send(b"%d" % number, key=b"%d" % (number % 2))
        with lost.subscribe(topic, **options) as dying:
            for _ in range(3):
                message = dying.receive(timeout=20)
            message.ack()
            dying.commit()
            (core,) = dying._core.parts()
            until(
                lambda: core._told == {0: core.inbound.first_waiting(core.inbound.by_partition[0])}
            )
            lost.lag(topic, "w")  # on the same connection: the broker has heard it
            proxy.closed = True
            proxy.cut()
            with direct.subscribe(topic, **options) as living:
                counts = {}
                for _ in range(COUNT - 1):
                    message = living.receive(timeout=20)
                    (index,) = direct.indexes(topic)
                    assert index.partitions[0].leased == 1, "it has nothing else"
                    counts[message.offset] = message.delivery_count
                    message.ack()
                living.commit()
            assert direct.lag(topic, "w") == 0
            # 2 was acked. 0 and 1 were handed out, and 3 was next. The others had only waited.
            assert counts == {0: 2, 1: 2, 3: 2} | dict.fromkeys(range(4, COUNT), 1)
            proxy.closed = False
