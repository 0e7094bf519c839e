"""Topics, one-off publishes and streams of pushes."""

from __future__ import annotations

from typing import Any

import pytest

from hocket.model import partition_of
from hocket.wire.batch import encode, parse
from tests.support.rpc.world import Sink, World, fails, of, run, session
from tests.support.threads import until_async
from tests.support.wire.batches import with_fallen_offset, with_false_raw_length


def test_topics_are_made_listed_and_deleted(here: World):
    async def main() -> None:
        async with session(here.address) as one:
            await one.createTopic("b", {"partitions": 3})
            await one.createTopic("a")
            assert list((await one.topics()).names) == ["a", "b"]
            described = (await one.topic("b").topic.describe()).description
            assert len(described.partitions) == 3
            await one.createTopic("b", existOk=True)
            await one.deleteTopic("b")
            await one.deleteTopic("b", missingOk=True)
            assert list((await one.topics()).names) == ["a"]

    run(main())


def test_errors_begin_with_their_code_and_show_nothing_of_our_code(here: World):
    async def main() -> None:
        async with session(here.address) as one:
            await one.createTopic("t")
            async with fails("topicExists", "'t'"):
                await one.createTopic("t")
            async with fails("unknownTopic", "'none'"):
                await one.deleteTopic("none")
            async with fails("unknownTopic", "'none'"):
                await one.topic("none").topic.publish(of(b"x"))
            async with fails("badName", "'no name'"):
                await one.topic("no name")
            async with fails("outOfRange"):
                await one.createTopic("u", {"partitions": 0})

    run(main())


def test_a_record_is_published_with_all_it_has(here: World):
    async def main() -> None:
        async with session(here.address) as one:
            topic = (await one.createTopic("t", {"partitions": 4})).topic
            record = {
                "key": b"k",
                "value": b"v",
                "headers": [{"name": "full", "value": b"1"}, {"name": "empty"}],
                "timestamp": 1_700_000_000_000_000,
            }
            place = await topic.publish({"records": [record]})
            assert (place.partition, place.offset) == (partition_of(b"k", 4), 0)
            place = await topic.publish({"partition": 2, "records": [{"value": b"w", "key": b""}]})
            assert place.partition == 2
            sink = Sink()
            held = await topic.subscribe({}, sink)
            await sink.received(2)
            found = {each["value"]: each for each in sink.records}
            assert found[b"v"]["headers"] == {"full": b"1", "empty": None}
            assert found[b"v"]["timestamp"] == 1_700_000_000_000_000
            assert found[b"v"]["key"] == b"k"
            assert found[b"w"]["key"] == b""
            assert found[b"w"]["count"] == 1
            del held

    run(main())


def test_several_records_of_one_publish_stand_side_by_side(here: World):
    async def main() -> None:
        async with session(here.address) as one:
            topic = (await one.createTopic("t", {"partitions": 2})).topic
            place = await topic.publish({"partition": 1, **of(b"a", b"b", b"c")})
            assert (place.partition, place.offset) == (1, 0)
            place = await topic.publish({"partition": 1, **of(b"d", b"e")})
            assert (place.partition, place.offset) == (1, 3)
            keys = [b"%d" % number for number in range(20)]
            apart = [{"value": b"x", "key": key} for key in keys]
            async with fails("outOfRange", "one partition", "[0, 1]"):
                await topic.publish({"records": apart})
            same = [each for each in apart if partition_of(each["key"], 2) == 0]
            assert (await topic.publish({"records": same})).partition == 0
            async with fails("outOfRange", "one record at least"):
                await topic.publish(of())
            async with fails("unknownPartition", "7"):
                await topic.publish({"partition": 7, **of(b"a")})

    run(main())


def test_an_encoded_batch_is_published_as_it_is(here: World):
    entry = encode([b"a", b"b"], timestamps=5, keys=[b"k", b"k"], codec="lz4")

    async def main() -> None:
        async with session(here.address) as one:
            topic = (await one.createTopic("t", {"partitions": 4})).topic
            place = await topic.publish({"encoded": entry})
            assert (place.partition, place.offset) == (partition_of(b"k", 4), 0)
            sink = Sink()
            held = await topic.subscribe({"form": "encoded"}, sink)
            await until_async(lambda: sink.batches)
            [(partition, start, end, encoded)] = sink.batches
            assert (partition, start, end) == (place.partition, 0, 2)
            assert parse(encoded).values() == [b"a", b"b"]
            assert parse(encoded).timestamps() == [5, 5]
            del held

    run(main())


@pytest.mark.parametrize("at", [0, 8, 40, 70, -12])
def test_a_damaged_batch_is_refused_and_nothing_stored(here: World, at: int):
    entry = bytearray(encode([b"some", b"values"], timestamps=5))
    entry[at] ^= 0x10

    async def main() -> None:
        async with session(here.address) as one:
            topic = (await one.createTopic("t")).topic
            async with fails("corruptData"):
                await topic.publish({"encoded": bytes(entry)})
            producer = (await topic.producer({})).producer
            async with fails("corruptData"):
                await producer.push({"encoded": bytes(entry)})
            described = (await topic.describe()).description
            assert described.partitions[0].end == 0

    run(main())


@pytest.mark.parametrize(
    "entry",
    [
        with_false_raw_length([b"the same"] * 500, codec="zstd"),
        with_false_raw_length([b"the same"] * 20, codec="lz4"),
        with_fallen_offset([b"the same"] * 20, at=3),
    ],
    ids=["zstd", "lz4", "none"],
)
def test_a_batch_that_nobody_could_read_is_refused_and_the_connection_goes_on(
    here: World, entry: bytes
):
    async def main() -> None:
        async with session(here.address) as one:
            topic = (await one.createTopic("t", {})).topic
            async with fails("corruptData", "offsets 0 to"):
                await topic.publish({"encoded": entry})
            producer = (await topic.producer({})).producer
            async with fails("corruptData", "offsets 0 to"):
                await producer.push({"encoded": entry})
            assert (await topic.publish(of(b"good"))).offset == 0

    run(main())


def test_pushes_stream_in_order_and_flush_says_how_far_they_came(here: World):
    async def main() -> None:
        async with session(here.address) as one:
            topic = (await one.createTopic("t")).topic
            producer = (await topic.producer({"batchBytes": 2000})).producer
            pushes = [
                producer.push(of(*(b"%d" % n for n in range(first, first + 100))))
                for first in range(0, 5000, 100)
            ]
            for push in pushes:
                await push
            ends = (await producer.flush()).ends
            assert [(end.partition, end.offset) for end in ends] == [(0, 5000)]
            sink = Sink()
            held = await topic.subscribe({}, sink)
            assert await sink.received(5000) == [b"%d" % n for n in range(5000)]
            del held

    run(main())


def test_encoded_and_plain_pushes_keep_their_order(here: World):
    async def main() -> None:
        async with session(here.address) as one:
            topic = (await one.createTopic("t")).topic
            producer = (await topic.producer({})).producer
            for number in range(50):
                await producer.push(of(b"%d plain" % number))
                await producer.push({"encoded": encode([b"%d encoded" % number], timestamps=1)})
            two = encode([b"x"], timestamps=1) + encode([b"y"], timestamps=1)
            await producer.push({"encoded": two})
            await producer.flush()
            sink = Sink()
            held = await topic.subscribe({}, sink)
            values = await sink.received(102)
            pairs = [(b"%d plain" % n, b"%d encoded" % n) for n in range(50)]
            assert values == [value for pair in pairs for value in pair] + [b"x", b"y"]
            del held

    run(main())


def test_keys_find_their_partition(here: World):
    async def main() -> None:
        async with session(here.address) as one:
            topic = (await one.createTopic("t", {"partitions": 5})).topic
            producer = (await topic.producer({})).producer
            keys = [b"key %d" % number for number in range(200)]
            await producer.push({"records": [{"key": key, "value": key} for key in keys]})
            await producer.push({"partition": 3, "records": [{"key": b"set", "value": b"set"}]})
            await producer.flush()
            sink = Sink()
            held = await topic.subscribe({}, sink)
            await sink.received(201)
            for each in sink.records:
                expected = 3 if each["key"] == b"set" else partition_of(each["key"], 5)
                assert each["partition"] == expected
            del held

    run(main())


def test_a_window_that_is_full_holds_pushes_back_and_all_arrive(here: World):
    async def main() -> None:
        async with session(here.address) as one:
            topic = (await one.createTopic("t")).topic
            options = {"windowBytes": 50_000, "batchBytes": 20_000}
            producer = (await topic.producer(options)).producer
            pushes: list[Any] = [producer.push(of(bytes(10_000))) for _ in range(500)]
            for push in pushes:
                await push
            [end] = (await producer.flush()).ends
            assert end.offset == 500

    run(main())


def test_a_producer_of_a_deleted_topic_fails_and_goes_on_failing(here: World):
    async def main() -> None:
        async with session(here.address) as one:
            topic = (await one.createTopic("t")).topic
            producer = (await topic.producer({})).producer
            await producer.push(of(b"x"))
            await producer.flush()
            await one.deleteTopic("t")

            async def push_on() -> None:
                while True:
                    await producer.push(of(b"x"))
                    await producer.flush()

            async with fails("unknownTopic"):
                await push_on()
            async with fails("unknownTopic"):
                await producer.flush()
            async with fails("unknownTopic"):
                await topic.producer({})

    run(main())


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"windowBytes": 0}, "windowBytes"),
        ({"windowBytes": 1 << 40}, "windowBytes"),
        ({"batchBytes": 0}, "batch_bytes"),
        ({"codec": "gzip"}, "gzip"),
    ],
)
def test_wrong_options_of_a_producer_are_refused(here: World, options: Any, word: str):
    async def main() -> None:
        async with session(here.address) as one:
            topic = (await one.createTopic("t")).topic
            async with fails("outOfRange", word):
                await topic.producer(options)

    run(main())
