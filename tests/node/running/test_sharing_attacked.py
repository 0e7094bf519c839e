"""Inputs that once ended the broker, or made it wrong: each costs its sender an error at most."""

from __future__ import annotations

import asyncio

import pytest
from crc32c import crc32c

import hocket
import hocket.aio
from hocket import frames
from hocket.core.sharing import events as core
from hocket.errors import CorruptData
from hocket.frames import packed, unpacked
from hocket.model import EntryKind, Start
from hocket.wire import batch as batches
from hocket.wire.batch import PRELUDE_BYTES
from hocket.wire.entry import HEADER_BYTES, pack_header, unpack_header
from tests.node.running.test_sharing import Asker, wait
from tests.node.test_simulated import tiny
from tests.support.node.simulated import TOPIC, World
from tests.support.threads import until


@pytest.fixture
def world() -> World:
    return World("attacked", settings=tiny)


def leased(world: World, asker: Asker, count: int = 5, **more: object) -> int:
    """The handle of a consumer that holds so many messages."""
    asker.create()
    asker.publish(count)
    handle = asker.share(**more)
    wait(world, lambda: bool(asker.leases()), "they are leased")
    return handle


def test_a_topic_is_deleted_while_two_share_it_and_one_holds_all_of_it(world):
    one, other = Asker(world), Asker(world)
    leased(world, one)
    other.share(b"b")
    assert isinstance(other.answer(frames.DeleteTopic, topic=TOPIC), frames.Done)
    for each in (one, other):
        ended = each.heard[-1]
        assert isinstance(ended, frames.HandleEnded)
        assert ended.code == "unknownTopic"


def test_an_index_is_deleted_while_it_is_being_opened(world):
    one = Asker(world)
    one.create()
    one.publish(5)
    opened = one.begin_asking(
        frames.OpenSubscription, topic=TOPIC, index="i", mode="shared", credit_bytes=1000,
        consumer=bytes(16), prefetch=5,
    )  # fmt: skip
    deleted = one.begin_asking(frames.DeleteIndex, topic=TOPIC, index="i")
    wait(world, lambda: bool(opened and deleted), "both are answered")
    assert isinstance(deleted[0], frames.Done | frames.Failure)
    if isinstance(opened[0], frames.Failure):
        assert opened[0].code == "busy"
    one.publish(1)


def test_an_index_is_opened_in_two_modes_at_once(world):
    one = Asker(world)
    one.create(partitions=2)
    common = {"topic": TOPIC, "index": "i", "credit_bytes": 1000, "prefetch": 5}
    answers = [
        one.begin_asking(
            frames.OpenSubscription, mode=mode, partitions=packed([number]),
            consumer=bytes([number]) * 16, **common,
        )
        for number, mode in enumerate(["shared", "key_shared"])
    ]  # fmt: skip
    wait(world, lambda: all(answers), "both are answered")
    kinds = [type(answer[0]) for answer in answers]
    assert frames.SubscriptionOpened in kinds
    one.publish(1)


@pytest.mark.parametrize("mode", ["shared", "key_shared"])
def test_a_batch_whose_columns_are_nonsense_harms_nobody_else(world, mode):
    one = Asker(world)
    one.create()
    entry = bytearray(
        batches.encode([b"a" * 50, b"b" * 50], timestamps=world.clock.now_us(), keys=[b"k", b"l"])
    )
    header = unpack_header(entry)
    body = entry[HEADER_BYTES : HEADER_BYTES + header.length]
    body[PRELUDE_BYTES + 16 :] = b"\xff" * (len(body) - PRELUDE_BYTES - 16)
    forged = pack_header(
        length=header.length, kind=EntryKind.BATCH, flags=header.flags, count=header.count,
        body_crc=crc32c(bytes(body)), max_timestamp=header.max_timestamp,
    )  # fmt: skip
    answers: list[frames.Frame] = []
    one._answers[777] = answers.append
    one.send(frames.Publish(777, TOPIC, 0), forged + bytes(body))
    wait(world, lambda: bool(answers), "it is refused")
    assert isinstance(answers[0], frames.Failure)
    assert answers[0].code == "corruptData"
    one.publish(1)  # on the same connection
    one.share(mode=mode)
    wait(world, lambda: one.leases() == [(0, [0, 1, 1])], "nothing of it was stored")


@pytest.mark.parametrize(
    ("action", "ranges", "duration_us"),
    [
        ("nack", [0, 0, 1], 2**64 - 1),
        ("extend", [0, 0, 5, 0, 0, 5], 0),
        ("ack", [0, 3, 5, 0, 1, 2], 0),
    ],
)
def test_a_settlement_that_makes_no_sense_is_refused_whole(world, action, ranges, duration_us):
    one = Asker(world)
    handle = leased(world, one)
    answer = one.answer(
        frames.Settle, handle=handle, action=action, ranges=packed(ranges), duration_us=duration_us
    )
    assert isinstance(answer, frames.Failure)
    assert answer.code == "outOfRange"


@pytest.mark.parametrize("start", [5, 2**63 - 1, 2**63, 2**64 - 2])
@pytest.mark.parametrize("action", ["ack", "nack", "extend", "reject", "release"])
def test_offsets_may_be_any_number(world, start, action):
    one = Asker(world)
    handle = leased(world, one)
    ranges = [0, start, 2**64 - 1]
    answer = one.answer(frames.Settle, handle=handle, action=action, ranges=packed(ranges))
    assert unpacked(answer.refused) == ranges
    other = Asker(world)
    other.share(b"b", held=packed([0, start, 2**64 - 1]))


def test_what_is_said_to_be_settled_is_so_in_the_other_mode_too(world):
    one = Asker(world)
    handle = leased(world, one)
    settled = one.settle(handle, "ack", 0, 0, 5)
    closed = one.begin_asking(frames.CloseHandle, handle=handle)
    again = one.begin_asking(
        frames.OpenSubscription, topic=TOPIC, index="workers", mode="key_shared",
        start=Start("earliest"), credit_bytes=1 << 20, consumer=b"b" * 16, prefetch=10,
        failover="fast",
    )  # fmt: skip
    wait(world, lambda: bool(settled and closed and again), "all is answered")
    assert unpacked(settled[0].refused) == []
    if isinstance(again[0], frames.Failure):
        assert again[0].code == "busy"
    one.heard.clear()
    one.share(b"c", mode="key_shared", failover="fast")
    world.run(3_000_000)
    assert one.leases() == []


def test_damage_in_one_partition_ends_a_consumer_that_was_about_to_get_of_another(world):
    one = Asker(world)
    one.create(partitions=2)
    one.share()
    store = world.node._wiring.log
    read = store.read
    damaged = world.node._wiring.catalogue.topics[TOPIC].groups[1]

    def failing(group, *arguments, **more):
        if group == damaged:
            raise CorruptData("a bad sector")
        return read(group, *arguments, **more)

    store.read = failing
    shares = world.node._wiring.shares
    (shared,) = shares._shared.values()
    for number in (0, 1):
        entry = batches.encode([b"x"] * 3, timestamps=world.clock.now_us())
        one.send(frames.Publish(800 + number, TOPIC, number), entry)
        one._answers[800 + number] = one.heard.append
    world.run(2_000_000)
    assert [each.code for each in one.heard if isinstance(each, frames.HandleEnded)] == [
        "corruptData"
    ]
    # And in the order that once ended the broker: told to send to somebody who is gone.
    effects = [core.Send(1, 99, 0, [(0, 1, 1)]), core.EndConsumer(99, "replaced")]
    shared.reads[1] = read(shared.groups[0], 0, bytes_max=1, end_offset=1, done=lambda _: None)
    shares._carry_out(shared, effects)
    assert shared.reads == {}
    one.publish(1)


def test_any_text_may_be_the_reason_of_a_reject(tmp_path):
    with hocket.embedded(tmp_path) as client:
        client.create_topic("t")
        client.publish("t", b"x")
        with client.subscribe("t", index="i", mode="shared") as messages:
            messages.receive(timeout=10).reject("no such file: \udcff.txt")
            messages.commit()
        (letter,) = until(lambda: client.dead_letters("t"))
        assert letter.reason == "no such file: ?.txt"
    with hocket.embedded(tmp_path) as client:
        assert len(client.dead_letters("t")) == 1


def test_what_dies_again_after_a_seek_is_a_dead_letter_again():
    with hocket.embedded() as client:
        client.create_topic("t")
        client.publish("t", b"x")
        for count in (1, 2, 3):
            with client.subscribe("t", index="i", mode="shared") as messages:
                messages.receive(timeout=10).reject(f"for the {count}. time")
                messages.commit()
            letters = until(lambda count=count: _letters(client, count))
            assert [each.reason[8] for each in letters] == list("123"[:count])
            if count == 1:
                client.seek("t", "i", "earliest")
            else:
                client.delete_index("t", "i")


def _letters(client, count):
    found = client.dead_letters("t")
    return found if len(found) == count else None


def test_a_commit_that_was_cancelled_does_not_spoil_the_end_of_the_client():
    async def main() -> None:
        async with hocket.aio.embedded() as client:
            await client.create_topic("t")
            for number in range(12):

                async def transact(number=number) -> None:
                    async with client.transaction(f"x{number}") as transaction:
                        await transaction.send("t", b"x")

                task = asyncio.create_task(transact())
                await asyncio.sleep(0.0005 * number)
                task.cancel()
                await asyncio.wait([task])

    asyncio.run(main())
