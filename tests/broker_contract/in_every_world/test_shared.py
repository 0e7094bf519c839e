"""Shared indexes: each message to one consumer, settled one by one, delivered again if need be."""

from __future__ import annotations

import time

import pytest

from hocket import errors
from hocket.client_core.sharing.window import FIRST
from tests.support.brokers.every_world import in_parallel, only, publish_to_new_partition, take
from tests.support.threads import until

SOON = 20.0  # seconds within which what is due has come
SHORT = 0.3  # a lease that a test can wait for
KEPT = 1.0  # a lease that is extended in time, also on a busy machine


def filled(world, count: int = 10, partitions: int = 1, keys=()) -> str:
    topic = world.topic(partitions)
    with world.client.producer(topic) as producer:
        for number in range(count):
            key = keys[number % len(keys)] if keys else None
            producer.send(b"%d" % number, key=key, partition=None if keys else number % partitions)
    return topic


def shared(client, topic, **options):
    return client.subscribe(topic, **{"index": "workers", "mode": "shared", **options})


def numbers(messages) -> list[int]:
    return [int(message.value) for message in messages]


def nothing_comes(subscription, seconds: float = 0.15) -> bool:
    with pytest.raises(errors.Timeout):
        subscription.receive(timeout=seconds)
    return True


def position(client, topic, partition: int = 0):
    (index,) = client.indexes(topic)
    found = index.partitions[partition]
    return found.position, found.ahead, found.leased


# --- ack -----------------------------------------------------------------------------------------


def test_what_is_acknowledged_does_not_come_again(world, client):
    topic = filled(world)
    with shared(client, topic) as workers:
        for message in take(workers, 10):
            message.ack()
    assert client.lag(topic, "workers") == 0
    with shared(client, topic) as workers:
        assert nothing_comes(workers)


def test_each_ack_is_for_its_message_alone(world, client):
    topic = filled(world)
    with shared(client, topic) as workers:
        for message in take(workers, 10)[::2]:
            message.ack()
        workers.commit()
        assert position(client, topic) == (1, 4, 5)
        assert client.lag(topic, "workers") == 5
    with shared(client, topic) as workers:
        assert numbers(take(workers, 5)) == [1, 3, 5, 7, 9]


def test_commit_waits_until_it_is_durable(world, client):
    topic = filled(world, 3)
    with shared(client, topic) as workers:
        for message in take(workers, 3):
            message.ack()
        workers.commit()
        assert client.lag(topic, "workers") == 0
        assert workers.refused == 0


def test_acknowledging_twice_is_once(world, client):
    topic = filled(world, 2)
    with shared(client, topic) as workers:
        first, second = take(workers, 2)
        for _ in range(2):
            first.ack()
            first.nack()
            workers.commit()
        second.reject("no")
        second.ack()
        workers.commit()
        until(lambda: client.lag(topic, "workers") == 0, what="the rejected one is a dead letter")


def test_many_messages_in_any_order(world, client):
    topic = filled(world, 900, partitions=3)
    with shared(client, topic) as workers:
        messages = take(workers, 900)
        for message in messages[1::2] + messages[::2][::-1]:
            message.ack()
        workers.commit()
    assert client.lag(topic, "workers") == 0
    assert sorted(numbers(messages)) == list(range(900))


def test_a_batch_is_settled_whole(world, client):
    topic = filled(world, 100)
    seen = 0
    with shared(client, topic) as workers:
        for batch in workers.batches():
            assert batch.delivery_count == 1
            seen += len(batch)
            batch.ack()
            if seen == 100:
                break
        workers.commit()
        assert client.lag(topic, "workers") == 0


def test_batches_become_columns(world, client):
    pytest.importorskip("pyarrow")
    topic = filled(world, 5)
    with shared(client, topic) as workers:
        table = workers.receive_batch(timeout=SOON).to_arrow()
        assert table.column("value").to_pylist()[0] == b"0"


# --- nack ----------------------------------------------------------------------------------------


def test_a_nacked_message_comes_again_and_is_counted(world, client):
    topic = filled(world, 1)
    with shared(client, topic) as workers:
        for count in (1, 2, 3):
            message = workers.receive(timeout=SOON)
            assert (message.value, message.delivery_count) == (b"0", count)
            message.nack()
        workers.receive(timeout=SOON).ack()
    assert client.lag(topic, "workers") == 0


def test_what_is_nacked_comes_before_what_is_new(world, client):
    topic = filled(world, 100)
    with shared(client, topic, prefetch=1) as workers:
        workers.receive(timeout=SOON).nack()
        again = workers.receive(timeout=SOON)
        assert (int(again.value), again.delivery_count) == (0, 2)
        again.ack()
        assert int(workers.receive(timeout=SOON).value) == 1


@pytest.mark.parametrize("delay", [0.3, "300ms"])
def test_a_delay_is_waited_for(world, client, delay):
    topic = filled(world, 2)
    with shared(client, topic) as workers:
        first, second = take(workers, 2)
        before = time.monotonic()
        first.nack(delay=delay)
        second.ack()
        message = workers.receive(timeout=SOON)
        assert time.monotonic() - before >= 0.3
        assert (message.value, message.delivery_count) == (b"0", 2)
        message.ack()


def test_a_batch_is_nacked_whole(world, client):
    topic = filled(world, 20)
    with shared(client, topic) as workers:
        batch = workers.receive_batch(timeout=SOON)
        batch.nack()
        got = take(workers, 20)
        again = [message for message in got if message.delivery_count == 2]
        assert numbers(again) == list(range(batch.offset, batch.end))


# --- reject and the dead letters -----------------------------------------------------------------


def dead_letters(client, topic, count):
    until(lambda: topic + ".dlq" in client.topics())
    with client.subscribe(topic + ".dlq") as dead:
        return take(dead, count)


def test_a_rejected_message_goes_to_the_dead_letters(world, client):
    topic = filled(world, 3)
    with shared(client, topic) as workers:
        first, second, third = take(workers, 3)
        first.ack()
        second.reject("no such customer")
        third.ack()
        workers.commit()
    (dead,) = dead_letters(client, topic, 1)
    assert dead.value == b"1"
    assert b"no such customer" in dead.headers.values()
    until(lambda: client.lag(topic, "workers") == 0)


def test_after_so_many_deliveries_it_goes_to_the_dead_letters(world, client):
    topic = filled(world, 2)
    with shared(client, topic, max_deliveries=3) as workers:
        counts = []
        while len(counts) < 4:
            message = workers.receive(timeout=SOON)
            if message.value == b"1":
                message.ack()
            else:
                message.nack()
            counts.append(message.delivery_count)
        assert sorted(counts) == [1, 1, 2, 3]
        (dead,) = dead_letters(client, topic, 1)
        assert dead.value == b"0"
        assert nothing_comes(workers)


# --- leases --------------------------------------------------------------------------------------


def test_a_lease_that_ends_gives_the_message_to_another(world, client):
    topic = filled(world, 1)
    with shared(client, topic, lease=SHORT) as first:
        assert first.receive(timeout=SOON).delivery_count == 1
        with shared(client, topic, lease=30) as second:
            message = second.receive(timeout=SOON)
            assert message.delivery_count == 2
            message.ack()
    assert client.lag(topic, "workers") == 0


def test_settling_too_late_is_refused(world, client):
    topic = filled(world, 1)
    with shared(client, topic, lease=SHORT, max_deliveries=50) as workers:
        old = workers.receive(timeout=SOON)
        new = workers.receive(timeout=SOON)
        assert (old.offset, new.delivery_count) == (new.offset, 2)
        old.ack()
        new.extend(SOON)
        with pytest.raises(errors.LeaseLost, match=r"partition 0, offset 0"):
            workers.commit()
        assert workers.refused == 1
        new.ack()
        workers.commit()
        assert client.lag(topic, "workers") == 0


def test_the_broker_refuses_what_it_has_given_to_another(world, client):
    topic = filled(world, 1)
    with shared(client, topic, lease=SHORT, max_deliveries=50) as first:
        message = first.receive(timeout=SOON)
        with shared(client, topic) as second:
            got = second.receive(timeout=SOON)
            got.extend(SOON)
            second.commit()
            message.ack()
            with pytest.raises(errors.LeaseLost, match=r"partition 0, offset 0"):
                first.commit()
            assert first.refused == 1
            got.ack()
    assert client.lag(topic, "workers") == 0


def test_an_extended_lease_lasts(world, client):
    topic = filled(world, 1)
    with shared(client, topic, lease=KEPT) as workers:
        message = workers.receive(timeout=SOON)
        message.extend(SOON)
        assert nothing_comes(workers, 1.5 * KEPT)
        message.ack()
        workers.commit()
        assert client.lag(topic, "workers") == 0


def test_extending_again_and_again(world, client):
    topic = filled(world, 1)
    with shared(client, topic, lease=KEPT) as workers:
        message = workers.receive(timeout=SOON)
        for _ in range(4):
            message.extend()
            assert nothing_comes(workers, KEPT / 3)
        message.ack()
        workers.commit()


def test_what_waits_in_the_client_does_not_lose_its_lease(world, client):
    topic = filled(world, 5)
    with shared(client, topic, lease=1) as workers:  # a disk may take a tenth of that now and then
        counts = []
        for _ in range(5):
            message = workers.receive(timeout=SOON)
            nothing_else = time.monotonic() + 0.4
            until(lambda end=nothing_else: time.monotonic() >= end)
            message.ack()
            workers.commit()
            counts.append(message.delivery_count)
        assert counts == [1] * 5


def test_a_consumer_that_takes_nothing_does_not_keep_what_it_has(world, client):
    topic = filled(world, 50)
    with shared(client, topic, lease=SHORT) as idle:
        until(lambda: position(client, topic)[2] == FIRST)
        with shared(client, topic) as busy:
            got = []
            for _ in range(50):
                got.append(busy.receive(timeout=SOON))
                got[-1].ack()
            busy.commit()
            assert sorted(numbers(got)) == list(range(50))
            assert {message.delivery_count for message in got} == {1}
        assert client.lag(topic, "workers") == 0
        assert idle.refused == 0


def test_the_last_to_set_it_decides_how_long_a_lease_is(world, client):
    topic = filled(world, 1)
    with shared(client, topic, lease="1h"):
        pass
    with shared(client, topic) as workers:  # as the index has it
        workers.receive(timeout=SOON)
        assert nothing_comes(workers, 0.3)
    with shared(client, topic, lease=SHORT) as workers:
        assert [workers.receive(timeout=SOON).delivery_count for _ in range(2)] == [2, 3]


# --- several consumers ---------------------------------------------------------------------------


def test_two_consumers_split_the_work(world, client):
    topic = filled(world, 400, partitions=2)
    seen: tuple[list[int], list[int]] = ([], [])

    def work(subscription, mine):
        while len(seen[0]) + len(seen[1]) < 400:
            try:
                message = subscription.receive(timeout=0.05)
            except errors.Timeout:
                continue
            mine.append(int(message.value))
            message.ack()
        subscription.commit()

    with shared(client, topic, prefetch=10) as one, shared(client, topic, prefetch=10) as two:
        in_parallel([lambda: work(one, seen[0]), lambda: work(two, seen[1])])
    assert sorted(seen[0] + seen[1]) == list(range(400))
    assert seen[0]
    assert seen[1]
    assert client.lag(topic, "workers") == 0


def test_prefetch_bounds_what_one_consumer_holds_unsettled(world, client):
    topic = filled(world, 50)
    with shared(client, topic, prefetch=7) as workers:
        messages = take(workers, 7)
        assert nothing_comes(workers)
        assert position(client, topic) == (0, 0, 7)
        messages[0].ack()
        messages[3].nack(delay=60)
        assert numbers(take(workers, 2)) == [7, 8]
        assert nothing_comes(workers)
        assert position(client, topic) == (1, 0, 7)


def test_a_consumer_takes_little_until_it_has_to_wait(world, client):
    topic = filled(world, 100)
    with shared(client, topic) as one, shared(client, topic) as two:
        until(lambda: position(client, topic)[2] == 2 * FIRST)
        assert len(take(one, FIRST)) == len(take(two, FIRST)) == FIRST
        assert len(take(one, 68)) == 68  # the rest of it


def test_closing_gives_back_what_was_not_handed_out(world, client):
    topic = filled(world, 20)
    workers = shared(client, topic, lease="1h")
    taken = take(workers, 3)
    taken[0].ack()
    workers.close()
    with shared(client, topic) as others:
        got = take(others, 19)
    assert numbers(got) == list(range(1, 20))
    # What was handed out and not settled was a delivery, the rest was not.
    assert [message.delivery_count for message in got] == [2, 2] + [1] * 17


def test_those_who_wait_are_told_of_the_close(world, client):
    topic = filled(world, 1)
    workers = shared(client, topic)
    workers.receive(timeout=SOON).ack()
    workers.close()
    with pytest.raises(errors.Closed):
        workers.receive(timeout=1)
    workers.close()


def test_two_shared_indexes_know_nothing_of_each_other(world, client):
    topic = filled(world, 5)
    for index in ("a", "b"):
        with shared(client, topic, index=index) as workers:
            for message in take(workers, 5):
                message.ack()
    assert [client.lag(topic, index) for index in ("a", "b")] == [0, 0]


def test_only_some_partitions(world, client):
    topic = filled(world, 20, partitions=4)
    with shared(client, topic, partitions=[1, 3]) as workers:
        got = take(workers, 10)
        assert {message.partition for message in got} == {1, 3}
        assert workers.partitions == [1, 3]
        assert nothing_comes(workers)


def test_a_new_index_begins_at_start(world, client):
    topic = filled(world, 5)
    with shared(client, topic, start="latest") as workers:
        client.publish(topic, b"99")
        assert numbers(take(workers, 1)) == [99]
    with shared(client, topic, index="other", start=3) as workers:
        assert numbers(take(workers, 3)) == [3, 4, 99]


def test_a_topic_that_grows(world, client):
    topic = filled(world, 2)
    with shared(client, topic) as workers:
        take(workers, 2)
        client.alter_topic(topic, partitions=2)
        publish_to_new_partition(client, topic, 1)
        message = workers.receive(timeout=SOON)
        assert (message.partition, message.value) == (1, b"1")
        message.ack()
        workers.commit()


# --- keys ----------------------------------------------------------------------------------------

KEYS = [b"a", b"b", b"c", b"d", b"e"]


def test_a_key_is_with_one_consumer_at_a_time_in_order(world, client):
    topic = filled(world, 300, keys=KEYS)
    orders: dict[bytes, list[int]] = {key: [] for key in KEYS}

    def work(subscription):
        while sum(map(len, orders.values())) < 300:
            try:
                message = subscription.receive(timeout=0.05)
            except errors.Timeout:
                continue
            orders[message.key].append(int(message.value))
            message.ack()
        subscription.commit()

    with (
        shared(client, topic, mode="key_shared", prefetch=5) as one,
        shared(client, topic, mode="key_shared", prefetch=5) as two,
    ):
        in_parallel([lambda: work(one), lambda: work(two)])
    for number, key in enumerate(KEYS):
        assert orders[key] == list(range(number, 300, 5))


def test_a_nacked_key_waits_and_the_others_do_not(world, client):
    topic = filled(world, 20, keys=KEYS)
    with shared(client, topic, mode="key_shared") as workers:
        seen = []
        nacked = False
        while len(seen) < 20:
            message = workers.receive(timeout=SOON)
            if message.value == b"5" and not nacked:
                nacked = True
                message.nack(delay=0.3)
                continue
            seen.append((message.key, int(message.value)))
            message.ack()
        workers.commit()
    for number, key in enumerate(KEYS):
        assert [value for each, value in seen if each == key] == list(range(number, 20, 5))
    assert seen.index((b"a", 5)) > seen.index((b"e", 19))


def test_messages_without_a_key_are_shared_by_all(world, client):
    topic = filled(world, 100)
    with shared(client, topic, mode="key_shared") as workers:
        got = take(workers, 100)
        assert sorted(numbers(got)) == list(range(100))
        for message in got:
            message.ack()


# --- what does not go ----------------------------------------------------------------------------


def test_an_index_is_of_one_kind(world, client):
    topic = filled(world, 1)
    with (
        shared(client, topic),
        client.subscribe(topic, index="own"),
    ):
        for open_wrongly in (
            lambda: shared(client, topic, index="own"),
            lambda: client.subscribe(topic, index="workers"),
            lambda: shared(client, topic, mode="key_shared"),
        ):
            with pytest.raises(errors.WrongKind):
                open_wrongly()


def test_a_shared_index_has_no_place_of_its_own(world, client):
    topic = filled(world, 1)
    with shared(client, topic) as workers:
        for call in (
            lambda: workers.seek(0, 0),
            lambda: workers.position(0),
            lambda: workers.lag,
        ):
            with pytest.raises(errors.WrongKind, match=r"client\."):
                call()


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"index": None}, errors.BadName),
        ({"lease": 0}, errors.OutOfRange),
        ({"lease": "13h"}, errors.OutOfRange),
        ({"lease": b"5"}, errors.WrongType),
        ({"max_deliveries": 0}, errors.OutOfRange),
        ({"max_deliveries": 251}, errors.OutOfRange),
        ({"max_deliveries": "5"}, errors.WrongType),
        ({"prefetch": 0}, errors.OutOfRange),
        ({"prefetch": 20_001}, errors.OutOfRange),
        ({"failover": "quick"}, errors.OutOfRange),
        ({"positions": {0: 0}}, errors.OutOfRange),
        ({"mode": "own", "lease": 5}, errors.OutOfRange),
        ({"mode": "own", "max_deliveries": 5}, errors.OutOfRange),
        ({"mode": "private"}, errors.OutOfRange),
    ],
    ids=str,
)
def test_options_that_cannot_work_are_refused(world, client, options, kind):
    topic = world.topic()
    with pytest.raises(kind):
        shared(client, topic, **options)
    assert client.indexes(topic) == []


# --- going elsewhere -----------------------------------------------------------------------------


def test_an_index_put_back_delivers_again(world, client):
    topic = filled(world, 5)
    with shared(client, topic) as workers:
        old = take(workers, 5)
        for message in old[:3]:
            message.ack()
        workers.commit()
        assert client.seek(topic, "workers", "earliest") == [0]
        got = take(workers, 5)
        assert numbers(got) == [0, 1, 2, 3, 4]
        old[4].ack()  # void
        workers.commit()
        assert client.lag(topic, "workers") == 5
        for message in got:
            message.ack()
        workers.commit()
        assert client.lag(topic, "workers") == 0


def test_an_index_put_forward_skips(world, client):
    topic = filled(world, 50)
    with shared(client, topic, prefetch=5) as workers:
        take(workers, 2)
        client.seek(topic, "workers", 45)
        assert numbers(take(workers, 5)) == [45, 46, 47, 48, 49]


def test_a_deleted_topic_ends_it(world, client):
    topic = filled(world, 1)
    workers = shared(client, topic)
    take(workers, 1)
    client.delete_topic(topic)
    with pytest.raises(errors.UnknownTopic):
        workers.receive(timeout=SOON)
    workers.close()


# --- restarts ------------------------------------------------------------------------------------


@only("embedded", "cluster")
def test_nothing_acknowledged_comes_back_after_a_restart(world, tmp_path):
    with world.life(tmp_path / "data") as client:
        client.create_topic("t")
        with client.producer("t") as producer:
            producer.send_many([b"%d" % n for n in range(10)])
        with shared(client, "t") as workers:
            for message in take(workers, 10):
                if int(message.value) % 2:
                    message.ack()
    with world.life(tmp_path / "data") as client, shared(client, "t") as workers:
        got = take(workers, 5)
        assert sorted(numbers(got)) == [0, 2, 4, 6, 8]
        assert {message.delivery_count for message in got} == {2}
        assert nothing_comes(workers)


@only("served", "cluster")
def test_what_is_in_hand_survives_a_restart_of_the_broker(world, tmp_path):
    server = world.server(tmp_path / "data")
    with server, world.connect(server.address) as client:
        client.create_topic("t")
        with client.producer("t") as producer:
            producer.send_many([b"%d" % n for n in range(20)])
        with shared(client, "t") as workers:
            got = take(workers, 10)
            assert server.terminate() == 0
            server.start()
            for message in got:
                message.ack()
            workers.commit()
            rest = take(workers, 10)
            assert sorted(numbers(rest)) == list(range(10, 20))
            for message in rest:
                message.ack()
            workers.commit()
            assert workers.refused == 0
            assert client.lag("t", "workers") == 0
