"""Many clients of one broker, and clients that go without a word."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import warnings
import weakref
from contextlib import ExitStack

import pytest

from hocket import errors
from tests.support.brokers.every_world import in_parallel, only, take, values
from tests.support.threads import LONG, PATIENCE, until

CONNECTIONS = 300 if LONG else 100


def is_attached(client, topic: str) -> bool:
    return any(p.attached for index in client.indexes(topic) for p in index.partitions)


@only("served", "cluster")
def test_hundreds_of_connections_at_once(world, client):
    topic = world.topic(3)
    with ExitStack() as stack:
        opened = [stack.enter_context(world.connect()) for _ in range(CONNECTIONS)]
        positions = [
            each.publish(topic, b"%d" % number, partition=number % 3)
            for number, each in enumerate(opened)
        ]
        assert len(set(positions)) == CONNECTIONS
        with opened[-1].subscribe(topic) as messages:
            found = values(take(messages, CONNECTIONS))
        assert set(found) == {b"%d" % number for number in range(CONNECTIONS)}
    client.ping()


@only("served", "cluster")
def test_an_index_goes_from_client_to_client(world, client):
    topic = world.topic()
    for number in range(6):
        client.publish(topic, b"%d" % number)
    for number in range(3):
        with world.connect() as other, other.subscribe(topic, index="i") as messages:
            found = take(messages, 2)
            assert values(found) == [b"%d" % (2 * number), b"%d" % (2 * number + 1)]
            found[-1].ack()
    assert client.lag(topic, "i") == 0


@only("served", "cluster")
def test_another_client_takes_an_index_over(world, client):
    topic = world.topic()
    with world.connect() as other:
        mine = client.subscribe(topic, index="i")
        theirs = other.subscribe(topic, index="i")
        with pytest.raises(errors.Fenced):
            mine.receive(20)
        client.publish(topic, b"x")
        assert theirs.receive(20).value == b"x"
        mine.close()


@only("served", "cluster")
def test_a_closed_client_leaves_nothing_attached(world, client):
    topic = world.topic()
    other = world.connect()
    other.subscribe(topic, index="i")
    producer = other.producer(topic, linger=60)
    producer.send(b"x")
    assert is_attached(client, topic)
    other.close()
    assert client.describe(topic).partitions[0].end == 1
    until(lambda: not is_attached(client, topic))
    with pytest.raises(errors.Closed):
        other.ping()


@only("served", "cluster")
def test_a_process_that_dies_harms_nobody(world, client):
    topic = world.topic()
    client.publish(topic, b"0")
    program = f"""
        import sys, hocket
        client = hocket.connect({world.address!r})
        messages = client.subscribe({topic!r}, index="i")
        messages.receive(20).ack()
        messages.commit()
        producer = client.producer({topic!r})
        producer.send(b"1")
        producer.flush()
        print("ready", flush=True)
        sys.stdin.read()
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            assert is_attached(client, topic)
        finally:
            process.kill()
        process.wait(PATIENCE)
    until(lambda: not is_attached(client, topic))
    assert client.lag(topic, "i") == 1
    with client.subscribe(topic, index="i") as messages:
        assert messages.receive(20).value == b"1"
    assert client.publish(topic, b"2").offset == 2


@only("served", "cluster")
@pytest.mark.parametrize("holding", ["nothing", "a subscription", "a producer"])
def test_a_client_that_is_dropped_warns_and_lets_go(world, client, holding):
    topic = world.topic()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dropped = world.connect()
        held = None
        if holding == "a subscription":
            held = dropped.subscribe(topic, index="i")
        elif holding == "a producer":
            held = dropped.producer(topic)
        assert is_attached(client, topic) == (holding == "a subscription")
        found = weakref.ref(dropped)
        del dropped, held

        def has_let_go() -> bool:
            gc.collect()
            warned = any(issubclass(each.category, ResourceWarning) for each in caught)
            return warned and not is_attached(client, topic)

        try:
            until(has_let_go, timeout=5)  # and its threads have ended, says the leak check
        finally:
            if not caught and (left := found()) is not None:
                left.close()


def test_threads_make_and_delete_topics_side_by_side(world, client):
    names = [world.name() for _ in range(24)]

    def live(name: str) -> None:
        client.create_topic(name)
        client.publish(name, b"x")
        client.delete_topic(name)

    in_parallel([lambda name=name: live(name) for name in names])
    assert not set(names) & set(client.topics())


def test_threads_share_a_subscription_and_no_message_is_handed_out_twice(world, client):
    topic = world.topic()
    with client.producer(topic) as producer:
        producer.send_many([b"%d" % number for number in range(400)])
    with client.subscribe(topic) as messages:
        found = in_parallel([lambda: values(take(messages, 100)) for _ in range(4)])
    assert sorted(int(v) for each in found for v in each) == list(range(400))
