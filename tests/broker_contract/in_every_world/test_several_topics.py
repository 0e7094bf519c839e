"""One subscription to several topics: by a list of names, and by patterns."""

from __future__ import annotations

from collections import Counter

import pytest

from hocket import errors
from hocket.client.faces import topics_reader
from hocket.client_core.consuming.inbound import CHUNK
from tests.support.brokers.every_world import only, take
from tests.support.threads import until


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """The topics are listed often, so that the tests need not wait long for new ones."""
    monkeypatch.setattr(topics_reader, "LOOK_US", 50_000)


MODES = pytest.mark.parametrize("mode", ["own", "shared", "key_shared"])


def filled(client, *topics: str, count: int = 5) -> None:
    for topic in topics:
        client.create_topic(topic, exist_ok=True)
        with client.producer(topic) as producer:
            producer.send_many([b"%d" % number for number in range(count)])


def found(messages) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for message in messages:
        by_topic.setdefault(message.topic, []).append(int(message.value))
    return by_topic


def nothing_comes(subscription, seconds: float = 0.15) -> bool:
    with pytest.raises(errors.Timeout):
        subscription.receive(timeout=seconds)
    return True


@MODES
def test_every_topic_of_a_list_is_read_in_order_and_goes_on_where_its_index_is(world, client, mode):
    one, other = world.topic(2), world.topic()
    filled(client, one, other, count=100)
    with client.subscribe([one, other, one], index="i", mode=mode) as messages:
        assert messages.topics == sorted([one, other])
        assert messages.topic == f"{one},{other}"
        first = take(messages, 150)
        for message in first:
            message.ack()
        messages.commit()
    assert client.lag(one, "i") + client.lag(other, "i") == 50
    with client.subscribe([one, other], index="i", mode=mode) as messages:
        rest = take(messages, 50)
        assert nothing_comes(messages)
    read = Counter((m.topic, m.partition, m.offset) for m in [*first, *rest])
    assert len(read) == 200
    assert set(read.values()) == {1}
    assert sorted(found([*first, *rest])[other]) == list(range(100))
    if mode == "own":
        assert found([*first, *rest])[other] == list(range(100))


def test_topics_take_turns(world, client):
    one, other = world.topic(), world.topic()
    filled(client, one, other, count=5000)
    with client.subscribe([one, other]) as messages:
        until(lambda: messages.lag == 10_000)  # something of both is here
        turns = [message.topic for message in take(messages, 2 * CHUNK)]
    assert set(turns) == {one, other}  # the first has as much again, and the other comes first


def test_batches_of_several_topics(world, client):
    one, other = world.topic(), world.topic()
    filled(client, one, other, count=10)
    counts: Counter[str] = Counter()
    with client.subscribe([one, other], index="i") as messages:
        while sum(counts.values()) < 20:
            batch = messages.receive_batch(20)
            counts[batch.topic] += batch.count
            batch.ack()
    assert counts == {one: 10, other: 10}
    assert client.lag(one, "i") == client.lag(other, "i") == 0


def test_one_of_several_topics_is_sought(world, client):
    one, other = world.topic(), world.topic()
    filled(client, one, other)
    with client.subscribe([one, other], index="i") as messages:
        take(messages, 10)
        messages.seek(0, 3, topic=one)
        assert messages.position(0, one) == 3
        assert found(take(messages, 2)) == {one: [3, 4]}
        assert messages.position(0, other) == 5


@MODES
def test_a_pattern_takes_what_matches_also_what_is_made_later_from_its_first_message(
    world, client, mode
):
    base = world.name()
    filled(client, f"{base}.a", f"{base}.b", f"not-{base}.a")
    with client.subscribe(f"{base}.*", index="i", mode=mode, start="latest") as messages:
        assert messages.topics == [f"{base}.a", f"{base}.b"]
        assert nothing_comes(messages)
        filled(client, f"{base}.new")
        later = take(messages, 5)
        assert found(later) == {f"{base}.new": list(range(5))}
        assert messages.topics == [f"{base}.a", f"{base}.b", f"{base}.new"]
        for message in later:
            message.ack()
        messages.commit()
    assert client.lag(f"{base}.new", "i") == 0


def test_names_and_patterns_together_and_a_pattern_that_matches_nothing_yet(world, client):
    base, named = world.name(), world.topic()
    filled(client, named)
    with client.subscribe([named, f"{base}.*"]) as messages:
        assert messages.topics == [named]
        assert found(take(messages, 5)) == {named: list(range(5))}
        filled(client, f"{base}.x")
        assert found(take(messages, 5)) == {f"{base}.x": list(range(5))}


def test_dead_letters_and_internal_topics_are_read_only_if_they_are_meant(world, client):
    base = world.name()
    filled(client, f"{base}.a", f"{base}.dlq", f"_{base}.a", count=1)
    with client.subscribe(f"*{base}.*") as messages:
        assert messages.topics == [f"{base}.a"]
    with client.subscribe(f"{base}.*.dlq", start="latest") as messages:
        assert messages.topics == []
    with client.subscribe(f"{base}*.dlq") as messages:
        assert messages.topics == [f"{base}.dlq"]
    with client.subscribe(f"_{base}.*") as messages:
        assert messages.topics == [f"_{base}.a"]
    with client.subscribe([f"{base}.a", f"{base}.dlq"]) as messages:
        assert messages.topics == [f"{base}.a", f"{base}.dlq"]


def test_a_topic_of_a_pattern_that_is_deleted_is_left_out_and_read_again_when_made_anew(
    world, client
):
    base = world.name()
    filled(client, f"{base}.a", f"{base}.b")
    with client.subscribe(f"{base}.*", index="i") as messages:
        take(messages, 10)
        client.delete_topic(f"{base}.a")
        until(lambda: messages.topics == [f"{base}.b"])
        filled(client, f"{base}.b")
        assert found(take(messages, 5)) == {f"{base}.b": list(range(5))}
        filled(client, f"{base}.a", count=3)
        later = take(messages, 3)
        assert found(later) == {f"{base}.a": [0, 1, 2]}
        later[-1].ack()
    assert client.lag(f"{base}.a", "i") == 0


def test_a_named_topic_that_is_deleted_ends_the_subscription(world, client):
    one, other = world.topic(), world.topic()
    with client.subscribe([one, other]) as messages:
        client.delete_topic(one)
        with pytest.raises(errors.UnknownTopic):
            messages.receive(timeout=20)
        with pytest.raises(errors.UnknownTopic):
            messages.receive(timeout=20)


def test_what_is_wrong_is_refused(world, client):
    topic = world.topic()
    for wrong, error in (
        ([], errors.OutOfRange),
        ([topic, "no such topic"], errors.BadName),
        (["a b*"], errors.BadName),
        (7, errors.WrongType),
        (b"abc", errors.WrongType),
        ([topic, None], errors.WrongType),
        ([topic, [topic]], errors.WrongType),
    ):
        with pytest.raises(error):
            client.subscribe(wrong)
    with pytest.raises(errors.UnknownTopic):
        client.subscribe([topic, "missing"])
    for options in ({"partitions": [0]}, {"positions": {0: 1}}):
        with pytest.raises(errors.OutOfRange, match="of one topic"):
            client.subscribe([topic, world.topic()], **options)
    with client.subscribe([topic, world.topic()]) as messages:
        for call in (lambda: messages.seek(0, 0), lambda: messages.position(0), messages.commit):
            with pytest.raises(errors.WrongKind):
                call()
        for call in (
            lambda: messages.seek(0, 0, topic="missing"),
            lambda: messages.position(0, "missing"),
        ):
            with pytest.raises(errors.UnknownTopic):
                call()
        assert (messages.lag, messages.lost, messages.refused) == (0, 0, 0)


@only("served", "cluster")
def test_a_client_that_is_closed_ends_it(world):
    with world.connect() as client:
        messages = client.subscribe(f"{world.name()}.*")
        client.close()
        with pytest.raises(errors.Closed):
            messages.receive(timeout=20)
