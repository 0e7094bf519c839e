"""Deliveries to a sink, and what is said about them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.rpc.world import Sink, World, fails, of, run, session
from tests.support.threads import settle, until_async


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


async def topic_with(one: Any, count: int, partitions: int = 1) -> Any:
    """A topic `t` with numbered records in its first partition."""
    topic = (await one.createTopic("t", {"partitions": partitions})).topic
    if count:
        await topic.publish({"partition": 0, **of(*(b"%d" % n for n in range(count)))})
    return topic


def test_an_index_goes_on_where_its_acks_left_it(here: World):
    async def main() -> None:
        async with session(here.address) as one:
            topic = await topic_with(one, 100)
            sink = Sink()
            reading = (await topic.subscribe({"index": "i"}, sink)).subscription
            assert await sink.received(100) == numbers(0, 100)
            assert [each["offset"] for each in sink.records] == list(range(100))
            await reading.ack(0, 0, 30)
            await reading.commit()
            await reading.ack(0, 30, 40)
            await reading.close()  # commits
            again = Sink()
            reading = (await topic.subscribe({"index": "i"}, again)).subscription
            assert await again.received(60) == numbers(40, 100)
            await topic.publish(of(b"new"))
            assert (await again.received(61))[-1] == b"new"
            assert sink.end is None
            assert len(sink.records) == 100

    run(main())


def test_a_dropped_subscription_commits_its_acks_and_delivers_no_more(here: World):
    async def main() -> None:
        async with session(here.address) as one:
            topic = await topic_with(one, 10)
            sink = Sink()
            reading = (await topic.subscribe({"index": "i"}, sink)).subscription
            await sink.received(10)
            await reading.ack(0, 0, 7)
            del reading
            again = Sink()
            held = await topic.subscribe({"index": "i"}, again)
            values = await again.received(3)
            assert values[-3:] == numbers(7, 10)
            await topic.publish(of(b"new"))
            await again.received(len(values) + 1)
            assert b"new" not in sink.values
            assert sink.end is None
            del held

    run(main())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"start": {"kind": "latest"}}, []),
        ({"start": {"kind": "offset", "value": 7}, "partitions": [0]}, [b"7", b"8", b"9"]),
        ({"positions": [{"partition": 0, "offset": 8}]}, [b"8", b"9"]),
        ({"partitions": [0]}, numbers(0, 10)),
    ],
)
def test_where_it_begins(here: World, options: Any, expected: list[bytes]):
    async def main() -> None:
        async with session(here.address) as one:
            topic = await topic_with(one, 10, partitions=2)
            sink = Sink()
            held = await topic.subscribe(options, sink)
            await topic.publish({"partition": 1, **of(b"of another partition")})
            await topic.publish({"partition": 0, **of(b"last")})
            await until_async(lambda: b"last" in sink.values)
            assert [each for each in sink.values if len(each) < 5] == [*expected, b"last"]
            del held

    run(main())


def test_acks_of_what_was_not_delivered_change_nothing(here: World):
    async def main() -> None:
        async with session(here.address) as one:
            topic = await topic_with(one, 10)
            sink = Sink()
            reading = (await topic.subscribe({"index": "i"}, sink)).subscription
            await sink.received(10)
            async with fails("outOfRange", "only those before 10"):
                await reading.ack(0, 0, 11)
            async with fails("outOfRange", "one at least"):
                await reading.ack(0, 5, 5)
            async with fails("unknownPartition", "3"):
                await reading.ack(3, 0, 1)
            async with fails("wrongKind", "shared"):
                await reading.settle([{"end": 1, "action": "nack"}])
            await reading.close()
            again = Sink()
            reading = (await topic.subscribe({"index": "i"}, again)).subscription
            assert await again.received(10) == numbers(0, 10)
            nameless = (await topic.subscribe({}, Sink())).subscription
            async with fails("wrongKind", "no index"):
                await nameless.commit()

    run(main())


def test_a_second_consumer_takes_an_own_index_over_and_the_first_is_told(here: World):
    async def main() -> None:
        async with session(here.address) as one:
            topic = await topic_with(one, 10)
            first, second = Sink(), Sink()
            reading = (await topic.subscribe({"index": "i"}, first)).subscription
            await first.received(10)
            held = await topic.subscribe({"index": "i"}, second)
            await until_async(lambda: first.end)
            assert first.end is not None
            assert first.end[0] == "fenced"
            await second.received(10)
            async with fails("fenced"):
                await reading.commit()
            del held

    run(main())


def test_the_sink_is_told_when_its_topic_is_deleted(here: World):
    async def main() -> None:
        async with session(here.address) as one:
            topic = await topic_with(one, 1)
            sink = Sink()
            held = await topic.subscribe({"index": "i"}, sink)
            await sink.received(1)
            await one.deleteTopic("t")
            await until_async(lambda: sink.end)
            assert sink.end is not None
            assert sink.end[0] == "unknownTopic"
            del held

    run(main())


@pytest.mark.parametrize("form", ["records", "encoded"])
def test_a_sink_that_does_not_answer_gets_a_bounded_amount(here: World, form: str):
    """And all of it, in order, when it answers again."""
    window, size, count = 20_000, 1000, 500

    async def main() -> None:
        async with session(here.address) as one:
            topic = await topic_with(one, 0)
            producer = (await topic.producer({"batchBytes": 5000})).producer
            for number in range(count):
                await producer.push(of(b"%d" % number + bytes(size)))
            await producer.flush()
            sink = Sink()
            sink.open.clear()
            options = {"windowBytes": window, "form": form}
            held = await topic.subscribe(options, sink)
            await until_async(lambda: sink.calls)
            await topic.publish(of(b"a publish goes on meanwhile"))
            await (await topic.producer({})).producer.flush()
            got = sum(map(len, sink.values)) + sum(len(batch[3]) for batch in sink.batches)
            assert 0 < got <= window
            sink.open.set()
            if form == "records":
                values = await sink.received(count + 1)
                assert [int(value[:-size]) for value in values[:-1]] == list(range(count))
            else:
                await until_async(lambda: sink.batches[-1][2] == count + 1)
                places = [(start, end) for _, start, end, _ in sink.batches]
                assert [start for start, _ in places] == [0, *(end for _, end in places[:-1])]
            del held

    run(main())


def test_a_sink_that_fails_ends_its_subscription(here: World):
    async def main() -> None:
        async with session(here.address) as one:
            topic = await topic_with(one, 10)
            sink = Sink()
            sink.fail = True
            reading = (await topic.subscribe({"index": "i"}, sink)).subscription
            await until_async(lambda: sink.calls)

            async def is_closed() -> bool:
                try:
                    await reading.commit()
                except Exception as error:
                    return "closed: the subscription is closed" in str(error)
                return False

            while not await is_closed():
                await settle()
            await topic.publish(of(b"more"))
            assert sink.calls == 1
            again = Sink()
            held = await topic.subscribe({"index": "i"}, again)
            await again.received(11)
            del held

    run(main())


def test_large_messages_come_through(here: World):
    async def main() -> None:
        async with session(here.address) as one:
            topic = await topic_with(one, 0)
            large = bytes(range(256)) * (20 << 12)  # 20 MiB
            await topic.publish(of(large))
            sink = Sink()
            held = await topic.subscribe({}, sink)
            assert await sink.received(1) == [large]
            del held

    run(main())


# --- shared indexes ------------------------------------------------------------------------------


def test_two_consumers_share_an_index(here: World):
    async def main() -> None:
        async with session(here.address) as one:
            topic = await topic_with(one, 0)
            options = {"index": "w", "mode": "shared", "prefetch": 10}
            sinks = [Sink(), Sink()]
            readers = [(await topic.subscribe(options, sink)).subscription for sink in sinks]
            await topic.publish(of(*numbers(0, 100)))

            done: set[int] = set()
            while len(done) < 100:
                await until_async(lambda: sum(len(s.records) for s in sinks) > len(done))
                for sink, reader in zip(sinks, readers, strict=True):
                    for record in sink.records:
                        if record["offset"] not in done:
                            done.add(record["offset"])
                            await reader.ack(0, record["offset"], record["offset"] + 1)
            for reader in readers:
                await reader.commit()
            delivered = [record["offset"] for sink in sinks for record in sink.records]
            assert sorted(delivered) == list(range(100))
            assert all(sink.records for sink in sinks)

    run(main())


def test_nack_reject_release_and_extend(here: World):
    async def main() -> None:
        async with session(here.address) as one:
            topic = await topic_with(one, 5)
            sink = Sink()
            options = {"index": "w", "mode": "shared"}
            reader = (await topic.subscribe(options, sink)).subscription
            await sink.received(5)
            await reader.settle(
                [
                    {"start": 0, "end": 1, "action": "ack"},
                    {"start": 1, "end": 2, "action": "nack"},
                    {"start": 2, "end": 3, "action": "reject", "reason": "a poor thing"},
                    {"start": 3, "end": 4, "action": "release"},
                    {"start": 4, "end": 5, "action": "extend", "durationUs": 60_000_000},
                ]
            )
            await reader.commit()
            await sink.received(7)
            counts = {record["offset"]: record["count"] for record in sink.records[5:]}
            assert counts == {1: 2, 3: 1}

            async def are_there() -> bool:
                return "t.dlq" in list((await one.topics()).names)

            while not await are_there():
                await settle()
            dead = Sink()
            held = await one.topic("t.dlq").topic.subscribe({}, dead)
            assert await dead.received(1) == [b"2"]
            assert any(b"a poor thing" in (v or b"") for v in dead.records[0]["headers"].values())
            del held

    run(main())


def test_settling_what_is_not_held_is_refused_and_the_rest_is_settled(here: World):
    async def main() -> None:
        async with session(here.address) as one:
            topic = await topic_with(one, 5)
            sink = Sink()
            options = {"index": "w", "mode": "shared"}
            reader = (await topic.subscribe(options, sink)).subscription
            await sink.received(5)
            async with fails("leaseLost", "0 to 4"):
                await reader.ack(0, 0, 10)
            await reader.commit()
            async with fails("leaseLost", "none"):
                await reader.ack(0, 0, 2)
            async with fails("leaseLost"):
                await reader.ack(0, 0, 2**63)
            async with fails("unknownPartition"):
                await reader.ack(7, 0, 1)
            async with fails("outOfRange"):
                await reader.settle([{"start": 0, "end": 1, "action": "extend", "durationUs": 1}])
            await reader.close()
            again = Sink()
            held = await topic.subscribe(options, again)
            await topic.publish(of(b"new"))
            assert await again.received(1) == [b"new"]
            del held

    run(main())


@pytest.mark.parametrize("form", ["records", "encoded"])
def test_a_dropped_consumer_gives_its_messages_back_at_once(here: World, form: str):
    async def main() -> None:
        async with session(here.address) as one:
            topic = await topic_with(one, 20)
            sink = Sink()
            options = {"index": "w", "mode": "shared", "form": form, "leaseUs": 60_000_000}
            reader = (await topic.subscribe(options, sink)).subscription
            await until_async(lambda: sink.calls)
            del reader
            again = Sink()
            held = await topic.subscribe({**options, "form": "records"}, again)
            assert sorted(await again.received(20)) == sorted(numbers(0, 20))
            del held

    run(main())


def test_a_nacked_key_comes_again_before_what_is_behind_it(here: World):
    async def main() -> None:
        async with session(here.address) as one:
            topic = await topic_with(one, 0)
            records = [{"key": b"k%d" % (n % 2), "value": b"%d" % n} for n in range(6)]
            producer = (await topic.producer({})).producer
            await producer.push({"records": records})
            await producer.flush()
            sink = Sink()
            options = {"index": "w", "mode": "keyShared"}
            reader = (await topic.subscribe(options, sink)).subscription
            await until_async(lambda: sink.records)
            seen: list[bytes] = []
            nacked = False
            while len(seen) < 6:
                await until_async(lambda: sink.records)
                record = sink.records.pop(0)
                place = {"start": record["offset"], "end": record["offset"] + 1}
                if record["value"] == b"0" and not nacked:
                    nacked = True
                    await reader.settle([{**place, "action": "nack"}])
                    await reader.commit()
                    # What came behind it before the broker knew is given back too.
                    behind = [r for r in sink.records if r["key"] == b"k0"]
                    for each in behind:
                        sink.records.remove(each)
                        at = {"start": each["offset"], "end": each["offset"] + 1}
                        await reader.settle([{**at, "action": "release"}])
                    continue
                seen.append(record["value"])
                await reader.settle([{**place, "action": "ack"}])
            assert [value for value in seen if int(value) % 2 == 0] == [b"0", b"2", b"4"]
            assert [value for value in seen if int(value) % 2 == 1] == [b"1", b"3", b"5"]

    run(main())
