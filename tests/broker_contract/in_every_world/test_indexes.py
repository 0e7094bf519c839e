"""Indexes: the place in a topic that the broker keeps by name."""

from __future__ import annotations

import pytest

from hocket import errors
from tests.broker_contract.in_every_world.test_consuming import filled, numbers
from tests.support.brokers.every_world import take
from tests.support.threads import Running, until


def positions(client, topic: str, index: str = "i") -> list[int]:
    (found,) = [each for each in client.indexes(topic) if each.name == index]
    return [each.position for each in found.partitions]


def test_every_index_gets_everything(world, client):
    topic = filled(world)
    with client.subscribe(topic, index="a") as a, client.subscribe(topic, index="b") as b:
        assert numbers(take(a, 10)) == numbers(take(b, 10)) == list(range(10))
        a.seek(0, 0)
        a.receive(20).ack()
        a.commit()
    assert (client.lag(topic, "a"), client.lag(topic, "b")) == (9, 10)


def test_it_goes_on_where_it_was(world, client):
    topic = filled(world)
    for first in (0, 3, 6):
        with client.subscribe(topic, index="i") as messages:
            found = take(messages, 5 if first < 6 else 4)
            assert int(found[0].value) == first
            found[2].ack()  # those behind it come again
    assert client.lag(topic, "i") == 1


def test_start_counts_for_a_new_index_only(world, client):
    topic = filled(world)
    with client.subscribe(topic, index="i", start=5):
        pass
    with client.subscribe(topic, index="i", start="latest") as messages:
        assert numbers(take(messages, 1)) == [5]


def test_an_ack_is_cumulative_and_never_goes_back(world, client):
    topic = filled(world)
    with client.subscribe(topic, index="i") as messages:
        found = take(messages, 10)
        found[7].ack()
        messages.commit()
        assert positions(client, topic) == [8]
        found[2].ack()
        messages.commit()
        assert positions(client, topic) == [8]


def test_acks_are_for_their_partition(world, client):
    topic = filled(world, 12, partitions=3)
    with client.subscribe(topic, index="i") as messages:
        for message in take(messages, 12):
            if message.partition == 1 and message.offset == 2:
                message.ack()
        messages.commit()
    assert positions(client, topic) == [0, 3, 0]
    assert client.lag(topic, "i") == 9


def test_acks_leave_without_a_commit(world, client):
    topic = filled(world)
    with client.subscribe(topic, index="i") as messages:
        take(messages, 10)[-1].ack()
        until(lambda: client.lag(topic, "i") == 0)


def test_without_an_index_there_is_nothing_to_acknowledge(world, client):
    topic = filled(world)
    with client.subscribe(topic) as messages:
        assert messages.index is None
        message = messages.receive(20)
        with pytest.raises(errors.WrongKind, match="index="):
            message.ack()
        with pytest.raises(errors.WrongKind, match="index="):
            messages.commit()
    assert client.indexes(topic) == []


def test_indexes_are_described(world, client):
    topic = filled(world, 4, partitions=2)
    with (
        client.subscribe(topic, index="b", hold_retention=True),
        client.subscribe(topic, index="a", partitions=[1]),
    ):
        a, b = client.indexes(topic)
        # An index is made in all partitions of a node: in a cluster, of the node that was asked.
        of_a = [(0, False), (1, True)][2 - len(a.partitions) :]
        assert len(of_a) == 2 or world.nodes > 1
        assert (a.name, a.mode, a.hold_retention, a.lag) == ("a", "own", False, 2 * len(of_a))
        assert (b.name, b.mode, b.hold_retention, b.lag) == ("b", "own", True, 4)
        assert [(each.partition, each.attached) for each in a.partitions] == of_a
        assert [(each.partition, each.attached) for each in b.partitions] == [(0, True), (1, True)]
    until(lambda: not any(p.attached for each in client.indexes(topic) for p in each.partitions))


def test_a_second_consumer_takes_over(world, client):
    topic = filled(world)
    first = client.subscribe(topic, index="i")
    found = take(first, 4)
    found[1].ack()
    first.commit()
    with client.subscribe(topic, index="i") as second:
        assert numbers(take(second, 1)) == [2]

        def fenced() -> bool:
            try:
                first.receive(0.01)
            except errors.Fenced:
                return True
            except errors.Timeout:
                pass
            return False

        until(fenced)
        with pytest.raises(errors.Fenced, match="'i'"):
            first.commit()
        with pytest.raises(errors.Fenced, match="'i'"):
            found[3].ack()  # of one who has lost it: it moves nothing
        first.close()
        client.ping()
        assert positions(client, topic) == [2]


def test_whoever_waits_is_told_that_it_is_fenced(world, client):
    topic = world.topic()
    first = client.subscribe(topic, index="i")
    with Running(first.receive, 20) as waiting, client.subscribe(topic, index="i"):
        waiting.failure(errors.Fenced)
    first.close()


def test_consumers_may_share_an_index_by_partition(world, client):
    topic = filled(world, 8, partitions=2)
    with (
        client.subscribe(topic, index="i", partitions=[0]) as even,
        client.subscribe(topic, index="i", partitions=[1]) as odd,
    ):
        for messages, expected in ((even, [0, 2, 4, 6]), (odd, [1, 3, 5, 7])):
            found = take(messages, 4)
            assert numbers(found) == expected
            found[-1].ack()
            messages.commit()
    assert client.lag(topic, "i") == 0


# --- seeking ---------------------------------------------------------------------------------


def test_an_index_is_put_elsewhere_while_nobody_reads(world, client):
    topic = filled(world, 12, partitions=2)
    with client.subscribe(topic, index="i"):
        pass
    assert client.seek(topic, "i", "latest") == [6, 6]
    assert client.lag(topic, "i") == 0
    assert client.seek(topic, "i", 2, partition=1) == [2]
    assert positions(client, topic) == [6, 2]
    with client.subscribe(topic, index="i") as messages:
        assert numbers(take(messages, 4)) == [5, 7, 9, 11]


def test_an_index_is_put_elsewhere_in_several_partitions(world, client):
    topic = filled(world, 12, partitions=4)
    with client.subscribe(topic, index="i"):
        pass
    assert client.seek(topic, "i", {3: 1, 0: 2}) == {3: 1, 0: 2}
    assert positions(client, topic) == [2, 0, 0, 1]
    assert client.seek(topic, "i", {1: "latest", 3: "earliest"}) == {1: 3, 3: 0}
    assert positions(client, topic) == [2, 3, 0, 0]
    assert client.seek(topic, "i", {}) == {}


def test_of_several_partitions_the_others_move_when_one_is_refused(world, client):
    topic = filled(world, 9, partitions=3)
    with client.subscribe(topic, index="i"):
        pass
    with pytest.raises(errors.OutOfRange, match="99"):
        client.seek(topic, "i", {0: 1, 1: 99, 2: 2})
    assert positions(client, topic) == [1, 0, 2]
    with pytest.raises(errors.UnknownPartition):
        client.seek(topic, "i", {3: 0, 0: 3})
    assert positions(client, topic) == [3, 0, 2]


@pytest.mark.parametrize(
    ("places", "error"),
    [({0: -1}, errors.OutOfRange), ({-1: 0}, errors.OutOfRange), ({"0": 0}, errors.WrongType),
     ({True: 0}, errors.WrongType)],
)  # fmt: skip
def test_places_that_cannot_be_are_refused_before_any_is_sought(world, client, places, error):
    topic = filled(world, 2)
    with client.subscribe(topic, index="i"):
        pass
    with pytest.raises(error):
        client.seek(topic, "i", {0: 2, **places})
    with pytest.raises(errors.WrongType, match="leave partition= out"):
        client.seek(topic, "i", {0: 2}, partition=0)
    assert positions(client, topic) == [0]


def test_a_consumer_that_is_attached_goes_on_where_the_client_seeks(world, client):
    topic = filled(world)
    with client.subscribe(topic, index="i") as messages:
        before = take(messages, 8)
        client.seek(topic, "i", 3)
        until(lambda: messages.position(0) == 3)
        before[7].ack()  # from before the seek: void
        after = take(messages, 7)
        assert numbers(after) == list(range(3, 10))
        after[1].ack()
        messages.commit()
        assert positions(client, topic) == [5]


@pytest.mark.parametrize("index", [None, "i"])
def test_a_subscription_seeks_back_and_forth(world, client, index):
    topic = filled(world)
    with client.subscribe(topic, index=index) as messages:
        take(messages, 4)
        for place in (8, 0, 10, 5):
            messages.seek(0, place)
            assert messages.position(0) == place
            assert numbers(take(messages, 10 - place)) == list(range(place, 10))
    if index:
        assert positions(client, topic) == [5]


@pytest.mark.parametrize("index", [None, "i"])
def test_a_seek_to_nowhere_is_refused_and_reading_goes_on(world, client, index):
    topic = filled(world)
    with client.subscribe(topic, index=index) as messages:
        take(messages, 4)
        with pytest.raises(errors.OutOfRange, match="99"):
            messages.seek(0, 99)
        with pytest.raises(errors.UnknownPartition):
            messages.seek(1, 0)
        assert numbers(take(messages, 6)) == list(range(4, 10))


def test_seeking_what_is_not_there(world, client):
    topic = filled(world)
    for call in (
        lambda: client.seek(topic, "nobody", "earliest"),
        lambda: client.lag(topic, "nobody"),
        lambda: client.delete_index(topic, "nobody"),
    ):
        with pytest.raises(errors.UnknownIndex, match="nobody"):
            call()
    with client.subscribe(topic, index="i"):
        pass
    with pytest.raises(errors.OutOfRange, match="99"):
        client.seek(topic, "i", 99)
    with pytest.raises(errors.UnknownPartition):
        client.seek(topic, "i", 0, partition=1)
    assert positions(client, topic) == [0]


def test_a_deleted_index_is_new_again(world, client):
    topic = filled(world)
    with client.subscribe(topic, index="i", start=5) as messages:
        messages.receive(20).ack()
    client.delete_index(topic, "i")
    assert client.indexes(topic) == []
    with client.subscribe(topic, index="i") as messages:
        assert numbers(take(messages, 1)) == [0]


def test_deleting_an_index_ends_its_consumer(world, client):
    topic = world.topic()
    messages = client.subscribe(topic, index="i")
    with Running(messages.receive, 20) as waiting:
        client.delete_index(topic, "i")
        waiting.failure(errors.UnknownIndex)
    messages.close()
    assert client.indexes(topic) == []
