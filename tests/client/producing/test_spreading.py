"""Records without a key are spread over partitions, in batches that are as large as ever."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import pyarrow as pa
import pytest

from hocket.client_core.producing.arrow_rows import arrow_portions
from hocket.client_core.producing.bulk import list_portions
from hocket.client_core.producing.core import REST_US, TURN_BYTES_MIN
from hocket.model import partition_of
from tests.client.producing.test_core import Producing

pa.array([1, None]).is_null()  # starts pyarrow's threads: not in the middle of a test


def send_one_by_one(one: Producing, values: list[bytes]) -> None:
    one.send_plain(*values)


def send_many(one: Producing, values: list[bytes]) -> None:
    for portion in list_portions(one.core, values, None, None):
        start = 0
        while start < portion.count:
            start = portion.offer(one.core, start)


def send_arrow(one: Producing, values: list[bytes]) -> None:
    rows = pa.record_batch({"value": pa.array(values, pa.binary())})
    for portion in arrow_portions(one.core, rows):
        assert portion.offer(one.core, 0) == portion.count


WAYS = [send_one_by_one, send_many, send_arrow]


def spread(one: Producing) -> Counter[int]:
    """How many records each partition got."""
    one.core.cut_all()
    found: Counter[int] = Counter()
    for partition, values, _ in one.pushed():
        found[partition] += len(values)
    return found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("partitions", [2, 4, 7])
def test_a_burst_is_spread_so_that_none_gets_more_than_twice_as_much(way, partitions):
    one = Producing(partitions=partitions, linger_us=60_000_000)
    way(one, [b"small"] * 10_000)
    found = spread(one)
    assert len(found) == partitions
    assert sum(found.values()) == 10_000
    assert max(found.values()) <= 2 * min(found.values())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ending", ["rest", "flush"])
def test_so_is_every_burst_after_the_first(way, ending):
    one = Producing(partitions=4, linger_us=2000, window_bytes=1 << 30)
    way(one, [bytes(1000)] * 20_000)  # turns have grown to whole batches
    if ending == "rest":
        one.stage.advance(REST_US + 2000)
    spread(one) if ending == "flush" else one.pushed()
    way(one, [b"x"] * 10_000)
    found = spread(one)
    assert len(found) == 4
    assert max(found.values()) <= 2 * min(found.values())


def test_a_long_stream_has_as_few_batches_as_with_one_partition():
    sizes = {}
    for partitions in (1, 4):
        one = Producing(partitions=partitions, linger_us=60_000_000, window_bytes=1 << 30)
        one.core.session.limits.in_flight_max = 1000
        for _ in range(64):
            send_many(one, [bytes(1000)] * 1024)
        one.core.cut_all()
        sizes[partitions] = len(one.pushed())
    assert sizes[1] <= sizes[4] <= sizes[1] + 4


def test_within_a_linger_turns_that_have_grown_make_one_batch():
    """What comes fast fills one partition after the other, and does not dribble into all."""
    one = Producing(partitions=4, linger_us=2000, window_bytes=1 << 30)
    for _ in range(200):  # 64 KiB in each linger
        send_many(one, [bytes(1012)] * 64)
        one.linger()
    one.pushed()
    for _ in range(20):
        send_many(one, [bytes(1012)] * 64)
        one.linger()
    assert len(one.pushed()) <= 22


@pytest.mark.parametrize("linger_us", [0, 2000])
@pytest.mark.parametrize("pause_us", [3000, REST_US])
def test_slow_sends_go_to_one_partition_after_the_other(linger_us, pause_us):
    one = Producing(partitions=4, linger_us=linger_us)
    found: Counter[int] = Counter()
    for n in range(40):
        one.send_plain(b"%d" % n)
        one.stage.advance(linger_us)
        ((partition, values, sequence),) = one.pushed()
        assert values == [b"%d" % n]
        one.ack(sequence, n, partition=partition)
        one.stage.advance(pause_us)
        found[partition] += 1
    assert found == dict.fromkeys(range(4), 10)


def test_who_publishes_one_after_the_other_stays_for_a_short_turn():
    """The node that has just answered is awake; the next one would have to wake up first."""
    one = Producing(partitions=4, linger_us=0)
    sent: list[int] = []
    for n in range(200):
        assert one.send(bytes(100), waiter=n)
        ((partition, _, sequence),) = one.pushed()
        one.ack(sequence, n, partition=partition)
        sent.append(partition)
    turns = [len(list(each)) for _, each in groupby(sent)]
    assert max(turns[:-1]) - min(turns[:-1]) <= 1
    assert TURN_BYTES_MIN // 2 < turns[0] * 100 <= TURN_BYTES_MIN
    assert set(sent) == {0, 1, 2, 3}


def test_who_publishes_without_waiting_does_not_stay():
    one = Producing(partitions=4, linger_us=0)
    for n in range(4):
        assert one.send(bytes(100), waiter=n)
    assert sorted(partition for partition, _, _ in one.pushed()) == [0, 1, 2, 3]


def test_records_with_keys_have_room_beside_turns():
    one = Producing(partitions=2, linger_us=60_000_000, batch_bytes=64 << 10, window_bytes=1 << 30)
    keys = [b"%d" % n for n in range(16)]
    for n in range(4000):
        assert one.send(b"keyed", key=keys[n % 16])
        one.send_plain(b"plain")
    one.core.cut_all()
    pushed = one.pushed()
    assert sum(len(values) for _, values, _ in pushed) == 8000
    found = Counter(p for p, values, _ in pushed for value in values if value == b"plain")
    assert max(found.values()) <= 2 * min(found.values())
    assert len(pushed) <= 5  # 186 KB, in batches of up to 64 KiB


def test_rows_without_a_key_are_spread_beside_those_with_one():
    one = Producing(partitions=4, linger_us=60_000_000)
    values = [b"%d" % n for n in range(10_000)]
    keys = [None if n % 2 else b"k" for n in range(10_000)]
    rows = pa.record_batch({"value": pa.array(values), "key": pa.array(keys, pa.binary())})
    for portion in arrow_portions(one.core, rows):
        assert portion.offer(one.core, 0) == portion.count
    pushed = one.pushed()
    assert sorted(int(v) for _, found, _ in pushed for v in found) == list(range(10_000))
    keyless = Counter(p for p, found, _ in pushed for value in found if int(value) % 2)
    assert sorted(keyless) == [0, 1, 2, 3]
    assert {p for p, found, _ in pushed for v in found if not int(v) % 2} == {partition_of(b"k", 4)}


def test_a_message_that_is_longer_than_a_turn_has_one_of_its_own():
    one = Producing(partitions=4, linger_us=60_000_000)
    one.send_plain(*[bytes(2 * TURN_BYTES_MIN)] * 8)
    assert spread(one) == dict.fromkeys(range(4), 2)
