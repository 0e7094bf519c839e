"""What a producer has stored that nobody can read: it is named, set aside, or passed, alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hocket
import hocket.aio
from hocket import frames
from hocket.client.faces.blocking.client import Client
from hocket.errors import (
    Closed,
    CorruptData,
    OutOfRange,
    Timeout,
    UnknownIndex,
    UnknownPartition,
    WrongKind,
)
from hocket.node.background import dead_letters as background
from hocket.node.running.sharing import Shares
from hocket.wire.batch import parse
from hocket.wire.entry import HEADER_BYTES
from tests.support.brokers.forging import NOW_US, forge, unopenable
from tests.support.threads import until
from tests.support.wire.batches import with_fallen_offset, with_false_raw_length, with_foreign_name

SHARED = ["shared", "key_shared"]


@pytest.fixture
def poisoned(client: Client, topic: str) -> str:
    """Seven messages; nobody can open the batch of 3 and 4."""
    for number in range(3):
        client.publish(topic, b"%d" % number, key=b"a")
    assert isinstance(forge(client, topic, unopenable()), frames.Published)
    for number in range(5, 7):
        client.publish(topic, b"%d" % number, key=b"a")
    return topic


def offsets_until_damage(subscription: Any, *, ack: bool = True) -> tuple[list[int], CorruptData]:
    found = []
    while True:
        try:
            message = subscription.receive(timeout=20)
        except CorruptData as error:
            return found, error
        found.append(message.offset)
        if ack:
            message.ack()


# --- on arrival ----------------------------------------------------------------------------------


def test_what_can_be_seen_at_once_is_refused_and_the_client_goes_on(client, topic):
    for codec in ("lz4", "zstd"):
        refused = forge(client, topic, with_false_raw_length([b"x" * 100] * 20, codec=codec))
        assert isinstance(refused, CorruptData)
        assert "was not stored" in str(refused)
    assert client.publish(topic, b"good").offset == 0


# --- a shared index ------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", SHARED)
@pytest.mark.parametrize("by", ["message", "batch"])
def test_a_shared_index_sets_it_aside_alone_and_delivers_its_neighbours(client, poisoned, mode, by):
    with client.subscribe(poisoned, index="workers", mode=mode) as subscription:
        found = []
        while len(found) < 5:
            if by == "message":
                messages = [subscription.receive(timeout=20)]
            else:
                messages = subscription.receive_batch(timeout=20).messages()
            for message in messages:
                found.append(message.value)
                assert message.delivery_count == 1
                message.ack()
        assert found == [b"0", b"1", b"2", b"5", b"6"]
        subscription.commit()
    until(lambda: client.lag(poisoned, "workers") == 0, what="it is set aside, and done with")
    (letter,) = client.dead_letters(poisoned)
    assert (letter.source.topic, letter.source.partition) == (poisoned, 0)
    assert (letter.source.offset, letter.end) == (3, 5)
    assert (letter.index, letter.unreadable, letter.part) == ("workers", "batch", "1/1")
    assert letter.reason.startswith("cannot be read: offsets 3 to 5: ")
    stored = parse(letter.value)  # the bytes as they are stored: checksum, header and all
    assert (stored.base_offset, stored.end_offset) == (3, 5)
    assert letter.value[HEADER_BYTES:] == unopenable()[HEADER_BYTES:]
    assert client.replay_dead_letters(poisoned) == 0
    assert client.dead_letters(poisoned) == [letter]  # it waits for somebody to look at it
    assert not letter.is_pending


def test_consumers_from_before_that_end_upon_it_lose_no_neighbour(client, topic):
    """An older client ends with all that it holds, again and again, until all of it dies."""
    client.publish(topic, b"0")
    forge(client, topic, unopenable())
    client.publish(topic, b"3")
    options = {"index": "old", "mode": "shared", "max_deliveries": 2}
    for _ in range(2):
        subscription = client.subscribe(topic, **options)
        (part,) = subscription._core.parts()
        until(lambda part=part: len(part.inbound.waiting(part.inbound.by_partition[0])) == 4)
        subscription._core.wind_up = lambda: None  # it releases nothing
        subscription.close()
    until(lambda: client.lag(topic, "old") == 0, what="all is done with")
    letters = client.dead_letters(topic)
    assert [(each.source.offset, each.end, each.unreadable) for each in letters] == [
        (0, 1, ""),
        (3, 4, ""),
        (1, 3, "batch"),
    ]
    assert [letter.value for letter in letters[:2]] == [b"0", b"3"]
    assert client.replay_dead_letters(topic) == 2


@pytest.mark.parametrize("make", [with_fallen_offset, with_foreign_name])
def test_of_a_batch_only_the_record_that_makes_no_sense_is_set_aside(client, topic, make):
    values = [b"%d" % number for number in range(300)]
    assert isinstance(
        forge(client, topic, make(values, at=150, timestamps=NOW_US)), frames.Published
    )
    with client.subscribe(topic, index="workers", mode="shared") as subscription:
        found = []
        while len(found) < 299:
            message = subscription.receive(timeout=20)
            found.append(message.offset)
            message.ack()
    assert sorted(found) == [*range(150), *range(151, 300)]
    until(lambda: client.lag(topic, "workers") == 0, what="all is done with")
    (letter,) = client.dead_letters(topic)
    assert (letter.source.offset, letter.end, letter.unreadable) == (150, 151, "record")
    if make is with_foreign_name:
        assert (letter.value, letter.headers) == (b"150", {r"n\xff\xfee": b"x"})


def test_a_batch_that_dies_in_many_units_makes_one_dead_letter(client, topic):
    forge(client, topic, unopenable(350))
    with client.subscribe(topic, index="workers", mode="shared", prefetch=400) as subscription:
        until(lambda: nothing_comes(subscription) and client.lag(topic, "workers") == 0)
    (letter,) = client.dead_letters(topic)
    assert (letter.source.offset, letter.end) == (0, 350)


def nothing_comes(subscription: Any) -> bool:
    with pytest.raises(Timeout):
        subscription.receive(timeout=0.05)
    return True


def test_asyncio_does_the_same(world, client, poisoned):
    async def consume() -> list[bytes]:
        found = []
        async with (
            world.aio_connect() as other,
            other.subscribe(poisoned, index="workers", mode="shared") as subscription,
        ):
            while len(found) < 5:
                message = await subscription.receive(20)
                found.append(message.value)
                await message.ack()
        return found

    assert asyncio.run(consume()) == [b"0", b"1", b"2", b"5", b"6"]
    until(lambda: client.lag(poisoned, "workers") == 0)
    assert [each.unreadable for each in client.dead_letters(poisoned)] == ["batch"]


# --- an own index --------------------------------------------------------------------------------


def test_an_own_index_is_moved_past_it_by_name_and_keeps_its_acks(client, poisoned):
    subscription = client.subscribe(poisoned, index="billing")
    found, error = offsets_until_damage(subscription)
    assert found == [0, 1, 2]
    assert (error.topic, error.partition, error.start, error.end) == (poisoned, 0, 3, 5)
    assert f"topic '{poisoned}', partition 0: offsets 3 to 4 cannot be read" in str(error)
    call = f"client.skip('{poisoned}', 'billing', partition=0, offset=3)"
    assert call in str(error)
    assert f"hocket index skip {poisoned} billing --partition 0 --offset 3" in str(error)
    subscription.close()  # commits what was acknowledged
    assert client.lag(poisoned, "billing") == 4
    with pytest.raises(Closed):
        subscription.receive(timeout=1)

    for offset in (3, 4, 3):  # each of them names it; once past, nothing more happens
        assert client.skip(poisoned, "billing", partition=0, offset=offset) == 5
    with client.subscribe(poisoned, index="billing") as again:
        rest = [again.receive(timeout=20) for _ in range(2)]
        assert [message.offset for message in rest] == [5, 6]
        rest[-1].ack()
    assert client.lag(poisoned, "billing") == 0
    assert client.skip(poisoned, "billing", partition=0, offset=3) == 7


@pytest.mark.parametrize("by", ["name", "pattern"])
def test_acks_of_several_topics_are_kept_though_one_of_them_is_deleted_too(client, poisoned, by):
    deleted, healthy = f"{poisoned}.deleted", f"{poisoned}.healthy"
    for name in (deleted, healthy):
        client.create_topic(name)
        client.publish(name, b"good")
    wanted = [deleted, healthy, poisoned] if by == "name" else [f"{poisoned}*"]
    subscription = client.subscribe(wanted, index="billing")
    messages, damage = [], None
    while damage is None:
        try:
            messages.append(subscription.receive(timeout=20))
        except CorruptData as error:
            damage = error
    client.delete_topic(deleted)
    until(lambda: deleted not in subscription.topics)
    for message in messages:
        if message.topic != deleted:
            message.ack()
    subscription.close()
    assert len(messages) == 5
    assert client.lag(healthy, "billing") == 0
    assert damage.topic == poisoned
    assert client.skip(poisoned, "billing", partition=0, offset=damage.start) == 5


def test_what_can_be_read_is_never_skipped(client, poisoned):
    with client.subscribe(poisoned, index="billing") as subscription:
        subscription.receive(timeout=20).ack()
    with pytest.raises(OutOfRange, match=r"is at 1, which can be read: consume and acknowledge"):
        client.skip(poisoned, "billing", partition=0, offset=3)
    client.seek(poisoned, "billing", 3)
    with pytest.raises(OutOfRange, match=r"offsets 3 to 4 cannot be read there; 5 lies behind"):
        client.skip(poisoned, "billing", partition=0, offset=5)
    with pytest.raises(OutOfRange, match="lies beyond"):
        client.skip(poisoned, "billing", partition=0, offset=7)
    assert client.lag(poisoned, "billing") == 4
    assert client.skip(poisoned, "billing", partition=0, offset=3) == 5


def test_bad_input_to_a_skip(client, poisoned):
    with pytest.raises(UnknownIndex):
        client.skip(poisoned, "nobody", partition=0, offset=3)
    client.subscribe(poisoned, index="billing").close()
    with pytest.raises(UnknownPartition):
        client.skip(poisoned, "billing", partition=1, offset=3)
    with pytest.raises(OutOfRange):
        client.skip(poisoned, "billing", partition=0, offset=-1)
    client.subscribe(poisoned, index="workers", mode="shared").close()
    with pytest.raises(WrongKind, match="as dead letters"):
        client.skip(poisoned, "workers", partition=0, offset=3)


def test_a_record_in_the_middle_of_a_batch_is_skipped_alone(client, topic):
    values = [b"%d" % number for number in range(300)]
    forge(client, topic, with_fallen_offset(values, at=150, timestamps=NOW_US))
    with client.subscribe(topic, index="billing") as subscription:
        found, error = offsets_until_damage(subscription)
    assert found == list(range(150))
    assert (error.start, error.end) == (150, 151)
    assert client.skip(topic, "billing", partition=0, offset=150) == 151
    with client.subscribe(topic, index="billing") as subscription:
        assert [subscription.receive(timeout=20).offset for _ in range(149)] == [*range(151, 300)]


def test_asyncio_skips_too(world, client, poisoned):
    async def consume() -> list[int]:
        found = []
        async with world.aio_connect() as other:
            try:
                async with other.subscribe(poisoned, index="billing") as subscription:
                    async for message in subscription:
                        found.append(message.offset)
                        await message.ack()
            except CorruptData as error:
                position = await other.skip(
                    poisoned, "billing", partition=error.partition, offset=error.start
                )
            async with other.subscribe(poisoned, index="billing") as subscription:
                found += [(await subscription.receive(20)).offset for _ in range(2)]
        return [position, *found]

    assert asyncio.run(consume()) == [5, 0, 1, 2, 5, 6]
    assert client.lag(poisoned, "billing") == 2


def test_without_an_index_the_way_past_it_is_said_too(client, poisoned):
    with client.subscribe(poisoned) as subscription:
        _, error = offsets_until_damage(subscription, ack=False)
    assert "subscribe from offset 5 of this partition on" in str(error)
    with client.subscribe(poisoned, positions={0: error.end}) as subscription:
        assert subscription.receive(timeout=20).offset == 5


# --- a segment that is damaged on disk -----------------------------------------------------------


def segment_of(path: Path) -> Path:
    (found,) = (each for each in path.glob("groups/*/*.log") if b"value-1" in each.read_bytes())
    return found


def damaged_store(path: Path, *, at: int = 5) -> None:
    """Ten messages, of which this one does not match its checksum any more."""
    with hocket.embedded(path) as client:
        client.create_topic("t")
        for number in range(10):
            client.publish("t", b"value-%d" % number, key=b"%d" % (number % 2))
    segment = segment_of(path)
    content = segment.read_bytes()
    segment.write_bytes(content.replace(b"value-%d" % at, b"VALUE-%d" % at, 1))


@pytest.mark.parametrize("mode", SHARED)
def test_a_shared_index_sets_damage_on_disk_aside(tmp_path: Path, mode: str):
    damaged_store(tmp_path / "data")
    with hocket.embedded(tmp_path / "data") as client:
        with client.subscribe("t", index="workers", mode=mode) as subscription:
            found = []
            while len(found) < 9:
                message = subscription.receive(timeout=20)
                found.append(message.offset)
                message.ack()
        assert sorted(found) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
        until(lambda: client.lag("t", "workers") == 0, what="all is done with")
        (letter,) = client.dead_letters("t")
        assert (letter.source.offset, letter.end, letter.unreadable) == (5, 6, "damaged")
        assert (letter.value, letter.key) == (b"", None)  # there is nothing that matches
        assert letter.reason.startswith("damaged where it is stored: ")
        assert ".log" in letter.reason  # the file to look into
        assert client.replay_dead_letters("t") == 0


def test_an_own_index_is_moved_past_damage_on_disk(tmp_path: Path):
    damaged_store(tmp_path / "data")
    with hocket.embedded(tmp_path / "data") as client:
        with client.subscribe("t", index="billing") as subscription:
            found, error = offsets_until_damage(subscription)
        assert found == [0, 1, 2, 3, 4]
        assert (error.topic, error.partition, error.start, error.end) == ("t", 0, 5, 6)
        assert "client.skip('t', 'billing', partition=0, offset=5)" in str(error)
        assert client.lag("t", "billing") == 5  # closing has committed
        assert client.skip("t", "billing", partition=0, offset=5) == 6
        with client.subscribe("t", index="billing") as subscription:
            assert [subscription.receive(timeout=20).offset for _ in range(4)] == [6, 7, 8, 9]


def test_a_segment_that_is_gone_is_set_aside_too(tmp_path: Path):
    damaged_store(tmp_path / "data")
    (segment,) = (
        each
        for each in (tmp_path / "data").glob("groups/*/*.log")
        if b"value-1" in each.read_bytes()
    )
    with hocket.embedded(tmp_path / "data") as client:
        segment.unlink()
        with client.subscribe("t", index="workers", mode="shared") as subscription:
            client.publish("t", b"behind it")
            message = subscription.receive(timeout=20)
            assert (message.offset, message.value) == (10, b"behind it")
            message.ack()
        until(lambda: client.lag("t", "workers") == 0, what="all is done with")
        (letter,) = client.dead_letters("t")
        assert (letter.source.offset, letter.end, letter.unreadable) == (0, 10, "damaged")


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[tuple[Client, Any]]:
    """A client, and its subscription that came upon damage: five messages are acknowledged."""
    damaged_store(tmp_path / "data")
    with hocket.embedded(tmp_path / "data") as client:
        subscription = client.subscribe("t", index="billing")
        found, _ = offsets_until_damage(subscription)
        assert found == [0, 1, 2, 3, 4]
        yield client, subscription


def test_whoever_opens_the_index_next_has_it(stopped):
    client, subscription = stopped
    with client.subscribe("t", index="billing") as other:
        subscription.close()
        offsets_until_damage(other)
    assert client.skip("t", "billing", partition=0, offset=5) == 6


def test_commit_works_after_damage_too(stopped):
    client, subscription = stopped
    subscription.commit()
    assert client.lag("t", "billing") == 5
    with pytest.raises(CorruptData):
        subscription.receive(timeout=1)
    assert client.skip("t", "billing", partition=0, offset=5) == 6  # it need not be closed
    subscription.close()
    assert client.lag("t", "billing") == 4


def test_a_topic_grows_under_a_subscription_that_came_upon_damage(stopped):
    client, subscription = stopped
    client.alter_topic("t", partitions=3)
    client.publish("t", b"new", partition=2)
    subscription.close()
    assert client.lag("t", "billing") == 6


@pytest.mark.parametrize("what", ["topic", "index"])
def test_what_it_reads_is_deleted_under_a_subscription_that_came_upon_damage(stopped, what):
    client, subscription = stopped
    subscription.commit()
    if what == "topic":
        client.delete_topic("t")
    else:
        client.delete_index("t", "billing")
    subscription.close()
    client.ping()


def test_what_the_disk_does_not_hand_out_may_be_readable_later(tmp_path: Path):
    damaged_store(tmp_path / "data", at=99)  # nothing is damaged
    with hocket.embedded(tmp_path / "data") as client:
        segment = segment_of(tmp_path / "data")
        aside = segment.rename(segment.with_suffix(".aside"))
        segment.mkdir()  # reading it fails, and not because it is not there
        client.subscribe("t", index="billing").close()
        with (
            client.subscribe("t", index="billing") as subscription,
            pytest.raises(CorruptData, match=r"cannot be read: .*directory.*see to the broker's"),
        ):
            subscription.receive(timeout=20)
        with (
            pytest.raises(CorruptData, match=r"cannot be read: .*directory"),
            client.subscribe("t", index="workers", mode="shared") as subscription,
        ):
            subscription.receive(timeout=20)
        with pytest.raises(CorruptData):
            client.skip("t", "billing", partition=0, offset=0)
        segment.rmdir()
        aside.rename(segment)
        for options in ({"index": "billing"}, {"index": "workers", "mode": "shared"}):
            with client.subscribe("t", **options) as subscription:
                assert [subscription.receive(timeout=20).offset for _ in range(10)] == [*range(10)]
        assert client.dead_letters("t") == []


# --- what the dead letters carry -----------------------------------------------------------------


def test_a_batch_too_large_for_one_dead_letter_comes_in_parts(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(background, "PART_BYTES", 40)
    with hocket.embedded(tmp_path / "data") as client:
        client.create_topic("t")
        forge(client, "t", unopenable())
        with client.subscribe("t", index="workers", mode="shared") as subscription:
            until(lambda: nothing_comes(subscription) and client.lag("t", "workers") == 0)
        letters = client.dead_letters("t")
    parts = [each.part for each in letters]
    assert len(parts) > 2
    assert parts == [f"{number}/{len(parts)}" for number in range(1, len(parts) + 1)]
    entry = b"".join(each.value for each in letters)
    assert entry[HEADER_BYTES:] == unopenable()[HEADER_BYTES:]


def test_a_unit_that_a_crash_cut_short_makes_the_same_dead_letters(tmp_path: Path, monkeypatch):
    """The broker ends between the dead letter and the word that it is there."""
    with hocket.embedded(tmp_path / "data") as client:
        client.create_topic("t")
        forge(client, "t", unopenable(250))  # three units
        monkeypatch.setattr(Shares, "dead_lettered", lambda *_arguments: None)
        with client.subscribe("t", index="workers", mode="shared") as subscription:
            until(lambda: nothing_comes(subscription) and client.dead_letters("t"))
    monkeypatch.undo()
    with hocket.embedded(tmp_path / "data") as client:
        with client.subscribe("t", index="workers", mode="shared") as subscription:
            until(lambda: nothing_comes(subscription) and client.lag("t", "workers") == 0)
        (letter,) = client.dead_letters("t")
        assert (letter.source.offset, letter.end) == (0, 250)
