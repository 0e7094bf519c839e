"""Damage that meets something else: retention, and topics that do not wait for the disk."""

from __future__ import annotations

from hocket import frames
from hocket.log.verify import accept_losses, verify
from hocket.model import TopicConfig
from hocket.wire import batch as batches
from tests.support.node.damaged import KilledNode, ended
from tests.support.node.guarded import Person

ORDERS = "orders"


def with_topic(config: TopicConfig) -> KilledNode:
    place = KilledNode()
    assert isinstance(place.trusted().ask(frames.CreateTopic, ORDERS, config), frames.Done)
    return place


def batch(place: KilledNode) -> bytes:
    return bytes(batches.encode([b"x"], timestamps=place.clock.now_us()))


def publish(place: KilledNode, person: Person) -> int:
    answer = person.ask(frames.Publish, ORDERS, 0, payload=batch(place))
    assert isinstance(answer, frames.Published), answer
    return answer.offset


def test_retention_does_not_pass_a_loss_that_only_an_index_follows():
    """What follows has no records, so it has no age: it is not older than every record."""
    place = with_topic(TopicConfig())
    person = place.trusted()
    publish(place, person)
    opened = person.ask(frames.OpenSubscription, ORDERS, "index")
    assert isinstance(opened, frames.SubscriptionOpened)
    place.kill()
    place.lose(place.entries(place.group_of(ORDERS))[0])
    place.start()
    for _ in range(30):
        place.pass_time(1)
        place.node.tick()
        place.settle()
    reader = place.trusted()
    reader.ask(frames.OpenSubscription, ORDERS, credit_bytes=1 << 20)
    assert "offsets 0 to 0" in ended(reader)


def test_a_topic_in_memory_goes_on_behind_a_snapshot_that_knows_more_than_its_log():
    place = with_topic(TopicConfig(durability="memory", disk_retention_us=None))
    person = place.trusted()
    group = place.group_of(ORDERS)
    for _ in range(3):
        person.say(frames.Publish, ORDERS, 0, payload=batch(place))
    place.node._wiring.log.checkpoint_now()  # of records that are not durable yet
    place.kill()
    for path in place.wal_files():
        place.disk.remove(path)
    place.disk.sync_directory("wal")
    assert accept_losses(place.disk, None)
    place.start()
    assert publish(place, place.trusted()) == 3
    for _ in range(2):
        place.restart()
        publish(place, place.trusted())
    reader = place.trusted()
    reader.ask(frames.OpenSubscription, ORDERS, credit_bytes=1 << 20)
    assert reader.heard(frames.Deliver)[0].offset == 3
    assert place.node._wiring.log.stats(group).problem == ""
    place.node.close()
    assert verify(place.disk).ok
