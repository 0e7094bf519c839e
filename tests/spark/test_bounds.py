"""Where a query starts and ends: parsed, and resolved against a broker."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator

import pytest

import hocket
from hocket import Client
from hocket.errors import BadName, OutOfRange, UnknownPartition
from hocket.model import DAY_US, HOUR_US, MINUTE_US, SECOND_US, Start
from hocket.spark.bounds import Bound, Bounds, Side
from hocket.spark.offsets import Offsets
from hocket.spark.values import Given

NOW = 1_800_000_000 * SECOND_US
ORDERS = {"orders": [0, 1]}


def bounds(side: Side = "starting", *, streaming: bool = True, **options: str) -> Bounds:
    return Bounds.parse(Given(options), side, streaming=streaming)


@pytest.fixture
def client() -> Iterator[Client]:
    """`orders/0` has ten records, one a minute, the last of them at NOW; `orders/1` has none."""
    with hocket.embedded() as found:
        found.create_topic("orders", partitions=2, disk_retention="forever")
        with found.producer("orders") as producer:
            for minute in range(10):
                moment = NOW - (9 - minute) * MINUTE_US
                producer.send(b"%d" % minute, partition=0, timestamp=moment)
        yield found


def resolved(client: Client, **options: str) -> Offsets:
    return bounds(**options).resolve(client, ORDERS, now_us=NOW)


class Requests:
    """A client that counts what it is asked."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.starts: list[Start] = []

    def find_offsets(self, topic: str, start: Start) -> list[int]:
        self.starts.append(start)
        return self._client.find_offsets(topic, start)


# --- parsing -------------------------------------------------------------------------------------


def test_a_time_for_all_counts_before_a_time_for_each_and_that_before_offsets() -> None:
    by_time = '{"orders":{"0":7}}'
    found = bounds(
        startingTimestamp="5", startingOffsetsByTimestamp=by_time, startingOffsets="earliest"
    )
    assert (found.option, found.everywhere) == ("startingTimestamp", Bound("time", 5000))
    found = bounds(startingOffsetsByTimestamp=by_time, startingOffsets="earliest")
    assert found.option == "startingOffsetsByTimestamp"
    assert found.each == (("orders", ((0, Bound("time", 7000)),)),)
    found = bounds("ending", streaming=False, endingTimestamp="5", endingOffsets="latest")
    assert found.everywhere == Bound("time", 5000)


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("earliest", Bound("earliest")),
        ("LATEST", Bound("latest")),
        ("-10 minutes", Bound("ago", 10 * MINUTE_US)),
        ("-10minutes", Bound("ago", 10 * MINUTE_US)),
        ("-10 min", Bound("ago", 10 * MINUTE_US)),
        ("-10m", Bound("ago", 10 * MINUTE_US)),
        ("- 1.5 hours", Bound("ago", 90 * MINUTE_US)),
        ("-2h", Bound("ago", 2 * HOUR_US)),
        ("-1 day", Bound("ago", DAY_US)),
        ("-3d", Bound("ago", 3 * DAY_US)),
        ("-30s", Bound("ago", 30 * SECOND_US)),
        ("-30 Seconds", Bound("ago", 30 * SECOND_US)),
        ("-500 ms", Bound("ago", 500_000)),
        ("-100 offsets", Bound("last", 100)),
        ("-1 record", Bound("last", 1)),
    ],
)
def test_one_bound_for_all(text: str, bound: Bound) -> None:
    assert bounds(startingOffsets=text).everywhere == bound
    if bound.kind != "latest":
        assert bounds(startingOffsets=text, streaming=False).everywhere == bound


def test_a_place_for_each() -> None:
    found = bounds(
        startingOffsets='{"b":{"10":-1,"2":-2},"a":{"0":23,"1":"-5 min","2":"-7 records","3":"9"}}'
    )
    assert found.each == (
        ("a", ((0, Bound("offset", 23)), (1, Bound("ago", 5 * MINUTE_US)),
               (2, Bound("last", 7)), (3, Bound("offset", 9)))),
        ("b", ((2, Bound("earliest")), (10, Bound("latest")))),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1767225600000", 1_767_225_600_000),
        ("0", 0),
        ("2026-01-01T00:00:00+00:00", 1_767_225_600_000),
        ("2026-01-01 01:00:00.5+01:00", 1_767_225_600_500),
    ],
)
def test_times(text: str, milliseconds: int) -> None:
    assert bounds(startingTimestamp=text).everywhere == Bound("time", milliseconds * 1000)


@pytest.mark.parametrize(
    ("words", "option", "text"),
    [
        ("must be earliest, latest", "startingOffsets", "nowhere"),
        ("must be earliest, latest", "startingOffsets", "10 minutes"),
        ("must be earliest, latest", "startingOffsets", "-10 fortnights"),
        ("must be earliest, latest", "startingOffsets", "-1.5 records"),
        ("must be earliest, latest", "startingOffsets", "-10"),
        ("at character 14", "startingOffsets", '{"orders":{"0"}}'),
        ("'0' twice", "startingOffsets", '{"orders":{"0":1,"0":2}}'),
        ("names no topic", "startingOffsets", "{}"),
        ("'orders' it has no object", "startingOffsets", '{"orders":[1]}'),
        ("orders/0 must be an offset", "startingOffsets", '{"orders":{"0":-3}}'),
        ("orders/0 must be an offset", "startingOffsets", '{"orders":{"0":1.5}}'),
        ("orders/0 must be an offset", "startingOffsets", '{"orders":{"0":true}}'),
        ("orders/0 must be an offset", "startingOffsets", '{"orders":{"0":"soon"}}'),
        ("orders/0 must be an offset", "startingOffsets", '{"orders":{"0":9223372036854775808}}'),
        ("partitions are numbers", "startingOffsets", '{"orders":{"x":1}}'),
        ("partitions are numbers", "startingOffsets", '{"orders":{"4096":1}}'),
        ("partitions are numbers", "startingOffsets", '{"orders":{"00":1}}'),
        ("a topic in startingOffsets", "startingOffsets", '{"no name":{"0":1}}'),
        ("milliseconds since 1970", "startingTimestamp", "yesterday"),
        ("milliseconds since 1970", "startingTimestamp", "-5"),
        ("milliseconds since 1970", "startingTimestamp", "9999999999999999999"),
        ("milliseconds since 1970", "startingOffsetsByTimestamp", '{"orders":{"0":-1}}'),
        ("milliseconds since 1970", "startingOffsetsByTimestamp", '{"orders":{"0":1.5}}'),
        ("must look like", "startingOffsetsByTimestamp", "5"),
        ("must be error or latest", "startingOffsetsByTimestampStrategy", "earliest"),
    ],
)
def test_what_is_refused(words: str, option: str, text: str) -> None:
    for streaming in (True, False):
        with pytest.raises((OutOfRange, BadName), match=words) as caught:
            bounds(streaming=streaming, **{option: text})
        assert option in str(caught.value)


def test_a_batch_does_not_start_at_the_latest_nor_end_at_the_earliest() -> None:
    for text, where in (("latest", ""), ('{"orders":{"0":5,"1":-1}}', "orders/1")):
        with pytest.raises(OutOfRange, match=f"cannot start at latest.*{where}"):
            bounds(startingOffsets=text, streaming=False)
        bounds(startingOffsets=text, streaming=True)
    for text, where in (("earliest", ""), ('{"orders":{"0":5,"1":-2}}', "orders/1")):
        with pytest.raises(OutOfRange, match=f"cannot end at earliest.*{where}"):
            bounds("ending", endingOffsets=text, streaming=False)


def test_they_are_picklable() -> None:
    for each in (bounds(), bounds(startingOffsets='{"orders":{"0":"-5 min","1":3}}')):
        assert pickle.loads(pickle.dumps(each)) == each


# --- against a broker ----------------------------------------------------------------------------


def test_earliest_and_latest(client: Client) -> None:
    assert resolved(client, startingOffsets="earliest") == {"orders": {0: 0, 1: 0}}
    assert resolved(client, startingOffsets="latest") == {"orders": {0: 10, 1: 0}}


def test_offsets_for_each(client: Client) -> None:
    text = '{"orders":{"0":%s,"1":-1}}'
    assert resolved(client, startingOffsets=text % 7) == {"orders": {0: 7, 1: 0}}
    assert resolved(client, startingOffsets=text % 10) == {"orders": {0: 10, 1: 0}}
    with pytest.raises(OutOfRange, match="offset 11 of orders/0, which ends at 10"):
        resolved(client, startingOffsets=text % 11)


def test_the_last_records_of_each_partition(client: Client) -> None:
    assert resolved(client, startingOffsets="-3 records") == {"orders": {0: 7, 1: 0}}
    assert resolved(client, startingOffsets="-300 offsets") == {"orders": {0: 0, 1: 0}}
    mixed = '{"orders":{"0":"-4 records","1":"-4 records"}}'
    assert resolved(client, startingOffsets=mixed) == {"orders": {0: 6, 1: 0}}


class FirstRecordsGone:
    """Answers as a broker does whose retention has removed the first 95 of 100 records."""

    def find_offsets(self, topic: str, start: Start) -> list[int]:
        return {"earliest": [95], "latest": [100]}[start.kind]


def test_the_last_records_never_begin_before_the_first_that_is_there() -> None:
    broker: Client = FirstRecordsGone()  # type: ignore[assignment]
    for text, offset in (("-3 records", 97), ("-50 records", 95)):
        found = bounds(startingOffsets=text).resolve(broker, {"orders": [0]}, now_us=NOW)
        assert found == {"orders": {0: offset}}


def test_the_last_minutes_start_at_the_end_of_a_quiet_partition(client: Client) -> None:
    assert resolved(client, startingOffsets="-3 minutes") == {"orders": {0: 6, 1: 0}}
    assert resolved(client, startingOffsets="-2m") == {"orders": {0: 7, 1: 0}}
    assert resolved(client, startingOffsets="-30000 days") == {"orders": {0: 0, 1: 0}}
    with pytest.raises(OutOfRange, match="orders/1 has no record"):
        resolved(client, startingOffsets="-3 minutes", startingOffsetsByTimestampStrategy="error")


def test_a_time_that_was_named_and_that_no_record_has_reached(client: Client) -> None:
    third = str((NOW - 7 * MINUTE_US) // 1000)
    with pytest.raises(OutOfRange, match=r"startingTimestamp: orders/1 has no record.*=latest"):
        resolved(client, startingTimestamp=third)
    assert resolved(
        client, startingTimestamp=third, startingOffsetsByTimestampStrategy="latest"
    ) == {"orders": {0: 2, 1: 0}}
    found = bounds(startingTimestamp=third).resolve(client, {"orders": [0]}, now_us=NOW)
    assert found == {"orders": {0: 2}}
    beyond = str(NOW // 1000 + 1)
    with pytest.raises(OutOfRange, match="orders/0 has no record"):
        bounds(startingTimestamp=beyond).resolve(client, {"orders": [0]}, now_us=NOW)


def test_times_for_each(client: Client) -> None:
    text = json.dumps({"orders": {"0": (NOW - 2 * MINUTE_US) // 1000, "1": NOW // 1000}})
    assert resolved(
        client, startingOffsetsByTimestamp=text, startingOffsetsByTimestampStrategy="latest"
    ) == {"orders": {0: 7, 1: 0}}
    with pytest.raises(OutOfRange, match="startingOffsetsByTimestamp: orders/1"):
        resolved(client, startingOffsetsByTimestamp=text)


def test_an_end_in_time_is_the_end_where_nothing_is_later(client: Client) -> None:
    for options in (
        {"endingTimestamp": str(NOW // 1000 + 1)},
        {"endingOffsetsByTimestamp": json.dumps({"orders": {"0": NOW // 1000 + 1, "1": 0}})},
        {"endingOffsets": "latest"},
        {},
    ):
        end = bounds("ending", streaming=False, **options)
        assert end.resolve(client, ORDERS, now_us=NOW) == {"orders": {0: 10, 1: 0}}
    end = bounds("ending", streaming=False, endingOffsets="-3 minutes")
    assert end.resolve(client, ORDERS, now_us=NOW) == {"orders": {0: 6, 1: 0}}


def test_every_partition_that_is_read_must_be_named_and_no_other(client: Client) -> None:
    with pytest.raises(OutOfRange, match=r"startingOffsets must name every.* lacks orders/1$"):
        resolved(client, startingOffsets='{"orders":{"0":1}}')
    with pytest.raises(OutOfRange, match="names orders/2, payments/0, which is not read"):
        resolved(client, startingOffsets='{"orders":{"0":1,"1":0,"2":0},"payments":{"0":1}}')
    many = {"orders": list(range(15))}
    with pytest.raises(OutOfRange, match=r"orders/1, orders/2,.*orders/10 and 4 more"):
        bounds(startingOffsets='{"orders":{"0":1}}').resolve(client, many, now_us=NOW)


def test_a_partition_that_is_gone_is_named(client: Client) -> None:
    with pytest.raises(UnknownPartition, match="'orders' has 2 partitions, and none of number 5"):
        bounds().resolve(client, {"orders": [0, 5]}, now_us=NOW)


@pytest.mark.parametrize(
    ("requests", "options"),
    [
        (["latest"], {"startingOffsets": "latest"}),
        (["latest"], {"startingOffsets": '{"orders":{"0":7,"1":0}}'}),
        (["latest", "earliest"], {"startingOffsets": "-5 records"}),
        (["time"], {"startingOffsets": "-5 minutes"}),
        (["earliest", "latest"], {"startingOffsets": '{"orders":{"0":-2,"1":"-1"}}'}),
        (
            ["time", "time"],
            {"startingOffsets": '{"orders":{"0":"-5 minutes","1":"-6 minutes"}}'},
        ),
    ],
)
def test_no_more_is_asked_than_is_needed(
    client: Client, requests: list[str], options: dict[str, str]
) -> None:
    counting = Requests(client)
    bounds(**options).resolve(counting, ORDERS, now_us=NOW)  # type: ignore[arg-type]
    assert [start.kind for start in counting.starts] == requests
