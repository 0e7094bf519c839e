"""The shared nouns: durations, sizes, names, starts, and the partition of a key."""

from __future__ import annotations

import contextlib
import math
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, strategies as st

from hocket.errors import BadName, OutOfRange, WrongType
from hocket.model import (
    DAY_US,
    HOUR_US,
    MINUTE_US,
    NAME_BYTES_MAX,
    SECOND_US,
    IndexDescription,
    IndexPartition,
    Start,
    check_name,
    duration_us,
    format_duration,
    partition_of,
    size_bytes,
    timestamp_us,
)

# --- durations and sizes -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("duration", "expected"),
    [
        ("0s", 0),
        ("1us", 1),
        ("500ms", 500_000),
        ("30s", 30 * SECOND_US),
        ("10m", 10 * MINUTE_US),
        ("12h", 12 * HOUR_US),
        ("7d", 7 * DAY_US),
        ("1.5h", 90 * MINUTE_US),
        (" 10 m ", 10 * MINUTE_US),
        ("0.4us", 0),
        ("36600d", 100 * 366 * DAY_US),
        (0, 0),
        (2, 2 * SECOND_US),
        (0.25, 250_000),
    ],
)
def test_durations(duration, expected):
    assert duration_us(duration) == expected
    assert isinstance(duration_us(duration), int)


@pytest.mark.parametrize(
    "duration",
    ["", "10", "m", "10 minutes", "10M", "-1s", "1.s", ".5s", "1e3s", "10m5s", "36601d",
     "9" * 400 + "s", -1, -0.1, math.inf, math.nan, 100 * 367 * 86_400, 10**400],
)  # fmt: skip
def test_what_is_no_duration_is_refused_with_its_value(duration):
    with pytest.raises(OutOfRange, match="a timeout must ") as caught:
        duration_us(duration, "a timeout")
    assert repr(duration)[:80] in str(caught.value)


@pytest.mark.parametrize("duration", [None, True, b"10m", timedelta(1), []])
def test_what_cannot_be_a_duration_is_of_the_wrong_type(duration):
    with pytest.raises(WrongType, match="a duration must be"):
        duration_us(duration)


@pytest.mark.parametrize(
    ("microseconds", "expected"),
    [(0, "0s"), (1, "1us"), (1_500, "1500us"), (2_000, "2ms"), (SECOND_US, "1s"),
     (90 * SECOND_US, "90s"), (MINUTE_US, "1m"), (36 * HOUR_US, "36h"), (7 * DAY_US, "7d")],
)  # fmt: skip
def test_durations_are_shown_in_the_largest_whole_unit(microseconds, expected):
    assert format_duration(microseconds) == expected


@given(st.integers(0, 100 * 366 * DAY_US) | st.integers(0, 36_600).map(lambda n: n * DAY_US))
def test_a_duration_that_is_shown_can_be_read_again(microseconds):
    assert duration_us(format_duration(microseconds)) == microseconds


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ("0", 0),
        ("17", 17),
        ("17B", 17),
        ("512KiB", 512 << 10),
        ("64MiB", 64 << 20),
        ("1.5 GiB", 3 << 29),
        ("2TiB", 2 << 40),
        ("1kB", 1_000),
        ("3MB", 3_000_000),
        (" 1GB ", 10**9),
        ("1TB", 10**12),
        (0, 0),
        (2**62, 2**62),
    ],
)
def test_sizes(size, expected):
    assert size_bytes(size) == expected
    assert isinstance(size_bytes(size), int)


@pytest.mark.parametrize("size", ["", "MiB", "1 KB", "1mib", "-1", "1e6", "0x10", "1MiBs", -1])
def test_what_is_no_size_is_refused_with_its_value(size):
    with pytest.raises(OutOfRange, match="a batch must ") as caught:
        size_bytes(size, "a batch")
    assert str(size) in str(caught.value)


@pytest.mark.parametrize("size", [None, True, 1.5, b"1MiB"])
def test_what_cannot_be_a_size_is_of_the_wrong_type(size):
    with pytest.raises(WrongType, match="a size must be"):
        size_bytes(size)


def test_a_size_without_bounds_is_out_of_range():
    with pytest.raises(OutOfRange):
        size_bytes("9" * 400)


def test_a_large_size_is_exact_to_the_byte():
    assert size_bytes(str(2**53 + 1)) == 2**53 + 1
    assert size_bytes(f"{2**53 + 1}B") == 2**53 + 1


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["a", "0", "_", "orders", "orders.eu-west_1", "A" * NAME_BYTES_MAX, "a.", "a-"]
)
def test_good_names_are_handed_back(name):
    assert check_name(name) is name


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "-a", ".a", "a b", "a/b", "a\n", "\n", "a\0", "ä", "a" * (NAME_BYTES_MAX + 1)],
)
def test_bad_names_are_refused(name):
    with pytest.raises(BadName) as caught:
        check_name(name, "an index")
    rule = "1 to 255 characters (ASCII letters, digits, . _ -), and not begin with . or -"
    assert str(caught.value).startswith(f"an index must be {rule}; got ")


def test_a_bad_name_is_shown_but_not_all_of_a_long_one():
    with pytest.raises(BadName, match="got 'a b'"):
        check_name("a b")
    with pytest.raises(BadName) as caught:
        check_name("x y" * 100_000)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("name", [None, b"orders", 3])
def test_a_name_is_a_str(name):
    with pytest.raises(WrongType, match=type(name).__name__):
        check_name(name)


# --- starts and times ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", Start("earliest")),
        ("latest", Start("latest")),
        (0, Start("offset", 0)),
        (17, Start("offset", 17)),
        ("17", Start("offset", 17)),
        (Start("latest"), Start("latest")),
        (datetime(1970, 1, 2, tzinfo=UTC), Start("time", DAY_US)),
        ("1970-01-02T00:00:00Z", Start("time", DAY_US)),
        ("1970-01-02T01:00:00.000005+01:00", Start("time", DAY_US + 5)),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), Start("time", -1)),
    ],
)
def test_starts(start, expected):
    assert Start.of(start) == expected


@pytest.mark.parametrize(
    "start", [-1, "", "first", "-5", "1.5", "EARLIEST", "2024-13-01", "9" * 9 + "x"]
)
def test_what_is_no_start_is_refused_with_its_value(start):
    with pytest.raises(OutOfRange) as caught:
        Start.of(start)
    assert str(start) in str(caught.value)


@pytest.mark.parametrize("start", [None, True, 1.5, b"earliest"])
def test_what_cannot_be_a_start_is_of_the_wrong_type(start):
    with pytest.raises(WrongType):
        Start.of(start)


@pytest.mark.parametrize(
    "start",
    [
        pytest.param("9" * 5_000, id="more digits than Python reads"),
        pytest.param("0001-01-01T00:00:00+05:00", id="a time before all time"),
        pytest.param("9999-12-31T23:59:59-05:00", id="a time after all time"),
        pytest.param(datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5))), id="a first moment"),
    ],
)
def test_an_extreme_start_is_taken_or_refused_in_our_own_words(start):
    with contextlib.suppress(OutOfRange):
        assert Start.of(start).kind == "time"


def test_a_time_without_a_zone_is_local_time():
    naive = datetime(2024, 5, 6, 7, 8, 9, 10)
    assert timestamp_us(naive) == timestamp_us(naive.astimezone())


@given(
    st.datetimes(
        datetime(1800, 1, 1), datetime(2200, 1, 1), timezones=st.just(timezone(timedelta(hours=3)))
    )
)
def test_times_are_exact_to_the_microsecond(moment):
    microseconds = timestamp_us(moment)
    assert datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds) == moment


# --- partitions and lag --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "digest"),
    [  # xxh3-64 with seed 0: the first three are the published test vectors
        (b"", 0x2D06800538D394C2),
        (b"a", 0xE6C632B61E964E1F),
        (b"abc", 0x78AF5F94892F3950),
        (b"key-1", 0x2D29F1336B0229F9),
    ],
)
def test_the_partition_of_a_key_is_the_same_for_every_client_for_ever(key, digest):
    for partitions in (1, 2, 3, 7, 64, 4096):
        assert partition_of(key, partitions) == digest % partitions


@given(st.binary(max_size=300), st.integers(1, 4096))
def test_every_key_has_a_partition(key, partitions):
    assert 0 <= partition_of(key, partitions) < partitions


def test_the_lag_of_an_index_is_that_of_its_partitions():
    parts = (IndexPartition(0, 3, 10, True), IndexPartition(1, 5, 5, False))
    assert [part.lag for part in parts] == [7, 0]
    assert IndexDescription("billing", "own", False, parts).lag == 7
