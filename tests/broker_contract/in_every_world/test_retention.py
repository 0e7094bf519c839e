"""What leaves memory is read from disk; what leaves the disk is gone, unless an index holds it."""

from __future__ import annotations

import pytest

from tests.support.brokers.every_world import EACH_ONCE, take, values
from tests.support.threads import until

pytestmark = EACH_ONCE

SEGMENT_BYTES = 2048
SMALL = {"segment_bytes": SEGMENT_BYTES, "disk_bytes": 2 * SEGMENT_BYTES, "memory_retention": 0}


def partition(client, topic: str):
    return client.describe(topic).partitions[0]


def fill(client, topic: str, count: int = 60) -> None:
    """Messages of about 500 bytes, a batch each, so that a segment holds a few."""
    with client.producer(topic, linger=0, batch_bytes=600) as producer:
        for number in range(count):
            producer.send(b"%03d" % number + bytes(497))
            producer.flush(20)


def wait_until_shortened(client, topic: str) -> None:
    """Wait until retention has removed all that it will: it may begin while the topic is filled."""

    def is_short() -> bool:
        found = partition(client, topic)
        return found.start > 0 and found.disk_bytes <= SMALL["disk_bytes"]

    until(is_short, timeout=15)


def test_what_left_memory_is_read_from_disk(world, client):
    topic = world.topic(memory_retention="200ms")
    sent = [b"%d" % number for number in range(50)]
    with client.producer(topic) as producer:
        producer.send_many(sent)
    until(lambda: partition(client, topic).memory_bytes == 0, timeout=15)
    before = partition(client, topic)
    assert before.memory_start == before.end == 50
    assert before.start == 0
    assert before.disk_bytes > 0
    with client.subscribe(topic) as messages:
        assert values(take(messages, 50)) == sent
    after = partition(client, topic)
    assert after.disk_reads > before.disk_reads
    assert after.memory_reads == before.memory_reads


def test_what_is_in_memory_is_read_from_memory(world, client):
    topic = world.topic()
    client.publish(topic, b"x")
    with client.subscribe(topic) as messages:
        messages.receive(20)
    found = partition(client, topic)
    assert found.memory_reads > 0
    assert found.disk_reads == 0
    assert (found.memory_start, found.end) == (0, 1)


def test_the_byte_limit_of_memory_holds(world, client):
    topic = world.topic(memory_bytes=10_000)
    with client.producer(topic, batch_bytes=1000) as producer:
        producer.send_many([bytes(100)] * 1000)
    until(lambda: partition(client, topic).memory_bytes <= 10_000, timeout=15)
    with client.subscribe(topic) as messages:
        assert [m.offset for m in take(messages, 1000)] == list(range(1000))


def test_reading_passes_from_disk_to_memory_without_a_seam(world, client):
    topic = world.topic(memory_retention="200ms")
    fill(client, topic, 10)
    until(lambda: partition(client, topic).memory_bytes == 0, timeout=15)
    with client.subscribe(topic) as messages:
        take(messages, 5)
        fill(client, topic, 10)
        assert [m.offset for m in take(messages, 15)] == list(range(5, 20))


def test_old_segments_go_and_a_consumer_below_is_moved_and_told(world, client, caplog):
    topic = world.topic(**SMALL)
    with client.subscribe(topic, index="i", start="earliest"):
        pass
    fill(client, topic)
    wait_until_shortened(client, topic)
    with client.subscribe(topic, index="i") as messages:
        first = messages.receive(20)
        start = first.offset
        assert start > 0
        assert first.value[:3] == b"%03d" % start
        until(lambda: messages.lost == start)
        assert [m.offset for m in take(messages, 59 - start)] == list(range(start + 1, 60))
    assert f"{start} messages before offset {start}" in caplog.text


@pytest.mark.parametrize("start", ["earliest", 0])
def test_a_new_consumer_begins_at_what_is_left_and_has_lost_nothing(world, client, start):
    topic = world.topic(**SMALL)
    fill(client, topic)
    wait_until_shortened(client, topic)
    with client.subscribe(topic, start=start) as messages:
        assert messages.receive(20).offset == partition(client, topic).start
        assert messages.lost == 0


def test_an_index_holds_retention_until_it_is_deleted(world, client):
    topic = world.topic(**SMALL)
    free = world.topic(**SMALL)
    with client.subscribe(topic, index="holder", hold_retention=True):
        pass
    fill(client, topic)
    fill(client, free)
    # Once the other topic was cut, this one would have been.
    until(lambda: partition(client, free).start > 0, timeout=15)
    assert partition(client, topic).start == 0
    with client.subscribe(topic) as messages:
        assert [m.offset for m in take(messages, 60)] == list(range(60))
    client.delete_index(topic, "holder")
    until(lambda: partition(client, topic).start > 0, timeout=15)


def test_what_a_holding_index_acknowledged_may_go(world, client):
    topic = world.topic(**SMALL)
    with client.subscribe(topic, index="holder", hold_retention=True) as messages:
        fill(client, topic)
        take(messages, 40)[-1].ack()
        messages.commit()
        until(lambda: partition(client, topic).start > 0, timeout=15)
        assert partition(client, topic).start <= 40
        assert [m.offset for m in take(messages, 20)] == list(range(40, 60))
        assert messages.lost == 0


def test_time_removes_what_is_old(world, client):
    topic = world.topic(disk_retention="1s", segment_bytes=SEGMENT_BYTES, memory_retention=0)
    fill(client, topic, 20)
    until(lambda: partition(client, topic).start > 0, timeout=20)
    assert client.publish(topic, b"next").offset == 20


# --- what an index loses -------------------------------------------------------------------------


def described(client, topic: str, index: str):
    return next(each for each in client.indexes(topic) if each.name == index)


@pytest.mark.parametrize("mode", ["own", "shared"])
def test_what_an_index_has_lost_is_shown_before_and_after_its_consumer_goes_on(world, client, mode):
    topic = world.topic(**SMALL)
    client.publish(topic, bytes(500))
    with client.subscribe(topic, index="slow", mode=mode) as messages:
        messages.receive(20).ack()
        messages.commit(20)
    fill(client, topic)
    wait_until_shortened(client, topic)
    lost = partition(client, topic).start - 1
    slow = described(client, topic, "slow")
    assert slow.lost == lost
    assert slow.lag == 61 - partition(client, topic).start
    with client.subscribe(topic, index="slow", mode=mode) as messages:
        for _ in range(slow.lag):
            messages.receive(20).ack()
        messages.commit(20)
    after = described(client, topic, "slow")
    assert (after.lag, after.lost) == (0, lost)
    client.seek(topic, "slow", "earliest")
    assert described(client, topic, "slow").lost == 0


def test_an_index_that_kept_up_has_lost_nothing(world, client):
    topic = world.topic(**SMALL)
    with client.subscribe(topic, index="quick") as messages:
        fill(client, topic)
        for _ in range(60):
            messages.receive(20)
        wait_until_shortened(client, topic)
        assert described(client, topic, "quick").lost == 0  # it was sent all of it
