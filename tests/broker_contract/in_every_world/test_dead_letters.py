"""What was delivered in vain: kept with where it came from and why, and delivered once more."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from hocket import errors
from tests.support.threads import until


def poisoned(world, *values: bytes, reason: str = "no good", index: str = "workers") -> str:
    """A topic of which these messages were rejected, and all others acknowledged."""
    topic = world.topic()
    for value in values:
        world.client.publish(topic, value, key=b"k", headers={"h": b"v"})
    reject_all(world, topic, len(values), reason, index)
    return topic


def reject_all(world, topic, count: int, reason: str = "no good", index: str = "workers") -> None:
    with world.client.subscribe(topic, index=index, mode="shared") as workers:
        for _ in range(count):
            workers.receive(timeout=10).reject(reason)
        workers.commit()
    until(lambda: len(world.client.dead_letters(topic, index=index)) >= count)


def test_a_message_goes_there_after_as_many_deliveries_as_it_may_have(world, client):
    topic = world.topic()
    position = client.publish(topic, b"poison", key=b"k", headers={"h": b"v"})
    began = time.time() * 1e6
    with client.subscribe(topic, index="workers", mode="shared", max_deliveries=5) as workers:
        counts = []
        for _ in range(5):
            message = workers.receive(timeout=10)
            counts.append(message.delivery_count)
            message.nack()
        assert counts == [1, 2, 3, 4, 5]
        (letter,) = until(lambda: client.dead_letters(topic))
        with pytest.raises(errors.Timeout):
            workers.receive(timeout=0.2)
    assert letter.source == position
    assert (letter.value, letter.key, letter.headers) == (b"poison", b"k", {"h": b"v"})
    assert (letter.index, letter.deliveries) == ("workers", 5)
    assert "refused by its consumer" in letter.reason
    assert letter.position == (topic + ".dlq", 0, 0)
    assert began - 1e6 < letter.timestamp <= letter.died
    assert not letter.replayed
    assert client.lag(topic, "workers") == 0


def test_a_rejected_one_goes_there_at_once_with_the_reason_given(world, client):
    topic = poisoned(world, b"bad", reason="the address is missing: §7")
    (letter,) = client.dead_letters(topic)
    assert (letter.deliveries, letter.reason) == (1, "the address is missing: §7")


def test_those_of_one_index_leave_the_others_alone(world, client):
    topic = poisoned(world, b"bad")
    with client.subscribe(topic, index="others", mode="shared") as others:
        message = others.receive(timeout=10)
        assert message.value == b"bad"
        message.ack()
    assert [each.index for each in client.dead_letters(topic)] == ["workers"]
    assert client.dead_letters(topic, index="others") == []


def test_many_of_them_keep_their_order(world, client):
    values = [b"%03d" % number for number in range(250)]
    topic = world.topic()
    with client.producer(topic) as producer:
        producer.send_many(values)
    reject_all(world, topic, len(values))
    assert [each.value for each in client.dead_letters(topic)] == values
    assert [each.value for each in client.dead_letters(topic, limit=3)] == values[:3]


def test_replayed_ones_are_new_messages_of_the_topic(world, client):
    topic = poisoned(world, b"one", b"two")
    assert client.replay_dead_letters(topic) == 2
    assert [each.replayed for each in client.dead_letters(topic)] == [True, True]
    with client.subscribe(topic, index="workers", mode="shared") as workers:
        again = [workers.receive(timeout=10) for _ in range(2)]
        for message in again:
            message.ack()
    assert [(each.offset, each.value, each.key) for each in again] == [
        (2, b"one", b"k"),
        (3, b"two", b"k"),
    ]
    assert again[0].headers == {"h": b"v", "hocket-replayed": f"{topic}.dlq/0/0".encode()}
    assert [each.delivery_count for each in again] == [1, 1]


def test_each_is_replayed_once(world, client):
    topic = poisoned(world, b"one", b"two", b"three")
    assert client.replay_dead_letters(topic, limit=1) == 1
    assert client.replay_dead_letters(topic, limit=1) == 1
    assert client.replay_dead_letters(topic) == 1
    assert client.replay_dead_letters(topic) == 0
    assert client.describe(topic).partitions[0].end == 6


def test_those_of_one_index_are_replayed_alone(world, client):
    topic = poisoned(world, b"one")
    reject_all(world, topic, 1, index="others")
    assert client.replay_dead_letters(topic, index="others") == 1
    left = {each.index: each.replayed for each in client.dead_letters(topic)}
    assert left == {"workers": False, "others": True}
    assert client.replay_dead_letters(topic) == 1


def received(subscription, count: int) -> list:
    found = [subscription.receive(timeout=10) for _ in range(count)]
    with pytest.raises(errors.Timeout):
        subscription.receive(timeout=0.1)
    return found


@pytest.mark.parametrize("mode", ["shared", "key_shared"])
def test_those_given_back_go_to_their_index_alone(world, client, mode):
    topic = world.topic()
    for value in (b"one", b"two", b"three"):
        client.publish(topic, value, key=b"k")
    with (
        client.subscribe(topic, index="workers", mode=mode) as workers,
        client.subscribe(topic, index="others", mode="shared") as others,
        client.subscribe(topic, index="own") as own,
    ):
        for message in received(others, 3):
            message.ack()
        received(own, 3)[-1].ack()
        for _ in range(3):
            message = workers.receive(timeout=10)
            if message.value == b"three":
                message.ack()
            else:
                message.reject("no good")
        workers.commit()
        until(lambda: len(client.dead_letters(topic)) == 2)
        assert client.replay_dead_letters(topic, to_index=True) == 2
        assert [each.replayed for each in client.dead_letters(topic)] == [True, True]
        again = received(workers, 2)
        assert [(each.offset, each.value, each.delivery_count) for each in again] == [
            (0, b"one", 1),
            (1, b"two", 1),
        ]
        for message in again:
            message.ack()
        workers.commit()
        for subscription in (others, own):
            assert received(subscription, 0) == []
    assert client.lag(topic, "workers") == 0
    assert client.describe(topic).partitions[0].end == 3
    assert client.replay_dead_letters(topic, to_index=True) == 0
    assert client.replay_dead_letters(topic) == 0


def test_what_is_given_back_may_die_again(world, client):
    topic = poisoned(world, b"bad")
    for count in (2, 3):
        assert client.replay_dead_letters(topic, to_index=True) == 1
        with client.subscribe(topic, index="workers", mode="shared") as workers:
            workers.receive(timeout=10).reject(f"for the {count}. time")
            workers.commit()
        until(lambda count=count: len(client.dead_letters(topic)) == count)
    letters = client.dead_letters(topic)
    assert [each.source.offset for each in letters] == [0, 0, 0]
    assert [each.reason for each in letters] == ["no good", "for the 2. time", "for the 3. time"]
    assert [each.replayed for each in letters] == [True, True, False]


def test_a_dead_letter_is_given_back_once(world, client):
    """As after a crash between giving it back and saying that it was."""
    topic = poisoned(world, b"one", b"two", b"three")
    given = {"partition": 0, "dead_partition": 0}
    assert client.revive(topic, "workers", [(0, 0), (1, 1)], **given) == [0, 1]
    assert client.revive(topic, "workers", [(0, 0), (1, 1)], **given) == []
    with client.subscribe(topic, index="workers", mode="shared") as workers:
        for message in received(workers, 2):
            message.ack()
        workers.commit()
        assert client.revive(topic, "workers", [(1, 1)], **given) == []  # settled since
        assert client.replay_dead_letters(topic, to_index=True) == 1  # the third alone
        assert [each.value for each in received(workers, 1)] == [b"three"]


def test_some_are_given_back_at_a_time(world, client):
    topic = poisoned(world, b"one", b"two", b"three")
    reject_all(world, topic, 3, index="others")
    assert client.replay_dead_letters(topic, index="others", limit=1, to_index=True) == 1
    assert client.lag(topic, "others") == 1
    assert client.lag(topic, "workers") == 0
    assert client.replay_dead_letters(topic, to_index=True) == 5
    assert (client.lag(topic, "others"), client.lag(topic, "workers")) == (3, 3)


def test_what_is_gone_cannot_be_given_back_and_those_before_it_are(world, client):
    topic = world.topic(partitions=2)
    for partition in (0, 1):
        client.publish(topic, b"%d" % partition, partition=partition)
    with client.subscribe(topic, index="workers", mode="shared", partitions=[0]) as workers:
        workers.receive(timeout=10).reject("first")
        workers.commit()
    until(lambda: len(client.dead_letters(topic)) == 1)
    with client.subscribe(topic, index="workers", mode="shared", partitions=[1]) as workers:
        workers.receive(timeout=10).reject("second")
        workers.commit()
    until(lambda: len(client.dead_letters(topic)) == 2)
    client.delete_messages(topic, [0, 1])
    with pytest.raises(errors.OutOfRange, match="is not kept") as caught:
        client.replay_dead_letters(topic, to_index=True)
    assert "published to the topic again" in str(caught.value)
    assert [each.replayed for each in client.dead_letters(topic)] == [True, False]
    assert client.replay_dead_letters(topic) == 1  # as a new message


def test_what_came_from_another_topic_is_not_given_back(world, client):
    topic = poisoned(world, b"one")
    (letter,) = client.dead_letters(topic)
    with client.subscribe(topic + ".dlq") as dead:
        headers = dict(dead.receive(timeout=10).headers)
    client.publish(topic + ".dlq", b"forged", headers=headers | {"hocket-dlq-topic": b"other"})
    with pytest.raises(errors.WrongKind, match="of topic 'other'"):
        client.replay_dead_letters(topic, to_index=True)
    assert [each.replayed for each in client.dead_letters(topic)] == [True, False]
    assert client.lag(topic, letter.index) == 1


def test_what_cannot_be_given_back_is_said(world, client):
    topic = poisoned(world, b"one")
    given = {"partition": 0, "dead_partition": 0}
    with pytest.raises(errors.UnknownIndex):
        client.revive(topic, "nobody", [(0, 0)], **given)
    with (
        client.subscribe(topic, index="own"),
        pytest.raises(errors.WrongKind, match="not shared"),
    ):
        client.revive(topic, "own", [(0, 0)], **given)
    for letters in ([], [(0, 1)], [(1, 0)], [(0, 0), (0, 0)], [(5, 0)]):
        with pytest.raises(errors.OutOfRange):
            client.revive(topic, "workers", letters, **given)
    with pytest.raises(errors.OutOfRange):
        client.revive(topic, "workers", [(0, 0)], partition=0, dead_partition=7)
    with pytest.raises(errors.UnknownPartition):
        client.revive(topic, "workers", [(0, 0)], partition=7, dead_partition=0)
    with pytest.raises(errors.UnknownTopic):
        client.revive(world.topic(), "workers", [(0, 0)], **given)
    assert client.revive(topic, "workers", [(0, 0)], **given) == [0]


def test_all_are_purged(world, client):
    topic = poisoned(world, b"one", b"two")
    assert client.replay_dead_letters(topic, limit=1) == 1
    assert client.purge_dead_letters(topic) == 2
    assert client.dead_letters(topic) == []
    assert client.replay_dead_letters(topic) == client.purge_dead_letters(topic) == 0
    (partition,) = client.describe(topic + ".dlq").partitions
    assert (partition.start, partition.end) == (2, 2)
    assert client.describe(topic).partitions[0].end == 3  # of the topic itself nothing went
    with pytest.raises(errors.UnknownTopic):
        client.purge_dead_letters("no-such-topic")
    assert client.purge_dead_letters(world.topic()) == 0


def test_those_of_one_index_are_purged_alone(world, client):
    topic = poisoned(world, b"one", b"two")
    reject_all(world, topic, 2, index="others")
    assert client.purge_dead_letters(topic, index="others") == 2
    assert [each.index for each in client.dead_letters(topic)] == ["workers", "workers"]
    assert client.describe(topic + ".dlq").partitions[0].start == 0
    assert client.replay_dead_letters(topic, index="others") == 0
    assert client.purge_dead_letters(topic, index="workers") == 2
    assert client.dead_letters(topic) == []
    assert client.describe(topic + ".dlq").partitions[0].start == 4  # now their bytes go too


def test_those_before_a_time_are_purged(world, client):
    topic = poisoned(world, b"one")
    first = client.dead_letters(topic)[0].died
    until(lambda: time.time_ns() // 1000 > first)
    reject_all(world, topic, 1, index="others")
    second = client.dead_letters(topic)[1].died
    moment = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=second)
    assert second > first
    assert client.purge_dead_letters(topic, before=moment) == 1
    assert [each.index for each in client.dead_letters(topic)] == ["others"]


def test_messages_are_deleted_up_to_an_offset(world, client):
    topic = world.topic(partitions=2)
    with client.producer(topic) as producer:
        for value in (b"a", b"b", b"c"):
            producer.send(value, partition=0)
    client.delete_messages(topic, [2, 0])
    client.delete_messages(topic, [1, 0])  # they are gone already
    starts = [each.start for each in client.describe(topic).partitions]
    assert starts == [2, 0]
    with client.subscribe(topic) as subscription:
        assert [each.value for each in received(subscription, 1)] == [b"c"]
    for offsets in ([2], [2, 0, 0], [4, 0], [0, 1]):
        with pytest.raises(errors.OutOfRange):
            client.delete_messages(topic, offsets)
    with pytest.raises(errors.UnknownTopic):
        client.delete_messages("no-such-topic", [0])


def test_dead_letters_of_dead_letters_are_delivered_without_end(world, client):
    topic = poisoned(world, b"bad")
    with client.subscribe(
        topic + ".dlq", index="clinic", mode="shared", max_deliveries=2
    ) as clinic:
        for count in (1, 2, 3, 4):
            message = clinic.receive(timeout=10)
            assert message.delivery_count == count
            message.nack()
        clinic.receive(timeout=10).ack()


def test_the_topic_of_dead_letters_may_be_named_itself(world, client):
    topic = poisoned(world, b"bad")
    assert client.dead_letters(topic + ".dlq") == client.dead_letters(topic)
    assert client.replay_dead_letters(topic + ".dlq") == 1
    assert client.describe(topic).partitions[0].end == 2


def test_what_somebody_else_has_put_there_is_passed_over(world, client):
    topic = poisoned(world, b"bad")
    client.publish(topic + ".dlq", b"not a dead letter")
    client.publish(topic + ".dlq", b"nor this", headers={"hocket-dlq-topic": b"x"})
    assert [each.value for each in client.dead_letters(topic)] == [b"bad"]
    assert client.replay_dead_letters(topic) == 1


def test_there_may_be_none(world, client):
    topic = world.topic()
    assert client.dead_letters(topic) == []
    assert client.replay_dead_letters(topic) == 0
    with pytest.raises(errors.UnknownTopic):
        client.dead_letters("no-such-topic")
    with pytest.raises(errors.UnknownTopic):
        client.replay_dead_letters("no-such-topic")


def test_a_topic_of_dead_letters_that_is_there_already_is_used_as_it_is(world, client):
    topic = world.topic(partitions=3)
    client.create_topic(topic + ".dlq", partitions=2, disk_retention="1h")
    for partition in range(3):
        client.publish(topic, b"%d" % partition, partition=partition)
    reject_all(world, topic, 3)
    letters = client.dead_letters(topic)
    assert {each.source.partition: each.position.partition for each in letters} == {
        0: 0, 1: 1, 2: 0,
    }  # fmt: skip


def test_large_messages_are_kept_whole(world, client):
    topic = world.topic()
    large = bytes(range(256)) * 6_000  # 1.5 MB
    for _ in range(3):
        client.publish(topic, large)
    reject_all(world, topic, 3)
    assert [each.value for each in client.dead_letters(topic)] == [large] * 3
